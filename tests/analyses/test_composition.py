"""The composition of all pairs of heads, as a table, a figure and in words."""

import pytest
from architectures import build
from declared import Call, Command, Declared, Made, Symmetric, Without, example, odd, small

from analyses import composition
from interp import load
from interp.errors import InvalidInput


def test_the_two_heads_that_were_set_by_hand_compose_by_keys_alone():
    frame = composition(load("induction-by-hand")).to_frame().set_index("kind")
    assert set(frame["writer"] + " " + frame["reader"]) == {"L0H0 L1H0"}
    assert frame.loc["K", "excess"] > 0.06
    assert frame.loc[["Q", "V"], "composition"].max() < 1e-6


def test_pairs_are_counted():
    assert "of 1 pair of heads," in composition(load("induction-by-hand")).headline()
    assert "of 16 pairs of heads," in composition(build("llama")).headline()


def test_rows_are_all_pairs_the_furthest_above_the_baseline_first():
    result = composition(build("llama"))
    frame = result.to_frame()
    assert len(frame) == 3 * 4 * 4
    assert frame["excess"].is_monotonic_decreasing
    assert list(frame["excess"]) == pytest.approx(list(frame["composition"] - frame["control"]))
    first = frame.iloc[0]
    assert f"{first['writer']} → {first['reader']}" in result.summary().splitlines()[0]


@pytest.mark.parametrize("kind", ["Q", "K", "V"])
def test_the_figure_shows_composition_minus_the_baseline(kind):
    result = composition(build("t5"))
    figure = result.figure(kind)
    rows, columns = figure.layout.yaxis.ticktext, figure.layout.xaxis.ticktext
    frame = result.to_frame().query("kind == @kind")
    for writer, reader, excess in zip(
        frame["writer"], frame["reader"], frame["excess"], strict=True
    ):
        assert figure.data[0].z[rows.index(writer)][columns.index(reader)] == excess
    count = sum(value is not None for row in figure.data[0].z for value in row)
    assert count == len(frame)


def test_the_offset_is_stated_where_positions_are_rotary():
    near, far = (composition(build("llama"), offset=offset) for offset in (0, 4))
    assert "offset 4" in far.summary()
    change = (near.composition - far.composition).nan_to_num()
    assert (change[:2].abs().amax((1, 2)) > 0.01).all()
    assert (change[2] == 0).all()
    absolute = composition(build("gpt2"), offset=4)
    assert absolute.offset is None
    assert "offset" not in absolute.summary()


def test_bad_input_is_refused():
    with pytest.raises(InvalidInput, match="'A' is not one of Q, K, V"):
        composition(build("gpt2")).figure("A")
    with pytest.raises(InvalidInput, match="single layer"):
        composition(build("seed"))


# ---- declared for the tests of all analyses -------------------------------------------------


DECLARED = Declared(
    analysis=composition,
    made=Made(lambda: composition(example.model())),
    call=Call((small.MODEL,), {}, {"offset": odd.OFFSET}, runs=False),
    command=Command(
        "circuits",
        (),
        "circuits",
        "L0H0 → L1H0",
        "ov=None qk=None token=None offset=None first_mlp=False",
    ),
    of_each_prompt=Without("it reads weights alone"),
    of_each_pair=Without("it reads weights alone"),
    symmetric=Symmetric({"": lambda case: composition(case.model, offset=2)}),
)
