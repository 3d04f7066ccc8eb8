"""Evaluations give what TransformerLens's give of the same model."""

from types import SimpleNamespace

import pytest
import torch

from interp.compat import evals
from interp.compat.utils import lm_cross_entropy_loss
from interp.errors import InvalidInput


class Letters:
    """Characters as ids."""

    bos_token_id = 0

    def encode(self, text):
        return [ord(letter) for letter in text]


class Model:
    """Logits of 130 tokens, which depend on the token alone."""

    cfg = SimpleNamespace(default_prepend_bos=True)
    tokenizer = Letters()

    def __call__(self, tokens, return_type):
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(20000, generator=generator)[
            (7 * tokens[..., None] + torch.arange(130)) % 19999
        ]
        return logits if return_type == "logits" else lm_cross_entropy_loss(logits, tokens)


class Repeats(Model):
    """Predicts what came so many tokens before."""

    def __init__(self, period):
        self.period = period

    def __call__(self, tokens, return_type):
        expected = tokens.roll(self.period - 1, dims=1)
        return 100.0 * torch.nn.functional.one_hot(expected, 20000).float()


def test_ioi_is_that_of_transformer_lens():
    theirs = pytest.importorskip("transformer_lens.evals")
    ours = evals.IOIDataset(Letters(), num_samples=20, symmetric=True, seed=3)
    other = theirs.IOIDataset(Letters(), num_samples=20, symmetric=True, seed=3)
    assert ours.samples == other.samples
    assert all(ours[at]["prompt"].equal(other[at]["prompt"]) for at in range(20))
    assert evals.ioi_eval(Model(), ours) == pytest.approx(theirs.ioi_eval(Model(), other))


def test_names_are_exchanged_and_differ():
    data = evals.IOIDataset(Letters(), num_samples=10, symmetric=True, prepend_bos=False, seed=0)
    assert len(data) == 10
    for first, second in zip(data.samples[::2], data.samples[1::2], strict=True):
        assert (first["IO"], first["S"]) == (second["S"], second["IO"])
        assert first["text"].endswith(first["IO"])
    same = evals.IOIDataset(Letters(), names=["A", "AB"], num_samples=2, seed=0)
    with pytest.raises(InvalidInput, match="other names"):
        evals.ioi_eval(Model(), same)


def test_repeated_tokens_are_predicted_by_induction_alone():
    options = {"subseq_len": 8, "batch_size": 2, "device": "cpu"}
    assert evals.induction_loss(Repeats(8), **options) < 1e-3
    assert evals.induction_loss(Repeats(7), **options) > 10


def test_the_loss_of_data_is_the_mean_over_batches():
    batches = [{"tokens": torch.full((2, 5), at)} for at in range(4)]
    each = [Model()(batch["tokens"], "loss").item() for batch in batches]
    found = evals.evaluate_on_dataset(Model(), batches, device="cpu")
    assert found == pytest.approx(sum(each) / 4)
    some = evals.evaluate_on_dataset(Model(), batches, truncate=1, device="cpu")
    assert some == pytest.approx(sum(each[:2]) / 2)
    with pytest.raises(InvalidInput, match="no batch"):
        evals.evaluate_on_dataset(Model(), [], device="cpu")
