"""The inputs of questions on all pages: the prompts of a view, and its metric."""

from dataclasses import replace

import interp
from analyses import Predictions, predictions
from apps.commands.inputs import Inputs
from apps.defaults import MASKED_LOSS
from apps.explorer.default_views import examples
from apps.explorer.forward_cost import is_long_forward
from apps.explorer.page import JOBS
from apps.explorer.questions import Question, question
from apps.explorer.validate import text_read
from apps.explorer.view import View
from interp.errors import InterpError, InvalidInput
from interp.metrics import Metric, masked_loss
from interp.model import ImageInput
from interp.prompts import Prompt

TOP = 10
"""Number of most probable tokens that are computed."""
NO_PROMPT = "There is no prompt yet: enter one in the sidebar, and press Run."


def prompt_of(view: View, model: interp.Transformer) -> Prompt:
    """The prompt of a view, as the model reads it.

    Raises:
        InvalidInput: the model's chat template can't be used.
    """
    return Prompt(
        text_read(view, model, view.text),
        target=view.target or None,
        distractor=view.distractor or None,
        source="the prompt",
        corrupt=text_read(view, model, view.corrupt) or None,
        prefix=view.prefix or None,
    )


def inputs_of(view: View, model: interp.Transformer, *, swept: bool = False) -> Inputs:
    """The view's prompt, or the prompts that its sweeps run over.

    A prompt without a target has the most probable token as its target.

    Raises:
        InvalidInput: there is no prompt, or no prompt of the set passes the view's filter.
    """
    if not (swept and view.prompts):
        if not view.text:
            raise InvalidInput(NO_PROMPT)
        prompt = prompt_of(view, model)
        target = prompt.target or probable_target(view, model)
        return Inputs(model, (replace(prompt, target=target),))
    prompts = examples(view.model)
    if view.answered:
        right = right_of_set(view, model)
        wanted = view.answered == "right"
        prompts = [
            prompt for prompt, is_right in zip(prompts, right, strict=True) if is_right == wanted
        ]
    if not prompts:
        raise InvalidInput(
            f"No prompt of the set is answered {view.answered}: choose 'all' in the sidebar."
        )
    return Inputs(model, tuple(prompts))


def prompt_problem(view: View, model: interp.Transformer) -> str:
    """Why the model can't run on the view's prompt, and what to do; empty if it can."""
    if isinstance(model.stacks[0].input, ImageInput):
        return (
            f"{view.model} reads images, which the explorer can't show; the page Weights shows its "
            "weights. In Python, analyses take images in place of texts."
        )
    if model.tokenizer is None:
        return (
            f"{view.model} has no tokenizer, so it can't read a prompt; the page Weights shows its "
            "weights. In Python, analyses take token ids."
        )
    if not view.text:
        return NO_PROMPT
    if len(model.stacks) > 1 and not (view.prefix or view.target):
        return "Enter what the decoder has written so far (Decoder's prefix), and press Run."
    try:
        model.batches(Inputs(model, (prompt_of(view, model),)).batch)
    except InterpError as error:
        return str(error)
    return ""


def target_question(view: View, model: interp.Transformer) -> Question:
    """The most probable tokens at the view's position.

    Raises:
        InvalidInput: the prompt of an encoder–decoder has no input for the decoder, or the model's
            chat template can't be used.
    """
    batch = Inputs(model, (prompt_of(view, model),)).batch
    settings = {"pos": view.position, "top": TOP, "hidden": view.hidden or None}
    return question(predictions, view.model, batch, **settings)


def is_target_unknown(view: View, model: interp.Transformer) -> bool:
    """Whether the target is the most probable token, of a long forward that has not run yet."""
    if view.target or view.prompts or not is_long_forward(view, model):
        return False
    try:
        return not JOBS.is_settled(target_question(view, model))
    except InterpError:
        return False


def probable_target(view: View, model: interp.Transformer) -> str | None:
    """The most probable token at the view's position, as a text.

    Returns:
        ``None`` if no text is this token alone, or the model can't predict tokens from the view's
        prompt.
    """
    try:
        prediction = JOBS.run(target_question(view, model))
    except InterpError:
        return None
    if not isinstance(prediction, Predictions):
        return None
    return text_of_token(model, int(prediction.top[0, 0, 0]))


def text_of_token(model: interp.Transformer, token: int) -> str | None:
    """The text of a token; ``None`` if no text is this token alone."""
    text = str(model.to_string([token]))
    # A SentencePiece tokenizer decodes a first token without the space before its word.
    return next(
        (candidate for candidate in (text, f" {text}") if single_token(model, candidate) == token),
        None,
    )


def single_token(model: interp.Transformer, text: str) -> int | None:
    """The id of a text that is exactly one token of the model; else ``None``."""
    try:
        return int(model.to_single_token(text))
    except InterpError:
        return None


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
    prediction = JOBS.run(set_question(view, model))
    return prediction.correct[0].tolist() if isinstance(prediction, Predictions) else []


def metric_of(view: View, inputs: Inputs) -> str | Metric:
    """The view's metric for these prompts.

    Raises:
        InvalidInput: a prompt lacks a target or a distractor, or it is not a single token.
    """
    if view.metric == MASKED_LOSS and view.hidden and not view.prompts:
        return masked_loss(inputs.model.to_tokens(view.hidden))
    return inputs.metric(view.metric)
