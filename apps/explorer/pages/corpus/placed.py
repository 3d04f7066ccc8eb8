"""Heads in a plane and in a ranking, and which of them is chosen."""

from collections.abc import Sequence
from dataclasses import replace

import interp
from analyses import HeadScan
from analyses.methods.heads import attentions_of
from analyses.results import counted, encoded, interval_text, number, places_of
from apps.explorer.canvas import ViewData
from apps.explorer.pages.corpus.measures import COLUMNS, Measure, measure, measures_of
from apps.explorer.store import stored
from apps.explorer.validate import attention_of
from apps.explorer.view import Head, View

SCATTER, RANKING = "scatter", "ranking"
"""Ids of views."""
OF_ONE = "0 to 1"
"""The unit of masses, which stands beside no number."""
MOST_RANKED = 500
"""The most heads of the ranking; the list of heads has all."""


def defaults(names: Sequence[str]) -> tuple[str, str]:
    """What heads are ranked by, and placed against, unless the visitor chooses."""
    return names[0], names[min(1, len(names) - 1)]


def selected_measures(view: View, scan: HeadScan) -> tuple[Measure, Measure]:
    """The measure that ranks heads, and the one against which they are placed."""
    names = measures_of(scan)
    wanted = zip((view.down, view.across), defaults(names), strict=True)
    down, across = (name if name in names else first for name, first in wanted)
    return measure(scan, down), measure(scan, across)


def selected_name(view: View, model: interp.Transformer, scan: HeadScan) -> str:
    """The name of the chosen head; if none is chosen, of the one that ranks first."""
    if view.head is not None:
        name = attentions_of(model, attention_of(view, model)).head_name(*view.head)
        if name in scan.names:
            return name
    down, _ = selected_measures(view, scan)
    return str(down.rows["name"].iloc[0]) if len(down.rows) else scan.names[0]


def with_unit(view: View, name: str) -> View:
    """The view with a head chosen by its name, such as ``cross.L0H1``, if it is one."""
    before, _, last = name.rpartition(".")
    head = Head.of(last)
    return view if head is None else replace(view, head=head, attention=before or view.attention)


def scatter_view(view: View, model: interp.Transformer, scan: HeadScan) -> ViewData:
    """A point for each head that has both measures."""
    down, across = selected_measures(view, scan)
    points, chosen = _points(scan, down.name, across.name), selected_name(view, model, scan)
    labels = points["labels"]
    n_lacking = len(scan.names) - len(labels)
    drawn: ViewData = {
        "kind": "scatter",
        "id": SCATTER,
        "title": f"{view.model}: {down.name} against {across.name}, on "
        f"{counted(scan.n_texts, 'text')}",
        "note": "Click a head to choose it. Colour shows the layer."
        + (f" {counted(n_lacking, 'head')} without these numbers." if n_lacking else ""),
        **points,
        "axes": [across.name, down.name],
        "units": [across.unit, down.unit],
        "pick": "point",
        "half": True,
    }
    return drawn | ({"at": [0, labels.index(chosen)]} if chosen in labels else {})


@stored
def _points(scan: HeadScan, down: str, across: str) -> ViewData:
    """The heads that have both measures, in their order, with their layers as groups."""
    columns = {name: measure(scan, each).rows for name, each in (("x", across), ("y", down))}
    values = {
        name: dict(zip(rows["name"], rows["value"], strict=True)) for name, rows in columns.items()
    }
    labels = [name for name in scan.names if all(name in each for each in values.values())]
    groups = [_group(name) for name in labels]
    places = {group: n for n, group in enumerate(dict.fromkeys(groups))}
    return {
        **{name: encoded([each[label] for label in labels]) for name, each in values.items()},
        "labels": labels,
        "groups": [*places] or [""],
        "group": [places[group] for group in groups],
    }


def ranking_view(view: View, model: interp.Transformer, scan: HeadScan) -> ViewData:
    """The heads by the chosen measure, each beside its control and interval."""
    down, _ = selected_measures(view, scan)
    chosen = selected_name(view, model, scan)
    rows = down.rows.head(MOST_RANKED)
    places = places_of(rows["value"])
    columns = zip(*(rows[name].tolist() for name in COLUMNS if name != "layer"), strict=True)
    cells = [
        [name, rank, number(value, 3), *_beside(control, low, high, places)]
        for rank, (name, value, control, low, high) in enumerate(columns, 1)
    ]
    value = "value" if down.unit == OF_ONE else f"value ({down.unit})"
    titles = ("head", "rank", value, "control", "95 % interval")
    rank = down.rank(chosen)
    n_hidden = len(down.rows) - len(rows)
    drawn: ViewData = {
        "kind": "table",
        "id": RANKING,
        "title": f"{view.model}: heads by {down.name}",
        "note": (f"{chosen} is {rank}. " if rank else f"{chosen} has no value. ")
        + "Click a row to choose its head."
        + (f" {n_hidden} more heads are in the list Head." if n_hidden else ""),
        "columns": [
            {"title": name, "align": "left" if name == "head" else "right"} for name in titles
        ],
        "rows": cells,
        "pick": "row",
        "half": True,
    }
    at = rows.index[rows["name"] == chosen].tolist()
    return drawn | ({"at": [at[0], 0]} if at else {})


def _group(name: str) -> str:
    """The layer of a head, with the attention of an encoder–decoder."""
    return name.rpartition("H")[0]


def _beside(control: float, low: float, high: float, places: int) -> list[str]:
    interval = interval_text(low, high, places)
    is_known = control == control  # noqa: PLR0124 - not NaN
    is_signed = low < 0 or high < 0
    return [
        number(control, 3) if is_known else "",
        interval if is_signed else interval.replace("+", ""),
    ]
