"""The same weights without the causal mask or without positions, as a new view.

    h(Px) = P h(x)        with neither, for every permutation P of the tokens

What a model computes without them is nothing that it was trained for; the view shows what of its
behaviour rests on order alone.
"""

from dataclasses import replace

import torch
from torch.nn.utils.parametrize import is_parametrized

from interp.config import AttentionConfig, PositionsConfig, StackConfig
from interp.errors import InvalidInput
from interp.model.network import Network


def stripped(model: Network, *, mask: bool, positions: bool) -> Network:
    """A new model of the same parameters; see :meth:`interp.Transformer.without`.

    Args:
        model: stays unchanged.
        mask: whether masks go: the causal mask of the decoder, and windows of any stack.
        positions: whether positions of all stacks go, whatever their kind.

    Raises:
        InvalidInput: neither is to go, or the weights are parametrized.
    """
    if not (mask or positions):
        raise InvalidInput("without() leaves out mask=True, positions=True or both; got neither.")
    if any(map(is_parametrized, model.modules())):
        raise InvalidInput(
            "Weights of this model are parametrized, and a view shares plain parameters only; call "
            "torch.nn.utils.parametrize.remove_parametrizations first."
        )
    stacks = {
        name: _stripped(stack, causal=name == "decoder", mask=mask, positions=positions)
        for name, stack in model.config.stacks.items()
    }
    with torch.device("meta"):  # shapes alone, so that no random numbers are drawn
        view = type(model)(replace(model.config, **stacks))
    for name, part in view.named_modules():
        own = model.get_submodule(name)
        for key, _ in list(part.named_parameters(recurse=False)):
            part.register_parameter(key, own.get_parameter(key))
        for key, _ in list(part.named_buffers(recurse=False)):
            part.register_buffer(key, own.get_buffer(key), persistent=False)
    return view.train(model.training)


def _stripped(stack: StackConfig, *, causal: bool, mask: bool, positions: bool) -> StackConfig:
    """The configuration of a stack without its mask, or without its positions, in every layer."""

    def attention(own: AttentionConfig) -> AttentionConfig:
        return replace(own, bidirectional=causal, window=None) if mask else own

    exceptions = tuple(
        replace(
            layer,
            attention=None if layer.attention is None else attention(layer.attention),
            positions=None if positions else layer.positions,
        )
        for layer in stack.exceptions
    )
    return replace(
        stack,
        attention=attention(stack.attention),
        positions=PositionsConfig("none") if positions else stack.positions,
        exceptions=exceptions,
    )
