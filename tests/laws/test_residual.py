"""The stream is the sum of what is written to it: x_end = x_0 + Σ H + Σ MLP."""

from functools import cache as once

import pytest
import torch
from architectures import ARCHITECTURES, assert_close, assert_identical, build, distance, tokens_of

from interp import Cache, Place, Point, Transformer, run

BOUND = 1e-12
WRITES = {Point.EMBED, Point.POS_EMBED, Point.ATTN_OUT, Point.CROSS_ATTN_OUT, Point.MLP_OUT}
AROUND = {
    Point.ATTN_OUT: (Point.ATTN_IN, Point.RESID_MID),
    Point.CROSS_ATTN_OUT: (Point.CROSS_ATTN_IN, Point.CROSS_RESID_MID),
    Point.MLP_OUT: (Point.MLP_IN, Point.RESID_POST),
}
HEADS = {
    Point.RESULT: ("attn", Point.ATTN_OUT),
    Point.CROSS_RESULT: ("cross_attn", Point.CROSS_ATTN_OUT),
}
POST = [
    name
    for name, config in ARCHITECTURES.items()
    if any(stack.norm.placement == "post" for stack in config.stacks.values())
]
PRE = [name for name in ARCHITECTURES if name not in POST]


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
    """Everything written to the last stack's stream."""
    stack = last_stack(model)
    return {p: t for p, t in cache.items() if p.point in WRITES and p.stack == stack}


@pytest.mark.parametrize("name", PRE)
def test_everything_written_sums_to_the_final_stream(name):
    """x_end = Σ everything written, with the norms before what is written."""
    model = build(name)
    cache = recorded(model)
    end = cache[last(cache, Point.RESID_POST)]
    assert_close(sum(written(model, cache).values()), end, BOUND)


@pytest.mark.parametrize("name", PRE)
def test_nothing_written_can_be_left_out_of_the_sum(name):
    """The converse: without any one of its terms the sum is another."""
    model = build(name)
    cache = recorded(model)
    terms, end = written(model, cache), cache[last(cache, Point.RESID_POST)]
    for place in terms:
        rest = sum(term for other, term in terms.items() if other != place)
        assert distance(rest, end) > 1e-3, place


@pytest.mark.parametrize("name", POST)
def test_norms_after_the_sum_break_the_sum_of_everything_written(name):
    """Another converse: where the sum itself is normed, the end is no sum of what was written."""
    model = build(name)
    cache = recorded(model)
    end = cache[last(cache, Point.NORMALIZED)]
    assert distance(sum(written(model, cache).values()), end) > 1e-3


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_each_step_adds_what_it_writes_to_what_it_reads(name):
    """after = read + written, step by step, wherever the norms stand."""
    cache = recorded(build(name))
    steps = [place for place in cache if place.point in AROUND]
    assert steps
    for place in steps:
        read, after = (beside(place, point) for point in AROUND[place.point])
        if after not in set(cache):
            after = beside(place, Point.RESID_POST)  # the last step's sum, whatever it is
        assert_close(cache[read] + cache[place], cache[after], BOUND)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_first_stream_is_token_plus_position(name):
    """x_0 = W_E[ids] + positions, in each stack."""
    cache = recorded(build(name))
    for place in list(cache):
        if place.point is Point.EMBED:
            position = beside(place, Point.POS_EMBED)
            start = cache[place] + (cache[position] if position in set(cache) else 0.0)
            assert_close(start, cache[Place(Point.RESID_PRE, 0, stack=place.stack)], BOUND)


@pytest.mark.parametrize("name", PRE)
def test_a_block_reads_what_the_one_before_left(name):
    cache = recorded(build(name))
    for place in list(cache):
        if place.point is Point.RESID_PRE and place.layer:
            before = Place(Point.RESID_POST, place.layer - 1, None, place.stack)
            assert_identical(cache[place], cache[before])


@pytest.mark.parametrize("name", POST)
def test_after_a_post_norm_the_stream_is_the_normalized_sum(name):
    """x_{l+1} = norm(x_l + f(x_l)): a block reads the norm of the sum that the last one left."""
    cache = recorded(build(name))
    for place in list(cache):
        if place.point is Point.RESID_PRE and place.layer:
            here = (place.layer - 1, place.stack)
            norms = [p for p in cache if p.point is Point.NORMALIZED and (p.layer, p.stack) == here]
            assert_identical(cache[place], cache[norms[-1]])


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_what_attention_writes_is_the_sum_over_its_heads_and_the_bias(name):
    """attn_out = Σ_h result_h + b_O."""
    model = build(name)
    cache = recorded(model)
    for place in list(cache):
        if place.point in HEADS:
            part, out = HEADS[place.point]
            b_O = getattr(model.stack(place.stack).block(place.layer), part).b_O
            total = cache[place].sum(2) + (0.0 if b_O is None else b_O)
            assert_close(total, cache[beside(place, out)], BOUND)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_logits_are_a_linear_reading_of_the_end(name):
    """logits = x W_U + b_U, x being the last of the stream's sums and norms."""
    model = build(name)
    done = run(model, *tokens_of(name), record="all")
    read = (Point.FINAL_NORMALIZED, Point.NORMALIZED, Point.RESID_POST)
    stack = last_stack(model)
    x = done.cache[[p for p in done.cache if p.point in read and p.stack == stack][-1]]
    b_U = model.unembed.b_U
    assert_close(x @ model.W_U + (0.0 if b_U is None else b_U), done.logits, BOUND)
