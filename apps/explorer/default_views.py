"""What each model opens with: a prompt that it gets right, and the head that matters most there."""

from dataclasses import replace

from apps.defaults import default_metric, default_prompts
from apps.explorer.view import Head, View
from interp.errors import InvalidInput
from interp.loading import AT_STEP
from interp.text.prompts import Prompt, read_prompts

OPENING: dict[str, tuple[int, str]] = {}
"""Number of the prompt in the model's own set, and the head."""


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
    number, head = OPENING.get(_name(model), (0, "L0H0"))
    prompts = examples(model)
    view = View(page=page, model=model, metric=default_metric(model))
    if prompts:
        view = with_prompt(view, prompts[number])
    layer, index = head[1:].split("H")
    return replace(view, head=Head(int(layer), int(index)))


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
