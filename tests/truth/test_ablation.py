"""Ablation names the circuit: all of it and nothing else, on every model whose circuit is known.

Measured by KL from the model's own predictions at all positions. A logit difference sees one
position, and effects of both signs cancel in its mean.
"""

from functools import cache

import pytest
import torch

import interp
from analyses import ablate
from analyses.methods.components.components import components_of
from interp.loading import MODEL_FOLDER
from interp.metrics import logit_diff
from interp.zoo.card import read_card
from training.evaluations.induction import repeated_tokens
from training.recipes.rasp import random_rows

KNOWN = [name for name in interp.bundled() if read_card(MODEL_FOLDER / name).circuit is not None]
REPLACED = {
    "zero": {"method": "zero"},
    "mean": {"method": "mean"},
    "mean per position": {"method": "mean", "per_position": True},
    "resample": {"method": "resample"},
}
LETTERS = "abcde"


@cache
def model_of(name):
    return interp.load(name)


def truth(name, units):
    circuit = read_card(MODEL_FOLDER / name).circuit
    return set(circuit.heads if units == "heads" else circuit.mlps)


def rows_of(name):
    """Rows as the model reads them, of many lengths where it reads such."""
    if name == "induction-by-hand":
        return repeated_tokens(range(1, 63), rows=12, half=10, seed=3, bos=0)
    return random_rows(64, seed=2)


def rows_of_one_length(name):
    if name == "induction-by-hand":
        return rows_of(name)
    draw = torch.randint(len(LETTERS), (48, 8), generator=torch.Generator().manual_seed(0))
    return ["".join(LETTERS[index] for index in row) for row in draw.tolist()]


def named(name, prompts, **settings):
    """The units whose effect is significant; none of the others may have any effect."""
    frame = ablate(model_of(name), prompts, metric="kl", **settings).to_frame()
    assert frame["size"][~frame["significant"]].max() <= 1e-6 or frame["significant"].all()
    return set(frame["name"][frame["significant"]])


OF_HEADS = [(name, "heads") for name in KNOWN]
OF_MLPS = [(name, "mlps") for name in KNOWN if truth(name, "mlps")]


@pytest.mark.parametrize("replaced", REPLACED)
@pytest.mark.parametrize(("name", "units"), OF_HEADS + OF_MLPS)
def test_ablation_names_exactly_the_circuit(name, units, replaced):
    """Precision = recall = 1, on rows that differ in all that the circuit computes."""
    assert named(name, rows_of(name), units=units, **REPLACED[replaced]) == truth(name, units)


@pytest.mark.parametrize(("name", "units"), OF_HEADS + OF_MLPS)
def test_zeros_name_it_on_any_rows(name, units):
    """Zero is no value that a head or an MLP of a circuit has on these rows."""
    significant = named(name, rows_of_one_length(name), units=units, method="zero")
    assert significant == truth(name, units)


LENGTH = {"heads": {"L0H0"}, "mlps": {"L0MLP", "L1MLP"}}
"""In rasp-reverse: the length of the row (L0H0, L0MLP), and each position's opposite (L1MLP)."""


@pytest.mark.parametrize("units", LENGTH)
@pytest.mark.parametrize("replaced", ["mean per position", "resample"])
def test_what_is_the_same_on_all_rows_is_not_found_by_another_rows_value(units, replaced):
    """Rows of one length: their length is replaced by itself. Rows of many lengths show it."""
    settings = {"units": units, **REPLACED[replaced]}
    one_length = named("rasp-reverse", rows_of_one_length("rasp-reverse"), **settings)
    assert truth("rasp-reverse", units) - one_length == LENGTH[units]
    assert one_length < truth("rasp-reverse", units)


def test_a_mean_over_positions_is_not_each_positions_value():
    """The opposite of a position differs between positions, its length does not."""
    rows = rows_of_one_length("rasp-reverse")
    assert named("rasp-reverse", rows, units="mlps", method="mean") == {"L1MLP"}


MOVED_BY = {
    "induction-by-hand": {"pattern": {"L1H0"}, "v": {"L0H0", "L1H0"}},
    "rasp-duplicates": {"pattern": {"L0H0"}, "v": set()},
    "rasp-histogram": {"pattern": {"L0H0"}, "v": set()},
    "rasp-fraction": {"pattern": set(), "v": {"L1H0"}},
    "rasp-reverse": {"pattern": set(), "v": {"L2H0"}},
}
"""Whether a head carries what differs between rows of one length by where it attends, or by what it
moves from there: a previous-token head attends alike on all rows, and moves the token; a head that
counts moves the same mark from wherever it attends."""


@pytest.mark.parametrize("part", ["pattern", "v"])
@pytest.mark.parametrize("name", KNOWN)
def test_resampling_pattern_or_values_shows_which_of_them_carries_the_row(name, part):
    significant = named(name, rows_of_one_length(name), method="resample", part=part)
    assert significant == MOVED_BY[name][part]


def test_a_logit_difference_sees_only_the_position_that_it_reads():
    """Rows whose last letter occurred before: without the head every letter is taken for seen."""
    name, model = "rasp-duplicates", model_of("rasp-duplicates")
    rows = [row for row in rows_of(name) if row[-1] in row[:-1]]
    at_last = logit_diff(model.to_single_token("seen"), model.to_single_token("new"))
    assert len(rows) >= 5
    assert ablate(model, rows, method="zero", metric=at_last).effect.abs().max() <= 1e-6
    assert named(name, rows, method="zero") == truth(name, "heads")


@pytest.mark.parametrize("name", ["induction-by-hand", "rasp-reverse"])
def test_two_heads_in_a_row_do_the_work_of_one(name):
    """Either is needed by what follows: together they cost no more than one of them."""
    ablation = ablate(model_of(name), rows_of(name), units="pairs", method="zero", metric="kl")
    frame = ablation.to_interaction_frame()
    interacting = frame[frame["significant"]]
    assert [*interacting["name"]] == [" + ".join(sorted(truth(name, "heads")))]
    assert (interacting["interaction"] < -1).all()
    assert frame["size"][~frame["significant"]].max() <= 1e-6


@pytest.mark.parametrize("name", KNOWN)
def test_everything_outside_the_circuit_together_has_no_effect(name):
    """And the circuit together has one."""
    model = model_of(name)
    every = {component for units in ("heads", "mlps") for component in truth(name, units)}
    components = components_of(model)
    outside = [
        component.name
        for component in (*components.heads, *components.mlps)
        if component.name not in every
    ]
    groups = {"outside": outside, "circuit": sorted(every)}
    ablation = ablate(model, rows_of(name), units=groups, method="zero", metric="kl")
    assert ablation.effect[0].abs().max() <= 1e-6
    assert ablation.effect[1].mean() > 1
