"""The views of a result's figures, which the widget shows."""

from analyses.results import Result
from apps.widget.pictures import View, view_of


def figure_views(result: Result, name: str = "figure") -> list[View]:
    """The views of the drawings of a result; their ids begin with ``name``."""
    return [view_of(drawing, f"{name}-{n}") for n, drawing in enumerate(result.drawings().values())]
