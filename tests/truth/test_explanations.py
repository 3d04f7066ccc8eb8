"""Explanations of known circuits name all of them and nothing else, or state that there is none.

Minimal pairs are those of the cards. What carries the difference and what is needed alike are
together the circuit; a model at its first step has none.
"""

import pytest

from analyses import explain
from analyses.explain import FAITHFUL
from interp import card, load, read_prompts
from interp.prompts import logit_diff_of_prompts

RASP = ["rasp-duplicates", "rasp-fraction", "rasp-histogram", "rasp-reverse"]


def explained(name, pairs=None, shift=0, n=12):
    """Of the first pairs of a card, corrupted prompts shifted by some rows."""
    model, prompts = load(name), read_prompts(f"{pairs or name}-pairs")[:n]
    metric = logit_diff_of_prompts(model.to_single_token, prompts)
    clean, corrupt = ([getattr(prompt, side) for prompt in prompts] for side in ("text", "corrupt"))
    other = [*corrupt[shift:], *corrupt[:shift]]
    return explain(model, clean, other, metric=metric, steps=5)


@pytest.mark.parametrize("name", RASP)
def test_every_component_of_a_compiled_program_is_named_and_no_other(name):
    explanation, circuit = explained(name), card(name).circuit
    assert explanation.faithfulness >= FAITHFUL
    assert explanation.faithfulness_control < 0.4
    assert set(explanation.names) == {*circuit.heads, *circuit.mlps}
    assert {*explanation.edges, *explanation.support} <= set(circuit.edges)
    assert set(explanation.edges) <= set(circuit.live.resample)
    assert set(explanation.support) <= set(circuit.live.mean)


@pytest.mark.slow
def test_induction_in_a_trained_model():
    """The strongest path is that of the previous-token head and the induction head."""
    explanation = explained("python-2l")
    assert explanation.faithfulness >= FAITHFUL
    assert explanation.faithfulness_control < 0.2
    assert explanation.paths[0] == (("embed", "L0H5.v"), ("L0H5", "L1H0.k"), ("L1H0", "logits"))
    roles = dict(zip(explanation.names, explanation.roles, strict=True))
    attends = dict(zip(explanation.names, explanation.attends, strict=True))
    assert roles["L0H5"].startswith("previous-token")
    assert roles["L1H0"].startswith("induction")
    assert attends["L0H5"].startswith("previous 0.9")
    assert attends["L1H0"].startswith("the token after the same one")
    assert "embed → L0H5.v (previous-token) → L1H0.k (induction" in explanation.summary()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shift"), [("python-2l@0", 0), ("python-2l", 1)], ids=["untrained", "shuffled"]
)
def test_no_small_circuit_explains_what_has_none(name, shift):
    """An untrained model; or a trained one, with the corrupted prompts of other pairs."""
    explanation = explained(name, "python-2l", shift)
    assert explanation.faithfulness < FAITHFUL
    assert explanation.summary().startswith("No small circuit explains this")
