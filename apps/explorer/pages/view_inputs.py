"""The inputs of questions on all pages: the prompts of a view, and its metric."""

import interp
from analyses import Predictions, predictions
from apps.commands.inputs import Inputs
from apps.defaults import MASKED_LOSS
from apps.explorer.default_views import examples
from apps.explorer.page import JOBS
from apps.explorer.questions import Question, question
from apps.explorer.view import View
from interp.errors import InvalidInput
from interp.metrics import Metric, masked_loss
from interp.text.prompts import Prompt


def prompt_of(view: View) -> Prompt:
    """The prompt of a view."""
    fields = {name: getattr(view, name) or None for name in ("target", "distractor", "corrupt")}
    return Prompt(view.text, source="the prompt", prefix=view.prefix or None, **fields)


def inputs_of(view: View, model: interp.Transformer, *, swept: bool = False) -> Inputs:
    """The view's prompt, or the prompts that its sweeps run over.

    Raises:
        InvalidInput: no prompt of the set passes the view's filter.
    """
    if not (swept and view.prompts):
        return Inputs(model, (prompt_of(view),))
    prompts = examples(view.model)
    if view.answered:
        right = right_of_set(view, model)
        wanted = view.answered == "right"
        prompts = [own for own, is_right in zip(prompts, right, strict=True) if is_right == wanted]
    if not prompts:
        raise InvalidInput(
            f"No prompt of the set is answered {view.answered}: choose 'all' in the sidebar."
        )
    return Inputs(model, tuple(prompts))


def set_question(view: View, model: interp.Transformer) -> Question:
    """The predictions for all prompts of the model's set, without edits."""
    inputs = Inputs(model, tuple(examples(view.model)))
    targets = inputs.targets
    return question(
        predictions,
        view.model,
        inputs.batch,
        targets=targets,
        distractors=inputs.tokens("distractor")
        if targets is not None and inputs.all_have("distractor")
        else None,
    )


def right_of_set(view: View, model: interp.Transformer) -> list[bool]:
    """Whether the target of each prompt of the model's set is the most probable token.

    Raises:
        InvalidInput: a prompt has no target, or one that is not a single token.
    """
    found = JOBS.run(set_question(view, model))
    return found.right[0].tolist() if isinstance(found, Predictions) else []


def metric_of(view: View, inputs: Inputs) -> str | Metric:
    """The view's metric for these prompts.

    Raises:
        InvalidInput: a prompt lacks a target or a distractor, or it is not a single token.
    """
    if view.metric == MASKED_LOSS and view.hidden and not view.prompts:
        return masked_loss(inputs.model.to_tokens(view.hidden))
    return inputs.metric(view.metric)
