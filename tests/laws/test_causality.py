"""A decoder never looks ahead: later tokens can't change earlier outputs, bit for bit."""

import pytest
import torch
from architectures import (
    D_VOCAB,
    DECODERS,
    ENCODERS,
    PAIRS,
    assert_close,
    assert_identical,
    build,
    covering,
    padded,
    tokens_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from interp import run
from interp.model.experts import Experts

POS = 6
cuts = st.integers(1, POS - 1)


def same(name: str):
    """Bit-identical, except with experts, which add in another order if given other tokens."""
    parts = (type(part) for part in build(name).modules())
    return assert_close if any(issubclass(p, Experts) for p in parts) else assert_identical


def changed(ids: torch.Tensor, cut: int) -> torch.Tensor:
    """Other tokens from ``cut`` on, the shape unchanged."""
    other = ids.clone()
    other[:, cut:] = (other[:, cut:] + 1) % D_VOCAB
    return other


@settings(max_examples=5)
@given(cut=cuts)
@pytest.mark.parametrize("name", covering(DECODERS))
def test_later_tokens_cannot_change_earlier_logits(name, cut):
    model = build(name)
    (ids,) = tokens_of(name, pos=POS)
    with torch.no_grad():
        before, after = model(ids), model(changed(ids, cut))
    same(name)(after[:, :cut], before[:, :cut])
    assert not torch.equal(after[:, cut], before[:, cut])


@pytest.mark.parametrize("kernel", ["fused", "explicit"])
@pytest.mark.parametrize("name", covering(DECODERS))
def test_later_tokens_cannot_change_any_earlier_activation(name, kernel):
    """With either kernel; in scores and pattern, at earlier queries."""
    model, cut = build(name), 3
    (ids,) = tokens_of(name, pos=POS)
    caches = [run(model, i, record="all", kernel=kernel).cache for i in (ids, changed(ids, cut))]
    for place in caches[0]:
        before, after = (cache[place] for cache in caches)
        if "query" in place.point.axes:
            before, after = before[:, :, :cut], after[:, :, :cut]
        else:
            before, after = before[:, :cut], after[:, :cut]
        same(name)(after, before)


@pytest.mark.parametrize("name", covering(DECODERS))
def test_every_earlier_token_changes_what_follows(name):
    """The converse within a decoder: the last output depends on each token before it."""
    model = build(name)
    (ids,) = tokens_of(name, pos=POS)
    with torch.no_grad():
        last = model(ids)[:, -1]
        for pos in range(POS):
            other = ids.clone()
            other[:, pos] = (other[:, pos] + 1) % D_VOCAB
            assert not torch.equal(model(other)[:, -1], last)


@pytest.mark.parametrize("name", ENCODERS)
def test_in_an_encoder_later_tokens_change_earlier_outputs(name):
    """The converse: a bidirectional model's outputs depend on tokens on both sides."""
    model = build(name)
    (ids,) = tokens_of(name, pos=POS)
    with torch.no_grad():
        before, after = model(ids), model(changed(ids, POS - 1))
    assert bool((after[:, 0] != before[:, 0]).any(-1).all())


@pytest.mark.parametrize("name", PAIRS)
def test_a_target_is_causal_but_sees_the_whole_source(name):
    model = build(name)
    source, target = tokens_of(name, pos=POS)
    with torch.no_grad():
        logits = model(source, target)
        later_target = model(source, changed(target, 3))
        later_source = model(changed(source, POS), target)
    assert_identical(later_target[:, :3], logits[:, :3])
    assert not torch.equal(later_target[:, 3], logits[:, 3])
    assert bool((later_source[:, 0] != logits[:, 0]).any(-1).all())


@pytest.mark.parametrize("name", covering(DECODERS))
def test_masked_cells_of_the_pattern_are_exactly_zero(name):
    model = build(name)
    cache = run(model, *tokens_of(name, pos=POS), record=["pattern", "scores"]).cache
    window = model.config.decoder.of_layer(0).attention.window or POS
    ones = torch.ones(POS, POS, dtype=torch.bool)
    hidden = ones.triu(1) | ones.tril(-window)
    assert bool((cache["pattern", 0][..., hidden] == 0).all())
    assert bool((cache["scores", 0][..., hidden] == -torch.inf).all())
    assert bool((cache["pattern", 0][..., ~hidden] > 0).all())


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_window_of_an_encoder_has_two_sides(side):
    """A_ij > 0 exactly where |i − j| < window, counted in each row's own tokens."""
    model, lengths = build("modernbert"), (POS, POS - 2)
    window = model.config.encoder.of_layer(1).attention.window
    rows = [tokens_of("modernbert", batch=1, pos=n)[0][0] for n in lengths]
    cache = run(model, padded(rows, side), record=["pattern"]).cache
    for row, n in enumerate(lengths):
        real = slice(0, n) if side == "right" else slice(POS - n, POS)
        index = torch.arange(n)
        near = (index[:, None] - index).abs() < window
        A = cache["pattern", 1][row, :, real, real]
        assert torch.equal(A > 0, near.expand_as(A))
        assert not near.all()
        assert bool((cache["pattern", 0][row, :, real, real] > 0).all())
