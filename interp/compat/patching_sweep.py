"""The cells of activation patching as one sweep, with the same values as one forward per cell.

Nothing before a patch differs from the corrupted run. Therefore each patch setter is called with
the activation of that run, and its change becomes an edit of the core: cells without a change have
the metric of the corrupted run, and the others restart where they first differ from it.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from interp import edits
from interp.compat.caching_hooks import SaveHook
from interp.compat.errors import InvalidInput, WrongShape
from interp.compat.hook_point import HookPoint
from interp.compat.watched_logits import OfColumns, ReadsMore, columns_of
from interp.edits import Edit
from interp.errors import InterpError
from interp.kernels import packed
from interp.loading import PACKED, faster_kernel
from interp.metrics import MetricLike
from interp.model import Network
from interp.sweeps import Budget, Job, RestartMap, Worker, cases_of

OF_HEADS = ("q", "k", "v", "z", "rot_q", "rot_k", "result")
OF_STREAM = ("resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out", "pre", "post")
AXES = {
    **dict.fromkeys(OF_STREAM, ("batch", "pos", "unit")),
    **dict.fromkeys(OF_HEADS, ("batch", "pos", "head", "unit")),
    "pattern": ("batch", "head", "pos", "key"),
}
"""Activations that can be edited in the core as by a hook of the façade, with their axes."""
AGREEMENT = 1e-4
"""Largest difference between the metrics of the core and the façade, relative to max(1, metric)."""
REPAYS = 24
"""Weights are packed for at least this many patches, if that is faster on this machine."""
Cell = tuple[str, tuple[int, ...]]
"""The name of an activation, and the index of a patch in it."""
Setter = Callable[..., Any]


def swept(
    model: Any,
    tokens: Tensor,
    clean_cache: Any,
    metric: Callable[[Tensor], Tensor],
    setter: Setter,
    cells: Sequence[Cell],
) -> list[float] | None:
    """The metric of each cell; ``None`` if a sweep can't give the same as forwards of the model."""
    names = list(dict.fromkeys(name for name, _ in cells))
    if not _runs_as_core(model, tokens, names):
        return None
    with torch.no_grad():
        logits, corrupted = _corrupted_run(model, tokens, names, clean_cache)
        if not corrupted.keys() >= set(names):
            return None
        unpatched = metric_value(metric, logits)
        try:
            planned = {
                at: _edit(name, corrupted[name], setter, index, clean_cache)
                for at, (name, index) in enumerate(cells)
            }
        except InterpError:
            return None  # the patch has NaN, or another shape
    planned = {at: edit for at, edit in planned.items() if edit is not None}
    values = [float(unpatched)] * len(cells)
    if planned:
        patched_values = _values(model.core, tokens, list(planned.values()), metric, logits)
        if patched_values is None:
            return None
        for at, value in zip(planned, patched_values, strict=True):
            values[at] = value
    return values


def metric_value(metric: Callable[[Tensor], Tensor], logits: Tensor) -> Tensor:
    """The number that a metric returns, without axes.

    Raises:
        WrongShape: it is not a single number.
    """
    value = torch.as_tensor(metric(logits))
    if value.numel() != 1:
        raise WrongShape(
            f"patching_metric returned {tuple(value.shape)}; it must return a single number. Take "
            "the mean over the rows, or patch each row by itself."
        )
    return value.reshape(())


class Unstored(SaveHook):
    """A hook that makes the model form an activation as for a cache, without storing it."""

    def __call__(self, tensor: Tensor, hook: HookPoint) -> None:
        """Store nothing."""


def _corrupted_run(
    model: Any, tokens: Tensor, names: Sequence[str], clean_cache: Any
) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits and the named activations, of a run that forms all activations of the clean cache.

    Both runs then perform the same operations, and give the same numbers where tokens are equal.
    """
    saved: dict[str, Tensor] = {}
    hooks = [(name, SaveHook(saved)) for name in names]
    formed = [name for name in model.hook_dict if name in clean_cache and name not in names]
    hooks += [(name, Unstored(saved)) for name in formed]
    return model.run_with_hooks(tokens, fwd_hooks=hooks), saved


def _values(
    core: Network,
    tokens: Tensor,
    planned: list[Edit],
    metric: Callable[[Tensor], Tensor],
    logits: Tensor,
) -> list[float] | None:
    """The metric under each edit; ``None`` if a sweep can't give it."""

    def of_all(whole: Tensor) -> Tensor:
        return metric_value(metric, whole)

    unpatched, columns = float(of_all(logits)), columns_of(of_all, logits)
    metrics: list[MetricLike | OfColumns] = [lambda whole: of_all(whole).expand(len(tokens))]
    if columns is not None:
        metrics.insert(0, OfColumns(fn=of_all, columns_read=columns, n_pos=tokens.shape[1]))
    for candidate in metrics:
        try:
            values, baseline = _run(core, tokens, planned, candidate)
        except ReadsMore:
            continue  # the metric reads other positions under some patch
        except InterpError:
            return None
        agrees = abs(baseline - unpatched) <= AGREEMENT * max(1.0, abs(unpatched))
        return values if agrees else None
    return None


def _run(
    core: Network, tokens: Tensor, planned: list[Edit], metric: MetricLike | OfColumns
) -> tuple[list[float], float]:
    """The metric under each edit, and without an edit.

    The same as :func:`interp.sweep`, without computing the hashes of all weights and edits that its
    result holds.
    """
    core = _fastest(core, len(planned))
    restart_map, batches = RestartMap(core), tuple(core.batches(tokens))
    cases = tuple(cases_of(restart_map, planned))
    job = Job(tuple(range(len(tokens))), batches, metric, cases, len(tokens))
    values, baseline = [math.nan] * len(planned), math.nan
    for outcome in Worker(restart_map, Budget.of(core, None))(job):
        baseline = float(outcome.baseline[0])
        for case, value in zip(outcome.cases, outcome.values[:, 0].tolist(), strict=True):
            values[case] = value
    return values, baseline


def _fastest(core: Network, n: int) -> Network:
    """The core, with packed weights if that is faster and ``n`` forwards repay the packing."""
    return packed(core) if n >= REPAYS and faster_kernel(core)[0] == PACKED else core


def _edit(
    name: str, before: Tensor, setter: Setter, index: Sequence[int], clean: Any
) -> Edit | None:
    """The edit that makes the change of a patch setter; ``None`` if it changes nothing."""
    patched = before.clone()
    after = setter(patched, list(index), clean[name])
    after = patched if after is None else after
    if after.shape != before.shape:
        raise InvalidInput(f"The patch of {name} has another shape.")
    changed = after != before
    where: dict[str, Any] = {}
    box: list[slice] = []
    for axis, label in enumerate(AXES[_short(name)]):
        box.append(slice(None))
        if label in ("batch", "unit"):
            continue
        others = [other for other in range(changed.ndim) if other != axis]
        at = changed.any(dim=others).nonzero().flatten().tolist()
        if not at:
            return None
        first, last = at[0], at[-1]
        if last - first + 1 < before.shape[axis]:
            where[label] = first if first == last else tuple(range(first, last + 1))
            box[-1] = slice(first, last + 1)
    return edits.replace(name, after[tuple(box)].contiguous(), **where)


def warn_of_parts(model: Any) -> None:
    """Warn that each cell is a forward, because parts of a model were replaced."""
    replaced = model.replaced_parts()
    if replaced:
        warnings.warn(
            "Patching runs one forward for each cell: these parts are not those that the model "
            f"was built with: {', '.join(replaced[:3])}.",
            stacklevel=5,
        )


def _short(name: str) -> str:
    return name.rpartition("hook_")[2]


def _runs_as_core(model: Any, tokens: Tensor, names: Sequence[str]) -> bool:
    """Whether forwards with a patch of these activations equal those of the core with an edit.

    They do not if the model has hooks or its parts compute it, if padding is masked (positions of
    the core then count the real tokens of a row), in half precision (the metrics of a sweep are
    float32), if MLPs add a bias that the core does not have, and at points that only the façade
    has.
    """
    core = getattr(model, "core", None)
    if not (isinstance(core, Network) and hasattr(model, "masks_padding")):
        return False
    if not model.is_as_built:
        warn_of_parts(model)
        return False
    cfg = model.cfg
    if not all(_short(name) in AXES and name in model.hook_dict for name in names):
        return False
    if any("hook_result" in name for name in names) and not cfg.use_attn_result:
        return False
    hooked = any(point.is_hooked for point in model.hook_points())
    if cfg.ungroup_grouped_query_attention:
        return False
    gated = cfg.gated_mlp and not (cfg.attn_only or cfg.num_experts)
    biased = gated and any(bool(block.mlp.b_in.any()) for block in model.blocks)
    half = core.dtype in (torch.float16, torch.bfloat16)
    return not (hooked or biased or half or model.masks_padding(tokens))
