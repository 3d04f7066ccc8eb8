"""Copies of a model that can hold folded biases: zero biases, and an untied unembedding."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from interp.config import AttentionConfig, Config, LayerConfig, MLPConfig, StackConfig
from interp.model import Network


def add_biases(model: Network, *, norms: bool, values: bool) -> Network:
    """A float64 copy with an untied unembedding, and zeros for biases that the model lacks.

    Args:
        model: the model, which is not changed.
        norms: whether to add the biases that the norms' biases are folded into.
        values: whether to add the biases of attention's output that b_V is folded into.
    """
    config = _config_with_biases(model.config, norms=norms, values=values)
    with torch.device("meta"):  # only shapes, so that no random numbers are drawn
        copy = type(model)(config)
    _set_zeros(copy, model.device)
    with torch.no_grad():
        for name, parameter in copy.named_parameters(remove_duplicate=False):
            weight = _weight(model, name)
            if weight is not None:
                parameter.copy_(weight)
    return copy.eval()


def _set_zeros(model: Network, device: torch.device) -> None:
    """Replace tensors on the meta device by float64 zeros; shared parameters stay shared."""
    zeros = {
        meta: nn.Parameter(torch.zeros(meta.shape, dtype=torch.float64, device=device))
        for meta in model.parameters()
    }
    for part in model.modules():
        for name, meta in list(part.named_parameters(recurse=False)):
            part.register_parameter(name, zeros[meta])
        for name, meta in list(part.named_buffers(recurse=False)):
            buffer = torch.zeros(meta.shape, dtype=torch.float64, device=device)
            part.register_buffer(name, buffer, persistent=False)


def _weight(model: Network, name: str) -> Tensor | None:
    """A weight of ``model`` (computed, if it is parametrized); ``None`` if there is none."""
    part, _, weight_name = name.rpartition(".")
    return getattr(model.get_submodule(part), weight_name, None)


def _config_with_biases(config: Config, *, norms: bool, values: bool) -> Config:
    stacks = {
        name: _stack_with_biases(stack, norms=norms, values=values)
        for name, stack in config.stacks.items()
    }
    if not config.unembeds:
        return replace(config, **stacks)
    last = config.head.norm if config.head is not None else list(config.stacks.values())[-1].norm
    has_norm_bias = norms and last.kind == "layernorm" and last.bias and last.final
    head = config.head
    if head is not None and head.after_norm and norms:
        head = replace(head, bias=head.bias or list(config.stacks.values())[-1].norm.bias)
    return replace(config, **stacks, tied=False, bias_u=config.bias_u or has_norm_bias, head=head)


def _stack_with_biases(stack: StackConfig, *, norms: bool, values: bool) -> StackConfig:
    folds_norms = norms and stack.norm.kind == "layernorm" and stack.norm.bias

    def attention(config: AttentionConfig) -> AttentionConfig:
        qkv = {f"bias_{name}": True for name in ("q", "k", "v")} if folds_norms else {}
        has_values = config.bias_v or folds_norms
        return replace(config, **qkv, bias_o=config.bias_o or (values and has_values))

    def mlp(config: MLPConfig | None) -> MLPConfig | None:
        return replace(config, bias_in=True) if config is not None and folds_norms else config

    exceptions = tuple(
        LayerConfig(
            layer.layers,
            None if layer.attention is None else attention(layer.attention),
            mlp(layer.mlp),
            layer.positions,
        )
        for layer in stack.exceptions
    )
    return replace(
        stack, attention=attention(stack.attention), mlp=mlp(stack.mlp), exceptions=exceptions
    )
