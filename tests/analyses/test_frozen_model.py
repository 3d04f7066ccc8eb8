"""The frozen model of a run: what it keeps changes no number."""

import sys

import torch
from architectures import assert_close

import interp
from analyses import attribution_graph
from analyses.methods.frozen import FrozenModel, places_of_run
from interp import run

frozen_model = sys.modules[FrozenModel.__module__]


def test_patterns_that_are_not_kept_give_the_same_graph(monkeypatch):
    model, prompt = interp.load("python-2l"), "def f(self):\n    return self"
    expected = attribution_graph(model, prompt, max_nodes=20, check=0)
    monkeypatch.setattr(frozen_model, "KEPT_BYTES", 0)
    formed_anew = attribution_graph(model, prompt, max_nodes=20, check=0)
    assert expected.edges == formed_anew.edges
    assert_close(formed_anew.terms, expected.terms)


def test_patterns_are_kept_up_to_a_number_of_bytes(monkeypatch):
    model = interp.load("python-2l")
    (batch,) = model.batches("def f(self):")
    with torch.no_grad():
        cache = run(model, batch, record=places_of_run(model)).cache
        frozen = FrozenModel(model, cache, batch.is_real[0].nonzero()[:, 0])
        attentions = [
            each for each in frozen.branches if each.writers.stop - each.writers.start > 1
        ]
        nbytes = frozen.attention(attentions[0]).pattern.nbytes
        assert frozen.attention(attentions[0]) is frozen.attention(attentions[0])
        monkeypatch.setattr(frozen_model, "KEPT_BYTES", nbytes)
        assert frozen.attention(attentions[1]) is not frozen.attention(attentions[1])
