"""A logit is the sum of its terms, on every architecture whose logits are linear in the stream."""

import pytest
import torch
from architectures import ARCHITECTURES, assert_close, build, tokens_of

from analyses.methods.attribution.logit_terms import (
    Terms,
    logit_direction,
    logit_terms,
    places_of_terms,
    source_terms,
)
from interp import Transformer, run
from interp.errors import InvalidInput
from interp.model.unembedding import Unembedding
from interp.model.unembedding_kinds import MaskedHead

BOUND = 1e-10


def reads_the_stream(name: str) -> bool:
    config = ARCHITECTURES[name]
    return config.unembeds and config.head is None


LINEAR = [name for name in ARCHITECTURES if reads_the_stream(name)]
HEADS = [name for name in ARCHITECTURES if ARCHITECTURES[name].head is not None]


def terms_and_logit(model: Transformer, target: int) -> tuple[Terms, torch.Tensor]:
    """The terms of a target's logit at each row's last column, and that logit before any cap."""
    tokens = tokens_of(model.config)
    done = run(model, *tokens, record=places_of_terms(model))
    unembed = model.unembed
    assert isinstance(unembed, Unembedding)
    rows, last = done.logits.shape[0], done.logits.shape[1] - 1
    column = torch.full((rows,), last)
    w, bias = logit_direction(unembed, torch.full((rows,), target))
    terms = logit_terms(model, done.cache, w, column) | bias
    return terms, done.logits[:, last, target]


@pytest.mark.parametrize("name", LINEAR)
def test_a_logit_is_the_sum_of_its_terms(name):
    """logit = Σ terms, after the soft cap if there is one; no term can be left out."""
    model = build(name)
    terms, logit = terms_and_logit(model, target=3)
    cap = model.unembed.soft_cap
    assert_close(cap(sum(terms.values())), logit, BOUND)
    for left_out in terms:
        rest = sum(value for name, value in terms.items() if name != left_out)
        assert (cap(rest) - logit).abs().max() > 1e-6, left_out


@pytest.mark.parametrize("name", HEADS)
def test_a_masked_language_head_is_refused(name):
    model = build(name)
    assert isinstance(model.stacks[-1].final_norm, MaskedHead)
    with pytest.raises(InvalidInput, match="not linear in the stream"):
        terms_and_logit(model, target=3)


@pytest.mark.parametrize("name", LINEAR)
def test_the_term_of_a_head_is_the_sum_over_the_tokens_it_attends_to(name):
    """z_i W_O·w = Σ_j A_ij v_j W_O·w."""
    model = build(name)
    done = run(model, *tokens_of(model.config), record=places_of_terms(model, sources=True))
    rows, column = done.logits.shape[0], torch.full((done.logits.shape[0],), 1)
    w = model.unembed.W_U[:, 3].expand(rows, -1)
    terms = logit_terms(model, done.cache, w, column)
    by_key = source_terms(model, done.cache, w, column)
    assert [part for part in terms if part.kind == "head"] == list(by_key)
    for head, each in by_key.items():
        assert_close(each.sum(-1), terms[head], BOUND)
