"""A model with room for what is folded: biases where none were, an unembedding of its own."""

from dataclasses import replace

import torch

from interp.config import AttentionConfig, Config, LayerConfig, MLPConfig, StackConfig
from interp.model.network import Network


def with_room(model: Network, *, biased: bool, written: bool) -> Network:
    """A float64 copy whose unembedding is its own, and with zeros where biases will be needed."""
    config = _roomy(model.config, biased=biased, written=written)
    made = type(model)(config).to(model.device, torch.float64).eval()
    held = {name: p.detach().double() for name, p in model.named_parameters(remove_duplicate=False)}
    with torch.no_grad():
        for name, parameter in made.named_parameters(remove_duplicate=False):
            parameter.copy_(held[name]) if name in held else parameter.zero_()
    return made


def _roomy(config: Config, *, biased: bool, written: bool) -> Config:
    stacks = {
        name: _stackwith_room(stack, biased=biased, written=written)
        for name, stack in config.stacks.items()
    }
    if not config.unembeds:
        return replace(config, **stacks)
    last = config.head.norm if config.head is not None else list(config.stacks.values())[-1].norm
    reads_bias = biased and last.kind == "layernorm" and last.bias and last.final
    return replace(config, **stacks, tied=False, bias_u=config.bias_u or reads_bias)


def _stackwith_room(stack: StackConfig, *, biased: bool, written: bool) -> StackConfig:
    """The stack with the biases that norms (if they have some) and values need."""
    into = biased and stack.norm.kind == "layernorm" and stack.norm.bias

    def attention(own: AttentionConfig) -> AttentionConfig:
        reads = {f"bias_{name}": True for name in ("q", "k", "v")} if into else {}
        values = own.bias_v or into
        return replace(own, **reads, bias_o=own.bias_o or (written and values))

    def mlp(own: MLPConfig | None) -> MLPConfig | None:
        return replace(own, bias_in=True) if own is not None and into else own

    exceptions = tuple(
        LayerConfig(
            other.layers,
            None if other.attention is None else attention(other.attention),
            mlp(other.mlp),
            other.positions,
        )
        for other in stack.exceptions
    )
    return replace(
        stack, attention=attention(stack.attention), mlp=mlp(stack.mlp), exceptions=exceptions
    )
