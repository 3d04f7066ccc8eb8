"""The views of a result's figures, which the widget shows."""

from analyses.results import Result
from apps.presentation import figures
from apps.widget.pictures import View, views_of_figure


def figure_views(result: Result, name: str = "figure") -> list[View]:
    """The views of the figures in the report of a result; their ids begin with ``name``."""
    drawn = [views_of_figure(figure, name) for figure in figures(result)]
    views = [view for own in drawn for view in own]
    return [view | {"id": f"{name}-{n}"} for n, view in enumerate(views)]
