"""Activation patching: a metric of corrupted runs with one activation of a clean run.

    get_act_patch_resid_pre(model, corrupted_tokens, clean_cache, metric)         # [layer pos]

(Meng et al. 2022.) The metric takes logits ``[batch pos vocab]`` and returns one number. All cells
are computed by one sweep on the model's core if that gives the same as forwards of the model (see
:mod:`interp.compat.patching_sweep`); otherwise, for example if the model has hooks, each cell is
one forward.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from interp.compat.errors import InvalidInput
from interp.compat.patching_sweep import metric_value, swept
from interp.compat.utils.act_names import get_act_name
from interp.io import frame_of

PatchSetter = Callable[..., Tensor]
Metric = Callable[[Tensor], Tensor]


def make_df_from_ranges(column_max_ranges: Sequence[int], column_names: Sequence[str]) -> Any:
    """A table of all combinations of indices; the last column varies fastest."""
    cells = product(*map(range, column_max_ranges))
    return frame_of(dict(zip(column_names, cell, strict=True)) for cell in cells)


def generic_activation_patch(
    model: Any,
    corrupted_tokens: Tensor,
    clean_cache: Any,
    patching_metric: Metric,
    patch_setter: PatchSetter,
    activation_name: str,
    index_axis_names: Sequence[str] | None = None,
    index_df: Any = None,
    return_index_df: bool = False,
) -> Any:
    """The metric for each cell.

    Args:
        model: the model.
        corrupted_tokens: ``[batch pos]``.
        clean_cache: activations of the clean run by name.
        patching_metric: a function from logits ``[batch pos vocab]`` to one number. Metrics that
            read a single position of each row are the fastest.
        patch_setter: called with ``(corrupted_activation, index, clean_activation)``; returns the
            patched activation, and may change the first argument in place.
        activation_name: a name as for :func:`get_act_name`; the layer is the first index.
        index_axis_names: axes that are swept in full: layer, pos, head (or head_index), dest_pos,
            src_pos.
        index_df: instead of ``index_axis_names``, a table of indices with one row per cell and the
            layer in the first column.
        return_index_df: whether to return the table of indices too.

    Returns:
        The metric ``[*axes]``, or ``[row]`` of ``index_df``, in torch's default dtype.

    Raises:
        InvalidInput: neither or both of ``index_axis_names`` and ``index_df`` are given, or the
            metric returns several numbers.
    """
    if (index_df is None) == (index_axis_names is None):
        raise InvalidInput("Pass either index_axis_names= or index_df=.")
    if index_axis_names is not None:
        sizes = _sizes(model, corrupted_tokens, activation_name, index_axis_names)
        cells, shape = list(product(*map(range, sizes))), sizes
    else:
        cells = [tuple(int(index) for index in row) for row in index_df.to_numpy().tolist()]
        shape = [len(cells)]
    corrupted = torch.atleast_2d(corrupted_tokens)
    edited = [(get_act_name(activation_name, cell[0]), cell) for cell in cells]
    arguments = (model, corrupted, clean_cache, patching_metric, patch_setter)
    values = swept(*arguments, edited) if cells else []
    if values is None:
        values = [_metric_of_cell(*arguments, name, cell) for name, cell in edited]
    table = torch.tensor(values, dtype=torch.get_default_dtype(), device=model.cfg.device)
    table = table.reshape(shape)
    if not return_index_df:
        return table
    if index_axis_names is not None:
        index_df = make_df_from_ranges(shape, index_axis_names)
    return table, index_df


def _sizes(model: Any, tokens: Tensor, activation_name: str, axes: Sequence[str]) -> list[int]:
    """The sizes of axes by their names."""
    n_heads, cfg = model.cfg.n_heads, model.cfg
    kv_heads = getattr(cfg, "n_key_value_heads", None)
    if activation_name in ("k", "v") and kv_heads is not None:
        n_heads = kv_heads
    sizes = dict.fromkeys(("pos", "src_pos", "dest_pos"), tokens.shape[-1])
    sizes |= {"layer": cfg.n_layers, "head": n_heads, "head_index": n_heads}
    unknown = [axis for axis in axes if axis not in sizes]
    if unknown:
        raise InvalidInput(f"Axes are {', '.join(sizes)}; got {', '.join(unknown)}.")
    return [sizes[axis] for axis in axes]


def _metric_of_cell(
    model: Any,
    tokens: Tensor,
    clean_cache: Any,
    metric: Metric,
    setter: PatchSetter,
    name: str,
    cell: tuple[int, ...],
) -> float:
    """The metric of a forward with one patch."""

    def patched(corrupted: Tensor, hook: object) -> Tensor:  # noqa: ARG001
        activation = corrupted.clone() if corrupted.requires_grad else corrupted
        return setter(activation, list(cell), clean_cache[name])

    return metric_value(metric, model.run_with_hooks(tokens, fwd_hooks=[(name, patched)])).item()


# ---- patch setters: (corrupted, index, clean) → corrupted, changed in place ----------------------


def layer_pos_patch_setter(
    corrupted_activation: Tensor, index: Any, clean_activation: Tensor
) -> Tensor:
    """Index (layer, pos) of ``[batch pos ...]``."""
    _, pos = index
    corrupted_activation[:, pos] = clean_activation[:, pos]
    return corrupted_activation


def layer_pos_head_vector_patch_setter(
    corrupted_activation: Tensor,
    index: Any,
    clean_activation: Tensor,
) -> Tensor:
    """Index (layer, pos, head) of ``[batch pos head ...]``."""
    _, pos, head = index
    corrupted_activation[:, pos, head] = clean_activation[:, pos, head]
    return corrupted_activation


def layer_head_vector_patch_setter(
    corrupted_activation: Tensor,
    index: Any,
    clean_activation: Tensor,
) -> Tensor:
    """Index (layer, head) of ``[batch pos head ...]``."""
    _, head = index
    corrupted_activation[:, :, head] = clean_activation[:, :, head]
    return corrupted_activation


def layer_head_pattern_patch_setter(
    corrupted_activation: Tensor,
    index: Any,
    clean_activation: Tensor,
) -> Tensor:
    """Index (layer, head) of ``[batch head query key]``."""
    _, head = index
    corrupted_activation[:, head] = clean_activation[:, head]
    return corrupted_activation


def layer_head_pos_pattern_patch_setter(
    corrupted_activation: Tensor,
    index: Any,
    clean_activation: Tensor,
) -> Tensor:
    """Index (layer, head, query) of ``[batch head query key]``."""
    _, head, query = index
    corrupted_activation[:, head, query] = clean_activation[:, head, query]
    return corrupted_activation


def layer_head_dest_src_pos_pattern_patch_setter(
    corrupted_activation: Tensor,
    index: Any,
    clean_activation: Tensor,
) -> Tensor:
    """Index (layer, head, query, key) of ``[batch head query key]``."""
    _, head, query, key = index
    corrupted_activation[:, head, query, key] = clean_activation[:, head, query, key]
    return corrupted_activation


# ---- one function for each activation: (model, corrupted_tokens, clean_cache, metric) ------------

_BLOCK = {"patch_setter": layer_pos_patch_setter, "index_axis_names": ("layer", "pos")}
_BY_POS = {
    "patch_setter": layer_pos_head_vector_patch_setter,
    "index_axis_names": ("layer", "pos", "head"),
}
_ALL_POS = {
    "patch_setter": layer_head_vector_patch_setter,
    "index_axis_names": ("layer", "head"),
}
_patch: Any = partial(partial, generic_activation_patch)
get_act_patch_resid_pre = _patch(activation_name="resid_pre", **_BLOCK)
get_act_patch_resid_mid = _patch(activation_name="resid_mid", **_BLOCK)
get_act_patch_attn_out = _patch(activation_name="attn_out", **_BLOCK)
get_act_patch_mlp_out = _patch(activation_name="mlp_out", **_BLOCK)
get_act_patch_attn_head_out_by_pos = _patch(activation_name="z", **_BY_POS)
get_act_patch_attn_head_q_by_pos = _patch(activation_name="q", **_BY_POS)
get_act_patch_attn_head_k_by_pos = _patch(activation_name="k", **_BY_POS)
get_act_patch_attn_head_v_by_pos = _patch(activation_name="v", **_BY_POS)
get_act_patch_attn_head_out_all_pos = _patch(activation_name="z", **_ALL_POS)
get_act_patch_attn_head_q_all_pos = _patch(activation_name="q", **_ALL_POS)
get_act_patch_attn_head_k_all_pos = _patch(activation_name="k", **_ALL_POS)
get_act_patch_attn_head_v_all_pos = _patch(activation_name="v", **_ALL_POS)
get_act_patch_attn_head_pattern_all_pos = _patch(
    activation_name="pattern",
    patch_setter=layer_head_pattern_patch_setter,
    index_axis_names=("layer", "head_index"),
)
get_act_patch_attn_head_pattern_by_pos = _patch(
    activation_name="pattern",
    patch_setter=layer_head_pos_pattern_patch_setter,
    index_axis_names=("layer", "head_index", "dest_pos"),
)
get_act_patch_attn_head_pattern_dest_src_pos = _patch(
    activation_name="pattern",
    patch_setter=layer_head_dest_src_pos_pattern_patch_setter,
    index_axis_names=("layer", "head_index", "dest_pos", "src_pos"),
)


def get_act_patch_attn_head_all_pos_every(
    model: Any,
    corrupted_tokens: Tensor,
    clean_cache: Any,
    metric: Metric,
) -> Tensor:
    """The metric ``[kind layer head]`` for output, query, key, value and pattern.

    Keys and values have 0 at heads beyond the number of key/value heads.
    """
    arguments = (model, corrupted_tokens, clean_cache, metric)
    patches = (
        get_act_patch_attn_head_out_all_pos,
        get_act_patch_attn_head_q_all_pos,
        get_act_patch_attn_head_k_all_pos,
        get_act_patch_attn_head_v_all_pos,
        get_act_patch_attn_head_pattern_all_pos,
    )
    return _stacked([patch(*arguments) for patch in patches])


def get_act_patch_attn_head_by_pos_every(
    model: Any,
    corrupted_tokens: Tensor,
    clean_cache: Any,
    metric: Metric,
) -> Tensor:
    """The metric ``[kind layer pos head]`` for the same kinds; ``pos`` of the pattern is the query.

    Keys and values have 0 at heads beyond the number of key/value heads.
    """
    arguments = (model, corrupted_tokens, clean_cache, metric)
    patches = (
        get_act_patch_attn_head_out_by_pos,
        get_act_patch_attn_head_q_by_pos,
        get_act_patch_attn_head_k_by_pos,
        get_act_patch_attn_head_v_by_pos,
    )
    pattern = get_act_patch_attn_head_pattern_by_pos(*arguments)
    return _stacked([*(patch(*arguments) for patch in patches), pattern.mT])


def get_act_patch_block_every(
    model: Any,
    corrupted_tokens: Tensor,
    clean_cache: Any,
    metric: Metric,
) -> Tensor:
    """The metric ``[kind layer pos]`` for the stream before each block, its attention and MLP."""
    arguments = (model, corrupted_tokens, clean_cache, metric)
    patches = (get_act_patch_resid_pre, get_act_patch_attn_out, get_act_patch_mlp_out)
    return torch.stack([patch(*arguments) for patch in patches])


def _stacked(tables: Sequence[Tensor]) -> Tensor:
    """Tables whose last axis is heads, stacked; those of fewer heads are padded with 0."""
    n = tables[0].shape[-1]
    return torch.stack(
        [torch.nn.functional.pad(table, (0, n - table.shape[-1])) for table in tables]
    )
