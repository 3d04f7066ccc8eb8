"""A block continued from any of its states gives what its formula gives, bit for bit."""

from dataclasses import replace

import pytest
import torch
from architectures import ARCHITECTURES, assert_identical, build, covering, distance, tokens_of

from interp import Place, run
from interp.sweeps.restart_map import RestartMap


def states_of(name):
    """Each block with its context, its restart points, their tensors, and the stream after it."""
    model, tokens = build(name), tokens_of(name)
    cache, batches = run(model, *tokens, record="all").cache, model.check(*tokens)
    output = cache[RestartMap(model).output(0)] if len(model.stacks) > 1 else None
    for stack, context in zip(model.stacks, model.contexts(batches), strict=True):
        stack_name = stack.name if len(model.stacks) > 1 else None
        with_encoder = context.with_encoder(None if stack.name == "encoder" else output)
        for layer in range(len(stack.blocks)):

            def tensor(
                place: Place, layer: int = layer, stack_name: str | None = stack_name
            ) -> torch.Tensor:
                return cache[replace(place, layer=layer, stack=stack_name)]

            block = stack.block(layer)
            for point in block.restart_points():
                state = [tensor(place) for place in point.state]
                yield block, with_encoder, point, state, tensor(block.end)


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_a_block_continued_from_any_state_ends_in_the_same_stream(name):
    with torch.no_grad():
        for block, context, point, state, expected in states_of(name):
            assert_identical(block.resume(point, state, context), expected)


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_every_tensor_of_a_state_reaches_the_stream(name):
    """The converse: no state holds a tensor that the rest of the block ignores."""
    with torch.no_grad():
        for block, context, point, state, expected in states_of(name):
            for number, tensor in enumerate(state):
                noise = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(1))
                changed = [*state]
                changed[number] = tensor + noise.to(tensor.dtype)
                assert distance(block.resume(point, changed, context), expected) > 1e-3


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_restart_points_come_in_the_order_of_the_forward(name):
    model = build(name)
    for stack in model.stacks:
        order = list(stack.block(0).layout())
        firsts = [order.index(point.first) for point in stack.block(0).restart_points()]
        assert firsts == sorted(firsts)
