"""Tables and conclusions of results, for the terminal and the report.

The functions work for any result; some kinds of results register versions of their own.
"""

from functools import singledispatch

import pandas as pd

from analyses import (
    Ablation,
    AttentionStatistics,
    Continuations,
    DirectLogitAttribution,
    Explanation,
    HeadCensus,
    HeadEffects,
    HeadRoles,
    HeadScan,
    LogitLens,
    OrderSensitivity,
    OVCircuit,
    PermutationCovariance,
    QKCircuit,
)
from analyses.head_roles import BACKGROUND
from analyses.results import NONE, Result, fixed
from apps import wording
from apps.frame_table import Table, table_of_frame
from interp.execution import Provenance


@singledispatch
def table(result: Result, top: int | None = None) -> Table:
    """A table of the first ``top`` rows of the result's frame, or of all rows."""
    return table_of_frame(result.to_frame(), top)


@singledispatch
def conclusion(result: Result) -> str:
    """The conclusion of the result, as sentences, with its notes."""
    return " ".join([*map(_sentence, result.conclusion()), *result.notes])


def provenance_of(result: Result) -> Provenance:
    """The provenance of a result: what its numbers depend on."""
    provenance = getattr(result, "provenance", None)
    if not isinstance(provenance, Provenance):
        raise TypeError(f"A {type(result).__name__} has no provenance.")
    return provenance


def _sentence(line: str) -> str:
    """A line as a sentence with a capital letter and a full stop; names stay as they are."""
    first = line[0].upper() if line.split(maxsplit=1)[0].isalpha() else line[0]
    return f"{first}{line[1:].rstrip('.')}."


# ---- results with versions of their own --------------------------------------------------------


@table.register
def _(result: LogitLens, top: int | None = None) -> Table:
    """Means over all tokens at each place; for the target, over the last tokens."""
    frame = result.to_frame()
    means = {"entropy": "mean", "kl": "mean"}
    of_places = frame.groupby(["layer", "point"], sort=False).agg(means)
    if result.rank is not None:
        last = frame["pos"] == frame.groupby("prompt")["pos"].transform("max")
        means = {"rank": "mean", "target_probability": "mean"}
        of_places = of_places.join(frame[last].groupby(["layer", "point"]).agg(means))
    return table_of_frame(of_places.reset_index(), top)


@table.register
def _(result: Continuations, top: int | None = None) -> Table:
    """The texts, each with its mean surprisal."""
    return table_of_frame(result.to_sample_frame(), top)


@table.register
def _(result: HeadScan, top: int | None = None) -> Table:
    """The mass of each head that is furthest above its control."""
    return table_of_frame(result.to_largest_frame(), top)


@table.register
def _(result: AttentionStatistics, top: int | None = None) -> Table:
    """For each head, the statistic furthest above that of uniform attention; largest first."""
    return table_of_frame(result.to_largest_frame(), top)


@table.register
def _(result: Ablation, top: int | None = None) -> Table:
    """For pairs of heads, their interactions."""
    if result.by_layer:
        return wording.head_table(result, top)
    if result.units == "pairs":
        return table_of_frame(result.to_interaction_frame(), top)
    return table_of_frame(result.to_frame().drop(columns="members", errors="ignore"), top)


@conclusion.register
def _(result: Ablation) -> str:
    """Without the notes for heads by layer, whose page shows them by themselves."""
    notes = () if result.by_layer else result.notes
    return " ".join([*map(_sentence, result.conclusion()), *notes])


@table.register
def _(result: HeadRoles, top: int | None = None) -> Table:
    frame = _clearest_roles(result)
    columns = ["name", "role", "score", "control", "difference", "low", "high", "has_role"]
    return table_of_frame(frame[columns].rename(columns={"has_role": "has role"}), top)


@table.register
def _(result: HeadCensus, top: int | None = None) -> Table:
    frame = _clearest_roles(result)
    columns = ["name", "role", "score", "control", "difference", "low", "high", "q", "has_role"]
    return table_of_frame(frame[columns].rename(columns={"has_role": "has role"}), top)


@table.register
def _(result: HeadEffects, top: int | None = None) -> Table:
    """The evidence on each head in short, the largest first, and what a label lacks."""
    frame = result.to_frame()
    shares = [
        NONE
        if row["attends"] == NONE
        else f"{row['attends']} {fixed(row['on_' + row['attends']], 2)}"
        for row in frame.to_dict("records")
    ]
    columns = ["to_target", "to_distractor", "direct", "effect", "low", "high", "control"]
    short = frame[["name", "label", *columns, "missing"]].rename(columns={"effect": "ablation"})
    short.insert(2, "attends to", shares)
    return table_of_frame(short, top)


@table.register
def _(result: PermutationCovariance, top: int | None = None) -> Table:
    """The largest error of each symmetry, and of each change that breaks it."""
    frame = result.to_frame()
    rows = frame.groupby(["symmetry", "change"], sort=False).agg(
        error=("error", "max"), bound=("bound", "max"), holds=("holds", "sum"), of=("holds", "size")
    )
    texts = rows.assign(**{name: rows[name].map("{:.1e}".format) for name in ("error", "bound")})
    return table_of_frame(texts.reset_index(), top)


@table.register
def _(result: OrderSensitivity, top: int | None = None) -> Table:
    """The sensitivity s of each part in each variant, for the first kind of permutations."""
    frame = result.to_frame()
    first = frame[frame["permutation"] == result.permutations[0]]
    wide = first.pivot_table(index=["kind", "name"], columns="variant", values="mean", sort=False)
    by_size = wide.sort_values(result.variants[0], ascending=False, kind="stable")
    return table_of_frame(by_size.reset_index(), top)


def _clearest_roles(result: HeadRoles | HeadCensus) -> pd.DataFrame:
    """The roles of heads, the clearest first, but those last that most heads have; then others."""
    frame = result.to_frame()
    frame["rare"] = ~frame["role"].isin(BACKGROUND)
    return frame.sort_values(["has_role", "rare", "difference"], ascending=False, kind="stable")


@table.register
def _(result: OVCircuit, top: int | None = None) -> Table:
    """One row per attended token."""
    columns = [("attended to", "left"), ("promoted outputs (sd of all entries)", "left")]
    return columns, [*result.promoted.rows(top)]


@table.register
def _(result: QKCircuit, top: int | None = None) -> Table:
    """One row per query."""
    columns = [("query", "left"), ("keys (nats above the mean key)", "left")]
    return columns, [*result.keys.rows(top)]


@table.register
def _(result: Explanation, top: int | None = None) -> Table:
    """The components without their edges, which the figure shows; largest effect first."""
    frame = result.to_frame().drop(columns=["reads", "feeds"])
    return table_of_frame(frame.sort_values("effect", key=abs, ascending=False), top)


@table.register
def _(result: DirectLogitAttribution, top: int | None = None) -> Table:
    """The terms, the largest first also where they are by source."""
    frame = result.to_frame()
    if result.by_source is not None:
        frame = frame.sort_values("effect", key=abs, ascending=False, kind="stable")
    return table_of_frame(frame, top)
