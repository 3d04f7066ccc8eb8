"""Effects on a metric as tables: one row a cell, or one a cell and prompt.

A cell is what was changed (a head, a layer and position, an edge); its effect on a prompt is the
metric with the change minus the metric without it.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from analyses.statistics import LEVEL, false_discovery_rates, interval
from interp.errors import InvalidInput, shorten
from interp.metrics import Loss, Metric
from interp.model.network import Network

ROUNDING = 100
"""Effects within this many units in the last place of the metric may be rounding errors."""
Cells = Mapping[str, Sequence[object]]
"""The columns that name the cells, each with an entry a cell."""
Progress = Callable[[int, int], None]
"""Called with the number of cells done, and of all."""


def grid(**axes: Sequence[object]) -> dict[str, list[object]]:
    """The columns of a grid of cells, of which the last axis varies fastest."""
    rows = list(product(*axes.values()))
    return {name: [row[number] for row in rows] for number, name in enumerate(axes)}


def rounding(values: Tensor, dtype: str) -> float:
    """The largest difference of two metrics that may be a rounding error.

    Args:
        values: the metric without a change, in the unit of the effects.
        dtype: of the forward, e.g. ``float32``.
    """
    unit = torch.finfo(getattr(torch, dtype)).eps
    return ROUNDING * unit * max(1.0, values.abs().max().item())


def effect_frame(
    cells: Cells, effect: Float[Tensor, "cell prompt"], noise: float = 0.0
) -> pd.DataFrame:
    """One row a cell, largest size first; cells whose effect is NaN come last.

    Args:
        cells: the columns that name the cells.
        effect: of each cell on each prompt.
        noise: means within ±noise count as zero in p-values; see :func:`rounding`.

    Columns, after those of ``cells``:
        effect, low, high: the mean effect over prompts and its 95 % interval.
        size: mean of |effect|, which effects of both signs do not cancel in.
        n: number of prompts.
        p: two-sided p-value of a mean effect of zero.
        q: p, corrected for the number of cells (Benjamini and Hochberg 1995).
        matters: whether q ≤ 0.05.

    With fewer than five prompts, low, high, p and q are NaN and nothing matters.
    """
    found = interval(effect, noise)
    q = false_discovery_rates(found.p)
    frame = pd.DataFrame(dict(cells)).assign(
        effect=found.mean.numpy(),
        low=found.low.numpy(),
        high=found.high.numpy(),
        size=found.size.numpy(),
        n=found.n,
        p=found.p.numpy(),
        q=q.numpy(),
        matters=(q <= LEVEL).numpy(),
    )
    return frame.sort_values("size", ascending=False, kind="stable", ignore_index=True)


def prompt_frame(cells: Cells, **values: Float[Tensor, "cell prompt"]) -> pd.DataFrame:
    """One row a cell and prompt: the columns of ``cells``, ``prompt``, then each of ``values``."""
    count, prompts = next(iter(values.values())).shape
    repeated = {name: [one for one in own for _ in range(prompts)] for name, own in cells.items()}
    numbers = {name: own.detach().cpu().flatten().numpy() for name, own in values.items()}
    return pd.DataFrame({**repeated, "prompt": list(range(prompts)) * count, **numbers})


def mean_frame(cells: Cells, values: Float[Tensor, "cell prompt"]) -> pd.DataFrame:
    """One row a cell: its mean over the prompts that have it, those whose value is not NaN.

    Columns, after those of ``cells``: mean, low, high (with the 95 % interval; NaN below five
    prompts) and n, the number of these prompts.
    """
    there = ~values.isnan()
    columns = {name: values.new_full((len(values),), torch.nan) for name in ("mean", "low", "high")}
    subsets, subset_of = there.unique(dim=0, return_inverse=True)
    for number, subset in enumerate(subsets):
        own = subset_of == number
        found = interval(values[own][:, subset])
        for name, column in columns.items():
            column[own] = getattr(found, name).to(column.dtype)
    return pd.DataFrame(dict(cells)).assign(
        **{name: column.numpy() for name, column in columns.items()}, n=there.sum(-1).numpy()
    )


def as_metric(metric: str | Metric, model: Network) -> Metric:
    """The metric that an analysis was given: ``"loss"``, or one of ``interp.metrics``.

    Raises:
        InvalidInput: something else, or the loss of next tokens for an encoder.
    """
    if not isinstance(metric, Metric) and metric != "loss":
        raise InvalidInput(f'metric={shorten(metric)} should be "loss" or one of interp.metrics.')
    found = metric if isinstance(metric, Metric) else Loss()
    if isinstance(found, Loss) and model.config.decoder is None:
        raise InvalidInput(
            "The loss is of next tokens, which an encoder attends to; give another metric=."
        )
    return found


def in_cells(progress: Progress | None, prompts: int) -> Progress | None:
    """The callback in cells, from a sweep's progress in cells × prompts."""
    if progress is None:
        return None
    return lambda done, total: progress(done // prompts, total // prompts)
