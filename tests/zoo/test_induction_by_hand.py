"""``induction-by-hand`` holds its two heads and nothing else."""

import pytest
import torch

import analyses
import interp
from analyses import ablate_heads
from interp.linalg import LowRank
from interp.model.attention.attention import Attention
from training.evaluations.induction import repeated_tokens
from training.recipes import induction_by_hand


@pytest.fixture(scope="module")
def by_hand():
    return interp.load("induction-by-hand")


def test_it_completes_random_sequences(by_hand):
    assert induction_by_hand.accuracy(by_hand) >= 0.99
    assert induction_by_hand.accuracy_latest(by_hand) >= 0.99


def test_it_is_what_its_recipe_builds(by_hand):
    built = dict(induction_by_hand.transformer().named_parameters())
    assert all(torch.equal(weight, built[name]) for name, weight in by_hand.named_parameters())


@pytest.mark.parametrize("head", [(0, 0), (1, 0)])
def test_without_either_head_of_the_circuit_it_predicts_nothing(by_hand, head):
    tokens = repeated_tokens(range(1, 63), rows=64, half=20, seed=3, bos=0)
    without = interp.edits.zero("z", layer=head[0], head=head[1])
    predicted = interp.run(by_hand, tokens, edits=[without]).logits.argmax(-1)
    assert (predicted[:, 21:-1] == tokens[:, 22:]).double().mean() < 0.2


@pytest.mark.parametrize("method", ["zero", "mean", "resample"])
def test_ablation_names_the_two_heads_of_the_circuit_and_no_other(by_hand, method):
    tokens = repeated_tokens(range(1, 63), rows=16, half=12, seed=5, bos=0)
    frame = ablate_heads(by_hand, tokens, method=method).to_frame()
    assert set(frame.loc[frame["significant"], "name"]) == {"L0H0", "L1H0"}
    assert frame.loc[~frame["significant"], "effect"].abs().max() < 1e-6


def test_a_model_that_misstates_its_circuit_fails_an_identity(by_hand, monkeypatch):
    monkeypatch.setattr(Attention, "S", lambda attn, head: LowRank(attn.W_V[0], attn.W_O[head]))
    built = induction_by_hand.transformer()
    with torch.no_grad():
        built.blocks[0].attn.W_V[1, 0] = 1.0
        built.blocks[0].attn.W_O[1, :, 0] = 1.0
    failed = [identity.name for identity in analyses.verify(built) if not identity.holds]
    assert failed == ["H(x) = Σ A·x·S, head by head"]
