"""How small a circuit does what the model does? Circuits of the highest-ranked edges, run alone.

    f(C) = (m(C) − m(∅)) / (m(M) − m(∅))       faithfulness of a circuit C of the model M

m(C) is the metric when only the edges of C carry the values of the prompt, and all others those of
its corrupted counterpart (or a mean, or zero); m(M) is that of the whole model, m(∅) that without
any edge. Two areas summarize the curve of f over the share of edges kept (Mueller et al. 2025,
"MIB: A Mechanistic Interpretability Benchmark"):

    CPR = ∫ f          higher: what helps is found first
    CMD = ∫ |1 − f|    lower: the circuit does what the model does, neither less nor more

The control is the same curve for edges in a random order. What the numbers can't show: that a
circuit is the only one, or that its parts mean what they seem to; and a ranking looks better on the
prompts that it was made on than on others, which ``heldout=`` measures.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from analyses.methods.circuits import replaced, run_circuits
from analyses.methods.components import aligned
from analyses.methods.finite import check_finite_weights
from analyses.results import (
    AnyMetric,
    Curve,
    Curves,
    Drawing,
    Result,
    as_metric,
    circuit_drawing,
    counted,
    fixed,
    number,
    percent,
    plotted,
    prompt_frame,
    rounding,
)
from interp import Transformer, computation_graph
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.graph import Graph
from interp.integers import as_seed, at_least
from interp.io import ProgressLike
from interp.metrics import Metric
from interp.sweeps import check_options

Scores = Mapping[tuple[str, str], float]
"""The effect of patching each edge, by the names of its writer and reader."""
SIZES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
RANKS = ("size", "signed")


@dataclass(frozen=True, eq=False, repr=False)
class Pruning(Result):
    """The metric of circuits of the highest-ranked edges.

    Attributes:
        counts: number of edges of each circuit.
        value: the metric of each circuit.
        control: the metric of as many edges in a random order.
        whole: the metric of the whole model.
        empty: the metric without any edge.
        edges: all edges, highest-ranked first.
        score: score of each edge, in that order.
        ranked_by: what they were ranked by: ``size`` or ``signed``.
        method: what edges outside the circuit carry: ``resample``, ``mean`` or ``zero``.
        metric: the metric's name.
        unit: the metric's unit.
        provenance: model and tokens that the numbers depend on.
    """

    counts: tuple[int, ...]
    value: Float[Tensor, "circuit prompt"]
    control: Float[Tensor, "draw circuit prompt"]
    whole: Float[Tensor, " prompt"]
    empty: Float[Tensor, " prompt"]
    edges: tuple[tuple[str, str], ...]
    score: tuple[float, ...]
    ranked_by: str
    method: str
    metric: str
    unit: str
    provenance: Provenance

    @property
    def faithfulness(self) -> Float[Tensor, " circuit"]:
        """f of each circuit, from means over prompts."""
        return self._faithfulness_of(self.value)

    @property
    def faithfulness_control(self) -> Float[Tensor, "draw circuit"]:
        """f of the control."""
        return self._faithfulness_of(self.control)

    @property
    def cpr(self) -> float:
        """∫ f over the share of edges kept, from 0 to 1."""
        return self._area(self.faithfulness)

    @property
    def cmd(self) -> float:
        """∫ |1 − f| over the share of edges kept, from 0 to 1."""
        return self._area(self.faithfulness, distance=True)

    @property
    def cmd_control(self) -> float:
        """CMD of the control, mean over draws."""
        areas = [self._area(curve, distance=True) for curve in self.faithfulness_control]
        return sum(areas) / len(areas)

    def circuit(self, count: int) -> tuple[tuple[str, str], ...]:
        """The ``count`` highest-ranked edges."""
        return self.edges[:count]

    def to_frame(self) -> pd.DataFrame:
        """One row per circuit.

        Columns:
            count, share: number of edges, and their share of all.
            faithfulness, distance: f, and |1 − f|.
            value: the metric of the circuit, mean over prompts.
            control: f of as many edges in a random order, mean over draws.
        """
        f = self.faithfulness
        return pd.DataFrame(
            {
                "count": self.counts,
                "share": [count / len(self.edges) for count in self.counts],
                "faithfulness": f.numpy(),
                "distance": (1 - f).abs().numpy(),
                "value": self.value.mean(-1).numpy(),
                "control": self.faithfulness_control.mean(0).numpy(),
            }
        )

    def to_prompt_frame(self) -> pd.DataFrame:
        """One row per circuit and prompt: count, prompt, value, control, whole, empty.

        ``value`` is the metric of the circuit, ``control`` that of as many edges in a random order
        (mean over draws), ``whole`` and ``empty`` those of the model and of no edge.
        """
        return prompt_frame(
            {"count": self.counts},
            value=self.value,
            control=self.control.mean(0),
            whole=self.whole.expand_as(self.value),
            empty=self.empty.expand_as(self.value),
        )

    def more_frames(self) -> dict[str, pd.DataFrame]:
        """See :meth:`Result.more_frames`."""
        return {"edges": self.to_edge_frame()}

    def to_edge_frame(self) -> pd.DataFrame:
        """One row per edge, highest-ranked first: rank (from 1), writer, reader, score."""
        return pd.DataFrame(
            {
                "rank": range(1, len(self.edges) + 1),
                "writer": [writer for writer, _ in self.edges],
                "reader": [reader for _, reader in self.edges],
                "score": self.score,
            }
        )

    def drawing(self) -> Drawing:
        """Faithfulness over the number of edges, and that of the control."""
        lines = [
            Curve(f"{self.ranked_by} of the scores", self.counts, self.faithfulness.tolist()),
            Curve("the whole model", self.counts, [1.0] * len(self.counts), faint=True),
            Curve("random order", self.counts, self.faithfulness_control.mean(0).tolist()),
        ]
        return Curves(
            {"faithfulness": lines},
            title=f"What circuits keep of the {self.metric}",
            axis="edges kept",
            units=("share of the model's",),
            log=True,
        )

    def drawings(self) -> dict[str, Drawing]:
        """See :meth:`Result.drawings`."""
        return {**super().drawings(), "circuit": self.circuit_drawing()}

    def circuit_drawing(self, count: int = 30) -> Drawing:
        """The circuit of the ``count`` highest-ranked edges as a graph, inputs at the bottom.

        Raises:
            InvalidInput: fewer than one edge.
        """
        count = at_least(1, count, "count")
        score_of = dict(zip(self.edges[:count], self.score[:count], strict=True))
        title = f"The {len(score_of)} highest-ranked of {len(self.edges)} edges"
        return circuit_drawing(score_of, title=title, unit=self.unit)

    circuit_figure = plotted(circuit_drawing)

    def summary(self) -> str:
        """The areas under the curve, and f at each size."""
        total = len(self.edges)
        rows = [
            f"{count:>6} edges ({percent(count / total, 1):>7}): f = {fixed(f, 3)}"
            for count, f in zip(self.counts, self.faithfulness.tolist(), strict=True)
        ]
        return "\n".join([self.headline(), *rows])

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        whole, empty = (number(x.mean().item()) for x in (self.whole, self.empty))
        return (
            f"CMD {fixed(self.cmd, 3)} (random order {fixed(self.cmd_control, 3)}), CPR "
            f"{fixed(self.cpr, 3)} on {counted(len(self.whole), 'pair')}; {self.metric} {whole} "
            f"{self.unit} whole, {empty} without edges"
        )

    def _faithfulness_of(self, values: Float[Tensor, "*shape prompt"]) -> Float[Tensor, "*shape"]:
        empty, whole = self.empty.mean(), self.whole.mean()
        return (values.mean(-1) - empty) / (whole - empty)

    def _area(self, f: Float[Tensor, " circuit"], *, distance: bool = False) -> float:
        """The area under f, or |1 − f|, by trapezoids; without edges, f = 0."""
        shares = torch.tensor([0, *self.counts], dtype=torch.float64) / len(self.edges)
        heights = torch.cat([f.new_zeros(1), f])
        return float(torch.trapezoid((1 - heights).abs() if distance else heights, shares))


def prune(  # noqa: PLR0913 - the settings of one analysis, by keyword
    scores: Scores,
    model: Transformer,
    clean: Any,  # noqa: ANN401 - what model.check reads
    corrupt: Any,  # noqa: ANN401 - likewise
    *,
    metric: AnyMetric,
    sizes: Sequence[float] = SIZES,
    rank: str = "size",
    method: str = "resample",
    heldout: tuple[Any, Any, Metric] | None = None,
    draws: int = 3,
    seed: int = 0,
    memory: float | None = None,
    progress: ProgressLike = None,
) -> Pruning:
    """Run circuits of the highest-ranked edges by themselves.

    Args:
        scores: the effect of patching every edge: ``patch_paths(...).scores`` or
            ``attribute_edges(...).scores``.
        model: the model.
        clean: texts, token ids, or a batch; ``(source, target)`` for an encoder–decoder.
        corrupt: as many prompts, each with as many tokens as its clean counterpart.
        metric: ``"loss"``, a metric or a function of the logits.
        sizes: sizes of the circuits, as ascending shares of all edges; each has one edge or more.
            All edges are run last.
        rank: ``size``: by the absolute score; ``signed``: by how much of the metric's difference
            patching removes.
        method: what edges outside the circuit carry: ``resample`` (the corrupted prompt), ``mean``,
            ``zero``.
        heldout: other clean and corrupted prompts and their metric, on which circuits are run
            instead.
        draws: number of random orders of the control.
        seed: seed for these orders.
        memory: bytes that the forwards may take, as for :func:`interp.sweep`.
        progress: called with the number of circuits × prompts done and their total.

    Raises:
        InvalidInput: scores of other edges than the model's, invalid sizes, rank or method; pairs
            that do not align; or a metric that is the same with all edges and with none.

    Examples:
        >>> model, pair = interp.load("python-2l"), interp.read_prompts("python-2l-pairs")[0]
        >>> metric = interp.metrics.logit_diff(pair.target, pair.distractor)
        >>> edges = analyses.attribute_edges(model, pair.text, pair.corrupt, metric=metric)
        >>> analyses.prune(edges.scores, model, pair.text, pair.corrupt, metric=metric)
        Pruning(CMD 0.059 (random order 0.729), CPR 0.942 on 1 pair; logit difference 7.421 logits
        whole, −6.3 without edges)
    """
    check_finite_weights(model)
    graph = computation_graph(model)
    edge_scores = _scores_of(graph, scores)
    if rank not in RANKS:
        raise InvalidInput(f"rank={shorten(rank)} is not known; it is one of {', '.join(RANKS)}.")
    check_options(model, memory, resume=None)
    counts = _counts(sizes, len(edge_scores))
    draws, seed = at_least(1, draws, "draws"), as_seed(seed)
    clean, corrupt, metric = (clean, corrupt, metric) if heldout is None else _heldout(heldout)
    clean_batches, corrupt_batches = aligned(model, clean, corrupt)
    measured = as_metric(metric, model, clean_batches)
    values = replaced(model, clean_batches, corrupt_batches, method)

    def measure_all(circuits: Bool[Tensor, "circuit edge"]) -> Float[Tensor, "circuit prompt"]:
        return run_circuits(
            model, clean_batches, circuits, values, measured, memory=memory, progress=progress
        )

    ends = torch.tensor([[False], [True]]).expand(-1, len(edge_scores))
    empty, whole = measure_all(ends)
    provenance = Provenance.of(model, *clean_batches, *corrupt_batches, seed=seed)
    rises = _difference(whole, empty, measured.name, provenance.dtype) > 0
    by = edge_scores.abs() if rank == "size" else -edge_scores * (1 if rises else -1)
    order = by.argsort(descending=True, stable=True)
    generator = torch.Generator().manual_seed(seed)
    orders = [order, *(torch.randperm(len(edge_scores), generator=generator) for _ in range(draws))]
    circuits = torch.stack([_highest(ranking, count) for ranking in orders for count in counts])
    by_order = measure_all(circuits).unflatten(0, (len(orders), len(counts)))
    names = [(writer.name, reader.name) for writer, reader in graph.edges]
    return Pruning(
        counts=counts,
        value=by_order[0],
        control=by_order[1:],
        whole=whole,
        empty=empty,
        edges=tuple(names[edge] for edge in order.tolist()),
        score=tuple(edge_scores[order].tolist()),
        ranked_by=rank,
        method=method,
        metric=measured.name,
        unit=measured.unit,
        provenance=provenance,
    )


def _heldout(heldout: object) -> tuple[Any, Any, Metric]:
    """Clean prompts, corrupted prompts and their metric.

    Raises:
        InvalidInput: ``heldout`` is not a tuple of these.
    """
    if isinstance(heldout, tuple) and len(heldout) == 3:  # noqa: PLR2004
        return heldout
    raise InvalidInput(
        f"heldout={shorten(heldout)} should be a tuple of clean prompts, corrupted prompts and "
        "their metric."
    )


def _difference(
    whole: Float[Tensor, " prompt"], empty: Float[Tensor, " prompt"], metric: str, dtype: str
) -> float:
    """m(M) − m(∅), checked to exceed rounding errors."""
    difference = float(whole.mean() - empty.mean())
    if abs(difference) <= rounding(whole, dtype):
        raise InvalidInput(
            f"The {metric} is {whole.mean():.6g} with all edges, {empty.mean():.6g} with none: the "
            "same within rounding, so that faithfulness is undefined. Give pairs on which it "
            "differs."
        )
    return difference


def _scores_of(graph: Graph, scores: Scores) -> Float[Tensor, " edge"]:
    """The score of every edge, in the order of the graph."""
    for pair in scores:
        graph.edge(*pair)
    missing = [
        f"{writer} → {reader}"
        for writer, reader in graph.edges
        if (writer.name, reader.name) not in scores
    ]
    if missing:
        raise InvalidInput(
            f"prune needs a score of every edge; {len(missing)} are missing, such as {missing[0]}."
        )
    ordered = [scores[writer.name, reader.name] for writer, reader in graph.edges]
    values = torch.tensor(ordered, dtype=torch.float64)
    if bool(values.isnan().any()):
        writer, reader = graph.edges[int(values.isnan().nonzero()[0])]
        raise InvalidInput(f"The score of {writer} → {reader} is NaN.")
    return values


def _counts(sizes: Any, edges: int) -> tuple[int, ...]:  # noqa: ANN401 - checked here
    """The distinct numbers of edges of circuits; the last is all edges."""
    numbers = isinstance(sizes, Sequence) and all(isinstance(size, int | float) for size in sizes)
    if not numbers or not all(0 < size <= 1 for size in sizes) or list(sizes) != sorted(sizes):
        raise InvalidInput(
            f"sizes={shorten(sizes)} should be shares of all edges, above 0, up to 1, rising."
        )
    counts = (max(1, round(size * edges)) for size in sizes)
    return tuple(dict.fromkeys([*counts, edges]))


def _highest(order: Tensor, count: int) -> Bool[Tensor, " edge"]:
    mask = torch.zeros(len(order), dtype=torch.bool)
    mask[order[:count]] = True
    return mask
