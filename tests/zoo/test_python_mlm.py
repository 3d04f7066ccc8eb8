"""``python-mlm`` predicts masked tokens far better than the most frequent token does."""

from dataclasses import replace

import pytest
import torch

import interp
from interp.config import PositionsConfig
from interp.prompts.prompts import read_prompts
from training.evaluations.completion import preference
from training.evaluations.masked import (
    mask_tokens,
    masked_accuracy,
    most_frequent_accuracy,
)
from training.recipes.python_mlm import CONFIG, MASK, VOCABULARY, held_out


@pytest.fixture(scope="module")
def trained():
    return interp.load("python-mlm")


@pytest.mark.slow
def test_it_predicts_masked_tokens(trained, text_mlm):
    batch = held_out(text_mlm, rows=100)
    baseline = most_frequent_accuracy(text_mlm.train, batch)
    assert 0 < baseline < 0.2
    assert masked_accuracy(trained, batch) > baseline + 0.3


@pytest.mark.slow
def test_it_needs_the_tokens_that_are_not_masked(trained, text_mlm):
    """With every other token masked too, it does little better than the most frequent token."""
    batch = held_out(text_mlm, rows=50)
    batch.inputs[:, 1:] = trained.to_single_token(MASK)
    assert masked_accuracy(trained, batch) < most_frequent_accuracy(text_mlm.train, batch) + 0.1


def test_it_prefers_what_fits(trained):
    assert preference(trained, read_prompts("python-masked")) >= 0.8


def test_without_positions_it_is_permutation_covariant(trained):
    """h(Px) = P h(x), by the weights as shipped; its positions alone break it."""
    encoder = replace(trained.config.encoder, positions=PositionsConfig(kind="none"))
    bare = interp.Transformer(replace(trained.config, encoder=encoder)).double()
    bare.load_state_dict(trained.state_dict())
    tokens = trained.to_tokens("def read(path):\n    with open(path) as file:\n")
    order = torch.randperm(tokens.shape[1], generator=torch.Generator().manual_seed(0))

    def gap(model):
        with torch.no_grad():
            return (model(tokens[:, order]) - model(tokens)[:, order]).abs().max()

    assert gap(bare) <= 1e-10
    assert gap(trained) > 1


def test_masking_follows_the_recipe():
    tokens = torch.randint(5, 900, (400, CONFIG.n_ctx), generator=torch.Generator().manual_seed(0))
    batch = mask_tokens(tokens, 1, VOCABULARY, torch.Generator().manual_seed(1))
    where = batch.predicted
    assert not where[:, 0].any()
    assert torch.equal(batch.inputs[~where], tokens[~where])
    assert where[:, 1:].double().mean() == pytest.approx(0.15, abs=0.01)
    assert (batch.inputs[where] == 1).double().mean() == pytest.approx(0.8, abs=0.02)
    assert (batch.inputs[where] == tokens[where]).double().mean() == pytest.approx(0.1, abs=0.02)
