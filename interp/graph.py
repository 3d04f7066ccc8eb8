"""The computation graph of a model: which parts read the outputs of which other parts.

If the residual stream is only changed by additions, each part reads (the norm of) a sum:

    x = embed + pos_embed + Σ_heads z W_O + Σ_layers b_O + Σ_MLPs mlp_out      (all terms before it)

A *writer* is a term of this sum. A *reader* is an input computed from it: queries, keys and values
of each head, the input of an MLP, the logits. There is an edge from every writer to every later
reader (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"; Conmy et al.
2023, "Towards Automated Circuit Discovery"). Names are those of :class:`interp.zoo.Circuit`:

    embed pos_embed L0H1 L0MLP → L1H0.q L1H0.k L1H0.v L1MLP logits

``L0.b_O`` is the output bias of attention, which belongs to no head. If keys and values are shared
by several query heads, their readers are named after the key/value head: ``L1KV0.k``. If a norm
follows a sub-layer's output, the heads are not separate terms, and the whole output is the writer:
``L0ATTN``. In an encoder–decoder names begin with ``encoder.``, ``decoder.`` or, for heads of
cross-attention, ``cross.``; keys and values of cross-attention read the encoder's stream.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from interp.errors import InvalidInput, UnknownPlace, nearest, shorten
from interp.model import MLP, Attention, Network, Stack, Step, Unembedding
from interp.points import Place, Point


@dataclass(frozen=True)
class Writer:
    """A term of a residual stream.

    Attributes:
        name: name of the writer, e.g. ``L0H1``.
        place: the place of the term; ``None`` for a bias.
        head: index of the head at ``place``, or ``None`` for the whole tensor.
        parameter: for a bias, the name of the parameter, as for ``model.get_parameter``.
        stack: the stack of an encoder–decoder whose stream contains the term.
        bias: the name of a parameter that is part of the term: b_out of an MLP.
    """

    name: str
    place: Place | None = None
    head: int | None = None
    parameter: str | None = None
    stack: str | None = None
    bias: str | None = None

    def __str__(self) -> str:
        """The name."""
        return self.name


@dataclass(frozen=True)
class Reader:
    """An input that is computed from a residual stream.

    Attributes:
        name: name of the reader, e.g. ``L1H0.q``.
        place: the place of the tensor computed from the stream: q, k, v; else of the stream itself.
        stream: the place of the stream that is read, before its norm.
        head: index of the head at ``place`` (for k and v, the key/value head), or ``None``.
        sources: the writers that are terms of this stream.
    """

    name: str
    place: Place
    stream: Place
    head: int | None
    sources: tuple[Writer, ...] = field(repr=False, compare=False)

    def __str__(self) -> str:
        """The name."""
        return self.name


Node = TypeVar("Node", Writer, Reader)
NAMES = (str, Writer, Reader)
"""The types that identify an end of an edge."""


@dataclass(frozen=True, eq=False)
class Graph:
    """The writers and readers of a model, in the order of its forward."""

    writers: tuple[Writer, ...]
    readers: tuple[Reader, ...]

    @cached_property
    def edges(self) -> tuple[tuple[Writer, Reader], ...]:
        """Every pair of a writer and a later reader."""
        return tuple((writer, reader) for reader in self.readers for writer in reader.sources)

    def writer(self, name: str) -> Writer:
        """The writer of this name.

        Raises:
            UnknownPlace: there is no such name.
        """
        return _named(name, self._writers, "writes to the stream")

    def reader(self, name: str) -> Reader:
        """The reader of this name.

        Raises:
            UnknownPlace: there is no such name.
        """
        return _named(name, self._readers, "reads the stream")

    @cached_property
    def _writers(self) -> dict[str, Writer]:
        return {writer.name: writer for writer in self.writers}

    @cached_property
    def _readers(self) -> dict[str, Reader]:
        return {reader.name: reader for reader in self.readers}

    @cached_property
    def _sources(self) -> dict[Reader, frozenset[Writer]]:
        return {reader: frozenset(reader.sources) for reader in self.readers}

    def edge(self, writer: str, reader: str) -> tuple[Writer, Reader]:
        """The edge between two names.

        Raises:
            UnknownPlace: there is no such writer or reader.
            InvalidInput: the reader is before the writer.
        """
        source, target = self.writer(writer), self.reader(reader)
        if source not in self._sources[target]:
            raise InvalidInput(
                f"There is no edge {writer} → {reader}: {reader} reads the stream before {writer} "
                "has written to it."
            )
        return source, target


def pairs_of(edges: Any) -> list[tuple[str, str]]:  # noqa: ANN401 - checked here
    """Edges as checked pairs of names.

    Raises:
        InvalidInput: an edge is not a pair of names.
    """
    try:
        pairs: list[Any] = list(edges)
    except TypeError:
        pairs = [edges]
    for pair in pairs:
        several = isinstance(pair, Sequence) and not isinstance(pair, str)
        if not several or not all(isinstance(name, NAMES) for name in pair) or len(pair) != 2:  # noqa: PLR2004
            raise InvalidInput(
                f'An edge is a pair of names, as ("L0H1", "L1H0.q"); got {shorten(pair)}.'
            )
    return [(str(writer), str(reader)) for writer, reader in pairs]


_BUILT: WeakKeyDictionary[Network, Graph] = WeakKeyDictionary()


def computation_graph(model: Network) -> Graph:
    """The graph of a model, built once.

    Raises:
        InvalidInput: a norm changes the stream itself (post-norm, BLOOM's residual after a norm),
            which is then not a sum of outputs.

    Examples:
        >>> graph = interp.computation_graph(interp.load("python-2l"))
        >>> len(graph.writers), len(graph.readers), len(graph.edges)
        (17, 49, 257)
    """
    if model not in _BUILT:
        _BUILT[model] = _build(model)
    return _BUILT[model]


def _build(model: Network) -> Graph:
    writers: list[Writer] = []
    readers: list[Reader] = []
    before: _Stream | None = None
    for stack in model.stacks:
        stream = _Stream(stack, before)
        readers += stream.readers
        writers += stream.writers
        before = stream
    if isinstance(model.unembed, Unembedding) and before is not None:
        readers.append(before.reader("logits", before.end, before.end))
    return Graph(tuple(writers), tuple(readers))


class _Stream:
    """The writers and readers of one stack's stream."""

    def __init__(self, stack: Stack, encoder: "_Stream | None") -> None:
        self.stack = stack
        self.encoder = encoder
        self.writers: list[Writer] = [*self._entry()]
        self.readers: list[Reader] = []
        for layer in range(len(stack.blocks)):
            for step in stack.block(layer).steps:
                self._add(step, layer)

    @property
    def end(self) -> Place:
        """The place of the stream after the last block."""
        end = self.stack.end
        return self._place(end.point, len(self.stack.blocks) - 1)

    def reader(self, name: str, place: Place, stream: Place, head: int | None = None) -> Reader:
        """A reader of the stream after the writers so far."""
        return Reader(name, place, stream, head, tuple(self.writers))

    def _entry(self) -> Iterator[Writer]:
        """The embeddings, or their norm as a single writer."""
        normed = list(self.stack.embed_norm.layout(Place(Point.EMBED_TOTAL)))
        if normed:
            yield self._writer("embed", self._place(normed[-1].point))
            return
        for place in self.stack.terms():
            yield self._writer(place.point.label, self._place(place.point))

    def _add(self, step: Step, layer: int) -> None:
        """Add all readers of a step, then its writers, whose outputs they do not read."""
        if not step.preserves_stream:
            raise InvalidInput(
                f"Layer {layer} of this model normalizes the stream itself "
                f"({type(step).__name__}), so the stream is not a sum of the outputs of parts, and "
                "there are no edges between them."
            )
        for branch in step.branches:
            self.readers += self._readers(branch, layer)
        for branch in step.branches:
            self.writers += self._writers(branch, layer)

    def _readers(self, step: Step, layer: int) -> Iterator[Reader]:
        stream = self._place(step.points.reads, layer)
        if not isinstance(step.f, Attention):
            yield self.reader(self._name(f"L{layer}MLP"), stream, stream)
            return
        attn, at = step.f, step.f.points
        yield from self._of_heads(attn, layer, at.q, stream)
        source = self if not attn.is_cross or self.encoder is None else self.encoder
        read = source.end if attn.is_cross else stream
        for point in (at.k, at.v):
            yield from self._of_heads(attn, layer, point, read, source)

    def _of_heads(
        self,
        attn: Attention,
        layer: int,
        point: Point,
        stream: Place,
        source: "_Stream | None" = None,
    ) -> Iterator[Reader]:
        """One reader for each head of ``point``: queries, keys or values."""
        shared = "kv_head" in point.axes and attn.kv_heads != attn.n_heads
        n, kind = (attn.kv_heads, "KV") if shared else (attn.n_heads, "H")
        letter = point.label.removeprefix("cross_")
        for head in range(n):
            name = self._name(f"L{layer}{kind}{head}.{letter}", cross=attn.is_cross)
            yield (source or self).reader(name, self._place(point, layer), stream, head)

    def _writers(self, step: Step, layer: int) -> Iterator[Writer]:
        out = self._place(step.points.writes, layer)
        if not isinstance(step.f, Attention):
            biased = isinstance(step.f, MLP) and step.f.b_out is not None
            apart = biased and step.norms.output is None
            mlp = self._writer(f"L{layer}MLP", out)
            yield replace(mlp, bias=self._parameter(step, layer, "b_out")) if apart else mlp
            return
        attn = step.f
        if step.norms.output is not None:
            yield self._writer(f"L{layer}ATTN", out, cross=attn.is_cross)
            return
        result = self._place(attn.points.result, layer)
        for head in range(attn.n_heads):
            yield self._writer(f"L{layer}H{head}", result, head, cross=attn.is_cross)
        if attn.b_O is not None:
            bias = self._writer(f"L{layer}.b_O", cross=attn.is_cross)
            yield replace(bias, parameter=self._parameter(step, layer, "b_O"))

    def _writer(
        self,
        name: str,
        place: Place | None = None,
        head: int | None = None,
        *,
        cross: bool = False,
    ) -> Writer:
        stack = self.stack.name_in_places
        return Writer(self._name(name, cross=cross), place, head, stack=stack)

    def _parameter(self, step: Step, layer: int, name: str) -> str:
        """The name of a parameter of a sub-layer."""
        return f"{self.stack.name}.blocks.{layer}.{step.part}.{name}"

    def _name(self, name: str, *, cross: bool = False) -> str:
        stack = self.stack.name_in_places
        if stack is None:
            return name
        return f"{'cross' if cross else stack}.{name}"

    def _place(self, point: Point, layer: int | None = None) -> Place:
        return Place(point, layer, stack=self.stack.name_in_places)


def _named(name: str, nodes: Mapping[str, Node], does: str) -> Node:
    if name in nodes:
        return nodes[name]
    advice = _shared_head(name, nodes) or nearest(name, nodes, cutoff=0.4)
    raise UnknownPlace(f"Nothing called {shorten(name)} {does} of this model.{advice}")


def _shared_head(name: str, readers: Mapping[str, Node]) -> str:
    """A sentence with the key/value head that a head uses; empty unless heads share them."""
    head = re.fullmatch(r"(\S*L\d+)H(\d+)\.([kv])", name)
    if head is None:
        return ""
    layer, index, letter = head[1], int(head[2]), head[3]
    queries = [
        reader for reader in readers if reader.startswith(f"{layer}H") and reader.endswith(".q")
    ]
    shared = [
        reader for reader in readers if reader.startswith(f"{layer}KV") and reader.endswith(letter)
    ]
    if not shared or index >= len(queries):
        return ""
    group = len(queries) // len(shared)
    return (
        f" Each {group} heads share keys and values; {layer}H{index} uses {shared[index // group]}."
    )
