"""The initial view of each model: a prompt that it gets right, and the head that matters most."""

from dataclasses import dataclass, replace

from apps.defaults import default_metric, default_prompts
from apps.explorer.view import Head, View
from interp.errors import InvalidInput
from interp.loading import AT_STEP
from interp.text.prompts import Prompt, read_prompts

EXAMPLES = "examples"
"""The name of the model's own prompt set, in the field ``prompts`` of a view."""


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
            return read_prompts(default_prompts(model, pairs=pairs))
        except InvalidInput:
            continue
    return []


def default_view(model: str, page: str = "heads") -> View:
    """The initial view of a model."""
    opening, prompts = OPENING.get(_name(model), Opening()), examples(model)
    view = View(
        page=page,
        model=model,
        metric=default_metric(model),
        head=opening.head,
        prompts=opening.prompts,
        attention=opening.attention,
        method=opening.method,
    )
    return with_prompt(view, prompts[opening.prompt]) if prompts else view


def with_prompt(view: View, prompt: Prompt) -> View:
    """The view with another prompt; clears the selection within the prompt but keeps the heads."""
    return replace(
        view,
        text=prompt.text,
        target=prompt.target or "",
        distractor=prompt.distractor or "",
        corrupt=prompt.corrupt or "",
        prefix=prompt.prefix or "",
        hidden="",
        position=None,
        query=None,
        key=None,
    )


def _name(model: str) -> str:
    found = AT_STEP.fullmatch(model)
    return found["model"] if found else model
