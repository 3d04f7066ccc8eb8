"""How is an ablation told in words? One row a head, and one paragraph that answers the question."""

from dataclasses import dataclass
from math import floor, log10

from analyses import HeadAblation

FEW, FIRST = 6, 3
"""As many heads as a sentence can name, and how many it names if there are more."""
MOVES = {"loss": ("rises", "falls"), "logit difference": ("falls", "rises")}
"""What a metric does when a head that helps is taken away, and when one that hurts is."""
NUMBERS = ("No", "One", "Two", "Three", "Four", "Five", "Six")


@dataclass(frozen=True)
class Head:
    """What replacing one head did.

    Attributes:
        layer: where it is.
        head: which one.
        effect: mean change of the metric over prompts.
        low: where its 95 % interval begins.
        high: where it ends.
        matters: whether the interval leaves out zero (never so with a single prompt).
    """

    layer: int
    head: int
    effect: float
    low: float
    high: float
    matters: bool

    @property
    def name(self) -> str:
        """As ``L1H4``."""
        return f"L{self.layer}H{self.head}"


def heads_of(result: HeadAblation) -> list[Head]:
    """All heads, those with the largest effect first."""
    return [
        Head(
            int(row["layer"]),
            int(row["head"]),
            float(row["effect"]),
            float(row["low"]),
            float(row["high"]),
            bool(row["matters"]),
        )
        for row in result.to_frame().to_dict("records")
    ]


def answer(result: HeadAblation) -> str:
    """Which heads matter for these prompts, in a few plain sentences."""
    heads = heads_of(result)
    n, places = result.clean.numel(), decimals(heads)
    matter = [head for head in heads if head.matters]
    shown = matter if len(matter) <= FEW else matter[:FIRST]
    named = _joined([f"{h.name} ({signed(h.effect, places)} {result.unit})" for h in shown])
    clean = f"{result.clean.mean().item():.3g} {result.unit}"
    if n == 1:
        largest = f"{heads[0].name} ({signed(heads[0].effect, places)} {result.unit})"
        return (
            f"One prompt gives no interval, so no head can be said to matter. The largest effect "
            f"is that of {largest}; the clean {result.metric} is {clean}. Give several prompts."
        )
    if not matter:
        return (
            f"No head matters on these {n} prompts: whichever of the {len(heads)} is replaced, "
            f"the {result.metric} stays within noise of its clean {clean}."
        )
    if len(matter) > FEW:
        return (
            f"{len(matter)} of {len(heads)} heads matter on these {n} prompts, most of all "
            f"{named}. The clean {result.metric} is {clean}."
        )
    verb = "matters" if len(matter) == 1 else "matter"
    rest = (
        f" Replacing any other leaves the {result.metric} within noise of its clean {clean}."
        if len(matter) < len(heads)
        else f" The clean {result.metric} is {clean}."
    )
    return (
        f"{NUMBERS[len(matter)]} of {len(heads)} heads {verb} on these {n} prompts: {named}.{rest}"
    )


def head_table(
    result: HeadAblation, top: int
) -> tuple[list[tuple[str, str]], list[tuple[str, ...]]]:
    """Columns (with their side) and rows of the ``top`` heads, for a terminal."""
    heads = heads_of(result)
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


def role(head: Head, metric: str) -> str:
    """Whether a head that matters helps or hurts what the metric measures."""
    if not head.matters:
        return "within noise"
    helps_when = MOVES.get(metric, ("rises", "falls"))[0]
    return "helps" if (head.effect > 0) == (helps_when == "rises") else "hurts"


def reading(result: HeadAblation) -> str:
    """How the numbers are to be read."""
    helping, hurting = MOVES.get(result.metric, ("changes", "changes"))
    replaced = {
        "zero": "zero",
        "mean": "its mean over all prompts and positions",
        "resample": "what it wrote on another prompt",
    }[result.method]
    return (
        f"Each head in turn has its output replaced with {replaced}. The {result.metric} {helping} "
        f"when a head that helps is taken away and {hurting} when one that hurts is. Intervals "
        f"are 95 % bootstrap intervals over prompts; a head matters if its interval leaves out "
        f"zero. About one in twenty heads without any effect would seem to matter by chance."
    )


def decimals(heads: list[Head]) -> int:
    """How many decimals show three digits of the largest number."""
    largest = max(max(abs(h.effect), abs(h.low), abs(h.high)) for h in heads)
    return 3 if largest == 0 else min(8, max(1, 2 - floor(log10(largest))))


def signed(value: float, places: int) -> str:
    """A number with its sign; zero has none."""
    text = f"{value:+.{places}f}"
    return text if float(text) else text[1:]


def _joined(names: list[str]) -> str:
    return (
        names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""
    )
