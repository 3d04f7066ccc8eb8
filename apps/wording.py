"""A head ablation in words: rows of a table, a conclusion and an explanation."""

from dataclasses import dataclass
from math import floor, log10

from analyses import HeadAblation

MAX_NAMED, NAMED_OF_MANY = 6, 3
"""Heads that the conclusion can name, and how many it names if more matter."""
DIRECTIONS = {"loss": ("rises", "falls"), "logit difference": ("falls", "rises")}
"""What a metric does when a head that helps is ablated, and when one that hurts is."""
NUMBERS = ("No", "One", "Two", "Three", "Four", "Five", "Six")


@dataclass(frozen=True)
class HeadEffect:
    """The effect of ablating one head.

    Attributes:
        layer: of the head.
        head: its index in the layer.
        effect: mean change of the metric over prompts.
        low: lower end of its 95 % interval.
        high: upper end of its 95 % interval.
        matters: whether the interval excludes zero (never with a single prompt).
    """

    layer: int
    head: int
    effect: float
    low: float
    high: float
    matters: bool

    @property
    def name(self) -> str:
        """The head, e.g. ``L1H4``."""
        return f"L{self.layer}H{self.head}"


def ranked_heads(result: HeadAblation) -> list[HeadEffect]:
    """All heads, largest effect first."""
    return [
        HeadEffect(
            int(row["layer"]),
            int(row["head"]),
            float(row["effect"]),
            float(row["low"]),
            float(row["high"]),
            bool(row["matters"]),
        )
        for row in result.to_frame().to_dict("records")
    ]


def conclusion(result: HeadAblation) -> str:
    """Which heads matter for these prompts, in a few sentences."""
    heads = ranked_heads(result)
    n, places = result.clean.numel(), decimals(heads)
    matter = [head for head in heads if head.matters]
    clean = f"{result.clean.mean().item():.3g} {result.unit}"
    unablated = f"The {result.metric} without ablation is {clean}."
    if n == 1:
        return (
            f"One prompt gives no interval, so no head can be said to matter. The largest effect "
            f"is that of {_listed(heads[:1], places, result.unit)}. {unablated} Give several "
            f"prompts."
        )
    within_noise = f"leaves the {result.metric} within noise of {clean}, its value without ablation"
    if not matter:
        return (
            f"No head matters on these {n} prompts: ablating any one of the {len(heads)} heads "
            f"{within_noise}."
        )
    if len(matter) > MAX_NAMED:
        named = _listed(matter[:NAMED_OF_MANY], places, result.unit)
        return (
            f"{len(matter)} of {len(heads)} heads matter on these {n} prompts, most of all "
            f"{named}. {unablated}"
        )
    verb = "matters" if len(matter) == 1 else "matter"
    rest = f"Ablating any other head {within_noise}." if len(matter) < len(heads) else unablated
    return (
        f"{NUMBERS[len(matter)]} of {len(heads)} heads {verb} on these {n} prompts: "
        f"{_listed(matter, places, result.unit)}. {rest}"
    )


def head_table(
    result: HeadAblation, top: int
) -> tuple[list[tuple[str, str]], list[tuple[str, ...]]]:
    """Columns (title, alignment) and rows of the ``top`` heads, for a terminal."""
    heads = ranked_heads(result)
    places = decimals(heads)
    columns = [
        ("head", "left"),
        (f"effect ({result.unit})", "right"),
        ("95 % interval", "right"),
        ("matters", "left"),
    ]
    rows = [
        (
            head.name,
            signed(head.effect, places),
            f"{signed(head.low, places)} to {signed(head.high, places)}",
            role(head, result.metric),
        )
        for head in heads[:top]
    ]
    return columns, rows


def role(head: HeadEffect, metric: str) -> str:
    """Whether a head that matters helps or hurts what the metric measures."""
    if not head.matters:
        return "within noise"
    helps_when = DIRECTIONS.get(metric, ("rises", "falls"))[0]
    return "helps" if (head.effect > 0) == (helps_when == "rises") else "hurts"


def explanation(result: HeadAblation) -> str:
    """What the numbers mean."""
    helping, hurting = DIRECTIONS.get(result.metric, ("changes", "changes"))
    replacement = {
        "zero": "zero",
        "mean": "its mean over all prompts and positions",
        "resample": "its value at the same position of another prompt",
    }[result.method]
    return (
        f"Each head in turn is ablated: its output z, before W_O, is replaced with {replacement}. "
        f"The {result.metric} {helping} when a head that helps is ablated and {hurting} when one "
        f"that hurts is. Intervals are 95 % bootstrap intervals of the mean over prompts; a head "
        f"matters if its interval excludes zero. About one in twenty heads without any effect "
        f"would seem to matter by chance."
    )


def decimals(heads: list[HeadEffect]) -> int:
    """The number of decimals that show three digits of the largest number."""
    largest = max(max(abs(h.effect), abs(h.low), abs(h.high)) for h in heads)
    return 3 if largest == 0 else min(8, max(1, 2 - floor(log10(largest))))


def signed(value: float, places: int) -> str:
    """A number with its sign; zero has none."""
    text = f"{value:+.{places}f}"
    return text if float(text) else text[1:]


def _listed(heads: list[HeadEffect], places: int, unit: str) -> str:
    """Heads with their effects, as ``L0H2 (-2.00 nats), L0H1 (+1.00 nats) and L1H0 (…)``."""
    names = [f"{head.name} ({signed(head.effect, places)} {unit})" for head in heads]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
