"""Attention without mask and positions does not depend on the order of tokens: h(Px) = P h(x)."""

from dataclasses import replace

import pytest
import torch
from architectures import (
    ANYWHERE,
    ARCHITECTURES,
    D_MODEL,
    assert_close,
    build,
    covering,
    distance,
    tokens_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from interp import Config, PositionsConfig, run
from interp.model.context import Context

BOUND = 1e-12
POS = 5
SET_ENCODERS = ["set-encoder", "normed-set-encoder"]
ORDERED_ENCODERS = ["bert", "rotary-encoder", "alibi-encoder", "sinusoidal-encoder"]
SCHEMES = [
    PositionsConfig(kind, layout=layout)
    for kind in ("learned", "sinusoidal", "rotary", "alibi")
    for layout in ("half", "interleaved")
]
orders = st.permutations(range(POS)).map(torch.tensor)


def with_positions(config: Config, positions: PositionsConfig) -> Config:
    return replace(config, encoder=replace(config.encoder, positions=positions))


def without_order(model, ids: torch.Tensor, order: torch.Tensor) -> float:
    """How far model(P ids) is from P model(ids)."""
    with torch.no_grad():
        return distance(model(ids[:, order]), model(ids)[:, order])


@settings(max_examples=10)
@given(order=orders)
@pytest.mark.parametrize("name", SET_ENCODERS)
def test_unmasked_attention_is_permutation_covariant(name, order):
    """H(Px) = P H(x)."""
    attention = build(name).blocks[0].attn
    x = torch.randn(2, POS, D_MODEL, generator=torch.Generator().manual_seed(1)).double()
    moved = attention(x[:, order], Context.plain(x))
    assert_close(moved, attention(x, Context.plain(x))[:, order], BOUND)


@settings(max_examples=10)
@given(order=orders)
@pytest.mark.parametrize("name", SET_ENCODERS)
def test_a_whole_encoder_without_positions_is_permutation_covariant(name, order):
    (ids,) = tokens_of(name, pos=POS)
    assert without_order(build(name), ids, order) <= BOUND


@given(order=orders)
@settings(max_examples=10)
def test_every_activation_of_it_is_permutation_covariant(order):
    """Streams, queries and neurons move with their tokens; patterns by rows and columns."""
    model = build("normed-set-encoder")
    (ids,) = tokens_of("normed-set-encoder", pos=POS)
    before, after = (run(model, i, record="all").cache for i in (ids, ids[:, order]))
    for place, value in before.items():
        square = "query" in place.point.axes
        moved = value[:, :, order][..., order] if square else value[:, order]
        assert_close(after[place], moved, BOUND)


@pytest.mark.parametrize("name", ORDERED_ENCODERS)
def test_positions_break_permutation_covariance(name):
    (ids,) = tokens_of(name, pos=POS)
    assert without_order(build(name), ids, torch.arange(POS).flip(0).roll(1)) > 1e-3


@pytest.mark.parametrize("positions", SCHEMES, ids=lambda p: f"{p.kind}-{p.layout}")
def test_each_position_scheme_alone_breaks_permutation_covariance(positions):
    """The same weights with positions and without: only without them is the order irrelevant."""
    config = ARCHITECTURES["set-encoder"]
    (ids,) = tokens_of(config, pos=POS)
    order = torch.tensor([1, 2, 0, 4, 3])
    assert without_order(build(config), ids, order) <= BOUND
    assert without_order(build(with_positions(config, positions)), ids, order) > 1e-3


def test_a_causal_mask_breaks_permutation_covariance():
    """The same weights with a causal mask."""
    encoder = ARCHITECTURES["set-encoder"]
    decoder = replace(encoder, encoder=None, decoder=replace(encoder.encoder, positions=ANYWHERE))
    (ids,) = tokens_of(encoder, pos=POS)
    assert without_order(build(decoder), ids, torch.arange(POS).flip(0)) > 1e-3


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_rows_of_a_batch_never_meet(name):
    """Permuting the batch permutes the logits."""
    model, order = build(name), torch.tensor([2, 0, 1])
    tokens = tokens_of(name, batch=3)
    with torch.no_grad():
        assert_close(model(*(ids[order] for ids in tokens)), model(*tokens)[order], BOUND)


def test_a_source_without_positions_is_a_set_to_its_decoder():
    """In an encoder–decoder, the order of the source is irrelevant, that of the target is not."""
    model = build("uneven-pair")
    source, target = tokens_of("uneven-pair", pos=POS)
    order = torch.tensor([3, 1, 0, 2, 5, 4])
    with torch.no_grad():
        assert_close(model(source[:, order], target), model(source, target), BOUND)
        moved = model(source, target[:, order[:4]])
        assert distance(moved, model(source, target[:, :4])[:, order[:4]]) > 1e-3
