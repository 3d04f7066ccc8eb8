"""The page of a story: saved views of the explorer with a sentence each, as one HTML file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, cast

from markupsafe import Markup

from apps.report.page import page

FIGURES = "figures"
"""The name of the mount with the button that saves all figures."""


@dataclass(frozen=True, eq=False)
class StoryFigures:
    """Figures that share a selection.

    Attributes:
        name: ``A`` or ``B`` for states side by side; else empty.
        state: the state of a side.
        payload: the payload of the widget.
    """

    name: str
    state: str
    payload: dict[str, Any]


@dataclass(frozen=True, eq=False)
class StorySection:
    """A saved view.

    Attributes:
        sentence: what is said of it.
        state: model, prompt and what is ablated.
        page: the title of the page of the explorer.
        lines: the predictions, as HTML.
        link: its address.
        where: on which machine the link works.
        notes: what is missing from the figures.
        figures: its figures, one or two sides.
    """

    sentence: str
    state: str
    page: str
    lines: Sequence[Markup]
    link: str
    where: str
    notes: Sequence[str]
    figures: Sequence[StoryFigures]


def story_page(title: str, sections: Sequence[StorySection]) -> str:
    """A story as one HTML page without remote assets."""
    mounts: dict[str, dict[str, Any]] = {FIGURES: {"views": [], FIGURES: "figures"}}
    named: list[tuple[StorySection, list[tuple[str, StoryFigures]]]] = []
    for n, section in enumerate(sections, 1):
        sides = [(f"view-{n}{side.name}", side) for side in section.figures]
        mounts |= {name: _finite(side.payload) for name, side in sides}
        named.append((section, sides))
    return page("story.html", mounts, story=title, sections=named, prompts=(), facts={})


def _finite(value: Any) -> Any:  # noqa: ANN401 - plain data
    """Plain data with ``None`` for NaN and infinities, which JSON does not have."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        entries = cast(Mapping[str, Any], value)
        return {name: _finite(each) for name, each in entries.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in cast(Sequence[Any], value)]
    return value
