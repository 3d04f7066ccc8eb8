"""The initial view of each model: a prompt that it gets right, and the head that matters most.

A model without prompts of its own opens on a sentence.
"""

from dataclasses import dataclass, replace

import interp
from analyses.methods.components import aligned_prompts
from apps.defaults import default_metric, default_prompts
from apps.explorer.offered import model_of, source_of
from apps.explorer.view import Head, View
from interp.errors import InterpError, InvalidInput
from interp.loading import AT_STEP
from interp.text import Prompt, read_prompts

EXAMPLES = "examples"
"""The name of the model's own prompt set, in the field ``prompts`` of a view."""

SENTENCE = "When Mary and John went to the store, John gave a drink to"
"""The prompt of a model that has none of its own."""
CORRUPT = "When Mary and John went to the store, Mary gave a drink to"
"""Its counterpart, which makes it a minimal pair."""


@dataclass(frozen=True)
class Opening:
    """The initial view of a model.

    Attributes:
        prompt: the index of the prompt in :func:`examples`.
        head: the head whose ablation changes the model's metric most; ``None`` if not measured.
        prompts: what sweeps run over: ``examples``, or ``""`` for the prompt alone if the examples
            would take longer than two seconds.
        attention: which attention is shown, in an encoder–decoder.
        method: the method of ablation.
    """

    prompt: int = 0
    head: Head | None = None
    prompts: str = ""
    attention: str = ""
    method: str = View.method


OPENING = {
    "addition-mod-113": Opening(0, Head(0, 0), EXAMPLES),
    "dates": Opening(11, Head(0, 2), EXAMPLES, attention="cross", method="zero"),
    "induction-by-hand": Opening(1, Head(0, 0), EXAMPLES),
    "python-2l": Opening(1, Head(0, 5), EXAMPLES),
    "python-4l": Opening(4, Head(0, 7)),
    "python-mlm": Opening(11, Head(3, 2), EXAMPLES),
    "rasp-duplicates": Opening(2, Head(0, 0), EXAMPLES),
    "rasp-fraction": Opening(3, Head(1, 0), EXAMPLES),
    "rasp-histogram": Opening(3, Head(0, 0), EXAMPLES),
    "rasp-reverse": Opening(1, Head(0, 0), EXAMPLES),
}
"""The initial views by the name of the model."""


def examples(model: str) -> list[Prompt]:
    """The prompts that belong to a model; minimal pairs if it has any."""
    for pairs in (True, False):
        try:
            return read_prompts(default_prompts(source_of(model), pairs=pairs))
        except InvalidInput:
            continue
    return []


def default_view(model: str, page: str = "heads") -> View:
    """The initial view of a model."""
    opening, prompts = OPENING.get(_name(model), Opening()), examples(model)
    view = View(
        page=page,
        model=model,
        metric=default_metric(source_of(model)),
        head=opening.head,
        prompts=opening.prompts,
        attention=opening.attention,
        method=opening.method,
    )
    if prompts:
        return with_prompt(view, prompts[opening.prompt])
    try:
        return with_prompt(view, opening_prompt(model_of(model)))
    except InterpError:  # the page shows why the model can't be loaded
        return view


def opening_prompt(model: interp.Transformer) -> Prompt:
    """A sentence for a model without prompts; the empty prompt if the model can't read it.

    An encoder fills a mask at its end, the decoder of an encoder–decoder has written it up to the
    end, and a decoder also gets a corrupted counterpart, if that has as many tokens.
    """
    mask = model.config.tokens.mask
    sentence, pair = Prompt(SENTENCE, prefix=SENTENCE), Prompt(SENTENCE, corrupt=CORRUPT)
    try:
        if model.config.encoder is None:
            model.to_tokens(SENTENCE)
            return pair if _is_aligned(model, pair) else Prompt(SENTENCE)
        if mask is not None and len(model.stacks) == 1:
            sentence = Prompt(f"{SENTENCE} {model.to_string([mask])}.")
        for stack in model.stacks:
            model.to_tokens(sentence.text, stack=stack.name)
    except InterpError:
        return Prompt("")
    return sentence if len(model.stacks) > 1 else Prompt(sentence.text)


def _is_aligned(model: interp.Transformer, pair: Prompt) -> bool:
    try:
        aligned_prompts(model, [pair])
    except InterpError:
        return False
    return True


def with_prompt(view: View, prompt: Prompt) -> View:
    """The view with another prompt; clears the selection within the prompt but keeps the heads."""
    return replace(
        view,
        text=prompt.text,
        target=prompt.target or "",
        distractor=prompt.distractor or "",
        corrupt=prompt.corrupt or "",
        prefix=prompt.prefix or "",
        chat=False,
        hidden="",
        position=None,
        query=None,
        key=None,
    )


def _name(model: str) -> str:
    match = AT_STEP.fullmatch(model)
    return match["model"] if match else model
