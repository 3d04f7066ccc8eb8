"""What does a circuit do by itself? Forwards in which only its edges carry their own values.

    x_r = Σ_{w → r in the circuit} u_w + Σ_{w → r outside} u′_w        for each reader r

u_w is the output of a writer in this forward, so that a circuit's values only flow through the
circuit; u′_w is given: from another prompt, a mean, or 0 (Wang et al. 2022; Conmy et al. 2023;
Hanna et al. 2024). Every norm is recomputed from the input of its reader. Several circuits run as
copies of one batch.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import isfinite
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.edits import EditSite, input_of, term_of
from interp.errors import InvalidInput, shorten
from interp.execution import Plan, Recorder, logits_of
from interp.graph import Graph, Reader, Writer, computation_graph, pairs_of
from interp.io import ProgressLike, as_progress
from interp.metrics import (
    AtPosition,
    Metric,
    at_least_float32,
    columns_read,
    measure,
    with_ids,
)
from interp.model import Batch, Network
from interp.points import Place
from interp.sweeps import Budget, Footprint, check_metric, footprint, logits_formed, on_cpu

Values = Mapping[str, Tensor]
"""The output of each writer outside a circuit, by name: broadcasts to ``[batch pos d_model]``."""


def run_circuits(  # noqa: PLR0913 - independent options, by keyword
    model: Network,
    tokens: Any,  # noqa: ANN401 - what model.check reads; a pair of them for a pair
    circuits: Bool[Tensor, "circuit edge"] | Sequence[Iterable[tuple[str, str]]],
    values: Values | int | float,
    metric: Metric,
    *,
    mask: object = None,
    memory: object = None,
    progress: ProgressLike = None,
) -> Float[Tensor, "circuit prompt"]:
    """The metric of each circuit run by itself.

    Args:
        model: a model whose stream is a sum of outputs (see :mod:`interp.graph`).
        tokens: the input of ``model(...)``; ``(source, target)`` for an encoder–decoder.
        circuits: a mask of ``computation_graph(model).edges`` for each circuit; or the edges of
            each, as names ``("L0H1", "L1H0.q")``.
        values: the output of every writer outside the circuit, by name, e.g. in a corrupted run; or
            one number for all, such as 0.
        metric: one of ``interp.metrics``.
        mask: as for ``model(...)``.
        memory: bytes that the forwards may take; by default as for :func:`interp.sweep`.
        progress: called after each forward with the number of circuits × prompts that are done, and
            the number of all.

    Raises:
        InvalidInput: norms change the stream, so that there are no edges; masks have another shape;
            or values of a writer are missing, or have another shape or dtype.
        UnknownPlace: an edge has a name that the model does not have.

    Examples:
        >>> model, metric = interp.load("rasp-reverse"), interp.metrics.logit("a")
        >>> edges = interp.computation_graph(model).edges
        >>> all_or_none = torch.tensor([[True], [False]]).expand(2, len(edges))
        >>> analyses.run_circuits(model, "abcde", all_or_none, 0.0, metric)
        tensor([[12.],
                [ 0.]], dtype=torch.float64)
    """
    progress = as_progress(progress, "circuits")
    batches = tuple(model.batches(tokens, mask))
    metric = with_ids(metric, model)
    check_metric(metric, model, on_cpu(batches)[-1])
    graph = computation_graph(model)
    masks = masks_of(graph, circuits)
    checked_values = _checked_values(graph, values, model, batches)
    needs, n = _footprint(model, graph, metric, batches), len(batches[-1].ids)
    budget = Budget.of(model, memory)
    table = torch.empty(len(masks), n, dtype=torch.float64)
    done = 0
    for rows in torch.arange(n).split(needs.prompts(budget)):
        part = _select_prompts(batches, checked_values, metric, rows, n)
        for numbers in torch.arange(len(masks)).split(needs.copies(budget, len(rows))):
            forward = _Forward(model, graph, part, masks[numbers])
            table[numbers[:, None], rows] = forward.measured().cpu().double()
            done += numbers.numel() * rows.numel()
            if progress is not None:
                progress(done, table.numel())
    return table


def masks_of(
    graph: Graph, circuits: Bool[Tensor, "circuit edge"] | Sequence[Iterable[tuple[str, str]]]
) -> Bool[Tensor, "circuit edge"]:
    """A mask of the edges of the graph for each circuit."""
    edges = graph.edges
    if isinstance(circuits, Tensor):
        if circuits.dtype != torch.bool or circuits.ndim != 2 or circuits.shape[1] != len(edges):  # noqa: PLR2004
            raise InvalidInput(
                f"Circuits are a boolean tensor [circuit, {len(edges)}], with an entry for each "
                f"edge of the graph; got {shorten(circuits)}."
            )
        return circuits.cpu()
    number = {(writer.name, reader.name): i for i, (writer, reader) in enumerate(edges)}
    if not circuits:
        raise InvalidInput("run_circuits needs one or more circuits; none was given.")
    masks = torch.zeros(len(circuits), len(edges), dtype=torch.bool)
    for mask, circuit in zip(masks, circuits, strict=True):
        for writer, reader in pairs_of(circuit):
            graph.edge(writer, reader)
            mask[number[writer, reader]] = True
    return masks


@dataclass(frozen=True, eq=False)
class _Prompts:
    """Some prompts, with the outputs of writers outside the circuits, and their metric."""

    batches: tuple[Batch, ...]
    values: Values
    metric: Metric


def _select_prompts(
    batches: tuple[Batch, ...], values: Values, metric: Metric, rows: Tensor, n: int
) -> _Prompts:
    if len(rows) == n:
        return _Prompts(batches, values, metric)
    some = tuple(batch.rows(rows.to(batch.ids.device)) for batch in batches)
    selected = {
        name: value[rows.to(value.device)] if value.ndim == 3 and len(value) == n else value  # noqa: PLR2004
        for name, value in values.items()
    }
    return _Prompts(some, selected, metric.for_rows(rows.tolist(), n))


def _checked_values(
    graph: Graph, values: Values | int | float, model: Network, batches: Sequence[Batch]
) -> dict[str, Tensor]:
    """The checked values of every writer."""
    if not isinstance(values, Mapping):
        if not isinstance(values, int | float) or not isfinite(values):  # pyright: ignore[reportUnnecessaryIsInstance] - of users
            raise InvalidInput(
                f"values= takes the output of each writer, by its name, or one number; got "
                f"{shorten(values)}."
            )
        number = torch.tensor(float(values), dtype=model.dtype, device=model.device)
        return {writer.name: number for writer in graph.writers}
    missing = [writer.name for writer in graph.writers if writer.name not in values]
    if missing:
        raise InvalidInput(f"The values of {missing[0]} outside the circuit are missing.")
    shapes = {
        stack.name: (*batch.ids.shape, model.config.d_model)
        for stack, batch in zip(model.stacks, batches, strict=True)
    }
    last = model.stacks[-1].name
    for writer in graph.writers:
        value = values[writer.name]
        if not isinstance(value, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance] - of users
            raise InvalidInput(f"The values of {writer} are a tensor; got {shorten(value)}.")
        shape = shapes[writer.stack or last]
        fits = value.ndim <= 3 and all(  # noqa: PLR2004 - batch pos d_model
            size in (1, whole)
            for size, whole in zip(reversed(value.shape), reversed(shape), strict=False)
        )
        if value.dtype != model.dtype or not fits:
            raise InvalidInput(
                f"The values of {writer} are {shorten(value)}; expected {model.dtype} of a shape "
                f"that broadcasts to {shape}."
            )
    return {writer.name: values[writer.name].detach().to(model.device) for writer in graph.writers}


def _footprint(model: Network, graph: Graph, metric: Metric, batches: Sequence[Batch]) -> Footprint:
    """Memory of one circuit on one prompt: a forward, and the outputs of all writers."""
    width = max(batch.ids.shape[1] for batch in batches)
    logits = logits_formed(model, metric, [], width)
    places = [reader.place for reader in graph.readers]
    padded = any(batch.real is not None for batch in batches)
    plain = footprint(model, width, logits, places, 0, padded=padded)
    heads = max(len(list(group)) for _, group in groupby(graph.readers, key=lambda r: r.place))
    stream = width * model.config.d_model * model.dtype.itemsize
    return replace(plain, peak=plain.peak + stream * (len(graph.writers) + 2 * heads))


class _Forward:
    """One forward of some circuits on some prompts."""

    def __init__(
        self, model: Network, graph: Graph, prompts: _Prompts, masks: Bool[Tensor, "circuit edge"]
    ) -> None:
        self.model, self.prompts, self.copies = model, prompts, len(masks)
        differences = _Differences(model, graph, prompts.values, self.copies)
        sizes = [len(reader.sources) for reader in graph.readers]
        places: dict[Place, list[tuple[Reader, Tensor]]] = {}
        for reader, cut in zip(graph.readers, (~masks).split(sizes, dim=1), strict=True):
            if bool(cut.any()):
                removed = cut.to(model.device, model.dtype)
                places.setdefault(reader.place, []).append((reader, removed))
        changes = {
            place: [_ReaderEdit(model, tuple(readers_there), differences)]
            for place, readers_there in places.items()
        }
        streams = {
            reader.stream for readers_there in places.values() for reader, _ in readers_there
        }
        self.recorder = Recorder(
            Plan(
                changes,
                must_form=frozenset(changes),
                read_by_edits=frozenset(differences.sources | streams),
                paired=len(model.stacks) > 1,
            )
        )

    @torch.no_grad()
    def measured(self) -> Float[Tensor, "circuit prompt"]:
        """The metric for each circuit and prompt."""
        batches = [batch.repeated(self.copies) for batch in self.prompts.batches]
        metric, last = self.prompts.metric, batches[-1]
        stream = self.model.stream(batches, self.recorder)
        if not isinstance(metric, AtPosition):
            logits = logits_of(self.model, stream, self.recorder, last)
            batch = self.prompts.batches[-1]
            parts = logits.unflatten(0, (self.copies, -1))
            return torch.stack([measure(metric, part, batch) for part in parts])
        bound = metric.for_batch(self.prompts.batches[-1])
        columns = columns_read(last, metric.pos)
        here = stream[torch.arange(len(stream), device=stream.device), columns][:, None]
        logits = at_least_float32(self.model.unembed(here)[:, 0])
        return torch.stack([bound.compute(x) for x in logits.unflatten(0, (self.copies, -1))])


@dataclass(frozen=True, eq=False)
class _ReaderEdit:
    """The results of readers at one place, with u′ − u of outside edges added to their streams."""

    model: Network
    readers: tuple[tuple[Reader, Float[Tensor, "circuit writer"]], ...]
    differences: "_Differences"

    def __call__(self, x: Tensor, site: EditSite) -> Tensor:
        """The tensor at the place."""
        first, _ = self.readers[0]
        outside = torch.stack([mask for _, mask in self.readers], dim=1)
        terms = self.differences.of(first.sources, site.earlier)
        added = outside @ terms.flatten(2)
        shape = (len(outside), len(self.readers), -1, *terms.shape[3:])
        changes = added.reshape(shape).transpose(0, 1).flatten(1, 2)
        if first.head is None:
            return x + changes[0]
        attn, norm, _ = input_of(self.model, first)
        stream, changed = site.earlier[first.stream], x.clone()
        for (reader, _), change in zip(self.readers, changes, strict=True):
            head = reader.head or 0
            changed[:, :, head] = attn.project_head(reader.place.point, head, norm(stream + change))
        return changed


@dataclass(eq=False)
class _Differences:
    """u′ − u for the writers of each stack, computed when a reader first needs them."""

    model: Network
    graph: Graph
    values: Values
    copies: int
    _terms: dict[Writer, Any] = field(default_factory=dict)
    _stacks: dict[str | None, Tensor] = field(default_factory=dict)
    _filled: dict[str | None, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._terms = {writer: term_of(self.model, writer) for writer in self.graph.writers}

    @property
    def sources(self) -> set[Place]:
        """The places that outputs of writers are computed from."""
        return {place for place, _ in self._terms.values() if place is not None}

    def of(
        self, writers: Sequence[Writer], earlier: Mapping[Place, Tensor]
    ) -> Float[Tensor, "circuit writer batch pos d_model"]:
        """u′ − u for the writers that a reader reads, which are the first of a stack."""
        stack = writers[0].stack
        for number in range(self._filled.get(stack, 0), len(writers)):
            u = self._terms[writers[number]][1](earlier)
            if stack not in self._stacks:
                n = sum(writer.stack == stack for writer in self.graph.writers)
                rows = u.unflatten(0, (self.copies, -1))
                self._stacks[stack] = u.new_empty(self.copies, n, *rows.shape[1:])
            whole = self._stacks[stack]
            output = u if u.ndim == 1 else u.unflatten(0, (self.copies, -1))
            whole[:, number] = self.values[writers[number].name] - output
            self._filled[stack] = number + 1
        return self._stacks[stack][:, : len(writers)]
