"""What each model opens with: a prompt that it gets right, and the head that matters most there."""

from dataclasses import dataclass, replace

from apps.defaults import default_metric, default_prompts
from apps.explorer.view import Head, View
from interp.errors import InvalidInput
from interp.loading import AT_STEP
from interp.text.prompts import Prompt, read_prompts

EXAMPLES = "examples"
"""The name of the model's own prompt set, as what sweeps run over."""


@dataclass(frozen=True)
class Opening:
    """What a model opens with.

    Attributes:
        prompt: its number among :func:`examples`.
        head: that whose ablation changes the model's metric most; ``None`` if not measured.
        prompts: what the sweep runs over: ``examples``, or where that takes longer than two
            seconds ``""``, the prompt alone.
        attention: of an encoder–decoder, which attention.
        method: of the ablation.
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
"""By the name of the model."""


def examples(model: str) -> list[Prompt]:
    """The prompts that belong to a model; minimal pairs where there are some."""
    for pairs in (True, False):
        try:
            return read_prompts(default_prompts(model, pairs=pairs))
        except InvalidInput:
            continue
    return []


def default_view(model: str, page: str = "heads") -> View:
    """The view that a model opens with."""
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
    """The view of another prompt: the selection within the prompt is cleared, the heads stay."""
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
