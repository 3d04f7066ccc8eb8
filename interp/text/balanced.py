"""Balanced designs: which entries of some lists fill the slots of each row.

Several slots may draw from one list; in no row do two of them have the same entry. Of n rows,

    n // m ≤ rows in which a slot has an entry ≤ ⌈n / m⌉      for each slot and entry of m
    no two rows are the same                                  as long as n ≤ the number of all rows

so no position, and no difference between a clean and a corrupted text, goes with one entry more
often than with another. The slots of a list are filled by cyclic shifts, as the columns of a Latin
square (Fisher 1935, "The Design of Experiments"); lists are then crossed, each entry of what is
there with all of the next list in turn.
"""

from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from math import perm, prod
from random import Random

Drawn = tuple[int, ...]
"""The entries of the slots of one list in one row, each a number from 0."""


def count_rows(lists: Sequence[tuple[int, int]]) -> int:
    """How many different rows there are.

    Args:
        lists: of each list, how many entries it has and how many slots draw from it.
    """
    return prod(perm(size, slots) for size, slots in lists)


def balanced_rows(
    lists: Sequence[tuple[int, int]], n: int, random: Random
) -> list[tuple[Drawn, ...]]:
    """``n`` different rows, in which each slot has each of its entries equally often, ± 1.

    Args:
        lists: of each list, how many entries it has and how many slots draw from it.
        n: at most :func:`count_rows`.
        random: draws among the designs.
    """
    rows: list[tuple[Drawn, ...]] = [()] * n
    for size, slots in lists:
        order = random.sample(range(size), size)
        drawn = list(islice(_shifts(size, slots, random), n))
        # Rows that are the same so far stand together, and so get different entries of this list:
        # they are at most as many as it has (by induction: each row so far is there equally often).
        rows = _grouped(rows, random)
        rows = [
            (*row, tuple(order[entry] for entry in own))
            for row, own in zip(rows, cycle(drawn), strict=False)
        ]
    random.shuffle(rows)
    return rows


def _shifts(size: int, slots: int, random: Random) -> Iterator[Drawn]:
    """Every way to draw so many different numbers below ``size``, once.

    Each ``size`` in turn have every number once in every slot.
    """
    if slots == 0:
        yield ()
        return
    for offsets in _shifts(size - 1, slots - 1, random):
        for first in random.sample(range(size), size):
            yield (first, *((first + 1 + offset) % size for offset in offsets))


def _grouped(rows: Sequence[tuple[Drawn, ...]], random: Random) -> list[tuple[Drawn, ...]]:
    """The rows in another order, in which those that are the same stand together."""
    place = {row: random.random() for row in sorted(set(rows))}
    return sorted(rows, key=lambda row: (place[row], row))
