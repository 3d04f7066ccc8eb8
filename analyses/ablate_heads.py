"""Which heads matter for these prompts? Replace what one head says, and see what the metric does.

effect[l, h, prompt] = metric(z_lh replaced) − metric(clean)

*Zero* ablation writes 0; *mean* ablation the head's mean over all prompts and positions (Wang et
al. 2022, "Interpretability in the Wild"); *resample* ablation what the head said on another prompt
at the same position (Chan et al. 2022, "Causal Scrubbing"). A loss rises, a logit difference
falls, when a head that helps is taken away.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pandas as pd
import plotly.graph_objects as go
import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.figures import heatmap
from analyses.statistics import Interval, bootstrap
from interp import Sweep, Transformer, edits, run, sweep
from interp.edits import Edit
from interp.errors import InvalidInput
from interp.execution.provenance import Provenance
from interp.metrics import Loss, Metric
from interp.model.batch import Batch, tokens_first

METHODS = ("zero", "mean", "resample")
ROUNDING = 100
"""Differences below so many units in the last place of the metric may be rounding."""
Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class HeadAblation:
    """What the metric does when each head is replaced, prompt by prompt.

    Attributes:
        clean: the metric with nothing changed.
        ablated: the metric with one head replaced.
        metric: what was measured.
        unit: of the metric.
        method: how heads were replaced.
        provenance: what these numbers depend on.
    """

    clean: Float[Tensor, " prompt"]
    ablated: Float[Tensor, "layer head prompt"]
    metric: str
    unit: str
    method: str
    provenance: Provenance

    @property
    def effect(self) -> Float[Tensor, "layer head prompt"]:
        """Ablated less clean, in the metric's unit."""
        return self.ablated - self.clean

    def interval(self) -> Interval:
        """The mean effect over prompts with its 95 % bootstrap interval, ``[layer head]``."""
        return bootstrap(self.effect)

    def to_frame(self) -> pd.DataFrame:
        """One row a head, those that matter most first: effect, low, high, n, matters.

        A head matters if the interval of its effect leaves out zero by more than rounding may
        cause. One prompt alone gives no interval, and so no head of which that can be said.
        """
        interval = self.interval()
        rows = [
            {
                "layer": layer,
                "head": head,
                "name": f"L{layer}H{head}",
                "effect": interval.mean[layer, head].item(),
                "low": interval.low[layer, head].item(),
                "high": interval.high[layer, head].item(),
                "n": interval.n,
            }
            for layer, head in self._heads()
        ]
        frame = pd.DataFrame(rows)
        unit = torch.finfo(getattr(torch, self.provenance.dtype)).eps
        noise = ROUNDING * unit * max(1.0, self.clean.abs().max().item())
        frame["matters"] = ((frame["low"] > noise) | (frame["high"] < -noise)) & (interval.n > 1)
        order = frame["effect"].abs().sort_values(ascending=False, kind="stable").index
        return frame.loc[order].reset_index(drop=True)

    def to_prompt_frame(self) -> pd.DataFrame:
        """One row a head and prompt: layer, head, prompt, clean, ablated, effect."""
        effect = self.effect
        return pd.DataFrame(
            {
                "layer": layer,
                "head": head,
                "prompt": prompt,
                "clean": self.clean[prompt].item(),
                "ablated": self.ablated[layer, head, prompt].item(),
                "effect": effect[layer, head, prompt].item(),
            }
            for layer, head in self._heads()
            for prompt in range(effect.shape[-1])
        )

    def figure(self) -> go.Figure:
        """Layers down, heads across; the colour is the mean effect, centred on zero."""
        mean = self.interval().mean
        return heatmap(
            mean,
            title=f"Change of {self.metric} under {self.method} ablation of each head",
            rows=[str(layer) for layer in range(mean.shape[0])],
            columns=[str(head) for head in range(mean.shape[1])],
            axes=("layer", "head"),
            unit=self.unit,
            diverging=True,
        )

    def summary(self, top: int = 10) -> str:
        """The clean metric and the heads that matter most."""
        frame = self.to_frame()
        matter = frame[frame["matters"]]
        lines = [
            f"{row.name_:<6} {row.effect:+.4g} {self.unit}  [{row.low:+.4g}, {row.high:+.4g}]"
            for row in matter.head(top).rename(columns={"name": "name_"}).itertuples()
        ]
        first = (
            f"{self.metric} {self.clean.mean():.4g} {self.unit} on {self.clean.numel()} prompts; "
            f"{len(matter)} of {len(frame)} heads matter ({self.method} ablation, 95 % interval)"
        )
        return "\n".join([first, *lines])

    def _heads(self) -> Iterator[tuple[int, int]]:
        layers, heads, _ = self.ablated.shape
        return ((layer, head) for layer in range(layers) for head in range(heads))


def ablate_heads(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    prompts: str | Sequence[str] | Int[Tensor, "batch pos"],
    *,
    metric: str | Metric = "loss",
    method: str = "mean",
    seed: int = 0,
    rows: int = 64,
    memory: float | None = None,
    progress: Progress | None = None,
    resume: Sweep | None = None,
) -> HeadAblation:
    """Ablate every head of a model with a single stack, one at a time.

    Args:
        model: the model.
        prompts: texts, or token ids padded with ``interp.PAD``.
        metric: ``"loss"`` (next-token, nats) or a metric, e.g. ``interp.metrics.logit_diff(...)``.
        method: ``zero``, ``mean`` (over all prompts and positions) or ``resample`` (what another
            prompt, drawn by ``seed``, has at the same position).
        seed: of the resampling.
        rows: prompts a forward where activations are collected; does not change the result.
        memory: bytes that the sweep may take, as of :func:`interp.sweep`.
        progress: called with the number of heads done and of all.
        resume: what the same call had done when it was stopped: the ``result`` of the
            :class:`interp.Interrupted`, or of the error, that it raised.

    Returns:
        Effects per layer, head and prompt.

    Raises:
        InvalidInput: an unknown method or metric, a model with two stacks, a single prompt to
            resample from, or what another call had done.
        Interrupted: Ctrl-C; it holds what was done.
    """
    measured = _metric(metric)
    if method not in METHODS:
        raise InvalidInput(f"method={method!r} is not known; it is one of {', '.join(METHODS)}.")
    if len(model.stacks) > 1:
        raise InvalidInput("ablate_heads takes models with one stack; this has two.")
    batch = model.batch(prompts)
    if isinstance(measured, Loss) and model.config.decoder is None:
        raise InvalidInput("An encoder sees the next token; measure something else than its loss.")
    layers, heads = len(model.blocks), model.blocks[0].attn.n_heads
    replacements = _Replacements(model, batch, method, seed, rows)
    table = sweep(
        model,
        batch.tokens,
        [replacements.edit(layer, head) for layer in range(layers) for head in range(heads)],
        measured,
        memory=memory,
        progress=_counting_heads(progress, len(batch.ids)),
        resume=resume,
    )
    return HeadAblation(
        clean=table.clean,
        ablated=table.values.unflatten(0, (layers, heads)),
        metric=table.metric,
        unit=table.unit,
        method=method,
        provenance=replace(table.provenance, seed=seed),
    )


def _counting_heads(progress: Progress | None, prompts: int) -> Progress | None:
    """Progress in heads, from that in cells of the table."""
    if progress is None:
        return None
    return lambda done, cells: progress(done // prompts, cells // prompts)


class _Replacements:
    """What each head's z is replaced with."""

    def __init__(self, model: Transformer, batch: Batch, method: str, seed: int, rows: int) -> None:
        self._method = method
        self._values: list[Tensor] = []
        if method == "zero":
            return
        z = _z_of_all(model, batch, rows)
        if method == "mean":
            weight = batch.is_real[..., None, None].to(z[0].dtype)
            self._values = [(x * weight).sum((0, 1)) / weight.sum() for x in z]
        else:
            row, column = donors(batch, seed)
            self._values = [x[row, column] for x in z]

    def edit(self, layer: int, head: int) -> Edit:
        """The edit of one head."""
        if self._method == "zero":
            return edits.zero("z", layer=layer, head=head)
        if self._method == "mean":
            return edits.mean("z", self._values[layer][head], layer=layer, head=head)
        return edits.resample("z", self._values[layer][:, :, head], layer=layer, head=head)


def donors(batch: Batch, seed: int) -> tuple[Int[Tensor, "batch pos"], Int[Tensor, "batch pos"]]:
    """For each prompt and position, another prompt's row and column: the same one where it can be.

    Where no other prompt is long enough, any position of another prompt serves.

    Raises:
        InvalidInput: there is a single prompt.
    """
    n, width = batch.ids.shape
    if n < 2:  # noqa: PLR2004 - oneself and another
        raise InvalidInput("Resampling needs at least two prompts; one was given.")
    generator = torch.Generator().manual_seed(seed)
    # Wherever padding is: order[i, p] is the column of the p-th token of prompt i.
    order, lengths = tokens_first(batch.is_real.cpu()), batch.is_real.cpu().sum(-1)
    others = ~torch.eye(n, dtype=torch.bool)
    rows = torch.empty(n, width, dtype=torch.long)
    for position in range(width):
        candidates = others & (lengths > position)
        alone = ~candidates.any(-1)
        picked = (candidates | (others & alone[:, None])).double()
        rows[:, position] = torch.multinomial(picked, 1, generator=generator)[:, 0]
    anywhere = (torch.rand(n, width, generator=generator) * lengths[rows]).long()
    positions = torch.arange(width).expand(n, -1)
    positions = positions.where(positions < lengths[rows], anywhere)
    row = torch.empty_like(rows).scatter_(1, order, rows)
    column = torch.empty_like(rows).scatter_(1, order, order[rows, positions])
    return row.to(batch.ids.device), column.to(batch.ids.device)


def _z_of_all(model: Transformer, batch: Batch, rows: int) -> list[Tensor]:
    """Z of each layer ``[batch pos head d_head]``, for all prompts."""
    caches = [run(model, part, record="z").cache for part in batch.tokens.split(rows)]
    return [
        torch.cat([cache["z", layer] for cache in caches]) for layer in range(len(model.blocks))
    ]


def _metric(metric: str | Metric) -> Metric:
    if metric == "loss":
        return Loss()
    if isinstance(metric, Metric):
        return metric
    raise InvalidInput(f'metric={metric!r} should be "loss" or one of interp.metrics.')
