"""Multipliers, norms of single heads, rounded ALiBi, routings, shared experts: their formulas."""

from dataclasses import replace

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    GROUPED,
    PLAIN,
    assert_close,
    assert_identical,
    build,
    build_new,
    distance,
    tokens_of,
)

from interp import NormConfig, Transformer, edits, run
from interp.model.experts import LargestShares, SparseMixer

GRANITE, COHERE, FALCON = "granite-moe", "cohere", "falcon-rw"
BOUND = 1e-12


def with_decoder(name: str, **changes: object):
    """The configuration, with other fields of its decoder."""
    config = ARCHITECTURES[name]
    return replace(config, decoder=replace(config.decoder, **changes))


def with_weights_of(model: Transformer, config) -> Transformer:
    """A model of another configuration with the same weights."""
    other = Transformer(config).double()
    other.load_state_dict(model.state_dict())
    return other


def logits_of(model, name: str):
    with torch.no_grad():
        return model(*tokens_of(name))


@pytest.mark.parametrize("part", ["attn", "mlp"])
def test_what_is_written_is_multiplied(part):
    """written = c · f(norm(x))."""
    cache = run(build(GRANITE), *tokens_of(GRANITE), record="all").cache
    factor = ARCHITECTURES[GRANITE].decoder.residual_scale
    assert_identical(cache[f"{part}_out", 1], factor * cache[f"{part}_raw", 1])


def test_a_factor_is_in_all_that_is_written():
    """The same weights without c give other logits; c·W_O, c·b_O, c·W_out without c the same."""
    model, plain = build(GRANITE), with_decoder(GRANITE, residual_scale=None)
    factor, without = model.config.decoder.residual_scale, with_weights_of(model, plain)
    expected = logits_of(model, GRANITE)
    assert distance(logits_of(without, GRANITE), expected) > 1e-3
    with torch.no_grad():
        for block in without.blocks:
            written = (block.attn.weight_o, block.attn.b_O, block.mlp.weight_out)
            for weight in (*written, block.mlp.shared.weight_out):
                weight.mul_(factor)
    assert_close(logits_of(without, GRANITE), expected, BOUND)


@pytest.mark.parametrize("separate_gains", [True, False], ids=["separate-gains", "one-gain"])
def test_norms_of_single_heads_with_one_gain_are_one_norm(separate_gains):
    """The converse: with separate gains they are not."""
    attention = replace(GROUPED, qk_norm=NormConfig(bias=False))
    each = with_decoder(COHERE, attention=replace(attention, qk_norm_over="each_head"))
    model = build_new(replace(each, decoder=replace(each.decoder, exceptions=())))
    state = dict(model.state_dict())
    for name in [name for name in state if name.endswith("_norm.gain") and "attn" in name]:
        if not separate_gains:
            state[name] = state[name][:1].expand_as(state[name])
    model.load_state_dict(state)
    one_norm = with_decoder(COHERE, attention=attention, exceptions=())
    shared = Transformer(one_norm).double()
    shared.load_state_dict(
        {
            name: x[0] if name.endswith(("q_norm.gain", "k_norm.gain")) else x
            for name, x in state.items()
        }
    )
    off = distance(logits_of(model, COHERE), logits_of(shared, COHERE))
    assert off > 1e-6 if separate_gains else off <= BOUND


@pytest.mark.parametrize(
    ("n_heads", "pos", "is_exact"), [(4, 16, True), (16, 16, False), (4, 400, False)]
)
def test_rounding_changes_alibi_where_slopes_or_positions_have_too_many_bits(
    n_heads, pos, is_exact
):
    """Powers of two and up to 256 positions are exact in bfloat16."""
    attention = replace(PLAIN, n_heads=n_heads)
    rounded = replace(with_decoder(FALCON, attention=attention), n_ctx=400)
    positions = replace(rounded.decoder.positions, rounded=False)
    exact = replace(rounded, decoder=replace(rounded.decoder, positions=positions))
    model = build_new(rounded)
    (ids,) = tokens_of(FALCON, pos=pos)
    with torch.no_grad():
        off = distance(model(ids), with_weights_of(model, exact)(ids))
    assert off <= BOUND if is_exact else off > 1e-9


def logits_of_a_router() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(3, 5, 6, generator=generator, dtype=torch.float64)


def test_sparse_mixer_gives_weight_one_to_two_experts_without_a_margin():
    """Each softmax has a single expert."""
    logits = logits_of_a_router()
    expected = torch.zeros_like(logits).scatter(-1, logits.topk(2).indices, 1.0)
    assert_identical(SparseMixer(0.0)(logits), expected)


def test_sparse_mixer_with_a_wide_margin_takes_the_softmax_of_all_and_of_all_but_the_first():
    logits = logits_of_a_router()
    weights, (first, second) = SparseMixer(1e9)(logits), logits.topk(2).indices.split(1, -1)
    shares = LargestShares(1, renormalised=False)(logits)
    assert_close(weights.gather(-1, first), shares.gather(-1, first), BOUND)
    others = logits.scatter(-1, first, -torch.inf).softmax(-1)
    assert_close(weights.gather(-1, second), others.gather(-1, second), BOUND)
    assert (weights > 0).sum(-1).eq(2).all()


def test_the_shared_expert_adds_its_share_to_what_the_others_write():
    """With a weight of zero, only the other experts write, and its neurons have no effect."""
    model, tokens = build(GRANITE), tokens_of(GRANITE)
    cache = run(model, *tokens, record="all").cache
    shared = cache["post", 0] @ model.blocks[0].mlp.shared.W_out * cache["shared_weight", 0]
    off = edits.zero("shared_weight", layer=0)
    without = run(model, *tokens, record="all", edits=[off])
    assert_close(cache["mlp_raw", 0] - shared, without.cache["mlp_raw", 0], BOUND)
    changed = run(model, *tokens, edits=[off, edits.zero("post", layer=0)])
    assert_identical(changed.logits, without.logits)
    assert distance(run(model, *tokens).logits, without.logits) > 1e-3
