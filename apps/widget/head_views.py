"""Views of a scan of all heads: a scatter plot, and what is on the page of one head."""

from collections.abc import Sequence
from math import isnan

from analyses.methods.heads import WEIGHTINGS
from analyses.results import as_bytes, counted, encoded, number
from analyses.scan_heads import (
    HeadScan,
    axes_of,
    deciles_of,
    distances_of,
    furthest,
    rank_of,
    text_cells,
)
from apps.widget.pictures import View, view_of

EFFECT, ENTROPY = "effect", "entropy"
CANCELLED = "The scan was cancelled before texts were drawn."
CELLS = "Stored are the 8 largest weights of each query, if they exceed 0.005"


def scatter_view(
    scan: HeadScan,
    x: str = "distance",
    y: str | None = None,
    *,
    weighting: str = WEIGHTINGS[0],
    id: str = "scatter",
) -> View:
    """One point a head.

    Args:
        scan: the scan.
        x: the axis across, one of those of :func:`analyses.scan_heads.axes_of`.
        y: the axis down; by default the effect of ablation if it was measured, else the entropy.
        weighting: with which weights.
        id: the id of the view.

    Raises:
        InvalidInput: an axis or the weighting is not one of the scan.
    """
    return view_of(scan.scatter_drawing(x, y, weighting), id)


def scatter_axes(scan: HeadScan, weighting: str = WEIGHTINGS[0]) -> list[str]:
    """The names of the axes that a scatter plot of a scan can have."""
    return [*axes_of(scan, weighting)]


def scan_view(scan: HeadScan, id: str = "scan") -> View:
    """All heads in a plane, whose axes are chosen on the page, and a list of them by rank."""
    names = [*axes_of(scan)]
    is_measured = EFFECT in names
    groups = [name.rpartition("H")[0] for name in scan.names]
    values = [[scan.of(name, weighting).tolist() for name in names] for weighting in WEIGHTINGS]
    return {
        "kind": "scan",
        "id": id,
        "title": f"Heads on {counted(scan.n_texts, 'text')}",
        "names": [*scan.names],
        "groups": [*dict.fromkeys(groups)],
        "group": [[*dict.fromkeys(groups)].index(group) for group in groups],
        "weightings": [*WEIGHTINGS],
        "axes": [{"name": name, "unit": scan.unit_of(name)} for name in names],
        "values": encoded(values),
        "x": names[0] if "distance" not in names else "distance",
        "y": EFFECT if is_measured else ENTROPY,
        "by": EFFECT if is_measured else _widest(scan),
        "pick": "point",
        "note": "Means over texts. − control: less that of equal weights on all visible keys, or "
        "of the text in random order. Value-weighted: with the weights times the length of what "
        "each key writes." + (" Effect: mean |effect| of ablation." if is_measured else ""),
    }


def distance_view(scan: HeadScan, unit: int, id: str = "distances") -> View:
    """The histogram of the distances from queries to keys, beside that of uniform attention."""
    histogram, title = distances_of(scan, unit), f"Distance from query to key of {scan.names[unit]}"
    if not len(histogram.offset):
        reason = "Positions of two stacks have no distance."
        return {"kind": "none", "id": id, "title": title, "reason": reason}
    x = encoded(histogram.offset)
    curves = [("the head", histogram.share), ("equal weights", histogram.control)]
    ends = [0.0, float(max(values.max() for _, values in curves))]
    panel = {
        "title": "share of the attention",
        "unit": "per token",
        "curves": [{"name": name, "x": x, "y": encoded(y), "faint": False} for name, y in curves],
        "ends": ends,
    }
    return {
        "kind": "curves",
        "id": id,
        "title": title,
        "axis": "distance (tokens)",
        "log": False,
        "panels": [panel],
        "marked": [],
        "pick": None,
        "note": "Equal weights: the same on all keys that a query sees. Tokens of a distance from "
        "64 on are counted in steps of 9 %.",
    }


def token_view(scan: HeadScan, unit: int, id: str = "tokens") -> View:
    """The query tokens, key tokens and pairs with most of a head's mass, as a table."""
    tops = {"query": scan.top_queries, "key": scan.top_keys, "pair": scan.top_pairs}
    rows: list[list[object]] = []
    for kind, top in tops.items():
        columns = top.ids[unit].tolist(), top.share[unit].tolist(), top.frequency[unit].tolist()
        for ids, share, frequency in zip(*columns, strict=True):
            if ids[0] >= 0:
                labels = [scan.token_labels[id_] for id_ in ids]
                query = labels[0] if kind != "key" else None
                key = labels[-1] if kind != "query" else None
                numbers = share, float(top.error[unit]), frequency
                rows.append([kind, query, key, *map(_number, numbers)])
    titles = ("kind", "query", "key", "share", "error at most", "frequency")
    return {
        "kind": "table",
        "id": id,
        "title": f"Tokens on which most of the attention of {scan.names[unit]} lies",
        "columns": [
            {"title": title, "align": "left" if n < 3 else "right"}  # noqa: PLR2004
            for n, title in enumerate(titles)
        ],
        "rows": rows,
        "note": "Share of the mass off the first token; of pairs, of that of each query's "
        "strongest key. A share may be too small by the error. Frequency: share of all tokens; of "
        "pairs, the product.",
    }


def statistics_view(scan: HeadScan, unit: int, id: str = "statistics") -> View:
    """The statistics of a head, plain and value-weighted, with controls, intervals and ranks."""
    rows: list[list[object]] = []
    for n, name in enumerate(scan.statistics):
        row: list[object] = [f"{name} ({scan.unit_of(name)})"]
        for at, weighting in enumerate(WEIGHTINGS):
            mean, control, low, high = (
                _number(x[at, unit, n]) for x in (scan.mean, scan.control, scan.low, scan.high)
            )
            interval = (
                "" if low is None or high is None else f"{number(low, 3)} to {number(high, 3)}"
            )
            rank = rank_of(scan.of(name, weighting), unit)
            row += [mean, interval, control, "" if rank is None else f"{rank[0]} of {rank[1]}"]
        if row[1] is not None:
            rows.append([*row, int(scan.n[0, unit, n])])
    of_weighting = ("mean", "interval", "control", "rank")
    titles = [f"{title}{', by value' if by else ''}" for by in (0, 1) for title in of_weighting]
    columns = [{"title": title, "align": "right"} for title in (*titles, "texts")]
    return {
        "kind": "table",
        "id": id,
        "title": f"Statistics of {scan.names[unit]}",
        "columns": [{"title": "statistic"}, *columns],
        "rows": rows,
        "note": "Means over texts, with their 95 % intervals. By value: with the weights times "
        "the length of what each key writes. Control: equal weights; of induction and duplicate "
        "tokens, the text in random order; of write, the layer. Rank: by the mean, largest first.",
    }


def effects_view(scan: HeadScan, unit: int, id: str = "effects") -> View | None:
    """The effects of a head's ablation by class of the target; ``None`` if not measured."""
    if scan.class_effects is None:
        return None
    frame = scan.to_effect_frame([unit])
    names = ["target_class", "effect", "low", "high", "size", "n"]
    rows = [
        [name, *map(_number, numbers)]
        for name, *numbers in frame[names].itertuples(index=False, name=None)
    ]
    titles = (*("effect (nats)", "low", "high", "mean |effect| (nats)"), "targets")
    return {
        "kind": "table",
        "id": id,
        "title": f"Effect of the mean ablation of {scan.names[unit]} on the surprisal of targets",
        "columns": [
            {"title": "target"},
            *({"title": title, "align": "right"} for title in titles),
        ],
        "rows": rows,
        "note": "Above zero: the prediction is worse without the head.",
    }


def texts_view(
    scan: HeadScan,
    unit: int,
    statistic: str | None = None,
    *,
    id: str = "texts",
    most: int | None = None,
) -> View:
    """The texts of a head by decile of a statistic, with the cells where it attends.

    Args:
        scan: the scan.
        unit: index of the head.
        statistic: the statistic; all of them if not given, of which one is chosen on the page.
        id: the id of the view.
        most: the most bytes that all cells may take, with weights in bytes (to 1/510); of more,
            texts are left out: the first of each decile stay longest.

    Raises:
        InvalidInput: the statistic was not measured.
    """
    names = scan.statistics if statistic is None else (statistic,)
    deciles = {name: deciles_of(scan, unit, name) for name in names}
    title = f"Texts of {scan.names[unit]}, by decile"
    if scan.sequences is None:
        return {"kind": "none", "id": id, "title": title, "reason": CANCELLED}
    texts = _within([*deciles.values()], scan, unit, most)
    listed = {
        name: [[decile, texts[text], value] for decile, text, value in rows if text in texts]
        for name, rows in deciles.items()
    }
    end = scan.sequences.end
    first = f", in the first {end} tokens of a text" if end else ""
    absent = sum(map(len, deciles.values())) - sum(map(len, listed.values()))
    left_out = f" {absent} entries of deciles are left out for the size of the page."
    return {
        "kind": "texts",
        "id": id,
        "title": title,
        "statistics": [
            {"name": name, "unit": scan.unit_of(name), "rows": rows}
            for name, rows in listed.items()
            if rows
        ],
        "chosen": furthest(scan, unit),
        "texts": [_text(scan, unit, text, small=most is not None) for text in texts],
        "note": f"{CELLS}{first}.{left_out if absent else ''}",
    }


def _within(
    deciles: Sequence[list[tuple[int, int, float]]], scan: HeadScan, unit: int, most: int | None
) -> dict[int, int]:
    """The texts that a view has, by their index in the sample: their index in the view."""
    ordered: list[tuple[int, int]] = []
    for rows in deciles:
        places: dict[int, int] = {}
        for decile, text, _ in rows:
            place = places[decile] = places.get(decile, -1) + 1
            ordered.append((place, text))
    texts: dict[int, int] = {}
    size = 0
    for _, text in sorted(ordered, key=lambda entry: entry[0]):
        if text not in texts:
            cells = text_cells(scan, unit, text)
            size += cells.count.nbytes + cells.key.nbytes + len(cells.weight)
            if most is not None and size > most and texts:
                break
            texts[text] = len(texts)
    return texts


def _text(scan: HeadScan, unit: int, text: int, *, small: bool) -> View:
    """A text of the view, with its cells."""
    cells = text_cells(scan, unit, text)
    length, whole = len(cells.queries), cells.n_tokens
    cut = f", the first {length} of {whole} tokens" if length < whole else ""
    keys = {"keys": [*cells.keys]} if cells.keys != cells.queries else {}
    return {
        "number": text,
        "source": f"{cells.source}{cut}",
        "tokens": [*cells.queries],
        **keys,
        "count": encoded(cells.count),
        "key": encoded(cells.key),
        "weight": encoded(as_bytes(cells.weight) if small else cells.weight),
    }


def _widest(scan: HeadScan) -> str:
    """The mass that some head has furthest above its control, less the control."""
    largest = scan.to_largest_frame()
    return f"{largest['statistic'].iloc[0]} − control" if len(largest) else ENTROPY


def _number(value: object) -> float | None:
    """A number of a table; ``None`` for NaN."""
    converted = float(value)  # pyright: ignore[reportArgumentType]
    return None if isnan(converted) else converted
