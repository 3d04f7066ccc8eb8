"""Which edges carry the difference between two prompts? Patching of single paths.

    effect[w → r, prompt] = metric(r reads u′_w instead of u_w) − metric(clean)

u_w is what the writer w writes on the clean prompt; r alone reads u′_w instead, that of the
corrupted prompt (``resample``), a mean, or zero; everything downstream of r is recomputed, with its
norms (Conmy et al. 2023, "Towards Automated Circuit Discovery"; Hanna et al. 2024). With
``mode="frozen heads"`` the path from w to r also leads through MLPs, while all other heads keep
their values from the clean prompt, and what r then reads is patched into the clean run (Wang et al.
2022, "Interpretability in the Wild").

What the numbers can't show: an edge without effect alone may matter where another takes over its
role; and what two prompts have in common is never found by ``resample``.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from analyses.methods.circuits import LOGITS, Written, next_writers, replaced
from analyses.methods.components import Batches, aligned
from analyses.methods.finite import check_finite_weights
from analyses.results import (
    AnyMetric,
    Drawing,
    Progress,
    Result,
    SeparatePrompts,
    as_metric,
    edge_cells,
    edge_drawing,
    effect_frame,
    effect_lines,
    in_cells,
    largest_text,
    metric_text,
    number,
    prompt_frame,
    rounding,
    scores_by_edge,
    sweep_metric,
)
from interp import Sweep, Transformer, computation_graph, edits, run, sweep
from interp.edits import Edge, Edit, Selection
from interp.errors import InvalidInput, UnknownPlace, shorten
from interp.execution import Provenance
from interp.graph import Graph, Reader, Writer, pairs_of
from interp.integers import at_least
from interp.io import TensorData, cancellable
from interp.metrics import measure_prompts
from interp.points import Point
from interp.prompts import read_batches
from interp.sweeps import check_options

MODES = ("edge", "frozen heads")
Names = Sequence[tuple[str, str]]


@dataclass(frozen=True, eq=False, repr=False)
class PathPatching(Result):
    """The metric with one edge patched, for each prompt.

    Attributes:
        clean: the metric on the clean prompts.
        corrupt: the metric on the corrupted prompts, read with the clean tokens, as if all edges
            were patched; ``None`` without corrupted prompts.
        patched: the metric on the clean prompts with one edge patched; NaN where a cancelled call
            did not get to it.
        edges: the writer and the reader of each edge.
        metric: the metric's name.
        unit: the metric's unit.
        method: what an edge carries: ``resample``, ``mean`` or ``zero``.
        mode: ``edge`` or ``frozen heads``.
        provenance: model, tokens and settings that the numbers depend on.
        notes: notes on how the numbers were computed.
        partial: for a cancelled call, the sweep to pass as ``resume=``; else ``None``.
    """

    working = ("partial",)

    clean: Float[Tensor, " prompt"]
    corrupt: Float[Tensor, " prompt"] | None
    patched: Float[Tensor, "edge prompt"]
    edges: tuple[tuple[str, str], ...]
    metric: str
    unit: str
    method: str
    mode: str
    provenance: Provenance
    notes: tuple[str, ...] = ()
    partial: Sweep | None = None

    @property
    def effect(self) -> Float[Tensor, "edge prompt"]:
        """``patched − clean``, in the metric's unit."""
        return self.patched - self.clean

    @property
    def _noise(self) -> float:
        return rounding(self.clean, self.provenance.dtype)

    def separate_prompts(self) -> SeparatePrompts | None:
        """See :meth:`Result.separate_prompts`."""
        return None if self.method == "mean" else SeparatePrompts(self._noise, self.clean)

    @property
    def scores(self) -> dict[tuple[str, str], float]:
        """The mean effect of each edge, for :func:`analyses.prune`."""
        return scores_by_edge(self.edges, self.effect)

    def to_frame(self) -> pd.DataFrame:
        """One row per edge, largest size first: writer, reader, name, and as in `effect_frame`."""
        return effect_frame(edge_cells(self.edges), self.effect, self._noise, metric=self.clean)

    def to_prompt_frame(self) -> pd.DataFrame:
        """One row per edge and prompt: writer, reader, name, prompt, clean, patched, effect."""
        clean = self.clean.expand_as(self.patched)
        return prompt_frame(
            edge_cells(self.edges), clean=clean, patched=self.patched, effect=self.effect
        )

    def drawing(self) -> Drawing:
        """Heatmap of the mean effect, or the graph of the strongest of many edges."""
        title = f"Change of {self.metric} when one edge is patched ({self.method})"
        return edge_drawing(self.edges, self.effect, title=title, unit=self.unit)

    def summary(self, top: int = 10) -> str:
        """The metric on both prompts, and the ``top`` edges by size of their effect."""
        top = at_least(1, top, "top")
        lines = effect_lines(self.to_frame(), self.unit, "edges", top)
        return "\n".join([self.headline(), *lines, *self.notes])

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        noun = "prompt" if self.corrupt is None else "pair"
        whole = metric_text(self.metric, self.clean, self.unit, noun)
        if self.corrupt is not None:
            whole += f" ({number(self.corrupt.mean().item())} corrupted)"
        largest = largest_text(self.to_frame(), self.unit, "edges", f"{self.method} patching")
        return f"{whole}; {largest}"


def patch_paths(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    clean: Any,  # noqa: ANN401 - what model.check reads
    corrupt: Any = None,  # noqa: ANN401 - likewise
    *,
    edges: Names | None = None,
    into: str | None = None,
    method: str = "resample",
    mode: str = "edge",
    metric: AnyMetric = "kl",
    memory: float | None = None,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
    resume: Sweep | None = None,
) -> PathPatching:
    """Patch every edge of the computation graph in turn, those named, or those into a component.

    Args:
        model: a model whose stream is a sum of what is written.
        clean: the prompts that are run: texts, token ids, or a batch; ``(source, target)`` for an
            encoder–decoder.
        corrupt: as many prompts, each with as many tokens as its clean counterpart; needed by
            ``resample`` alone.
        edges: pairs of names as in :func:`interp.computation_graph`, e.g. ``("L0H1", "L1H0.q")``.
        into: a head or an MLP, e.g. ``L1H0``, or ``logits``: patch every edge that it reads,
            instead of ``edges``.
        method: what an edge carries: ``resample`` (of the corrupted prompt), ``mean`` (over all
            tokens of the clean ones) or ``zero``.
        mode: ``edge``, or ``frozen heads``, where heads and MLPs write, and heads or the logits
            read.
        metric: ``"kl"`` (from the clean prediction, over all positions), ``"loss"``, a metric or
            a function of the logits.
        memory: bytes that the sweep may take, as for :func:`interp.sweep`.
        progress: called with ``(edges done, edges in total)``.
        cancelled: called after each forward; if it returns True, what was measured is returned,
            and its ``partial`` can be resumed.
        resume: partial result of the same call.

    Raises:
        InvalidInput: pairs that do not align, or no corrupted prompts under ``resample``; an
            unknown method, mode or metric; no such edge, or both ``edges`` and ``into``; or norms
            change the stream (post-norm), so that there are no edges.
        UnknownPlace: an edge or ``into`` names what the model does not have.
        Cancelled: ``cancelled`` returned True before anything was measured.
        Interrupted: Ctrl-C; its ``result`` can be resumed.

    Examples:
        >>> model, pair = interp.load("python-2l"), interp.read_prompts("python-2l-pairs")[0]
        >>> metric = interp.metrics.logit_diff(pair.target, pair.distractor)
        >>> analyses.patch_paths(model, pair.text, pair.corrupt, metric=metric)
        PathPatching(logit difference 7.421 logits on 1 pair (−6.3 corrupted); largest effect of 257
        edges (resample patching): L1H0 → logits −5.56 logits; ≥ 10 % of the metric: 17 of 257)
    """
    check_finite_weights(model)
    check_options(model, memory, resume)
    if corrupt is None and method == "resample":
        raise InvalidInput(
            'method="resample" puts in what is computed on corrupted prompts: give these, or take '
            'method="mean" or "zero".'
        )
    clean_batches: Batches = tuple(read_batches(model, clean))
    corrupt_batches: Batches | None = None
    if corrupt is not None:
        clean_batches, corrupt_batches = aligned(model, clean_batches, corrupt)
    graph = computation_graph(model)
    if mode not in MODES:
        raise InvalidInput(f"mode={shorten(mode)} is not known; it is one of {', '.join(MODES)}.")
    senders = {writer for writer in graph.writers if mode == "edge" or writer.place is not None}
    chosen = _select_edges(graph, edges, into, senders)
    writers = dict.fromkeys(writer.name for writer, _ in chosen)
    edits_of = _edge_edits if mode == "edge" else _frozen_edits
    with cancellable(cancelled):
        # The metric of corrupted prompts, too, is a divergence from the clean prediction.
        measured = (
            sweep_metric(metric, model)
            if corrupt_batches is None
            else as_metric(metric, model, clean_batches)
        )
        values = replaced(
            model,
            clean_batches,
            clean_batches if corrupt_batches is None else corrupt_batches,
            method,
            writers,
        )
        made = edits_of(model, clean_batches, chosen, values)
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
    return PathPatching(
        clean=table.baseline,
        corrupt=None
        if corrupt_batches is None
        else measure_prompts(measured, model, corrupt_batches, clean_batches[-1]),
        patched=table.values,
        edges=tuple((writer.name, reader.name) for writer, reader in chosen),
        metric=table.metric,
        unit=table.unit,
        method=method,
        mode=mode,
        provenance=table.provenance,
        notes=table.notes,
        partial=None if table.complete else table,
    )


def _select_edges(
    graph: Graph, edges: Names | None, into: str | None, senders: Collection[Writer]
) -> tuple[tuple[Writer, Reader], ...]:
    """Select the edges to patch.

    Raises:
        InvalidInput: there are none, or both ``edges`` and ``into`` are given.
        UnknownPlace: a name that the graph does not have.
    """
    if edges is not None and into is not None:
        raise InvalidInput(f"edges= and into={shorten(into)} both say which edges; give one.")
    if edges is not None:
        chosen = tuple(graph.edge(*pair) for pair in pairs_of(edges))
    else:
        readers = _readers(graph, into)
        chosen = tuple(
            (writer, reader)
            for writer, reader in graph.edges
            if writer in senders and (readers is None or reader.name in readers)
        )
    if not chosen:
        what = "edges=" if into is None else f"into={shorten(into)}"
        raise InvalidInput(f"{what} names no edge to patch.")
    return chosen


def _readers(graph: Graph, into: str | None) -> set[str] | None:
    """The names of the readers of a component or the logits; ``None`` for all."""
    if into is None:
        return None
    if into == LOGITS:
        return {LOGITS}
    component = _component(graph, into)
    return {reader for reader, following in next_writers(graph).items() if component in following}


def _component(graph: Graph, into: object) -> str:
    """The name of the component that ``into`` names."""
    if not isinstance(into, str):
        raise InvalidInput(f"into={shorten(into)} should be the name of a component, as L1H0.")
    try:
        return graph.writer(into).name
    except UnknownPlace as error:
        raise UnknownPlace(f"into={shorten(into)}: {error}") from error


def _edge_edits(
    model: Transformer,  # noqa: ARG001 - as _frozen_edits
    batches: Batches,  # noqa: ARG001 - as _frozen_edits
    edges: Sequence[tuple[Writer, Reader]],
    values: Written,
) -> list[Edit]:
    """One edit per edge; the edges of a writer share its values."""
    data = {writer.name: TensorData(values[writer.name]) for writer, _ in edges}
    return [
        Edge((writer.name, reader.name), Selection(), data[writer.name]) for writer, reader in edges
    ]


def _frozen_edits(
    model: Transformer,
    batches: Batches,
    edges: Sequence[tuple[Writer, Reader]],
    values: Written,
) -> list[Edit]:
    """One edit per edge: what its reader reads with its writer patched and all heads frozen."""
    heads = [place for place in model.layout if place.point in (Point.Z, Point.CROSS_Z)]
    clean = run(model, *batches, record=heads).cache
    frozen = [edits.replace(place, clean[place]) for place in heads]
    read: dict[tuple[Writer, Reader], Edit] = {}
    for writer in dict.fromkeys(writer for writer, _ in edges):
        if writer.place is None:
            raise InvalidInput(f"{writer} is a bias, the same on all prompts; it can't be patched.")
        sent = edits.replace(writer.place, values[writer.name], head=writer.head)
        places = {reader.place for sender, reader in edges if sender == writer}
        cache = run(model, *batches, record=list(places), edits=[*frozen, sent]).cache
        for reader in (reader for sender, reader in edges if sender == writer):
            whole = cache[reader.place]
            tensor = whole if reader.head is None else whole[:, :, reader.head]
            read[writer, reader] = edits.replace(reader.place, tensor, head=reader.head)
    return [read[edge] for edge in edges]
