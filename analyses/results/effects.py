"""Shared by analyses: checks of their metric and tokens, and tables of effects.

A table has one row per cell, or per cell and prompt. A cell is what was changed (a head, a layer
and position, an edge); its effect on a prompt is the metric with the change minus the metric
without it.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from math import inf
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from analyses.results.function_metric import AnyMetric, FunctionMetric
from analyses.results.statistics import LEVEL, false_discovery_rates, interval
from interp import Sweep, run
from interp.errors import InvalidInput, shorten
from interp.io import ProgressLike, as_progress
from interp.metrics import Loss, Metric, kl, logit, relative_rounding, row_targets
from interp.model import Batch, Network, unembedding_of
from interp.transformer import TextNetwork

Cells = Mapping[str, Sequence[object]]
"""The columns that name the cells, each with one entry per cell."""
Tokens = int | str | Sequence[int | str] | Tensor
"""A token (its id, or a text of a single token), or one per prompt."""
Progress = ProgressLike
"""Called with the number of cells done and their total; True draws a bar."""


def grid(**axes: Sequence[object]) -> dict[str, list[object]]:
    """The columns of a grid of cells, whose last axis varies fastest."""
    rows = list(product(*axes.values()))
    return {name: [row[number] for row in rows] for number, name in enumerate(axes)}


def rounding(values: Tensor, dtype: str) -> float:
    """The largest difference between two metrics that may be a rounding error.

    Args:
        values: the metric without a change, in the unit of the effects; NaN where a cancelled call
            did not get to it.
        dtype: dtype of the forward, e.g. ``float32``.
    """
    largest = values.abs().nan_to_num(0.0, inf).max().item()
    return relative_rounding(getattr(torch, dtype)) * max(1.0, largest)


def effect_frame(
    cells: Cells,
    effect: Float[Tensor, "cell prompt"],
    noise: float = 0.0,
    has: Bool[Tensor, "cell prompt"] | None = None,
    metric: Float[Tensor, " prompt"] | None = None,
) -> pd.DataFrame:
    """One row per cell, largest size first; cells whose effect is NaN come last.

    Args:
        cells: the columns that name the cells.
        effect: the effect of each cell on each prompt.
        noise: means within ±noise count as zero in p-values; see :func:`rounding`.
        has: which prompts have the cell (a position, say); the others are left out of its row.
            ``None`` if every prompt has every cell.
        metric: the metric without a change, for the column share; ``None`` if there is none.

    Columns, after those of ``cells``:
        effect, low, high: the mean effect over prompts and its 95 % interval.
        size: mean of |effect|, in which effects of opposite sign do not cancel.
        share: size / mean |metric|, which does not depend on the number of prompts as significance
            does. NaN where the metric is 0 (such as a KL); without ``metric``, no such column.
        n: number of prompts.
        p: two-sided p-value of a mean effect of zero.
        q: p, corrected for the number of cells (Benjamini and Hochberg 1995).
        significant: whether q ≤ 0.05.

    With fewer than five prompts, low, high, p and q are NaN and nothing is significant.
    """
    numbers = {
        name: torch.full(effect.shape[:1], torch.nan, dtype=torch.float64)
        for name in ("effect", "low", "high", "size", "share", "n", "p")
    }
    whole = torch.nan if metric is None else metric.double().abs().nanmean().item()
    whole = whole if whole > noise else torch.nan
    kinds, kind_of = (torch.ones_like(effect).bool() if has is None else has).unique(
        dim=0, return_inverse=True
    )
    for kind, prompts in enumerate(kinds):
        rows = kind_of == kind
        estimate = interval(effect[rows][:, prompts], noise)
        share = estimate.size / whole
        statistics = (
            estimate.mean,
            estimate.low,
            estimate.high,
            estimate.size,
            share,
            estimate.n,
            estimate.p,
        )
        for column, values in zip(numbers.values(), statistics, strict=True):
            column[rows] = values
    q = false_discovery_rates(numbers["p"])
    frame = pd.DataFrame(
        {**cells, **{name: column.numpy() for name, column in numbers.items()}}
    ).assign(n=numbers["n"].long().numpy(), q=q.numpy(), significant=(q <= LEVEL).numpy())
    if metric is None:
        frame = frame.drop(columns="share")
    return frame.sort_values("size", ascending=False, kind="stable", ignore_index=True)


def prompt_frame(
    cells: Cells, **values: Float[Tensor, "cell prompt"] | Bool[Tensor, "cell prompt"]
) -> pd.DataFrame:
    """One row per cell and prompt: the columns of ``cells``, ``prompt``, and each of ``values``."""
    count, prompts = next(iter(values.values())).shape
    repeated = {
        name: [label for label in labels for _ in range(prompts)] for name, labels in cells.items()
    }
    numbers = {name: tensor.detach().cpu().flatten().numpy() for name, tensor in values.items()}
    return pd.DataFrame({**repeated, "prompt": list(range(prompts)) * count, **numbers})


def mean_frame(cells: Cells, values: Float[Tensor, "cell prompt"]) -> pd.DataFrame:
    """One row per cell: its mean over the prompts whose value is not NaN.

    Columns, after those of ``cells``: mean, low, high (with the 95 % interval; NaN below five
    prompts) and n, the number of these prompts.
    """
    there = ~values.isnan()
    columns = {name: values.new_full((len(values),), torch.nan) for name in ("mean", "low", "high")}
    subsets, subset_of = there.unique(dim=0, return_inverse=True)
    for number, subset in enumerate(subsets):
        rows = subset_of == number
        estimate = interval(values[rows][:, subset])
        for name, column in columns.items():
            column[rows] = getattr(estimate, name).to(column.dtype)
    return pd.DataFrame(dict(cells)).assign(
        **{name: column.numpy() for name, column in columns.items()}, n=there.sum(-1).numpy()
    )


def per_head(
    frame: pd.DataFrame, column: str, sizes: Sequence[int], across: str = "head"
) -> Float[Tensor, "layer head"]:
    """A column of a table with one row per head; NaN for heads that are missing.

    Args:
        frame: the table, with the columns layer and head.
        column: the name of the column.
        sizes: the number of heads in each layer.
        across: the column that stands for the head, such as that of the position.
    """
    table = torch.full((len(sizes), max(sizes)), torch.nan, dtype=torch.float64)
    cells = frame["layer"].tolist(), frame[across].tolist()
    table[cells] = torch.tensor(frame[column].tolist(), dtype=table.dtype)
    return table


def by_chance(frame: pd.DataFrame) -> float:
    """How many cells are expected to have p ≤ 0.05 if none has an effect on average."""
    return LEVEL * int((frame["p"] < 1).sum())


def as_metric(
    metric: AnyMetric, model: Network, batches: Sequence[Batch] = (), rows: int = 64
) -> Metric:
    """Resolve the metric that an analysis was given: a name, or one of ``interp.metrics``.

    Args:
        metric: ``"loss"``, ``"kl"`` (KL from the model's own predictions on ``batches``), a metric
            or a function of the logits. ``"kl"`` holds the logits of all prompts,
            ``[prompt pos vocab]``, while it is in use; that of :func:`sweep_metric` does not.
        model: the model.
        batches: the prompts of each stack; without them there is no ``"kl"``.
        rows: prompts per forward while the model's own predictions are computed.

    Raises:
        InvalidInput: anything else, or the next-token loss for an encoder.
    """
    check_metric(metric, model, has_kl=bool(batches))
    if isinstance(metric, Metric):
        return metric.with_ids(model.to_single_token)
    if not isinstance(metric, str):
        return FunctionMetric(function=metric)
    return kl(_own_logits(model, batches, rows)) if metric == "kl" else Loss()


def sweep_metric(metric: AnyMetric, model: Network) -> Metric:
    """As :func:`as_metric`, for a sweep, in which ``"kl"`` holds no logits of all prompts.

    It is then the KL from the predictions of the forward without edits.

    Raises:
        InvalidInput: as for :func:`as_metric`.
    """
    check_metric(metric, model)
    return kl() if metric == "kl" else as_metric(metric, model)


def check_metric(metric: object, model: Network, *, has_kl: bool = True) -> None:
    """Check what :func:`as_metric` is given, before any forward.

    Raises:
        InvalidInput: see :func:`as_metric`.
    """
    names = ("loss", "kl") if has_kl else ("loss",)
    if metric not in names if isinstance(metric, str) else not callable(metric):
        listed = ", ".join(f'"{name}"' for name in names)
        message = f"metric={shorten(metric)} should be {listed} or one of interp.metrics, such as "
        message += "interp.metrics.logit_diff(target, distractor), or a function of the logits."
        raise InvalidInput(message)
    if (isinstance(metric, Loss) or metric == "loss") and not model.config.is_causal:
        raise InvalidInput(
            "The loss is of next tokens, which an encoder, or a decoder without its mask, attends "
            "to; give another metric=."
        )


def _own_logits(
    model: Network, batches: Sequence[Batch], rows: int
) -> Float[Tensor, "prompt pos vocab"]:
    """The logits of all prompts."""
    unembedding_of(model)
    first = batches[0].ids
    parts = torch.arange(len(first), device=first.device).split(rows)
    return torch.cat(
        [run(model, *(batch.rows(part) for batch in batches)).require_logits() for part in parts]
    )


def token_ids(model: TextNetwork, tokens: Tokens, n: int, name: str) -> Int[Tensor, " prompt"]:
    """The id of the token of each of ``n`` prompts, given as the argument ``name``.

    Raises:
        InvalidInput: neither one token nor one per prompt, or one outside the vocabulary.
        InvalidTokens: a text is not one token; the message shows how it is split.
    """

    def id_of(token: Any) -> Any:  # noqa: ANN401 - checked by the metric
        return model.to_single_token(token) if isinstance(token, str) else token

    several = isinstance(tokens, list | tuple)
    no_logits = torch.empty(1, device=model.device).expand(n, model.config.n_logits)
    try:
        ids = [id_of(token) for token in tokens] if several else id_of(tokens)
        return row_targets(no_logits, logit(ids).target)
    except InvalidInput as error:
        raise type(error)(f"{name}={shorten(tokens)}: {error}") from error


def cancelled_note(table: Sweep, cell: str) -> list[str]:
    """A note on what a cancelled sweep of each ``cell`` left out; empty if it is complete."""
    if table.complete:
        return []
    return [
        f"cancelled: {int(table.done.sum())} of {table.done.numel()} pairs of {cell} and prompt "
        "were measured, the rest are NaN; resume= continues from .partial"
    ]


def in_cells(progress: Progress | None, prompts: int) -> Progress | None:
    """Turn a callback in cells into one for a sweep's progress in cells × prompts."""
    report = as_progress(progress, "cells")
    if report is None:
        return None
    return lambda done, total: report(done // prompts, total // prompts)
