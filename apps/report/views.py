"""What the widget shows of a result: the views of its figures."""

from analyses.result import Result
from apps.presentation import figures
from apps.widget.pictures import View, views_of_figure


def figure_views(result: Result, name: str = "figure") -> list[View]:
    """The views of what a report draws of a result; their ids begin with a name."""
    drawn = [views_of_figure(figure, name) for figure in figures(result)]
    views = [view for own in drawn for view in own]
    return [view | {"id": f"{name}-{n}"} for n, view in enumerate(views)]
