"""Edits an edge of the computation graph: one reader's input gets another value of one writer.

    x  = Σ_w u_w                the stream that the reader reads (see :mod:`interp.graph`)
    x′ = x + u′ − u             with one writer's output u replaced, for this reader only
    q′ = norm(x′)·W_Q + b_Q     the reader's result, with the norm recomputed

(Conmy et al. 2023, "Towards Automated Circuit Discovery"; Hanna et al. 2024, "Have Faith in
Faithfulness".) No other reader of the stream changes. Several edges into one reader add up:
x′ = x + Σ (u′ − u). The values u are those of the same forward, so that all edges of a writer that
is itself edited carry the edited value.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.edits.edit import Edit, may_vary_by_position
from interp.edits.selection import EditSite, Index, Selection
from interp.edits.values import broadcast_values
from interp.errors import InvalidEdit
from interp.graph import Reader, Writer, computation_graph, pairs_of
from interp.io import TensorData
from interp.model import Attention, Network, Step, untouched
from interp.points import Place

Stream = Float[Tensor, "batch pos d_model"]


@dataclass(frozen=True, eq=False)
class Ends:
    """Writer and reader of an edge, in one model.

    Attributes:
        stream: the place of the stream that is read.
        earlier: the places whose tensors the edit needs, besides that of the reader.
        term: the writer's output, as a function of these tensors.
        read: the function ``[batch pos d_head]`` that the reader computes from its stream; ``None``
            if the reader's place is the stream itself.
    """

    stream: Place
    earlier: tuple[Place, ...]
    term: Callable[[Mapping[Place, Tensor]], Tensor]
    read: Callable[[Stream], Tensor] | None


@dataclass(frozen=True)
class Edge(Edit):
    """Replace one writer's output in the input of one reader.

    Attributes:
        where: names of writer and reader, e.g. ``("L0H1", "L1H0.q")``.
        values: u′, broadcast to ``[batch pos d_model]``.
        ends: writer and reader in a model; ``None`` until the edit is resolved for a model.
    """

    kind = "edge"
    required = ("values",)
    values: TensorData | float = 0.0
    ends: Ends | None = field(default=None, compare=False, repr=False)

    def resolved(self, model: Network, edited: Collection[Place]) -> "tuple[Place, Edge]":
        """The place that it changes in a model, and the edge with its ends in this model.

        Args:
            model: the model.
            edited: the places of other edits of the same run.

        Raises:
            UnknownPlace: the model has no such writer or reader.
            InvalidInput: there is no such edge, or the model has no edges, because norms change
                the stream.
            InvalidEdit: an edit between the stream and the reader would have no effect; or
                positions of the encoder's output are selected.
        """
        if self.ends is None and self.select != Selection(self.select.batch, self.select.pos):
            raise InvalidEdit(f"{self}: of an edge, rows (batch) and positions (pos) are selected.")
        ((source, target),) = pairs_of([self.where])
        writer, reader = computation_graph(model).edge(source, target)
        if "source" in reader.place.point.axes and self.select.pos is not None:
            raise InvalidEdit(
                f"{reader} reads the encoder's output, whose positions pos= does not select; edit "
                f"{reader.place} with key= instead."
            )
        ends = _ends(model, writer, reader, edited)
        select = replace(self.select, head=reader.head)
        return reader.place, replace(self, ends=ends, select=select)

    def replacement(self, old: Tensor, whole: Tensor, index: Index, site: EditSite) -> Tensor:
        """The reader's result for the stream with the other value."""
        ends = self.resolved_ends
        if ends.read is None:
            return old + self._difference(whole, site)[index]
        x, reader = site.earlier[ends.stream], self.select.head
        # Edges into the same reader that were applied before this one.
        x = site.changed_inputs.get(reader, x) + self._difference(x, site)
        site.changed_inputs[reader] = x
        return ends.read(x)[:, :, None].expand(whole.shape)[index]

    def _difference(self, x: Stream, site: EditSite) -> Stream:
        """u′ − u at the selected rows and positions, and 0 elsewhere."""
        u = self.resolved_ends.term(site.earlier).expand_as(x)
        here, select = self._of_stream(site)
        index = here.index(select, x.shape)
        change = broadcast_values(self.values, u[index], u, index, select, here) - u[index]
        if select.selects_all:
            return change
        difference = torch.zeros_like(x)
        difference[index] = change
        return difference

    def check_values(self, x: Stream, site: EditSite) -> None:
        """Make sure that the values fit a stream of the shape and dtype of ``x``.

        Raises:
            InvalidEdit: the values do not fit.
        """
        here, select = self._of_stream(site)
        index = here.index(select, x.shape)
        broadcast_values(self.values, x[index], x, index, select, here)

    def _of_stream(self, site: EditSite) -> tuple[EditSite, Selection]:
        place, select = self.axes_of_values(site.place)
        return replace(site, place=place), select

    def axes_of_values(self, place: Place) -> tuple[Place, Selection]:  # noqa: ARG002
        """The place of the stream, and the rows and positions that are selected."""
        stream_part = Selection(batch=self.select.batch, pos=self.select.pos)
        return self.resolved_ends.stream, stream_part

    @property
    def earlier(self) -> tuple[Place, ...]:
        """The place that the writer's output is computed from, and that of the stream."""
        return self.resolved_ends.earlier

    @property
    def resolved_ends(self) -> Ends:
        """Writer and reader in the model that is run."""
        if self.ends is None:
            raise InvalidEdit(f"{self} is not resolved for a model; interp.run and sweep do that.")
        return self.ends

    def __getstate__(self) -> dict[str, Any]:
        """The state without the ends, which refer to a model."""
        return {**self.__dict__, "ends": None}

    @property
    def pointwise(self) -> bool:
        """Whether it changes all positions in the same way, without reading the others."""
        return self.select.pos is None and not may_vary_by_position(self)

    def to_dict(
        self, of_tensor: Callable[[TensorData], object] = TensorData.to_json
    ) -> dict[str, Any]:
        """Plain data, without the head, which is part of the reader's name."""
        plain = super().to_dict(of_tensor)
        return {name: value for name, value in plain.items() if name not in ("head", "ends")}


def _ends(model: Network, writer: Writer, reader: Reader, edited: Collection[Place]) -> Ends:
    source, term = term_of(model, writer, edited)
    sources = () if source is None else (source,)
    if reader.head is None:
        return Ends(reader.stream, sources, term, None)
    attn, norm, between = input_of(model, reader)
    for place in between:
        if place in edited:
            raise InvalidEdit(
                f"{reader} is computed anew from {reader.stream}, so that the edit of {place} "
                "would have no effect on it. Apply each in a separate run."
            )
    point, head = reader.place.point, reader.head
    return Ends(
        reader.stream,
        (*sources, reader.stream),
        term,
        lambda x: attn.project_head(point, head, norm(x)),
    )


def term_of(
    model: Network, writer: Writer, edited: Collection[Place] = ()
) -> tuple[Place | None, Callable[[Mapping[Place, Tensor]], Tensor]]:
    """The place that a writer's output is computed from (``None`` for a bias), and the function."""
    place, head = writer.place, writer.head
    if place is None:
        bias = model.get_parameter(str(writer.parameter)).to(model.device)
        return None, lambda _: bias
    if head is None:
        return place, lambda earlier: earlier[place]
    if place in edited:  # the output of each head is formed anyway
        return place, lambda earlier: earlier[place][:, :, head]
    attn = attention_at(model, place)[1]
    z = replace(place, point=attn.points.z)
    return z, lambda earlier: earlier[z][:, :, head] @ attn.W_O[head]


def input_of(
    model: Network, reader: Reader
) -> tuple[Attention, Callable[[Stream], Stream], list[Place]]:
    """The attention of a reader, the function from the stream to its input, and places between."""
    step, attn = attention_at(model, reader.place)
    stream, layer = reader.stream, reader.place.layer
    if stream.stack == reader.place.stack:
        inside, norm = step.input_layout(stream), partial(step.read, tap=untouched)
    else:  # keys and values of cross-attention
        encoder, layer = model.stack(stream.stack), None
        inside, norm = encoder.final_norm.layout(encoder.end), encoder.final_norm
    places = [
        Place(writer_place.point, layer, writer_place.norm, stream.stack) for writer_place in inside
    ]
    return attn, norm, [place for place in places if place != stream]


def attention_at(model: Network, place: Place) -> tuple[Step, Attention]:
    """The step and the attention that a place belongs to."""
    branches = model.stack(place.stack).branches()
    for step in (step for layer, step in branches if layer == place.layer):
        if isinstance(step.f, Attention) and place.point in vars(step.f.points).values():
            return step, step.f
    raise InvalidEdit(f"{place} is not of an attention.")
