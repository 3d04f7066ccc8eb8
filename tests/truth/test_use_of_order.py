"""Which heads use order, and by what they know it, on models whose program is known."""

from functools import cache

import pytest

import interp
from analyses import OrderSensitivity, order_sensitivity
from interp.loading import MODEL_FOLDER
from interp.zoo.card import read_card

PROMPTS = {
    "induction-by-hand": "letters",
    "python-2l": "repeated",
    "python-4l": "docstrings",
    "python-mlm": "python-masked",
}
ROWS = 12
TRAINED = ["python-2l", "python-mlm"]
COMPILED = [
    "induction-by-hand",
    *(f"rasp-{n}" for n in ("duplicates", "fraction", "histogram", "reverse")),
]
ROUNDING = 3e-15


@cache
def sensitivity_of(name: str, scope: str = "whole") -> OrderSensitivity:
    """In float64, on twelve of the model's prompts."""
    prompts = [prompt.text for prompt in interp.read_prompts(PROMPTS.get(name, name))[:ROWS]]
    permutations = ["random"]
    model = interp.load(name).double()
    return order_sensitivity(model, prompts, permutations=permutations, scope=scope, draws=2)


BY = {
    "induction-by-hand": {"L0H0": "mask and positions", "L1H0": "positions"},
    "rasp-duplicates": {"L0H0": "mask"},
    "rasp-fraction": {"L1H0": "mask"},
    "rasp-histogram": {},
    "rasp-reverse": {"L2H0": "positions"},
}
"""A running count knows what came before by the mask; a reversal asks for a position; counts of the
whole row, such as its length (L0H0 of rasp-reverse), know no order. The induction head finds
nothing to match unless the head before it found the previous token by positions."""


@pytest.mark.parametrize("name", BY)
def test_each_head_of_a_program_knows_order_as_the_program_does(name):
    assert {head: by for head, by in sensitivity_of(name).uses().items() if by} == BY[name]


def test_a_live_head_that_counts_all_uses_no_order():
    """L0H0 of rasp-reverse and of rasp-histogram write something, and use no order."""
    for name in ("rasp-reverse", "rasp-histogram"):
        assert "L0H0" in read_card(MODEL_FOLDER / name).circuit.heads
        result = sensitivity_of(name)
        assert result.of("positions")[result.names.index("L0H0")] <= ROUNDING


def test_the_fraction_is_counted_behind_the_mask():
    """Positions add nothing to it, and without the mask it is a count of all."""
    result = sensitivity_of("rasp-fraction")
    part = result.names.index("L1H0")
    of = {variant: float(result.of(variant)[part]) for variant in result.variants}
    assert abs(of["mask"] - of["mask and positions"]) <= ROUNDING
    assert 0.5 < of["mask"] < 0.8
    assert of["positions"] == of["neither"] == 0


@pytest.mark.slow
def test_a_masked_model_has_positions_alone_and_a_causal_one_has_both():
    causal, mlm = (sensitivity_of(name) for name in TRAINED)
    assert mlm.variants == ("positions", "neither")
    assert set(mlm.uses().values()) == {"positions"}
    assert set(causal.uses().values()) == {"mask and positions"}


@pytest.mark.parametrize("name", [*COMPILED, *TRAINED])
def test_with_neither_nothing_knows_order(name):
    assert sensitivity_of(name).of("neither").max() <= ROUNDING


def test_the_previous_token_head_follows_positions_and_induction_heads_the_mask():
    """Of their own inputs: what the head before wrote into them has moved along."""
    result = sensitivity_of("python-2l", "own")
    s = {
        variant: dict(zip(result.names, result.of(variant).tolist(), strict=True))
        for variant in result.variants
    }
    assert s["positions"]["L0H5"] > 1.1 > s["mask"]["L0H5"]
    for head in ("L1H0", "L1H5"):
        assert s["mask"][head] > 0.6
        assert s["positions"][head] < 0.4


@pytest.mark.parametrize("name", ["python-2l", pytest.param("python-4l", marks=pytest.mark.slow)])
def test_behind_the_mask_only_later_layers_know_the_order_of_the_prefix(name):
    """Without positions the first layer sums over a set, and the last token sees all of it."""
    result = sensitivity_of(name)
    bag = dict(zip(result.names, result.of("mask", "bag").tolist(), strict=True))
    assert max(s for part, s in bag.items() if part.startswith("L0H")) <= 5e-16
    later = [s for part, s in bag.items() if part in ("L1", "L2", "L3")]
    assert len(later) == (1 if name == "python-2l" else 3)
    assert all(0.2 <= s <= 0.8 for s in later), later
    assert later == sorted(later)
