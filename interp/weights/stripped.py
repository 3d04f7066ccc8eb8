"""A view of the same weights without the causal mask or without positions.

    h(Px) = P h(x)        with neither, for every permutation P of the tokens

The model was not trained to run without them; the view shows how much of its behaviour depends on
the order of tokens.
"""

from dataclasses import replace

import torch
from torch.nn.utils.parametrize import is_parametrized

from interp.config import AttentionConfig, PositionsConfig, StackConfig
from interp.errors import InvalidInput
from interp.model import Network


def stripped(model: Network, *, mask: bool, positions: bool) -> Network:
    """A new model of the same parameters; see :meth:`interp.Transformer.without`.

    Args:
        model: the model, which is not changed.
        mask: whether to remove masks: the causal mask of the decoder, and windows of all stacks.
        positions: whether to remove the positions of all stacks, of any kind.

    Raises:
        InvalidInput: neither is to be removed, or the weights are parametrized.
    """
    model.require_whole("without")
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
    with torch.device("meta"):  # only shapes, so that no random numbers are drawn
        view = type(model)(replace(model.config, **stacks))
    for name, part in view.named_modules():
        attention_part = model.get_submodule(name)
        for key, _ in list(part.named_parameters(recurse=False)):
            part.register_parameter(key, attention_part.get_parameter(key))
        for key, _ in list(part.named_buffers(recurse=False)):
            part.register_buffer(key, attention_part.get_buffer(key), persistent=False)
    return view.train(model.training)


def _stripped(stack: StackConfig, *, causal: bool, mask: bool, positions: bool) -> StackConfig:
    """The configuration of a stack without masks or positions in any layer."""

    def attention(config: AttentionConfig) -> AttentionConfig:
        return replace(config, bidirectional=causal, window=None) if mask else config

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
