"""What is inside a ``torch.nn.Transformer``? Two towers of layers that are all alike.

Of parts that are not PyTorch's own nobody knows what they compute: they are refused.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

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

TOWERS: dict[str, type[nn.Module]] = {
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

_One = TypeVar("_One")


def stack_of(
    transformer: nn.Transformer, name: str, positions: PositionsConfig, embedding: EmbeddingConfig
) -> StackConfig:
    """One tower, whose layers must be alike."""
    tower: Any = transformer.get_submodule(name)
    _own(tower, TOWERS[name])
    layers: list[Any] = [_own(layer, LAYERS[name]) for layer in tower.layers]
    norms = [getattr(layer, part) for layer in layers for part in NORMS[name]]
    norms += [] if tower.norm is None else [tower.norm]
    first = _alike("norm_first", (bool(layer.norm_first) for layer in layers))
    return StackConfig(
        n_layers=len(layers),
        attention=_alike("attention", (_attention(layer.self_attn) for layer in layers)),
        mlp=_alike("MLP", (_mlp(layer) for layer in layers)),
        norm=replace(
            _alike("norms", (_norm(_own(part, nn.LayerNorm)) for part in norms)),
            placement="pre" if first else "post",
            final=tower.norm is not None,
        ),
        positions=positions,
        embedding=embedding,
    )


def _own(part: nn.Module, kind: type[nn.Module]) -> nn.Module:
    """A part that is PyTorch's own: of any other nobody knows what it computes.

    Raises:
        ModelLoadError: it is another.
    """
    if type(part) is not kind:
        raise ModelLoadError(
            f"This torch.nn.Transformer has a {type(part).__name__} where {kind.__name__} is known "
            "here."
        )
    return part


def _alike(what: str, values: Iterable[_One]) -> _One:
    """The one value that all layers have.

    Raises:
        ModelLoadError: they differ.
    """
    first, *others = values
    other = next((value for value in others if value != first), None)
    if other is not None:
        raise ModelLoadError(f"Layers differ in {what}: {first} and {other}.")
    return first


def _attention(part: Any) -> AttentionConfig:  # noqa: ANN401 - its biases may be missing
    """Several heads.

    Raises:
        ModelLoadError: it attends to keys that are no token's.
    """
    if part.add_zero_attn or part.bias_k is not None:
        raise ModelLoadError("add_zero_attn and add_bias_kv of attention are not known here.")
    biased = part.in_proj_bias is not None
    return AttentionConfig(
        part.num_heads,
        part.head_dim,
        bias_q=biased,
        bias_k=biased,
        bias_v=biased,
        bias_o=part.out_proj.bias is not None,
    )


def _mlp(layer: Any) -> MLPConfig:  # noqa: ANN401 - a layer of either tower
    return MLPConfig(
        layer.linear1.out_features,
        _activation(layer.activation),
        bias_in=layer.linear1.bias is not None,
        bias_out=layer.linear2.bias is not None,
    )


def _norm(part: Any) -> NormConfig:  # noqa: ANN401 - a LayerNorm, whose weights may be missing
    return NormConfig(gain=part.weight is not None, bias=part.bias is not None, eps=part.eps)


def _activation(function: object) -> Activation:
    """Our name of an activation, a function or a module.

    Raises:
        ModelLoadError: it is not known.
    """
    if isinstance(function, nn.GELU) and function.approximate == "tanh":
        return "gelu_tanh"
    if isinstance(function, nn.Module) and type(function) in MODULES:
        return MODULES[type(function)]
    if not isinstance(function, nn.Module) and function in FUNCTIONS:
        return FUNCTIONS[function]
    known = ", ".join(sorted(set(FUNCTIONS.values())))
    raise ModelLoadError(f"The activation {function!r} is not known here; known are {known}.")
