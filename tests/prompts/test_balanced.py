"""Every entry of every slot equally often, and no row twice."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interp.prompts.balanced import balanced_rows, count_rows

LISTS = [[(5, 1)], [(4, 2)], [(4, 3), (2, 1)], [(3, 1), (3, 1), (2, 1)], [(3, 3), (1, 1), (2, 2)]]


SLOTS = st.integers(1, 5).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, min(n, 3))))
DESIGNS = st.tuples(st.lists(SLOTS, min_size=1, max_size=3), st.integers(1, 200), st.integers(0, 9))
"""Some lists, how many rows at most, and a seed."""


def drawn(design):
    """The lists, and rows of a design."""
    lists, most, seed = design
    n = min(most, count_rows(lists))
    return lists, n, balanced_rows(lists, n, Random(seed))


def spread(rows, lists):
    """Of each slot, the counts of its most and its least frequent entry."""
    for place, (size, slots) in enumerate(lists):
        for slot in range(slots):
            counts = Counter(row[place][slot] for row in rows)
            yield max(counts.values()), min(counts[entry] for entry in range(size))


@given(DESIGNS)
def test_each_slot_has_each_entry_equally_often(design):
    """n // m ≤ count ≤ ⌈n / m⌉."""
    lists, n, rows = drawn(design)
    assert len(rows) == n
    assert all(most - least <= 1 for most, least in spread(rows, lists))


@given(DESIGNS)
def test_no_row_is_there_twice_and_no_entry_twice_in_the_slots_of_a_list(design):
    _, n, rows = drawn(design)
    assert len(set(rows)) == n
    assert all(len(set(slot)) == len(slot) for row in rows for slot in row)


@pytest.mark.parametrize("lists", LISTS)
def test_as_many_rows_as_there_are_is_all_of_them(lists):
    n = count_rows(lists)
    assert set(balanced_rows(lists, n, Random(0))) == set(balanced_rows(lists, n, Random(1)))


def test_independent_draws_are_not_balanced():
    """The converse: what the laws forbid is what drawing row by row does."""
    lists, random = [(4, 2)], Random(0)
    rows = [(tuple(random.sample(range(4), 2)),) for _ in range(12)]
    assert any(most - least > 1 for most, least in spread(rows, lists))
    assert len(set(rows)) < 12


def test_the_seed_decides():
    lists = [(6, 2), (4, 1)]
    same, again, other = (balanced_rows(lists, 10, Random(seed)) for seed in (3, 3, 4))
    assert same == again
    assert same != other


def test_two_slots_of_a_list_are_crossed():
    """Of m(m − 1) rows, every ordered pair of entries is there once, with other lists too."""
    rows = balanced_rows([(4, 2), (3, 1), (2, 1)], 12, Random(0))
    assert len({row[0] for row in rows}) == 12


def test_two_lists_are_crossed():
    """Each entry of a list is with as many of the other, ± 1, not always with the same."""
    rows = balanced_rows([(4, 1), (6, 1)], 12, Random(0))
    with_first = [
        len({second for first, second in rows if first == (entry,)}) for entry in range(4)
    ]
    assert with_first == [3] * 4
