"""Texts about a head ablation: the rows of its table and an explanation."""

from dataclasses import dataclass
from math import isnan

from analyses import Ablation
from analyses.results import (
    FEWEST,
    HELPS,
    LEVEL,
    MARK,
    NONE,
    corrected,
    fixed,
    interval_text,
    number,
    percent,
    places_of,
    signed,
)
from apps.frame_table import Table

DIRECTIONS = {
    metric: ("rises", "falls") if side == "above" else ("falls", "rises")
    for metric, side in HELPS.items()
}
"""How a metric changes when a head that helps is ablated, and when one that hurts is ablated."""


@dataclass(frozen=True)
class HeadEffect:
    """The effect of ablating one head.

    Attributes:
        layer: the layer of the head.
        head: the index of the head in its layer.
        effect: mean change of the metric over prompts.
        low: lower end of the 95 % interval of the effect; NaN with too few prompts.
        high: upper end of that interval; NaN with too few prompts.
        size: mean of |change| over prompts.
        share: size / mean |metric without ablation|; NaN where that is 0.
        q: p-value corrected for the number of heads; NaN with too few prompts.
        significant: whether q ≤ 0.05.
    """

    layer: int
    head: int
    effect: float
    low: float
    high: float
    size: float
    share: float
    q: float
    significant: bool

    @property
    def name(self) -> str:
        """The name of the head, e.g. ``L1H4``."""
        return f"L{self.layer}H{self.head}"

    def interval(self, places: int) -> str:
        """The interval with a number of decimals; a dash if there is none."""
        return interval_text(self.low, self.high, places)

    def corrected(self) -> str:
        """q with three decimals; a dash if there is none."""
        return corrected(self.q)


def ranked_heads(result: Ablation) -> list[HeadEffect]:
    """The effects of all heads, largest size first."""
    return [
        HeadEffect(
            int(row["layer"]),
            int(row["head"]),
            float(row["effect"]),
            float(row["low"]),
            float(row["high"]),
            float(row["size"]),
            float(row["share"]),
            float(row["q"]),
            bool(row["significant"]),
        )
        for row in result.to_frame().to_dict("records")
    ]


def head_table(result: Ablation, top: int | None = None) -> Table:
    """A table of the ``top`` heads, or of all, largest size first."""
    heads = ranked_heads(result)
    places = decimals(heads)
    columns = [
        ("head", "left"),
        (f"effect ({result.unit})", "right"),
        ("95 % interval", "right"),
        ("size", "right"),
        ("share", "right"),
        ("q", "right"),
        ("significant", "left"),
    ]
    rows = [
        (
            head.name,
            signed(head.effect, places),
            head.interval(places),
            fixed(head.size, places),
            percent(head.share),
            head.corrected(),
            role(head, result.metric),
        )
        for head in heads[:top]
    ]
    return columns, rows


def role(head: HeadEffect, metric: str) -> str:
    """A mark if the effect is significant, and whether the head then helps or hurts."""
    if isnan(head.q) or not head.significant:
        return NONE if isnan(head.q) else "no"
    if metric not in DIRECTIONS:
        return MARK
    helps_when = DIRECTIONS[metric][0]
    return f"{MARK} {'helps' if (head.effect > 0) == (helps_when == 'rises') else 'hurts'}"


def better(metric: str) -> str:
    """Which direction of a metric is better; ``""`` if neither is, as for a divergence."""
    if metric not in DIRECTIONS:
        return ""
    return "lower is better" if DIRECTIONS[metric][0] == "rises" else "higher is better"


def explanation(result: Ablation) -> str:
    """An explanation of the numbers in the table."""
    replacement = {
        "zero": "zero",
        "mean": "its mean over all prompts and positions",
        "resample": "its value at the same position of another prompt",
    }[result.method]
    return (
        f"Each head in turn is ablated: its output z, before W_O, is replaced with {replacement}. "
        f"{directions(result.metric)}The effect is the mean change over prompts; the size is the "
        f"mean of the absolute change, in which changes up and down do not cancel; the share is "
        f"the size divided by the mean absolute {result.metric} without ablation. "
        f"{_what_is_significant(result)}"
    )


def directions(metric: str) -> str:
    """A sentence on how ablation changes the metric; ``""`` if no direction of it is better."""
    if metric not in DIRECTIONS:
        return ""
    helping, hurting = DIRECTIONS[metric]
    return (
        f"The {metric} {helping} when a head that helps is ablated and {hurting} when one that "
        "hurts is. "
    )


def _what_is_significant(result: Ablation) -> str:
    """The criterion of significance, and how many heads would pass a test by chance."""
    if result.clean.numel() < FEWEST:
        return (
            f"With fewer than {FEWEST} prompts there are no intervals, and no effect is said to be "
            "significant."
        )
    return (
        "Intervals are 95 % intervals of the effect. By chance alone, about "
        f"{number(result.expected_by_chance(), 2)} of the heads would have p ≤ {LEVEL}. So {MARK} "
        "is set "
        f"only where q ≤ {LEVEL}, where q is p corrected for the number of heads: of the heads "
        f"with {MARK}, at most about one in twenty is there by chance. More prompts make more "
        "effects significant, but none larger."
    )


def decimals(heads: list[HeadEffect]) -> int:
    """The number of decimals that shows three digits of the largest number."""
    return places_of(end for head in heads for end in (head.size, head.low, head.high))
