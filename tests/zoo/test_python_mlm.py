"""``python-mlm`` knows hidden tokens far better than the commonest one would."""

from dataclasses import replace

import pytest
import torch

import interp
from interp.config import PositionsConfig
from interp.text.prompts import read_prompts
from interp.zoo.training.evaluations.completion import preference
from interp.zoo.training.evaluations.masked import commonest_accuracy, hide, masked_accuracy
from interp.zoo.training.recipes.python_mlm import CONFIG, MASK, VOCABULARY, held_out


@pytest.fixture(scope="module")
def trained():
    return interp.load("python-mlm")


@pytest.mark.slow
def test_it_knows_hidden_tokens(trained, text_mlm):
    hidden = held_out(text_mlm, trained.to_single_token(MASK), rows=100)
    baseline = commonest_accuracy(text_mlm.train, hidden)
    assert 0 < baseline < 0.2
    assert masked_accuracy(trained, hidden) > baseline + 0.3


@pytest.mark.slow
def test_what_is_hidden_matters(trained, text_mlm):
    """With every other token hidden too, it knows little more than the commonest."""
    hidden = held_out(text_mlm, trained.to_single_token(MASK), rows=50)
    hidden.seen[:, 1:] = trained.to_single_token(MASK)
    assert masked_accuracy(trained, hidden) < commonest_accuracy(text_mlm.train, hidden) + 0.1


def test_it_prefers_what_fits(trained):
    assert preference(trained, read_prompts("python-masked")) >= 0.8


def test_without_positions_it_knows_no_order(trained):
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


def test_hiding_follows_the_recipe():
    tokens = torch.randint(5, 900, (400, CONFIG.n_ctx), generator=torch.Generator().manual_seed(0))
    hidden = hide(tokens, 1, VOCABULARY, torch.Generator().manual_seed(1))
    where = hidden.where
    assert not where[:, 0].any()
    assert torch.equal(hidden.seen[~where], tokens[~where])
    assert where[:, 1:].double().mean() == pytest.approx(0.15, abs=0.01)
    assert (hidden.seen[where] == 1).double().mean() == pytest.approx(0.8, abs=0.02)
    assert (hidden.seen[where] == tokens[where]).double().mean() == pytest.approx(0.1, abs=0.02)
