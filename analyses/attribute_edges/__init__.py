"""Which edges carry the difference between two prompts? All at once, from gradients.

    effect(w → r) = m(r reads u′_w instead of u_w) − m(clean)          one forward an edge, exact
    score(w → r)  = Σ_k (g_k + g_{k+1})/2 · (u_{k+1} − u_k)            conductance, of all edges

u_k is what the writer w writes, and g_k the gradient of the metric with respect to what the reader
r reads, through r alone, at point k of a path of embeddings from the clean prompt to the corrupted
one. Conductance (Dhamdhere et al. 2018, here of edges) is the integral of g · du/dt, so the scores
of any set of edges that cuts the inputs off from the logits sum to the metric's change. ``eap``
uses g on the clean prompt alone (attribution patching: Nanda 2023; Syed et al. 2023), ``eap-ig``
its mean along the path (Hanna et al. 2024), which sums to the change over the edges of the inputs.

What the numbers can't show: a score estimates the effect of patching one edge alone, and equals it
only where everything downstream is linear. Each result therefore reports the error of its sums, and
its correlation with exact patching of some edges.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.attribute_edges.cuts import cuts_of
from analyses.methods.attribution import (
    RULES,
    Agreement,
    EdgeScores,
    Path,
    cells_to_check,
    checked_frame,
    edge_scores,
    steps_and_tolerance,
)
from analyses.methods.circuits import written
from analyses.methods.components import Batches, aligned
from analyses.methods.finite import check_finite_weights, naming_first_nan
from analyses.results import (
    AnyMetric,
    Drawing,
    Progress,
    Result,
    SeparatePrompts,
    as_metric,
    counted,
    edge_cells,
    edge_drawing,
    effect_lines,
    in_cells,
    largest_text,
    number,
    percent,
    prompt_frame,
    rounding,
    scores_by_edge,
)
from interp import Sweep, Transformer, computation_graph, sweep
from interp.edits import Edge, Edit, Selection
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.graph import Graph
from interp.integers import as_seed, at_least
from interp.io import TensorData, cancellable
from interp.metrics import measure_prompts
from interp.sweeps import check_options

METHODS = (*RULES, "exact")
INCOMPLETE = 0.05
"""Error of a sum over a cut, as a share of the metric's change, above which the summary warns."""


@dataclass(frozen=True, eq=False, repr=False)
class EdgeAttribution(Result):
    """The effect of every edge, estimated or exact, for each prompt.

    Attributes:
        clean: the metric on the clean prompts.
        corrupt: the metric on the corrupted prompts.
        effect: the effect of each edge, in the metric's unit: the change from ``clean`` that its
            corrupted value causes. NaN for edges that a cancelled call did not reach.
        edges: the writer and the reader of each edge.
        cuts: names of sets of edges that cut the inputs off from the logits.
        sum: sum of the effects over each cut; ``corrupt − clean`` for a complete method.
        checked: indices of the edges that were patched exactly.
        exact: their exact effects.
        n_points: number of points on the path of each prompt; 0 for ``exact``.
        metric: the metric's name.
        unit: the metric's unit.
        method: ``conductance``, ``eap``, ``eap-ig`` or ``exact``.
        provenance: model, tokens and settings that the numbers depend on.
        notes: notes on how the numbers were computed.
        partial: for a cancelled call, the sweep to pass as ``resume=``; else ``None``.
    """

    working = ("partial",)

    clean: Float[Tensor, " prompt"]
    corrupt: Float[Tensor, " prompt"]
    effect: Float[Tensor, "edge prompt"]
    edges: tuple[tuple[str, str], ...]
    cuts: tuple[str, ...]
    sum: Float[Tensor, "cut prompt"]
    checked: Int[Tensor, " checked"]
    exact: Float[Tensor, "checked prompt"]
    n_points: Int[Tensor, " prompt"]
    metric: str
    unit: str
    method: str
    provenance: Provenance
    notes: tuple[str, ...] = ()
    partial: Sweep | None = None

    @property
    def scores(self) -> dict[tuple[str, str], float]:
        """The mean effect of each edge, for :func:`analyses.prune`."""
        return scores_by_edge(self.edges, self.effect)

    @property
    def agreement(self) -> Agreement:
        """How the mean effects of the checked edges agree with their exact ones."""
        return Agreement.of(self.effect[self.checked].mean(-1), self.exact.mean(-1))

    @property
    def completeness_error(self) -> Float[Tensor, " cut"]:
        """Mean |sum − change of the metric| over each cut, as a share of the mean |change|."""
        change = self.corrupt - self.clean
        return (self.sum - change).abs().mean(-1) / change.abs().mean()

    def to_frame(self) -> pd.DataFrame:
        """One row per edge, largest size first.

        Columns: writer, reader, name, those of :func:`analyses.results.effect_frame`, and exact,
        the mean effect by exact patching; NaN for edges that were not checked.
        """
        cells = edge_cells(self.edges)
        return checked_frame(cells, self.effect, self._noise, self.checked, self.exact, self.clean)

    @property
    def _noise(self) -> float:
        return rounding(self.clean, self.provenance.dtype)

    def separate_prompts(self) -> SeparatePrompts | None:
        """See :meth:`Result.separate_prompts`."""
        return SeparatePrompts(self._noise, self.clean)

    def to_prompt_frame(self) -> pd.DataFrame:
        """One row per edge and prompt: writer, reader, name, prompt, effect."""
        return prompt_frame(edge_cells(self.edges), effect=self.effect)

    def to_cut_frame(self) -> pd.DataFrame:
        """One row per cut.

        Columns:
            cut: its name.
            difference: ``corrupt − clean``, mean over prompts.
            sum: sum of the effects over the cut, mean over prompts.
            error: as :attr:`completeness_error`.
        """
        change = float((self.corrupt - self.clean).mean())
        columns = {"sum": self.sum.mean(-1), "error": self.completeness_error}
        numbers = {name: column.double().numpy() for name, column in columns.items()}
        return pd.DataFrame({"cut": self.cuts, "difference": change, **numbers})

    def drawing(self) -> Drawing:
        """Heatmap of the mean effect, or the graph of the strongest of many edges."""
        title = f"Effect of each edge on {self.metric} ({self.method})"
        return edge_drawing(self.edges, self.effect, title=title, unit=self.unit)

    def summary(self, top: int = 10) -> str:
        """The change of the metric, how far the scores can be trusted, and ``top`` edges."""
        top = at_least(1, top, "top")
        lines = effect_lines(self.to_frame(), self.unit, "edges", top)
        return "\n".join([*self.conclusion(), *lines, *self.notes])

    def conclusion(self) -> list[str]:
        """See :meth:`Result.conclusion`."""
        return [self.headline(), *([] if self.method == "exact" else self._checks())]

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        clean, corrupt = (number(x.mean().item()) for x in (self.clean, self.corrupt))
        return (
            f"{self.metric} {clean} → {corrupt} {self.unit} on "
            f"{counted(self.clean.numel(), 'pair')}; "
            f"{largest_text(self.to_frame(), self.unit, 'edges', self.method)}"
        )

    def _checks(self) -> list[str]:
        """How far the estimates agree with exact patching and sum to the change of the metric."""
        error = self.completeness_error.nan_to_num()
        worst = int(error.argmax())
        agreement = self.agreement
        lines = [
            f"sums over {len(self.cuts)} cuts are off by up to {percent(error[worst], 1)} (at "
            f"{self.cuts[worst]}); {counted(int(self.n_points.max()), 'point')} a path, each a "
            "forward and a backward pass"
        ]
        if agreement.n:
            lines.append(f"with exact patching of {agreement.n} edges: {agreement}")
        if error[worst] > INCOMPLETE:
            lines.append(
                f"WARNING: sums are off by more than {percent(INCOMPLETE)}; {self._advice}"
            )
        return [*lines, *agreement.warnings("edge")]

    @property
    def _advice(self) -> str:
        if self.method == "conductance":
            return "take more steps= or a tolerance=; where tokens are routed, no steps suffice"
        return 'only method="conductance" is complete over every cut'


def attribute_edges(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    clean: Any,  # noqa: ANN401 - what model.check reads
    corrupt: Any,  # noqa: ANN401 - likewise
    *,
    metric: AnyMetric,
    method: str = "conductance",
    steps: int | None = None,
    tolerance: float | None = None,
    check: int = 64,
    seed: int = 0,
    memory: float | None = None,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
    resume: Sweep | None = None,
) -> EdgeAttribution:
    """Score every edge of the computation graph, and check some of the scores by patching.

    Args:
        model: a model whose stream is a sum of what is written.
        clean: prompts: texts, token ids, images or a batch; ``(source, target)`` for an
            encoder–decoder.
        corrupt: as many prompts, each with as many tokens as its clean counterpart.
        metric: a metric with a gradient: ``"loss"``, one of ``interp.metrics`` or a function of the
            logits. It reads the tokens of ``clean``. (``"kl"`` has its minimum at the clean prompt,
            where its gradient, and with it all scores of ``eap``, are 0.)
        method: ``conductance``, ``eap``, ``eap-ig``, or ``exact``: patch every edge.
        steps: number of steps of the path from the clean embeddings to the corrupted ones, 10 by
            default. Each pair costs ``steps + 1`` forward and backward passes; ``eap`` takes 2,
            whatever ``steps``.
        tolerance: halve steps until the sum over every cut is off by at most this share of the
            metric's range, up to ten times as many, as is needed where a model saturates. Up to
            ``2 (10 steps + 1)`` passes a pair. ``None``: exactly ``steps`` steps; but 0.01 for
            ``conductance`` if ``steps`` is not given either.
        check: number of edges that are patched exactly: half of them those with the largest scores,
            the others drawn from the rest; each costs up to a forward pass a pair. 0 for none.
        seed: seed for these draws.
        memory: bytes that may be used, as for :func:`interp.sweep`.
        progress: called with ``(edges done, edges in total)`` while edges are patched.
        cancelled: called after each forward; if it returns True, what was measured is returned,
            and its ``partial`` can be resumed.
        resume: partial result of the same call.

    Raises:
        InvalidInput: pairs that do not align; an unknown method or metric, or one without a
            gradient; ``steps``, ``tolerance`` or ``check`` out of range; or norms change the stream
            (post-norm), so that there are no edges.
        Cancelled: ``cancelled`` returned True before anything was measured.
        Interrupted: Ctrl-C while edges are patched; its ``result`` can be resumed.

    Examples:
        >>> model, pair = interp.load("python-2l"), interp.read_prompts("python-2l-pairs")[0]
        >>> metric = interp.metrics.logit_diff(pair.target, pair.distractor)
        >>> analyses.attribute_edges(model, pair.text, pair.corrupt, metric=metric)
        EdgeAttribution(logit difference 7.421 → −6.3 logits on 1 pair; largest effect of 257 edges
        (conductance): L1H0 → logits −6.45 logits; ≥ 10 % of the metric: 15 of 257)
    """
    check_finite_weights(model)
    if method not in METHODS:
        raise InvalidInput(
            f"method={shorten(method)} is not known; it is one of {', '.join(METHODS)}."
        )
    steps = None if steps is None else at_least(1, steps, "steps")
    check, seed = at_least(0, check, "check"), as_seed(seed)
    check_options(model, memory, resume)
    if tolerance is not None and not _is_share(tolerance):
        raise InvalidInput(
            f"tolerance={shorten(tolerance)} should be a share between 0 and 1, or None for "
            "exactly steps= steps."
        )
    clean_batches, corrupt_batches = aligned(model, clean, corrupt)
    graph = computation_graph(model)
    scores: EdgeScores | None = None
    chosen = torch.arange(len(graph.edges))
    steps, tolerance = steps_and_tolerance(method, steps, tolerance)
    with cancellable(cancelled), naming_first_nan(model, clean_batches, corrupt_batches):
        measured = as_metric(metric, model, clean_batches)
        if method != "exact":
            path = Path.between(model, graph, clean_batches, corrupt_batches, measured)
            scores = edge_scores(
                path, graph, method, steps=steps, tolerance=tolerance, memory=memory
            )
            chosen = cells_to_check(scores.scores.abs().mean(-1), check, seed)
        made = _edits(model, graph, corrupt_batches, chosen) if len(chosen) else []
    table: Sweep | None = None
    if len(chosen):
        table = sweep(
            model,
            clean_batches,
            made,
            measured,
            memory=memory,
            progress=in_cells(progress, len(clean_batches[0].ids)),
            cancelled=cancelled,
            resume=resume,
        )
    exact = torch.empty(0, len(clean_batches[0].ids)) if table is None else table.effect
    effect = exact if scores is None else scores.scores.cpu().double()
    cuts = cuts_of(graph)
    return EdgeAttribution(
        clean=measure_prompts(measured, model, clean_batches),
        corrupt=measure_prompts(measured, model, corrupt_batches, clean_batches[-1]),
        effect=effect,
        edges=tuple((writer.name, reader.name) for writer, reader in graph.edges),
        cuts=tuple(cut.name for cut in cuts),
        sum=torch.stack([effect[cut.edges].sum(0) for cut in cuts]),
        checked=chosen,
        exact=exact,
        n_points=torch.zeros(len(clean_batches[0].ids)).long()
        if scores is None
        else scores.points.cpu(),
        metric=measured.name,
        unit=measured.unit,
        method=method,
        provenance=replace(Provenance.of(model, *clean_batches, *corrupt_batches), seed=seed),
        notes=() if table is None else table.notes,
        partial=None if table is None or table.complete else table,
    )


def _is_share(value: object) -> bool:
    return isinstance(value, float) and 0 < value < 1


def _edits(
    model: Transformer, graph: Graph, corrupt: Batches, chosen: Int[Tensor, " checked"]
) -> list[Edit]:
    """An edit for each chosen edge, with what its writer writes on the corrupted prompts."""
    edges = [graph.edges[number] for number in chosen.tolist()]
    names = dict.fromkeys(writer.name for writer, _ in edges)
    data = {name: TensorData(output) for name, output in written(model, corrupt, names).items()}
    return [
        Edge((writer.name, reader.name), Selection(), data[writer.name]) for writer, reader in edges
    ]
