"""Balanced designs: which entries of some lists fill the slots of each row.

Several slots may draw from one list, but never the same entry in the same row. Among n rows,

    n // m ≤ rows in which a slot has an entry ≤ ⌈n / m⌉      for each slot, and each entry of m
    no two rows are the same                                  if n ≤ the number of all rows

so that no entry occurs more often than another at a position, or in a difference between a clean
and a corrupted text. The slots of a list are filled with cyclic shifts, as the columns of a Latin
square (Fisher 1935, "The Design of Experiments"); lists are then crossed, by combining each row so
far with all entries of the next list in turn.
"""

from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from math import perm, prod
from random import Random

Drawn = tuple[int, ...]
"""The entries of the slots of one list in one row, as indices from 0."""


def count_rows(lists: Sequence[tuple[int, int]]) -> int:
    """Number of different rows.

    Args:
        lists: number of entries of each list, and number of slots that draw from it.
    """
    return prod(perm(size, slots) for size, slots in lists)


def balanced_rows(
    lists: Sequence[tuple[int, int]], n: int, random: Random
) -> list[tuple[Drawn, ...]]:
    """``n`` different rows, in which each slot has each of its entries equally often, ± 1.

    Args:
        lists: number of entries of each list, and number of slots that draw from it.
        n: number of rows, at most :func:`count_rows`.
        random: random number generator that selects the design.
    """
    rows: list[tuple[Drawn, ...]] = [()] * n
    for size, slots in lists:
        order = random.sample(range(size), size)
        drawn = list(islice(_shifts(size, slots, random), n))
        # Equal rows are adjacent, and so get different entries of this list: there are at most as
        # many of them as entries (by induction, all rows so far occur equally often).
        rows = _grouped(rows, random)
        rows = [
            (*row, tuple(order[entry] for entry in draw))
            for row, draw in zip(rows, cycle(drawn), strict=False)
        ]
    random.shuffle(rows)
    return rows


def _shifts(size: int, slots: int, random: Random) -> Iterator[Drawn]:
    """Every way to draw ``slots`` different numbers below ``size``, once.

    In each group of ``size`` consecutive draws, every number occurs once in every slot.
    """
    if slots == 0:
        yield ()
        return
    for offsets in _shifts(size - 1, slots - 1, random):
        for first in random.sample(range(size), size):
            yield (first, *((first + 1 + offset) % size for offset in offsets))


def _grouped(rows: Sequence[tuple[Drawn, ...]], random: Random) -> list[tuple[Drawn, ...]]:
    """The rows in another order, in which equal rows are adjacent."""
    place = {row: random.random() for row in sorted(set(rows))}
    return sorted(rows, key=lambda row: (place[row], row))
