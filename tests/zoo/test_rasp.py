"""The ``rasp-*`` models are their programs, and so are other compiled programs."""

from fractions import Fraction
from operator import eq, ge

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import each

import interp
from interp.errors import InvalidInput
from training.rasp.compiler import compile_program
from training.rasp.program import (
    Aggregate,
    Count,
    Map,
    Operation,
    Positions,
    Program,
    Select,
    Share,
    Tokens,
)
from training.recipes.rasp import (
    ALPHABET,
    PROGRAMS,
    TOKENS,
    answers,
    mistakes,
    random_rows,
)

by_name = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)


@by_name
@pytest.mark.parametrize("rows", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_bundled_model_is_its_program(program, rows):
    assert mistakes(interp.load(program.name), program, rows=rows, seed=1) == 0


@by_name
def test_a_bundled_model_is_what_is_compiled(program):
    built, loaded = compile_program(program)[0], interp.load(program.name)
    weights = dict(built.named_parameters())
    assert built.config == loaded.config
    assert all(torch.equal(weight, weights[name]) for name, weight in loaded.named_parameters())


@by_name
def test_comparing_with_the_program_finds_a_model_that_is_not_it(program):
    model = compile_program(program)[0]
    with torch.no_grad():
        model.W_E[1].zero_()
    assert mistakes(model, program, rows=200) > 50


def test_the_values_of_the_programs():
    answered = {program.name: program("abcaab") for program in PROGRAMS}
    half, third = Fraction(1, 2), Fraction(1, 3)
    assert answered["rasp-fraction"] == [1, half, third, half, Fraction(3, 5), half]
    assert answered["rasp-duplicates"] == ["new", "new", "new", "seen", "seen", "seen"]
    assert answered["rasp-reverse"] == list("baacba")
    assert answered["rasp-histogram"] == [3, 2, 1, 3, 3, 2]


# Other programs: whatever is selected, and whoever sees whom.

LETTERS = ALPHABET[:3]
LETTER, PLACE = Tokens(LETTERS), Positions(6)
TABLES = st.lists(st.booleans(), min_size=9, max_size=9)


def by_table(table: list[bool]) -> Select:
    """Any relation between two letters."""
    return Select(
        LETTER, LETTER, lambda key, query: table[3 * "abc".index(query) + "abc".index(key)]
    )


def agree(output: Operation, *, causal: bool) -> bool:
    program = Program("any", output, causal=causal, longest=6)
    texts = ["".join("abc"[int(c)] for c in row) for row in ROWS]
    answered = answers(compile_program(program)[0], texts)
    return answered == [
        ["<|bos|>" if value is None else str(value) for value in program(text)] for text in texts
    ]


ROWS = ["0", "1", "012", "2210", "000000", "120120", "21", "0011", "212121", "10"]


@settings(max_examples=25, deadline=None)
@given(TABLES, st.booleans())
def test_a_compiled_count_is_the_programs(table, causal):
    assert agree(Map(lambda n: n, (Count(by_table(table), 6),)), causal=causal)


@settings(max_examples=25, deadline=None)
@given(TABLES, st.sets(st.sampled_from(LETTERS)), st.booleans())
def test_a_compiled_share_is_the_programs(table, chosen, causal):
    share = Share(by_table(table), LETTER, lambda letter: letter in chosen, 6)
    assert agree(Map(lambda part: part, (share,)), causal=causal)


@settings(max_examples=25, deadline=None)
@given(st.integers(-3, 3), st.booleans())
def test_a_compiled_aggregate_is_the_programs(shift, causal):
    """The token so many places away; nothing beyond the ends."""
    there = Map(lambda place: max(0, place + shift), (PLACE,))
    assert agree(Aggregate(Select(PLACE, there, eq), LETTER), causal=causal)


def test_a_map_of_two_operations_and_one_after_another():
    later = Map(lambda n, place: n >= place, (Map(lambda n: n, (every(),)), PLACE))
    assert agree(Map(lambda it, letter: f"{letter}{int(it)}", (later, LETTER)), causal=True)


def every() -> Count:
    return Count(Select(PLACE, PLACE, ge), 6)


def test_a_share_over_values_that_may_be_missing():
    before = Map(lambda place: max(0, place - 1), (PLACE,))
    earlier = Aggregate(Select(PLACE, before, eq), LETTER)
    share = Share(by_table([True] * 9), earlier, lambda letter: letter == "a", 6)
    assert agree(Map(lambda part: part, (share,)), causal=True)


def test_tokens_and_positions_may_be_asked_for_several_times():
    again, place = Tokens(LETTERS), Positions(6)
    assert agree(Map(lambda n: n, (Count(Select(again, LETTER, eq), 6),)), causal=False)
    there = Map(lambda here: 7 - here, (place,))
    assert agree(Aggregate(Select(PLACE, there, eq), again), causal=False)


def test_a_program_of_maps_alone():
    assert agree(Map(lambda letter: letter == "b", (LETTER,)), causal=True)


def test_more_heads_in_a_layer_than_there_are_by_default():
    counts = [
        Map(lambda n: n > 1, (Count(by_table([k == i for k in range(9)]), 6),)) for i in range(5)
    ]
    both = counts[0]
    for other in counts[1:]:
        both = Map(lambda a, b: a or b, (both, other))
    assert agree(both, causal=False)


def test_a_count_in_a_long_row_whose_keys_are_computed():
    """BOS, where a head writes a number, must never look like a key."""
    tokens, longest = Tokens(("a", "b")), 31
    odd = Map(
        lambda n: n % 2, (Count(Select(tokens, tokens, lambda key, query: key == "a"), longest),)
    )
    output = Map(lambda n: n, (Count(Select(odd, odd, eq), longest),))
    program = Program("odd", output, causal=True, longest=longest)
    rows = ["a" * 31, "ab" * 15, "aab" * 10, "b" * 30 + "a"]
    answered = answers(compile_program(program)[0], rows)
    assert answered == [[str(value) for value in program(row)] for row in rows]


def test_values_that_are_written_as_letters_do_not_change_how_rows_are_read():
    digits = Tokens(("0", "1"))
    program = Program(
        "ten", Map(lambda n: n, (Count(Select(digits, digits, eq), 10),)), causal=False, longest=10
    )
    rows = ["1010101010", "1111111111", "10"]
    answered = answers(compile_program(program)[0], rows)
    assert answered == [[str(value) for value in program(row)] for row in rows]


def test_letters_may_be_signs():
    signs = Tokens(("+", "*", "."))
    program = Program("signs", Map(lambda sign: sign == "*", (signs,)), causal=True, longest=4)
    assert answers(compile_program(program)[0], ["+*.*"]) == [["False", "True", "False", "True"]]


@each(
    "takes_a_number",
    [
        lambda n: Select(n, LETTER, eq),
        lambda n: Select(LETTER, n, eq),
        lambda n: Aggregate(Select(LETTER, LETTER, eq), n),
        lambda n: Share(Select(LETTER, LETTER, eq), n, bool, 6),
    ],
)
def test_a_number_is_no_key_query_or_value(takes_a_number):
    with pytest.raises(InvalidInput, match="takes no number"):
        takes_a_number(every())


@each(
    ("output", "message"),
    [
        (Map(lambda place: place, (PLACE,)), "reads no token"),
        (Map(lambda n: n, (Count(Select(LETTER, LETTER, eq), 3),)), "a Count in it has longest=3"),
        (Map(lambda letter: "<|bos|>", (LETTER,)), "reserved and can't be a value"),
    ],
)
def test_what_no_model_computes_is_refused(output, message):
    with pytest.raises(InvalidInput, match=message):
        compile_program(Program("x", output, causal=True, longest=6))


def test_values_that_are_equal_but_not_written_alike_are_refused():
    mixed = Map(lambda letter: {"a": True, "b": 1, "c": 0}[letter], (LETTER,))
    with pytest.raises(InvalidInput, match="equal but differ as text"):
        compile_program(Program("mixed", mixed, causal=True, longest=6))


def test_the_output_of_a_program_must_be_values():
    with pytest.raises(InvalidInput, match="Map it to values"):
        compile_program(Program("count", Count(by_table([True] * 9), 6), causal=True, longest=6))


def test_a_number_is_mapped_alone():
    with pytest.raises(InvalidInput, match="two that are not numbers"):
        Map(lambda n, letter: n, (every(), LETTER))


def test_an_aggregate_of_several_values_is_refused():
    everywhere = Select(TOKENS, TOKENS, lambda key, query: True)
    program = Program("all", Aggregate(everywhere, TOKENS), causal=False, longest=6)
    with pytest.raises(InvalidInput, match="2 positions were selected"):
        program("ab")


def test_a_row_that_is_too_long_is_refused():
    with pytest.raises(InvalidInput, match="at most 10 tokens; got 11"):
        PROGRAMS[0]("a" * 11)


def test_random_rows_have_every_length():
    assert {len(row) for row in random_rows(1000)} == set(range(1, 11))
