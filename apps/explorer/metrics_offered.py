"""The metrics that make sense for the prompts of a view."""

import interp
from apps.commands.inputs import Inputs
from apps.defaults import LOGIT_DIFF, LOSS, MASKED_LOSS
from apps.explorer.pages.view_inputs import inputs_of
from apps.explorer.view import View
from apps.wording import better
from interp.errors import InterpError
from interp.metrics import KL

KL_NAME = "kl"
NAMES = {
    LOSS: LOSS,
    MASKED_LOSS: "masked loss",
    LOGIT_DIFF: "logit difference",
    "prob": "probability",
    "logit": "logit",
    KL_NAME: KL.name,
}
"""The metrics by the names that the command line gives them, and as results name them."""


def in_words(metric: str) -> str:
    """A metric with its good direction."""
    name = NAMES.get(metric, metric)
    return f"{name} ({better(name) or '0: unchanged'})"


def offered_metrics(view: View, model: interp.Transformer) -> list[str]:
    """The metrics of the prompts that sweeps run over, by their names on the command line.

    The loss is of next tokens, and so of models that predict these; that of masked tokens where it
    is known what they hide. Those of a target (and a distractor) are offered where each prompt has
    one of a single token. The divergence from the model's own prediction always makes sense.

    Raises:
        InvalidInput: no prompt of the set passes the view's filter.
    """
    inputs = inputs_of(view, model, swept=True)
    has_target, has_both = _has(inputs, "target"), _has(inputs, "target", "distractor")
    found = [LOSS] if model.config.is_causal and model.config.n_classes is None else []
    found += [MASKED_LOSS] if _knows_masks(view, inputs, has_target=has_target) else []
    found += [LOGIT_DIFF] if has_both else []
    found += ["prob", "logit"] if has_target else []
    return [*found, KL_NAME]


def _has(inputs: Inputs, *fields: str) -> bool:
    """Whether each prompt has a single token in each of these fields, to be predicted."""
    try:
        return inputs.targets is not None and all(
            inputs.all_have(own) and inputs.tokens(own) for own in fields
        )
    except InterpError:
        return False


def _knows_masks(view: View, inputs: Inputs, *, has_target: bool) -> bool:
    """Whether it is known what each mask token hides."""
    try:
        masked = inputs.model.batch(inputs.texts).masked
    except InterpError:
        return False
    if masked is None or not bool(masked.any(-1).all()):
        return False
    if view.hidden and not view.prompts:
        return True
    return has_target and bool((masked.sum(-1) == 1).all())
