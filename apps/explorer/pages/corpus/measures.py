"""What heads are placed and ranked by: statistics, plain or value-weighted, and effects."""

from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from analyses import HeadScan
from analyses.methods.heads import WEIGHTINGS
from apps.explorer.pages.measured import table_of
from apps.explorer.store import stored

DIFFERENCE, BY_VALUE, SIZE, OF_CLASS = " − control", " (value-weighted)", "effect", "effect on "
"""Parts of the names of measures."""
FIRST = ("induction", "previous", "self", "entropy")
"""The statistics that are shown first, if the scan has them."""
COLUMNS = ["name", "layer", "value", "control", "low", "high"]


@dataclass(frozen=True, eq=False)
class Measure:
    """One number of each head.

    Attributes:
        name: its name.
        unit: its unit.
        rows: heads that have it, the largest first: name, layer, value, control (NaN for effects),
            and the interval of the value.
    """

    name: str
    unit: str
    rows: pd.DataFrame

    def rank(self, head: str) -> str:
        """The rank of a head in words, such as ``3 of 270``; empty if it has no value."""
        return self._ranks.get(head, "")

    @cached_property
    def _ranks(self) -> dict[str, str]:
        ranks = self.rows["value"].rank(method="min", ascending=False).astype(int)
        names = zip(self.rows["name"], ranks, strict=True)
        return {name: f"{rank} of {len(self.rows)}" for name, rank in names}


@stored
def measures_of(scan: HeadScan) -> list[str]:
    """The names of all measures: statistics, their differences, value-weighted ones, effects.

    Statistics that not all heads have, as in an encoder–decoder, come last of each.
    """
    heads_with = table_of(scan).groupby(["weighting", "statistic"]).size()
    order = [*dict.fromkeys([*FIRST, *scan.statistics])]
    there = {
        weighting: {name: n for name in order if (n := heads_with.get((weighting, name), 0))}
        for weighting in WEIGHTINGS
    }
    plain, weighted = (sorted(names, key=lambda name: -names[name]) for names in there.values())
    effects = [SIZE, *(f"{OF_CLASS}{name}" for name in _classes(scan))]
    return [
        *plain,
        *(f"{name}{DIFFERENCE}" for name in plain),
        *(f"{name}{BY_VALUE}" for name in weighted),
        *(f"{name}{DIFFERENCE}{BY_VALUE}" for name in weighted),
        *(effects if scan.class_effects is not None else []),
    ]


@stored
def measure(scan: HeadScan, name: str) -> Measure:
    """One of the measures of a scan, with the heads in the order of their values."""
    rows = _effects(scan, name) if _is_effect(name) else _statistic(scan, name)
    order = rows.dropna(subset="value").sort_values("value", ascending=False, kind="stable")
    unit = "nats" if _is_effect(name) else scan.unit_of(name.removesuffix(BY_VALUE))
    return Measure(name, unit, order[COLUMNS].reset_index(drop=True))


def statistic_of(name: str, scan: HeadScan) -> str:
    """The statistic of a measure; for an effect, the first one."""
    statistic = name.removesuffix(BY_VALUE).removesuffix(DIFFERENCE)
    return statistic if statistic in scan.statistics else measures_of(scan)[0]


def _is_effect(name: str) -> bool:
    return name == SIZE or name.startswith(OF_CLASS)


def _statistic(scan: HeadScan, name: str) -> pd.DataFrame:
    weighting = WEIGHTINGS[name.endswith(BY_VALUE)]
    plain = name.removesuffix(BY_VALUE)
    statistic = plain.removesuffix(DIFFERENCE)
    frame = table_of(scan)
    rows = frame[(frame["statistic"] == statistic) & (frame["weighting"] == weighting)]
    if plain == statistic:
        return rows.assign(value=rows["mean"])
    ends = {end: rows[end] - rows["control"] for end in ("low", "high")}
    return rows.assign(value=rows["difference"], **ends)


def _effects(scan: HeadScan, name: str) -> pd.DataFrame:
    """The mean |effect| on all tokens, or the mean effect on those of one class."""
    frame = _effect_table(scan)
    target = "all" if name == SIZE else name.removeprefix(OF_CLASS)
    rows = frame[frame["target_class"] == target].assign(control=float("nan"))
    if name == SIZE:
        return rows.assign(value=rows["size"], low=float("nan"), high=float("nan"))
    return rows.assign(value=rows["effect"])


def _classes(scan: HeadScan) -> list[str]:
    if scan.class_effects is None:
        return []
    return [name for name in _effect_table(scan)["target_class"].unique() if name != "all"]


@stored
def _effect_table(scan: HeadScan) -> pd.DataFrame:
    return scan.to_effect_frame()
