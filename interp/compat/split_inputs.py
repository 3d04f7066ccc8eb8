"""Queries, keys and values whose inputs have separate hooks.

With ``use_attn_in`` or ``use_split_qkv_input``, each head has its own copy of the stream as input.
Without them, TransformerLens still applies ``ln1`` three times, for queries, keys and values, and
calls its hooks each time; this matters for hooks that add noise, count calls or see gradients.
Hooks that only store their input are called once, since they receive the same input three times.
"""

import torch
from einops import einsum
from torch import Tensor

from interp.compat.caching_hooks import SaveHook
from interp.compat.facade import Facade
from interp.compat.hook_calls import call_hooks
from interp.compat.norms import Norm
from interp.points import Point

Inputs = dict[Point, Tensor]
"""Inputs of queries, keys and values: ``[batch pos d_model]``, or ``[batch pos head d_model]``."""
_LETTERS = {Point.Q: "q", Point.K: "k", Point.V: "v"}


def norm_before(facade: Facade, layer: int) -> Norm | None:
    """The norm of the input of attention; ``None`` if attention reads the stream itself."""
    norm = facade.blocks[layer].part("ln1")
    return norm if isinstance(norm, Norm) and facade.has_input_norm else None


def projected_apart(facade: Facade, layer: int, x: Tensor) -> dict[Point, Tensor]:
    """Queries, keys and values ``[batch pos head d_head]``; empty if they share one input."""
    norm, cfg = norm_before(facade, layer), facade.cfg
    if cfg.use_attn_in or cfg.use_split_qkv_input:
        inputs = _inputs_of_heads(facade, layer, x)
    elif norm is not None and _is_edited(norm):
        inputs = dict.fromkeys(_LETTERS, x)
    else:
        return {}
    return {
        point: _project(facade, layer, point, torch.nn.Identity() if norm is None else norm, stream)
        for point, stream in inputs.items()
    }


def _is_edited(norm: Norm) -> bool:
    """Whether a hook of a norm does more than store its input in a forward."""
    points = (norm.hook_scale, norm.hook_normalized)
    stores = all(point.only_stores(SaveHook) for point in points)
    return not stores or any(point.bwd_hooks for point in points)


def _inputs_of_heads(facade: Facade, layer: int, x: Tensor) -> Inputs:
    """A copy of the stream for each head, after the hooks of these inputs."""
    cfg, block, attention = facade.cfg, facade.blocks[layer], facade.attentions[layer]
    inputs = dict.fromkeys(_LETTERS, x[:, :, None].expand(-1, -1, cfg.n_heads, -1))
    if cfg.use_attn_in:
        shared = call_hooks(block.hook_attn_in, inputs[Point.Q])  # pyright: ignore[reportArgumentType]
        inputs = dict.fromkeys(_LETTERS, shared)
    if cfg.use_split_qkv_input:
        for point, letter in _LETTERS.items():
            own_heads = point is Point.Q or facade.is_ungrouped
            heads = attention.n_heads if own_heads else attention.kv_heads
            repeated = x[:, :, None].expand(-1, -1, heads, -1)
            inputs[point] = call_hooks(block.get_submodule(f"hook_{letter}_input"), repeated)  # pyright: ignore[reportArgumentType]
    return inputs


def _project(
    facade: Facade, layer: int, point: Point, norm: torch.nn.Module, stream: Tensor
) -> Tensor:
    """Queries, keys or values, from their own input."""
    attention = facade.attentions[layer]
    weight, bias = attention.projection(point)
    if facade.is_ungrouped:
        weight, bias = (attention.each_query(each, axis=0) for each in (weight, bias))
    if stream.ndim == 3:  # noqa: PLR2004 - batch pos d_model
        product = "batch pos d_model, head d_model d -> batch pos head d"
    else:
        stream = stream[:, :, :: stream.shape[2] // weight.shape[0]]
        product = "batch pos head d_model, head d_model d -> batch pos head d"
    return einsum(norm(stream), weight, product) + bias
