"""Texts about a head ablation: the rows of its table, a conclusion and an explanation."""

from dataclasses import dataclass

from analyses import HeadAblation
from analyses.statistics import FEWEST, LEVEL
from apps.frame_table import Table, corrected, interval_text, places_of, signed

MAX_NAMED, NAMED_OF_MANY = 6, 3
"""The largest number of heads that are all named, and how many are named if more matter."""
DIRECTIONS = {
    **dict.fromkeys(("loss", "masked loss"), ("rises", "falls")),
    **dict.fromkeys(("logit difference", "logit", "probability", "accuracy"), ("falls", "rises")),
}
"""How a metric changes when a head that helps is ablated, and when one that hurts is ablated."""
NUMBERS = ("No", "One", "Two", "Three", "Four", "Five", "Six")


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
        q: p-value corrected for the number of heads; NaN with too few prompts.
        matters: whether q ≤ 0.05.
    """

    layer: int
    head: int
    effect: float
    low: float
    high: float
    size: float
    q: float
    matters: bool

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


def ranked_heads(result: HeadAblation) -> list[HeadEffect]:
    """The effects of all heads, largest size first."""
    return [
        HeadEffect(
            int(row["layer"]),
            int(row["head"]),
            float(row["effect"]),
            float(row["low"]),
            float(row["high"]),
            float(row["size"]),
            float(row["q"]),
            bool(row["matters"]),
        )
        for row in result.to_frame().to_dict("records")
    ]


def conclusion(result: HeadAblation) -> str:
    """A few sentences on which heads matter for these prompts."""
    heads = ranked_heads(result)
    n, places = result.clean.numel(), decimals(heads)
    matter = [head for head in heads if head.matters]
    clean = f"{result.clean.mean().item():.3g} {result.unit}"
    unablated = f"The {result.metric} without ablation is {clean}."
    if n < FEWEST:
        given = "One prompt gives" if n == 1 else f"{n} prompts give"
        return (
            f"{given} no interval, so no head can be said to matter. The largest effect "
            f"is that of {_listed(heads[:1], places, result.unit)}. {unablated} Give at least "
            f"{FEWEST} prompts."
        )
    within_noise = (
        f"leaves the mean {result.metric} within noise of {clean}, its value without ablation"
    )
    both_signs = _cancelling(heads, result)
    if not matter:
        return (
            f"No head matters on these {n} prompts: ablating any one of the {len(heads)} heads "
            f"{within_noise}.{both_signs}"
        )
    if len(matter) > MAX_NAMED:
        named = _listed(matter[:NAMED_OF_MANY], places, result.unit)
        return (
            f"{len(matter)} of {len(heads)} heads matter on these {n} prompts, most of all "
            f"{named}. {unablated}{both_signs}"
        )
    verb = "matters" if len(matter) == 1 else "matter"
    rest = f"Ablating any other head {within_noise}." if len(matter) < len(heads) else unablated
    return (
        f"{NUMBERS[len(matter)]} of {len(heads)} heads {verb} on these {n} prompts: "
        f"{_listed(matter, places, result.unit)}. {rest}{both_signs}"
    )


def head_table(result: HeadAblation, top: int | None = None) -> Table:
    """A table of the ``top`` heads, or of all, largest size first."""
    heads = ranked_heads(result)
    places = decimals(heads)
    columns = [
        ("head", "left"),
        (f"effect ({result.unit})", "right"),
        ("95 % interval", "right"),
        ("size", "right"),
        ("q", "right"),
        ("matters", "left"),
    ]
    rows = [
        (
            head.name,
            signed(head.effect, places),
            head.interval(places),
            signed(head.size, places).lstrip("+"),
            head.corrected(),
            role(head, result.metric),
        )
        for head in heads[:top]
    ]
    return columns, rows


def role(head: HeadEffect, metric: str) -> str:
    """Whether a head helps or hurts what the metric measures, if it matters."""
    if not head.matters:
        return "within noise"
    if metric not in DIRECTIONS:
        return "yes"
    helps_when = DIRECTIONS[metric][0]
    return "helps" if (head.effect > 0) == (helps_when == "rises") else "hurts"


def better(metric: str) -> str:
    """Which direction of a metric is better; ``""`` if neither is, as for a divergence."""
    if metric not in DIRECTIONS:
        return ""
    return "lower is better" if DIRECTIONS[metric][0] == "rises" else "higher is better"


def explanation(result: HeadAblation) -> str:
    """An explanation of the numbers in the table."""
    replacement = {
        "zero": "zero",
        "mean": "its mean over all prompts and positions",
        "resample": "its value at the same position of another prompt",
    }[result.method]
    return (
        f"Each head in turn is ablated: its output z, before W_O, is replaced with {replacement}. "
        f"{directions(result.metric)}The effect is the mean change over prompts; the size is the "
        f"mean of the absolute change, in which changes up and down do not cancel. Intervals are "
        f"95 % intervals of the effect and allow for skewed data. {_what_matters(result)}"
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


def _what_matters(result: HeadAblation) -> str:
    """The criterion by which a head matters, and how many heads would pass a test by chance."""
    if result.clean.numel() < FEWEST:
        return (
            f"With fewer than {FEWEST} prompts there are no intervals, and no head is said to "
            "matter."
        )
    return (
        f"By chance alone, about {result.expected_by_chance():.2g} of the heads would have "
        f"p ≤ {LEVEL}. So a head matters only if q ≤ {LEVEL}, where q is p corrected for the "
        "number of heads: of the heads that matter, at most about one in twenty is there by chance."
    )


def decimals(heads: list[HeadEffect]) -> int:
    """The number of decimals that shows three digits of the largest number."""
    return places_of(end for head in heads for end in (head.size, head.low, head.high))


def _cancelling(heads: list[HeadEffect], result: HeadAblation) -> str:
    """A sentence on the head of the largest size, if its effects cancel in the mean."""
    largest = heads[0]
    if largest.matters or not largest.size > 2 * abs(largest.effect):
        return ""
    return (
        f" {largest.name} changes it by {largest.size:.{decimals(heads)}f} {result.unit} per "
        "prompt on average, but up on some prompts and down on others."
    )


def _listed(heads: list[HeadEffect], places: int, unit: str) -> str:
    """Heads with their effects, as ``L0H2 (-2.00 nats), L0H1 (+1.00 nats) and L1H0 (…)``."""
    names = [f"{head.name} ({signed(head.effect, places)} {unit})" for head in heads]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
