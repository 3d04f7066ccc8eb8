"""The metrics that can be computed for the prompts of a view."""

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
"""The names of metrics in results, by their names on the command line."""


def in_words(metric: str) -> str:
    """The name of a metric, with the direction that is better."""
    name = NAMES.get(metric, metric)
    return f"{name} ({better(name) or '0: unchanged'})"


def offered_metrics(view: View, model: interp.Transformer) -> list[str]:
    """The metrics for the prompts that sweeps run over, by their names on the command line.

    The loss needs a model that predicts next tokens; the masked loss needs prompts whose masked
    tokens are known. Metrics of a target (and distractor) need prompts that each have one that is a
    single token. The divergence from the model's own prediction can always be computed.

    Raises:
        InvalidInput: no prompt of the set passes the view's filter.
    """
    inputs = inputs_of(view, model, swept=True)
    has_target, has_both = _has(inputs, "target"), _has(inputs, "target", "distractor")
    names = [LOSS] if model.config.is_causal and model.config.n_classes is None else []
    # A mask hides the target of a prompt, but not the most probable token.
    hides_target = has_target and bool(view.target or view.prompts)
    names += [MASKED_LOSS] if _knows_masks(view, inputs, has_target=hides_target) else []
    names += [LOGIT_DIFF] if has_both else []
    names += ["prob", "logit"] if has_target else []
    return [*names, KL_NAME]


def _has(inputs: Inputs, *fields: str) -> bool:
    """Whether each prompt has a single token to predict in each of these fields."""
    try:
        return inputs.targets is not None and all(
            inputs.all_have(field) and inputs.tokens(field) for field in fields
        )
    except InterpError:
        return False


def _knows_masks(view: View, inputs: Inputs, *, has_target: bool) -> bool:
    """Whether the token behind each mask is known."""
    try:
        masked = inputs.model.batch(inputs.texts).masked
    except InterpError:
        return False
    if masked is None or not bool(masked.any(-1).all()):
        return False
    if view.hidden and not view.prompts:
        return True
    return has_target and bool((masked.sum(-1) == 1).all())
