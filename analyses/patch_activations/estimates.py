"""First-order estimates of activation patching: all cells from one forward and one backward pass.

    m(patched) ≈ m(base) + Σ ∂m/∂x · (x of the source − x of the base)

The sum is over the tensor of a cell, and the gradient that of the base's run (attribution patching,
Nanda 2023). It is exact where everything after the cell is linear.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from analyses.methods.components import Recorded, gradient_at
from analyses.patch_activations.cells import HEADS, TOKENS, Cell, Grid
from interp.execution import run
from interp.metrics import Metric, measure, parts_of_rows
from interp.model import Batch, tokens_first
from interp.points import Place


def first_order_changes(
    source: Recorded, base: Sequence[Batch], grid: Grid, metric: Metric, rows: int
) -> tuple[Float[Tensor, " prompt"], Float[Tensor, "point *cell prompt"]]:
    """The metric of the base, and the estimated change of it by patching each cell.

    Args:
        source: the run whose activations are patched in.
        base: the prompts that they are patched into, one batch per stack.
        grid: the cells, of which each is in one layer.
        metric: a metric that has a gradient.
        rows: largest number of prompts per forward.

    Raises:
        InvalidInput: the metric has no gradient.
    """
    model, n, tokens = source.model, len(base[0].ids), base[-1]
    every = [place for layers in grid.places.values() for place in layers]
    metric = metric.with_ids(model.to_single_token)
    shape = (*tokens.ids.shape, model.config.n_logits)
    columns = {place: _columns(source.is_real(place.stack)) for place in every}
    measured, changes = list[Tensor](), list[Tensor]()
    for part in parts_of_rows(shape, tokens.ids.device, most=rows):
        part_metric = metric.for_rows(part.tolist(), n)
        batches = [batch.rows(part) for batch in base]
        done = run(model, *batches, record=every, gradients_of=part_metric)
        measured.append(measure(part_metric, done.require_logits(), batches[-1]))
        by_place = {
            place: _by_cell(
                place,
                gradient_at(done.cache, place) * (source.activations[place][part] - x),
                columns[place][part],
                grid.axes,
            )
            for place in every
            for x in [done.cache[place]]
        }
        by_point = [torch.stack([by_place[p] for p in layers]) for layers in grid.places.values()]
        changes.append(torch.stack(by_point))
    return torch.cat(measured).cpu().double(), torch.cat(changes, -1).cpu()


def _by_cell(
    place: Place, change: Tensor, columns: Int[Tensor, "batch pos"], axes: tuple[str, ...]
) -> Float[Tensor, "*cell batch"]:
    """The sum of a tensor over each cell of its layer.

    Args:
        place: the place of the tensor.
        change: the tensor.
        columns: the column of each position; −1 where a prompt is too short.
        axes: the axes of a cell.
    """
    names = [
        "head" if axis in HEADS else "pos" if axis in TOKENS else axis for axis in place.point.axes
    ]
    of_cell = [axis for axis in ("head", "pos", "batch") if axis in (*axes, "batch")]
    others = [n for n, name in enumerate(names) if name not in of_cell]
    remaining = [name for name in names if name in of_cell]
    summed = change.double()
    for dim in reversed(others):
        summed = summed.sum(dim)
    summed = summed.permute([remaining.index(axis) for axis in of_cell])
    if "pos" not in of_cell:
        return summed
    at = summed[..., columns.T, torch.arange(len(columns), device=columns.device)]
    return at.where(columns.T >= 0, 0.0)


def _columns(real: Bool[Tensor, "batch column"]) -> Int[Tensor, "batch pos"]:
    """The column of each position of each row; −1 where a row is too short to have it."""
    lengths = real.sum(-1, keepdim=True)
    order = tokens_first(real)[:, : int(lengths.max())]
    return order.where(torch.arange(order.shape[1], device=order.device) < lengths, -1)


def largest_cells(shares: Float[Tensor, "point *cell prompt"], n: int) -> list[list[Cell]]:
    """The ``n`` cells of the largest mean size: of each point, their indices in order."""
    sizes = shares.abs().mean(-1)
    chosen = torch.zeros(sizes.numel(), dtype=torch.bool)
    chosen[sizes.flatten().argsort(descending=True, stable=True)[:n]] = True
    return [[*map(tuple, of_point.nonzero().tolist())] for of_point in chosen.view(sizes.shape)]
