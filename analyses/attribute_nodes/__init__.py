"""Which nodes carry the difference between two prompts? All at once, from gradients.

    effect(n) = m(n is that of the corrupted prompt) − m(clean)        one forward per node, exact
    AtP(n)    = (n′ − n) · ∂m/∂n                                       one backward for all nodes

Nodes are queries, keys, values and z of each head, over all positions, and what each MLP adds.
``atp`` is attribution patching (Nanda 2023, "Attribution Patching"). ``atp*`` (Kramár et al. 2024)
computes the effect of queries and keys through the pattern that results from them, since a
saturated softmax has no gradient; and, with three layers or more, takes the mean size of the score
with each other layer in turn held constant, since a node's effects along several paths may cancel.

What the numbers can't show: a score is the effect of patching only where everything downstream of a
node is linear; scores of ``atp*`` are designed not to miss a node, and overstate many. Each result
therefore reports how its scores correlate with exact patching of some nodes.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.attribute_nodes.nodes import NodeRuns, nodes_of
from analyses.methods.attribution import Agreement, cells_to_check, checked_frame
from analyses.methods.components import aligned, position_labels
from analyses.methods.finite import check_finite_weights
from analyses.results import (
    AnyMetric,
    Drawing,
    Heatmap,
    Progress,
    Result,
    SeparatePrompts,
    as_metric,
    cell_heatmap,
    effect_frame,
    effect_lines,
    grid,
    in_cells,
    largest_text,
    metric_text,
    plotted,
    prompt_frame,
    rounding,
)
from interp import Sweep, Transformer, sweep
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.integers import as_seed, at_least
from interp.io import cancellable
from interp.metrics import Metric
from interp.model import Batch, tokens_first
from interp.sweeps import check_options

METHODS = ("atp", "atp*", "exact")
ROWS = 16
"""Prompts per backward."""
SHOWN = 40
"""The most nodes in the figure by position."""


@dataclass(frozen=True, eq=False, repr=False)
class NodeAttribution(Result):
    """The effect of every node, estimated or exact, for each prompt.

    Attributes:
        clean: the metric on the clean prompts; NaN for those that a cancelled call did not reach.
        effect: the effect of each node, in the metric's unit: the change from ``clean`` that its
            corrupted value causes. NaN for nodes that a cancelled call did not reach.
        names: names of the nodes: ``L1H0.q``, ``L1H0.k``, ``L1H0.v``, ``L1H0`` (z), ``L1MLP``.
        checked: indices of the nodes that were patched exactly.
        exact: their exact effects.
        metric: the metric's name.
        unit: the metric's unit.
        method: ``atp``, ``atp*`` or ``exact``.
        provenance: model, tokens and settings that the numbers depend on.
        notes: notes on how the numbers were computed.
        by_position: with ``positions=True``, the effect of each node at each position, which sum
            to ``effect``; NaN where a prompt is too short; else ``None``.
        tokens: label of each position; empty where prompts differ.
        partial: for a cancelled call, the sweep to pass as ``resume=``; else ``None``.
    """

    working = ("partial",)

    clean: Float[Tensor, " prompt"]
    effect: Float[Tensor, "node prompt"]
    names: tuple[str, ...]
    checked: Int[Tensor, " checked"]
    exact: Float[Tensor, "checked prompt"]
    metric: str
    unit: str
    method: str
    provenance: Provenance
    notes: tuple[str, ...] = ()
    by_position: Float[Tensor, "node prompt pos"] | None = None
    tokens: tuple[str, ...] = ()
    partial: Sweep | None = None

    @property
    def agreement(self) -> Agreement:
        """How the mean effects of the checked nodes agree with their exact ones."""
        return Agreement.of(self.effect[self.checked].mean(-1), self.exact.mean(-1))

    def to_frame(self) -> pd.DataFrame:
        """One row per node, largest size first.

        Columns: name, those of :func:`analyses.results.effect_frame`, and exact, the mean effect by
        exact patching; NaN for nodes that were not checked.
        """
        cells = {"name": self.names}
        return checked_frame(cells, self.effect, self._noise, self.checked, self.exact, self.clean)

    @property
    def _noise(self) -> float:
        return rounding(self.clean, self.provenance.dtype)

    def separate_prompts(self) -> SeparatePrompts | None:
        """See :meth:`Result.separate_prompts`."""
        return SeparatePrompts(self._noise, self.clean)

    def to_prompt_frame(self) -> pd.DataFrame:
        """One row per node and prompt: name, prompt, effect."""
        return prompt_frame({"name": self.names}, effect=self.effect)

    def more_frames(self) -> dict[str, pd.DataFrame]:
        """See :meth:`Result.more_frames`."""
        by_position = self.by_position is not None
        return {"by_position": self.to_position_frame()} if by_position else {}

    def to_position_frame(self) -> pd.DataFrame:
        """One row per node and position, largest size first.

        Columns: name, pos, token, and those of :func:`analyses.results.effect_frame`; n counts the
        prompts that have the position. No rows if there are no numbers by position.
        """
        if self.by_position is None:
            return pd.DataFrame(columns=["name", "pos", "token"])
        effect = self.by_position.transpose(1, 2).flatten(0, 1)
        cells: dict[str, list[Any]] = {**grid(name=self.names, pos=range(len(self.tokens)))}
        cells["token"] = [self.tokens[pos] for pos in cells["pos"]]
        return effect_frame(cells, effect.nan_to_num(), self._noise, ~effect.isnan())

    def kinds(self) -> tuple[str, ...]:
        """What each node is: ``z``, ``q``, ``k`` or ``v`` of a head, or ``mlp_out``."""
        return tuple(map(_kind_of, self.names))

    def largest_by_position(
        self, top: int, names: Collection[str] | None = None
    ) -> tuple[list[str], Float[Tensor, "node pos"]]:
        """The nodes whose mean effect at some position is largest, in the order of the model.

        Args:
            top: the largest number of nodes.
            names: the nodes to choose from; ``None`` for all.

        Returns:
            Their names, and their mean effects at each position.

        Raises:
            InvalidInput: there are no numbers by position.
        """
        if self.by_position is None:
            raise InvalidInput("There are no numbers by position; measure with positions=True.")
        of = [n for n, name in enumerate(self.names) if names is None or name in names]
        mean = self.by_position[of].nanmean(1)
        order = mean.abs().nan_to_num().amax(-1).argsort(descending=True, stable=True)
        rows = order[:top].sort().values
        return [self.names[of[row]] for row in rows.tolist()], mean[rows]

    def position_drawing(self) -> Drawing:
        """Heatmap of the mean effect: the nodes of the largest effects down, positions across.

        Raises:
            InvalidInput: there are no numbers by position.
        """
        names, mean = self.largest_by_position(SHOWN)
        return Heatmap(
            mean,
            title=f"Effect of each node at each position on {self.metric} ({self.method})",
            rows=names,
            columns=[f"{pos} {token}".rstrip() for pos, token in enumerate(self.tokens)],
            axes=("node", "position"),
            unit=self.unit,
            diverging=True,
        )

    position_figure = plotted(position_drawing)

    def drawing(self) -> Drawing:
        """Heatmap of the mean effect: layers and kinds down, heads across."""
        rows, heads = zip(*map(_cell, self.names), strict=True)
        title = f"Effect of each node on {self.metric} ({self.method})"
        axes = ("node", "head")
        return cell_heatmap(
            self.effect.mean(-1), rows, heads, title=title, axes=axes, unit=self.unit
        )

    def drawings(self) -> dict[str, Drawing]:
        """See :meth:`Result.drawings`."""
        if self.by_position is None:
            return super().drawings()
        return {**super().drawings(), "positions": self.position_drawing()}

    def summary(self, top: int = 10) -> str:
        """How far the scores can be trusted, and the ``top`` nodes by size of their effect."""
        top = at_least(1, top, "top")
        lines = effect_lines(self.to_frame(), self.unit, "nodes", top)
        return "\n".join([*self.conclusion(), *lines, *self.notes])

    def conclusion(self) -> list[str]:
        """See :meth:`Result.conclusion`."""
        if self.method == "exact":
            return [self.headline()]
        agreement = self.agreement
        checked = f"with exact patching of {agreement.n} nodes: {agreement}"
        return [self.headline(), checked, *agreement.warnings("node")]

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        whole = metric_text(self.metric, self.clean, self.unit, "clean prompt")
        return f"{whole}; {largest_text(self.to_frame(), self.unit, 'nodes', self.method)}"


def _kind_of(node: str) -> str:
    letter = node.rpartition(".")[2]
    return letter if letter in ("q", "k", "v") else "mlp_out" if node.endswith("MLP") else "z"


def attribute_nodes(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    clean: Any,  # noqa: ANN401 - what model.check reads
    corrupt: Any,  # noqa: ANN401 - likewise
    *,
    metric: AnyMetric,
    method: str = "atp*",
    positions: bool = False,
    check: int = 64,
    seed: int = 0,
    memory: float | None = None,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
    resume: Sweep | None = None,
) -> NodeAttribution:
    """Score every node of a model with one stack, and check some of the scores by patching.

    Args:
        model: the model.
        clean: prompts: texts, token ids, images or a batch.
        corrupt: as many prompts, each with as many tokens as its clean counterpart.
        metric: a metric with a gradient: ``"loss"``, one of ``interp.metrics`` or a function of the
            logits. It reads the tokens of ``clean``.
        method: ``atp``, ``atp*``, or ``exact``: patch every node.
        positions: whether to report effects at each position too; only for ``atp``, whose scores
            are sums over positions.
        check: number of nodes that are patched exactly, at least one: half of them those with the
            largest scores, the others drawn from the rest.
        seed: seed for these draws.
        memory: bytes that the sweep may take, as for :func:`interp.sweep`.
        progress: called with ``(nodes done, nodes in total)`` while nodes are patched.
        cancelled: called after each forward; if it returns True, what was measured is returned,
            and its ``partial`` can be resumed.
        resume: partial result of the same call.

    Raises:
        InvalidInput: a model with two stacks; pairs that do not align; an unknown method or metric,
            or one without a gradient; ``positions`` with another method than ``atp``; or ``check``
            out of range.
        Cancelled: ``cancelled`` returned True before anything was measured.
        Interrupted: Ctrl-C while nodes are patched; its ``result`` can be resumed.

    Examples:
        >>> model, pair = interp.load("python-2l"), interp.read_prompts("python-2l-pairs")[0]
        >>> metric = interp.metrics.logit_diff(pair.target, pair.distractor)
        >>> analyses.attribute_nodes(model, pair.text, pair.corrupt, metric=metric)
        NodeAttribution(logit difference 7.421 logits on 1 clean prompt; largest effect of 64 nodes
        (atp*): L1H0 −4.93 logits; ≥ 10 % of the metric: 11 of 64)
    """
    check_finite_weights(model)
    if method not in METHODS:
        raise InvalidInput(
            f"method={shorten(method)} is not known; it is one of {', '.join(METHODS)}."
        )
    if not isinstance(positions, bool) or (positions and method != "atp"):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(
            f"positions={shorten(positions)} should be True or False, and True only with "
            'method="atp": scores of other methods are not sums over positions.'
        )
    check_options(model, memory, resume)
    check, seed = at_least(1, check, "check"), as_seed(seed)
    nodes = nodes_of(model)
    (clean_batch,), (corrupt_batch,) = aligned(model, clean, corrupt)
    with cancellable(cancelled):
        measured = as_metric(metric, model, (clean_batch,))
        scores, by_column = _scores(model, clean_batch, corrupt_batch, measured, method)
        runs = NodeRuns.of(model, clean_batch, corrupt_batch, measured)
    chosen = torch.arange(len(nodes))
    if scores is not None:
        chosen = cells_to_check(scores.abs().mean(-1), check, seed)
    table = sweep(
        model,
        clean_batch,
        [runs.edit(nodes[number]) for number in chosen.tolist()],
        measured,
        memory=memory,
        progress=in_cells(progress, len(clean_batch.ids)),
        cancelled=cancelled,
        resume=resume,
    )
    return NodeAttribution(
        clean=table.baseline,
        effect=table.effect if scores is None else scores.cpu().double(),
        names=tuple(node.name for node in nodes),
        checked=chosen,
        exact=table.effect,
        metric=table.metric,
        unit=table.unit,
        method=method,
        provenance=replace(Provenance.of(model, clean_batch, corrupt_batch), seed=seed),
        notes=table.notes,
        by_position=None
        if not positions or by_column is None
        else _at_positions(by_column, clean_batch),
        tokens=position_labels(model, clean_batch, corrupt_batch) if positions else (),
        partial=None if table.complete else table,
    )


def _scores(
    model: Transformer, clean: Batch, corrupt: Batch, metric: Metric, method: str
) -> tuple[Float[Tensor, "node prompt"] | None, Float[Tensor, "node prompt column"] | None]:
    """The scores of all nodes, ``None`` for ``exact``; and by column for ``atp``, else ``None``."""
    if method == "exact":
        return None, None
    n = len(clean.ids)
    parts = [
        NodeRuns.of(model, clean.rows(rows), corrupt.rows(rows), metric.for_rows(rows.tolist(), n))
        for rows in torch.arange(n, device=model.device).split(ROWS)
    ]
    if method == "atp*":
        return torch.cat([runs.atp_star() for runs in parts], 1), None
    by_column = torch.cat([runs.atp_by_column() for runs in parts], 1)
    return by_column.sum(-1), by_column


def _at_positions(
    by_column: Float[Tensor, "node prompt column"], batch: Batch
) -> Float[Tensor, "node prompt pos"]:
    """The numbers at the tokens of each prompt, in their order; NaN after the last."""
    order, lengths = tokens_first(batch.is_real), batch.is_real.sum(-1)
    longest = int(lengths.max())
    has = torch.arange(longest, device=order.device) < lengths[:, None]
    at_tokens = by_column.gather(-1, order[:, :longest].expand(len(by_column), -1, -1))
    return at_tokens.where(has, torch.nan).cpu().double()


def _cell(name: str) -> tuple[str, int]:
    """Row and column of a node in the figure: ``L1H3.q`` is column 3 of ``L1.q``."""
    layer, _, rest = name.replace("KV", "H").partition("H")
    if not rest:
        return name, 0
    head, _, kind = rest.partition(".")
    return f"{layer}.{kind or 'z'}", int(head)
