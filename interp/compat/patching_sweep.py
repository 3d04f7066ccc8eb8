"""The cells of activation patching as one sweep, with the values of a forward a cell."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from interp import edits
from interp.compat.one_position import OfOnePosition, ReadsMore, column_read
from interp.edits import Edit
from interp.errors import InterpError
from interp.metrics import MetricLike
from interp.model.network import Network
from interp.sweeps.sweep import sweep

POINTS = ("resid_pre", "resid_mid", "attn_out", "mlp_out", "q", "k", "v", "z", "pattern")
"""Activations that the core edits as a hook of the façade does."""
OTHERWISE = ("use_qk_norm", "use_normalization_before_and_after", "use_split_qkv_input")
"""Settings with which the façade's hooks are at other tensors than the core's points."""
AGREEMENT = 1e-4
"""Largest difference of the core's logits and the façade's, relative to the largest logit."""
SELECTIONS: dict[Callable[..., Tensor], tuple[str, ...]] = {}
"""What each patch setter selects with its indices behind the layer."""
Cell = tuple[str, tuple[int, ...]]
"""The name of an activation, and the indices of a patch in it."""


def swept(
    model: Any,
    tokens: Tensor,
    clean_cache: Any,
    metric: Callable[[Tensor], Tensor],
    cells: Sequence[Cell],
    selected: tuple[str, ...],
) -> list[float] | None:
    """The metric of each cell; ``None`` if a sweep can't give what forwards of the model give."""
    core = getattr(model, "core", None)
    if not isinstance(core, Network) or _has_hooks(model) or _differs(model, cells):
        return None
    with torch.no_grad():
        logits = model(tokens)
        own = core(tokens)
    bound = AGREEMENT * max(1.0, float(logits.abs().max()))
    if own.shape != logits.shape or float((own - logits).abs().max()) > bound:
        return None
    if logits.dtype in (torch.float16, torch.bfloat16):
        return None
    n, n_pos = tokens.shape
    planned = [_edit(clean_cache, cell, selected, n) for cell in cells]
    column = column_read(metric, logits)
    if column is not None:
        at_column = OfOnePosition(column, metric, n_pos, n)
        try:
            return _values(core, tokens, planned, at_column)
        except (ReadsMore, InterpError):
            pass  # it reads more under some patch, or the batch is split
    try:
        return _values(core, tokens, planned, lambda x: metric(x).reshape(()).expand(n))
    except InterpError:
        return None


def _values(
    core: Network, tokens: Tensor, planned: list[Edit], metric: MetricLike | OfOnePosition
) -> list[float]:
    with warnings.catch_warnings():
        # A metric that is NaN under a patch is NaN in the table, as TransformerLens has it.
        warnings.filterwarnings("ignore", "The metric is NaN", RuntimeWarning)
        return sweep(core, tokens, planned, metric).values[:, 0].tolist()


def _edit(clean_cache: Any, cell: Cell, selected: tuple[str, ...], n: int) -> Edit:
    """What writes the clean activation of one cell."""
    name, indices = cell
    where: Any = dict(zip(selected, indices, strict=True))
    is_pattern = name.endswith("hook_pattern")
    axes = ("batch", "head", "pos", "key") if is_pattern else ("batch", "pos", "head", "unit")
    clean = clean_cache[name]
    part = [where.get(axis) for axis in axes[: clean.ndim]]
    index = tuple(slice(None) if at is None else slice(at, at + 1) for at in part)
    values = clean[index]
    return edits.replace(name, values.expand(n, *values.shape[1:]).contiguous(), **where)


def _has_hooks(model: Any) -> bool:
    """Whether hooks were added to the model."""
    points = getattr(model, "hook_dict", {}).values()
    return any(point.fwd_hooks or point.bwd_hooks for point in points)


def _differs(model: Any, cells: Sequence[Cell]) -> bool:
    """Whether a hook of the façade is at another tensor than the core's point."""
    names = {name.rpartition("hook_")[2] for name, _ in cells}
    return not names <= set(POINTS) or any(getattr(model.cfg, one, False) for one in OTHERWISE)
