"""Edges against known circuits: what is outside has no part, and patching names what is live.

The live edges in the cards were found in plain torch, without the engine that is graded here.
"""

from collections.abc import Sequence

import pytest
import torch
from architectures import in_turn
from torch import Tensor

import interp
from analyses import patch_paths
from analyses.methods.circuits.written import replaced
from analyses.methods.components.minimal_pairs import aligned
from interp import PAD, Transformer, card, computation_graph, edits, load, run
from interp.loading import MODEL_FOLDER
from interp.zoo.card import read_card
from training.evaluations.live_edges import Pairs, PlainModel, pairs_of
from training.recipes import induction_by_hand

KNOWN = [name for name in interp.bundled() if read_card(MODEL_FOLDER / name).circuit is not None]
KINDS = ("resample", "mean", "zero")
LEAST = 1e-12
"""A KL below this is a rounding error, in nats."""


def as_tokens(rows: Sequence[Sequence[int]]) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[PAD] * (width - len(row))] for row in rows])


def model_and_pairs(name: str) -> tuple[Transformer, Pairs, Tensor, Tensor]:
    """The model in float64, its pairs, and those as padded tokens."""
    model = load(name).double()
    by_hand = name == "induction-by-hand"
    pairs = induction_by_hand.pairs() if by_hand else pairs_of(model, card(name).pairs)
    return model, pairs, *(as_tokens([pair[side] for pair in pairs]) for side in (0, 1))


@pytest.mark.parametrize(("name", "kind"), in_turn(KNOWN, KINDS, KNOWN))
def test_all_edges_outside_the_circuit_together_change_nothing(name, kind):
    """Replaced at once, they leave every logit; those of the circuit do not."""
    model, _, clean, corrupt = model_and_pairs(name)
    clean_batches, corrupt_batches = aligned(model, clean, corrupt)
    values = replaced(model, clean_batches, corrupt_batches, kind)
    circuit = set(card(name).circuit.edges)
    plain = run(model, *clean_batches).logits
    real = clean_batches[0].is_real

    def change(inside: bool) -> float:
        made = [
            edits.edge(writer.name, reader.name, values[writer.name])
            for writer, reader in computation_graph(model).edges
            if ((writer.name, reader.name) in circuit) == inside
        ]
        return float((run(model, *clean_batches, edits=made).logits - plain)[real].abs().max())

    assert change(inside=False) <= 1e-12
    assert change(inside=True) > 1


@pytest.mark.parametrize(("name", "kind"), in_turn(KNOWN, KINDS, KNOWN))
def test_exact_patching_names_exactly_the_live_edges(name, kind):
    """On the pairs of the card; what is live is part of the circuit."""
    model, _, clean, corrupt = model_and_pairs(name)
    circuit = card(name).circuit
    result = patch_paths(model, clean, corrupt, method=kind)
    effects = zip(result.edges, result.effect.abs().amax(-1).tolist(), strict=True)
    named = {edge for edge, effect in effects if effect > LEAST}
    assert named == set(getattr(circuit.live, kind))
    assert named <= set(circuit.edges)


@pytest.mark.parametrize("name", KNOWN)
def test_the_plain_model_computes_what_the_model_does(name):
    """The oracle agrees with the engine on every logit, by itself."""
    model, pairs, _, _ = model_and_pairs(name)
    oracle = PlainModel(model)
    for ids, _ in pairs[:6]:
        expected = run(model, torch.tensor([ids])).logits[0]
        torch.testing.assert_close(oracle.run(ids)[0], expected, rtol=0, atol=1e-9)


def test_kinds_of_patching_differ():
    """Reversing rows of one length: of a changed letter, two edges carry the difference."""
    live = card("rasp-reverse").circuit.live
    assert [len(edges) for edges in (live.resample, live.mean, live.zero)] == [2, 11, 10]
