"""The stream is the sum of what is written to it: x_end = x_0 + Σ H + Σ MLP."""

from dataclasses import replace
from functools import cache as once

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    assert_close,
    assert_identical,
    build,
    covering,
    distance,
    tokens_of,
)

from interp import Cache, Place, Point, Transformer, run

BOUND = 1e-12
ENTERS = {Point.EMBED, Point.POS_EMBED, Point.TYPE_EMBED}
WRITES = {Point.ATTN_OUT, Point.CROSS_ATTN_OUT, Point.MLP_OUT}
HEADS = {Point.RESULT: "attn", Point.CROSS_RESULT: "cross_attn"}


def placed(*placements: str) -> list[str]:
    """The architectures with a stack whose norms are placed like this."""
    return [
        name
        for name, config in ARCHITECTURES.items()
        if any(stack.norm.placement in placements for stack in config.stacks.values())
    ]


POST = placed("post")
BROKEN = placed("post", "stream")
PROJECTED = [
    name
    for name, config in ARCHITECTURES.items()
    if any(stack.embedding.sum_width for stack in config.stacks.values())
]
"""Architectures whose embeddings have another width than their stream."""
ADDING = [name for name in ARCHITECTURES if name not in BROKEN]
"""Architectures whose stream is changed only by what is added to it."""
NORMED_ENTRY = [
    name
    for name, config in ARCHITECTURES.items()
    if any(stack.embedding.norm for stack in config.stacks.values())
]


@once
def recorded(model: Transformer) -> Cache:
    return run(model, *tokens_of(model.config), record="all").cache


def last_stack(model: Transformer) -> str | None:
    return model.stacks[-1].name if len(model.stacks) > 1 else None


def last(cache: Cache, point: Point) -> Place:
    return [place for place in cache if place.point is point][-1]


def beside(place: Place, point: Point) -> Place:
    """Another point of the same block."""
    return Place(point, place.layer, None, place.stack)


def written(model: Transformer, cache: Cache) -> dict[Place, torch.Tensor]:
    """Everything written to the last stack's stream; a normed embedding is a single term."""
    stack = last_stack(model)
    normed = Place(Point.EMBED_NORMALIZED, stack=stack)
    entry = {normed.point} if normed in set(cache) else ENTERS
    return {p: t for p, t in cache.items() if p.point in WRITES | entry and p.stack == stack}


@pytest.mark.parametrize("name", ADDING)
def test_everything_written_sums_to_the_final_stream(name):
    """x_end = Σ everything written, with the norms before what is written."""
    model = build(name)
    cache = recorded(model)
    end = cache[last(cache, Point.RESID_POST)]
    assert_close(sum(written(model, cache).values()), end, BOUND)


@pytest.mark.parametrize("name", ADDING)
def test_nothing_written_can_be_left_out_of_the_sum(name):
    """The converse: without any one of its terms, the sum is different."""
    model = build(name)
    cache = recorded(model)
    terms, end = written(model, cache), cache[last(cache, Point.RESID_POST)]
    for place in terms:
        rest = sum(term for other, term in terms.items() if other != place)
        assert distance(rest, end) > 1e-3, place


@pytest.mark.parametrize("name", [name for name in BROKEN if name not in PROJECTED])
def test_norms_in_the_stream_break_the_sum_of_everything_written(name):
    """Another converse: where the stream itself is normed, its end is not the sum of the terms."""
    model = build(name)
    cache, stack = recorded(model), model.stacks[-1]
    end = cache[replace(stack.end, layer=len(stack.blocks) - 1, stack=last_stack(model))]
    assert distance(sum(written(model, cache).values()), end) > 1e-3


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_each_step_adds_what_it_writes(name):
    """after = base + Σ written, step by step, wherever the norms are placed."""
    model = build(name)
    cache = recorded(model)
    for stack in model.stacks:
        stack_name = stack.name if len(model.stacks) > 1 else None
        for layer in range(len(stack.blocks)):
            block, before = stack.block(layer), Place(Point.RESID_PRE)
            for step in block.steps:
                base, *writes, after = (
                    cache[replace(place, layer=layer, stack=stack_name)]
                    for place in (
                        step.base(before),
                        *(Place(point) for point in step.written),
                        Place(step.points.sum),
                    )
                )
                assert_close(base + sum(writes), after, BOUND)
                assert all(distance(base, base + write) > 1e-3 for write in writes)
                before = step.end()


@pytest.mark.parametrize("name", placed("parallel", "parallel_tied"))
def test_parallel_parts_read_the_same_stream(name):
    """x + attn(ln1(x)) + mlp(ln2(x)): the MLP does not read what attention writes."""
    model = build(name)
    cache = recorded(model)
    for layer in range(2):
        assert_identical(cache["attn_in", layer], cache["mlp_in", layer])
        total = cache["resid_pre", layer] + cache["attn_out", layer] + cache["mlp_out", layer]
        assert_close(total, cache["resid_post", layer], BOUND)
        assert Place(Point.RESID_MID, layer) not in set(cache)


@pytest.mark.parametrize("name", placed("sandwich", "write"))
def test_what_is_written_is_normed_where_a_norm_stands_there(name):
    """attn_out = norm(attn_raw), mlp_out = norm(mlp_raw)."""
    model = build(name)
    cache, block = recorded(model), model.blocks[0]
    for raw, out, step in zip(("attn", "mlp"), ("attn", "mlp"), block.steps, strict=True):
        norm = getattr(step, "write_norm", step.norm).norm
        assert_close(norm(cache[f"{raw}_raw", 0]), cache[f"{out}_out", 0], BOUND)
        assert distance(cache[f"{raw}_raw", 0], cache[f"{out}_out", 0]) > 1e-3


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_the_first_stream_is_token_plus_position_plus_type(name):
    """x_0 = norm(W_E[ids] + positions + types), with those that there are, perhaps projected."""
    model = build(name)
    cache = recorded(model)
    for stack in model.stacks:
        stack_name = stack.name if len(model.stacks) > 1 else None
        start = sum(t for p, t in cache.items() if p.point in ENTERS and p.stack == stack_name)
        entered = cache[Place(Point.RESID_PRE, 0, stack=stack_name)]
        assert_close(stack.embed_projection(stack.embed_norm(start)), entered, BOUND)
        assert (name in NORMED_ENTRY) or distance(start, entered) <= BOUND


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name not in POST])
def test_a_block_reads_what_the_one_before_left(name):
    cache = recorded(build(name))
    for place in list(cache):
        if place.point is Point.RESID_PRE and place.layer:
            before = Place(Point.RESID_POST, place.layer - 1, None, place.stack)
            assert_identical(cache[place], cache[before])


@pytest.mark.parametrize("name", POST)
def test_after_a_post_norm_the_stream_is_the_normalized_sum(name):
    """x_{l+1} = norm(x_l + f(x_l)): a block reads the normed sum of the block before it."""
    cache = recorded(build(name))
    for place in list(cache):
        if place.point is Point.RESID_PRE and place.layer:
            here = (place.layer - 1, place.stack)
            norms = [p for p in cache if p.point is Point.NORMALIZED and (p.layer, p.stack) == here]
            assert_identical(cache[place], cache[norms[-1]])


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_what_attention_writes_is_the_sum_over_its_heads_and_the_bias(name):
    """The output of attention = Σ_h result_h + b_O."""
    model = build(name)
    cache = recorded(model)
    for place in list(cache):
        if place.point in HEADS:
            attn = getattr(model.stack(place.stack).block(place.layer), HEADS[place.point])
            total = cache[place].sum(2) + (0.0 if attn.b_O is None else attn.b_O)
            assert_close(total, cache[beside(place, attn.points.out)], BOUND)


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_the_logits_are_a_linear_reading_of_the_end(name):
    """logits = x W_U + b_U, where x is the last sum or norm of the stream (except for a cap)."""
    model = build(name)
    done = run(model, *tokens_of(name), record="all")
    read = (Point.FINAL_NORMALIZED, Point.NORMALIZED, Point.RESID_POST)
    stack = last_stack(model)
    x = done.cache[[p for p in done.cache if p.point in read and p.stack == stack][-1]]
    b_U = model.unembed.b_U
    read_off = x @ model.W_U + (0.0 if b_U is None else b_U)
    cap = model.config.logit_cap
    expected = read_off if cap is None else cap * (read_off / cap).tanh()
    assert_close(expected, done.logits, BOUND)
    assert cap is None or distance(read_off, done.logits) > 1e-3
