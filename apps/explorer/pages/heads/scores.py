"""The scores of heads that the map shows, each with its control."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pandas as pd

from analyses import Ablation, AttentionStatistics, HeadRoles
from analyses.head_roles import COPYING, OF_REPETITION
from analyses.methods.heads import BOS, FIRST, NORMALIZED, SINKS, WEIGHTINGS
from analyses.results import (
    FEWEST,
    HELPS,
    LEVEL,
    PROBABILITIES,
    Result,
    Scale,
    by_chance,
    counted,
    encoded,
    fixed,
    number,
    per_head,
)
from apps.explorer.pages.measured import known_effects, table_of
from apps.explorer.store import stored

Score = dict[str, Any]
"""A score in the form that the widget's view "heads" reads."""
ROLES = ("previous-token", "next-token", "induction", "duplicate-token", *SINKS, COPYING)
STATISTICS = (NORMALIZED, BOS, FIRST, "self", "previous")
SCORES = ("ablation", *ROLES, *(statistic.replace(" ", "_") for statistic in STATISTICS))
"""The ids of all scores."""
NAMES = {
    BOS: "attention to BOS",
    FIRST: "attention to the first position",
    "self": "attention to the token itself",
    "previous": "attention to the previous token",
}
SHORT_NAMES = {
    FIRST: "attention to first",
    "self": "attention to itself",
    "previous": "attention to previous",
}
"""For tables, where there is no room for the names."""


def scores(
    results: Mapping[str, Result], sizes: tuple[int, ...], attention: str | None
) -> list[Score]:
    """The scores from all available answers.

    Args:
        results: the answers of the page.
        sizes: the number of heads in each layer.
        attention: the attention of an encoder–decoder; ``None`` for other models.
    """
    ablations = tuple(result for result in results.values() if isinstance(result, Ablation))
    others = (score for result in results.values() for score in _scores(result, sizes))
    return [*([of_ablation(ablations, sizes, attention)] if ablations else []), *others]


@stored
def _scores(result: Result, sizes: tuple[int, ...]) -> list[Score]:
    if isinstance(result, HeadRoles):
        return [of_role(result, role, sizes) for role in ROLES if role in result.score]
    if isinstance(result, AttentionStatistics):
        there = [statistic for statistic in STATISTICS if statistic in result.statistics]
        return [of_statistic(result, statistic, sizes) for statistic in there]
    return []


@stored
def of_ablation(
    results: tuple[Ablation, ...], sizes: tuple[int, ...], attention: str | None
) -> Score:
    """The effect of ablating each head: measured, else estimated; NaN where it is neither yet.

    Args:
        results: results with one metric and method: of all heads, possibly partial or estimated, or
            of a few heads.
        sizes: the number of heads in each layer.
        attention: the attention of an encoder–decoder; ``None`` for other models.
    """
    unit, heads, n = results[0].unit, sum(sizes), results[0].clean.numel()
    frame, notes = known_effects(
        results, heads, unit, "head", lambda table: _of_attention(table, attention)
    )
    exact = frame[frame["is_measured"]]
    score = {
        "id": "ablation",
        "name": f"{results[0].method} ablation: change of {results[0].metric}",
        "short": f"{results[0].method} ablation",
        "unit": unit,
        "scale": asdict(
            Scale.around_zero(frame["effect"].tolist(), helps=HELPS.get(results[0].metric))
        ),
        "n": n,
        "control": "; ".join([*_lines(exact, n, heads), *notes]),
        **_numbers(frame, "effect", n, sizes),
    }
    if len(exact) < len(frame):
        is_estimate = frame.assign(is_estimate=~frame["is_measured"])
        score["estimated"] = encoded(per_head(is_estimate, "is_estimate", sizes))
    return score


def _of_attention(frame: pd.DataFrame, attention: str | None) -> pd.DataFrame:
    """The rows of an attention of an encoder–decoder."""
    return frame[frame["stack"] == attention] if "stack" in frame else frame


def _lines(measured: pd.DataFrame, n: int, heads: int) -> list[str]:
    """How many effects there are by chance, and how many heads are measured."""
    lines: list[str] = []
    if n < FEWEST:
        lines.append(f"fewer than {FEWEST} prompts, so no intervals")
    if len(measured):
        lines.append(f"mean size of the effect of a head: {number(measured['size'].mean(), 2)}")
    if len(measured) and n >= FEWEST:
        count = int((measured["p"] <= LEVEL).sum())
        lines.append(
            f"p ≤ {LEVEL}: {counted(count, 'head')}, of which {number(by_chance(measured), 2)} by "
            "chance"
        )
    if len(measured) < heads:
        lines.append(f"{len(measured)} of {heads} heads so far")
    return lines


def of_role(result: HeadRoles, role: str, sizes: tuple[int, ...]) -> Score:
    """The score of a role minus its control."""
    frame = table_of(result)
    frame = frame[frame["role"] == role]
    n, what = result.score[role].shape[-1], "uniform attention"
    if role in OF_REPETITION:
        what = "the same cells of sequences without repetition"
    if role == COPYING:
        what = "permuted columns of W_U"
    return {
        "id": role,
        "name": f"{role}, score − control",
        "short": role,
        "unit": "score − control",
        "scale": asdict(Scale.around_zero([1.0])),
        "by": "value",
        "n": n,
        "control": f"control: {what}, {fixed(frame['control'].mean(), 2)} on average",
        **_numbers(frame, "difference", n, sizes),
    }


def of_statistic(result: AttentionStatistics, statistic: str, sizes: tuple[int, ...]) -> Score:
    """A mean over the queries of the prompts, from 0 to 1."""
    frame = table_of(result)
    frame = frame[(frame["statistic"] == statistic) & (frame["weighting"] == WEIGHTINGS[0])]
    n = int(frame["n"].max()) if len(frame) else 0
    return {
        "id": statistic.replace(" ", "_"),
        "name": NAMES.get(statistic, statistic),
        "short": SHORT_NAMES.get(statistic),
        "unit": "0 to 1" if statistic == NORMALIZED else "weight",
        "scale": asdict(PROBABILITIES),
        "n": n,
        "control": f"uniform attention: {fixed(frame['uniform'].mean(), 2)}"
        if n
        else "not defined for any query",
        **_numbers(frame, "mean", n, sizes),
    }


def _numbers(frame: pd.DataFrame, column: str, n: int, sizes: tuple[int, ...]) -> Score:
    """The values, and their intervals if there are enough prompts."""
    ends = ("low", "high") if n >= FEWEST else ()
    columns = {"values": column, **{end: end for end in ends}}
    return {name: encoded(per_head(frame, source, sizes)) for name, source in columns.items()}
