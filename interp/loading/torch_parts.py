"""The configuration of a ``torch.nn.Transformer``, read from its modules.

Only PyTorch's own classes are supported, as subclasses may compute anything, and all layers of a
stack must have the same configuration.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the usual alias

from interp.config import (
    Activation,
    AttentionConfig,
    EmbeddingConfig,
    MLPConfig,
    NormConfig,
    PositionsConfig,
    StackConfig,
)
from interp.errors import ModelLoadError
from interp.loading.settings import biases

STACKS: dict[str, type[nn.Module]] = {
    "encoder": nn.TransformerEncoder,
    "decoder": nn.TransformerDecoder,
}
LAYERS: dict[str, type[nn.Module]] = {
    "encoder": nn.TransformerEncoderLayer,
    "decoder": nn.TransformerDecoderLayer,
}
NORMS = {"encoder": ("norm1", "norm2"), "decoder": ("norm1", "norm2", "norm3")}
FUNCTIONS: dict[object, Activation] = {
    F.relu: "relu",
    torch.relu: "relu",
    F.gelu: "gelu",
    F.silu: "silu",
    torch.tanh: "tanh",
}
MODULES: dict[type[nn.Module], Activation] = {
    nn.ReLU: "relu",
    nn.GELU: "gelu",
    nn.SiLU: "silu",
    nn.Tanh: "tanh",
}

_Value = TypeVar("_Value")


def stack_of(
    transformer: nn.Transformer, name: str, positions: PositionsConfig, embedding: EmbeddingConfig
) -> StackConfig:
    """The configuration of the stack ``name``, "encoder" or "decoder".

    Raises:
        ModelLoadError: a part is of an unknown class, or layers differ.
    """
    stack: Any = transformer.get_submodule(name)
    _check_type(stack, STACKS[name])
    layers: list[Any] = list(stack.layers)
    for layer in layers:
        _check_type(layer, LAYERS[name])
    norms = [getattr(layer, part) for layer in layers for part in NORMS[name]]
    norms += [] if stack.norm is None else [stack.norm]
    pre_norm = _common("norm_first", (bool(layer.norm_first) for layer in layers))
    return StackConfig(
        n_layers=len(layers),
        attention=_common("attention", (_attention(layer.self_attn) for layer in layers)),
        mlp=_common("MLP", (_mlp(layer) for layer in layers)),
        norm=replace(
            _common("norms", (_norm(part) for part in norms)),
            placement="pre" if pre_norm else "post",
            final=stack.norm is not None,
        ),
        positions=positions,
        embedding=embedding,
    )


def _check_type(part: nn.Module, kind: type[nn.Module]) -> None:
    """Raise a ``ModelLoadError`` unless ``part`` is of exactly this class."""
    if type(part) is not kind:
        raise ModelLoadError(
            f"This torch.nn.Transformer has a {type(part).__name__} where only {kind.__name__} is "
            "supported."
        )


def _common(what: str, values: Iterable[_Value]) -> _Value:
    """The value that all layers have; a ``ModelLoadError`` if they differ."""
    first, *others = values
    other = next((value for value in others if value != first), None)
    if other is not None:
        raise ModelLoadError(
            f"Layers differ in {what}, which is not supported: {first} and {other}."
        )
    return first


def _attention(part: Any) -> AttentionConfig:  # noqa: ANN401 - its biases may be missing
    if part.add_zero_attn or part.bias_k is not None:
        raise ModelLoadError("add_zero_attn and add_bias_kv of attention are not supported.")
    biased = part.in_proj_bias is not None
    bias_o = part.out_proj.bias is not None
    return AttentionConfig(part.num_heads, part.head_dim, **biases(qkv=biased, output=bias_o))


def _mlp(layer: Any) -> MLPConfig:  # noqa: ANN401 - a layer of either stack
    return MLPConfig(
        layer.linear1.out_features,
        _activation(layer.activation),
        bias_in=layer.linear1.bias is not None,
        bias_out=layer.linear2.bias is not None,
    )


def _norm(part: Any) -> NormConfig:  # noqa: ANN401 - its gain and bias may be missing
    _check_type(part, nn.LayerNorm)
    return NormConfig(gain=part.weight is not None, bias=part.bias is not None, eps=part.eps)


def _activation(function: object) -> Activation:
    """The name of an activation that is a function or a module."""
    if isinstance(function, nn.GELU) and function.approximate == "tanh":
        return "gelu_tanh"
    if isinstance(function, nn.Module) and type(function) in MODULES:
        return MODULES[type(function)]
    if not isinstance(function, nn.Module) and function in FUNCTIONS:
        return FUNCTIONS[function]
    supported = ", ".join(sorted(set(FUNCTIONS.values())))
    raise ModelLoadError(
        f"The activation {function!r} is not supported; supported are {supported}."
    )
