"""What is read of a stream, as the sum of what was written into it.

    norm(x)·W = Σ_terms u·W′ + Σ_norms c            at one position, for a matrix W of directions

With its divisor fixed at the value from the run, a norm is linear. So W is pulled back through all
norms, from what is read to the embeddings, and each output that was added to the stream is
multiplied by W at its place; these terms and the constants, which are the products of the norms'
biases, sum to what is read exactly. No post-norm and no norm of a sub-layer's output needs an
approximation. W does not depend on the position: the divisors are kept apart, as a factor of each
position (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits").
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from interp.cache import Cache
from interp.metrics import at_least_float32
from interp.model import (
    MLP,
    Attention,
    BlockNorm,
    Experts,
    Network,
    Norm,
    ScaledNorm,
    Stack,
    Step,
    Sublayer,
)
from interp.points import Place, Point

Directions = Float[Tensor, "#cell r d_model"]
Factor = Float[Tensor, " cell"]
Columns = Int[Tensor, " cell"]


@dataclass(frozen=True)
class Part:
    """The part of a model that a term belongs to.

    Attributes:
        name: head ``L1H4``, MLP ``L1MLP`` (its neurons), embedding ``embed``; biases of attention
            ``L1.b_O``, of an MLP ``L1.b_out``, of a norm ``L1.ln1.bias`` and ``b_U``; feature of a
            dictionary ``L1F17``, its error ``L1 error`` and bias ``L1.b_dec``. In an
            encoder–decoder names begin with ``decoder.`` or, for heads of cross-attention,
            ``cross.``.
        kind: the kind of part.
        layer: index of its block, or ``None``.
        head: index of the head in its layer, or ``None`` (including all heads, ``L1 heads``).
        unit: index of the feature in its dictionary, or ``None``.
    """

    name: str
    kind: Literal["embedding", "head", "mlp", "bias", "feature", "error"]
    layer: int | None = None
    head: int | None = None
    unit: int | None = None

    def __str__(self) -> str:
        """The name."""
        return self.name


ReadTerms = dict[Part, Float[Tensor, "cell r"]]
Split = Mapping[str, Sequence[int]]
"""For names of MLPs, the neurons that are terms of their own."""


@dataclass(frozen=True, eq=False)
class StepDirections:
    """The directions by which the output of a step is multiplied.

    Attributes:
        layer: the layer of the step.
        step: the step.
        W: the directions, without the divisors of norms.
        factor: 1 / the product of the divisors on the way, for each cell.
        after_norm: W and factor of what the step adds, after the norm of its output, if it has one.
    """

    layer: int
    step: Step
    W: Directions
    factor: Factor
    after_norm: tuple[Directions, Factor]

    @property
    def directions(self) -> Float[Tensor, "cell r d_model"]:
        """The directions of each cell, divisors included."""
        return self.W * self.factor[:, None, None]


class StreamWalk:
    """Pulls directions back through a stack, at some cells (a row and a column each).

    Attributes:
        written: the steps that wrote into the stream, the last first.
        constants: the products of the biases of norms with the directions, last norm first.
    """

    def __init__(self, stack: Stack, cache: Cache, rows: Columns, columns: Columns) -> None:
        self.stack, self.cache, self.rows, self.columns = stack, cache, rows, columns
        name = stack.name_in_places
        self.prefix = "" if name is None else f"{name}."
        self.written: list[StepDirections] = []
        self.constants: ReadTerms = {}
        self._directions, self._factor = torch.empty(0), torch.empty(0)

    def from_end(self, W: Directions, factor: Factor | None = None) -> "StreamWalk":
        """Pull back W from the output of the stack's final norm; see :meth:`from_step`."""
        final = self.stack.final_norm
        self._start(W, factor)
        self._through(final, "ln_final", self.place(Point.FINAL_SCALE))
        self._back(len(self.stack.blocks), None)
        return self

    def from_step(
        self, layer: int, step: Step, W: Directions, factor: Factor | None = None
    ) -> "StreamWalk":
        """Pull back W from the input of a step's sub-layer, after its norm.

        Args:
            layer: the step's layer.
            step: the step, such as that of an attention.
            W: the directions.
            factor: what the directions of each cell are multiplied by; ``None`` for 1.
        """
        self._start(W, factor)
        if step.input_norm is step.norm.norm:
            if self._ends_at(step.source(), layer):
                return self
            self._through_block_norm(step.norm, layer)
        if not self._ends_at(Place(step.points.reads), layer):
            self._back(layer, step)
        return self

    def terms(self, split: Split | None = None) -> ReadTerms:
        """The terms of what is read, in the order of the forward; biases of norms last.

        Args:
            split: neurons that are terms of their own; the term of the others of their MLP is
                called ``L1MLP rest``.
        """
        terms = self.first_terms(self._directions, self._factor)
        for written in reversed(self.written):
            terms |= self.terms_of(written, split or {})
        return terms | dict(reversed(self.constants.items()))

    def first_terms(self, W: Directions, factor: Factor) -> ReadTerms:
        """The terms of where the walk ends: of the embeddings."""
        terms: ReadTerms = {}
        for place in self.stack.terms():
            embedded = self.at(self.place(place.point))
            part = Part(f"{self.prefix}{place.point.label}", "embedding")
            terms[part] = self.read(embedded, W, factor)
        return terms

    def ends_at(self, place: Place) -> bool:  # noqa: ARG002 - for walks that do
        """Whether the walk ends at a place of the stream: none does before the embeddings."""
        return False

    def terms_of(self, written: StepDirections, split: Split) -> ReadTerms:
        """The terms of the heads or the neurons of a sub-layer, and of its bias."""
        layer, step, W, factor = written.layer, written.step, written.W, written.factor
        f, name = step.f, self.name(layer, step.f)
        if isinstance(f, Attention):
            z = self.at(self.place(f.points.z, layer))
            by_head = self._of_heads(z, f.W_O.to(W.dtype), W)
            return of_heads(name, layer, by_head * factor[:, None]) | self._of_bias(
                f"{name}.b_O", layer, f.b_O, written
            )
        mlp = Part(f"{name}MLP", "mlp", layer)
        if isinstance(f, MLP):
            terms = self._of_neurons(mlp, f, written, split.get(mlp.name, ()))
            return terms | self._of_bias(f"{name}.b_out", layer, f.b_out, written)
        return {mlp: self.read(self.at(self.place(point_of_terms(step), layer)), W, factor)}

    def neurons(self, along: Float[Tensor, "cell r"]) -> dict[str, Float[Tensor, " neuron"]]:
        """For each MLP, the sum over cells of its neurons' terms along a vector of each cell."""
        sums: dict[str, Tensor] = {}
        for written in reversed(self.written):
            f, layer = written.step.f, written.layer
            if isinstance(f, MLP):
                hidden = self.at(self.place(f.hidden_point, layer)) * written.factor[:, None]
                read = (along[:, None] @ written.W)[:, 0] @ f.W_out.mT.to(along.dtype)
                sums[f"{self.name(layer, f)}MLP"] = (hidden * read).sum(0)
        return sums

    def name(self, layer: int, f: Sublayer) -> str:
        """The prefix of the names of a sub-layer's terms."""
        crosses = isinstance(f, Attention) and f.is_cross
        return f"{'cross.' if crosses else self.prefix}L{layer}"

    def at(self, place: Place) -> Tensor:
        """The tensor at a place, indexed at the row and the column of each cell."""
        return at_least_float32(self.cache[place][self.rows, self.columns])

    def place(self, point: Point, layer: int | None = None, norm: str | None = None) -> Place:
        """A place of the stack."""
        return Place(point, layer, norm, self.stack.name_in_places)

    # ---- the way back ------------------------------------------------------------------------

    def _start(self, W: Directions, factor: Factor | None) -> None:
        self._directions = W
        self._factor = W.new_ones(len(self.rows)) if factor is None else factor

    def _back(self, layer: int, until: Step | None) -> None:
        """Pull back through the steps before one; all steps of the layers before ``layer``."""
        if until is not None:
            steps = self.stack.block(layer).steps
            before = next(number for number, step in enumerate(steps) if until in step.branches)
            if self._ends_in(steps[:before], layer):
                return
        for earlier in reversed(range(layer)):
            if self._ends_in(self.stack.block(earlier).steps, earlier):
                return
        self._directions, constant = self.stack.embed_projection.pull_back(self._directions)
        self._add_constant(f"{self.prefix}embed.projection.bias", None, constant, self._factor)
        self._through(self.stack.embed_norm, "embed.ln", self.place(Point.EMBED_SCALE))

    def _ends_in(self, steps: Sequence[Step], layer: int) -> bool:
        """Pull back through the first steps of a layer; whether the walk ends in one of them."""
        for step in reversed(steps):
            if self._ends_at(step.end(), layer):
                return True
            self._through_block_norm(step.norms.sum, layer)
            if self._ends_at(Place(step.points.sum), layer):
                return True
            self._through_step(step, layer)
        return self._ends_at(Place(Point.RESID_PRE), layer)

    def _ends_at(self, place: Place, layer: int) -> bool:
        return self.ends_at(self.place(place.point, layer, place.norm))

    def _through_step(self, step: Step, layer: int) -> None:
        for branch in reversed(step.branches):
            whole = self._directions, self._factor
            self._through_block_norm(branch.norms.output, layer)
            at_output = StepDirections(layer, branch, self._directions, self._factor, whole)
            self.written.append(at_output)
            self._directions, self._factor = whole
        self._through_block_norm(step.norms.base, layer)

    def _through_block_norm(self, norm: BlockNorm | None, layer: int) -> None:
        if norm is not None:
            place = self.place(Point.SCALE, layer, norm.name)
            self._through(norm.norm, f"L{layer}.{norm.name}", place)

    def _through(self, norm: Norm, name: str, scale: Place) -> None:
        """Pull back through a norm, and add its constant."""
        if not isinstance(norm, ScaledNorm):
            return
        after = self._factor
        self._directions, constant = norm.pull_back(
            self._directions, self._directions.new_ones(1, 1, 1)
        )
        self._factor = after / self.at(scale)[:, 0]
        self._add_constant(f"{self.prefix}{name}.bias", scale.layer, constant, after)

    def _add_constant(
        self, name: str, layer: int | None, constant: Tensor | None, factor: Factor
    ) -> None:
        if constant is not None:
            self.constants[Part(name, "bias", layer)] = constant * factor[:, None]

    def _of_heads(
        self, z: Float[Tensor, "cell head d"], W_O: Float[Tensor, "head d d_model"], W: Directions
    ) -> Float[Tensor, "head cell r"]:
        """z·W_O·W of each head, by the products that take fewer operations."""
        if self._outputs_first(W):
            written = einsum(z, W_O, "b head d, head d d_model -> b head d_model")
            return (written @ W.mT).transpose(0, 1)
        read = einsum(W_O, W, "head d d_model, b r d_model -> head b d r")
        return einsum(z, read, "b head d, head b d r -> head b r")

    def _of_neurons(
        self, mlp: Part, f: MLP, written: StepDirections, some: Sequence[int]
    ) -> ReadTerms:
        """The terms of some neurons, and of the others together."""
        W, factor, terms = written.W, written.factor, ReadTerms()
        hidden, W_out = self.at(self.place(f.hidden_point, written.layer)), f.W_out.to(W.dtype)
        for neuron in some:
            part = Part(f"{mlp.name.removesuffix('MLP')}N{neuron}", "mlp", mlp.layer)
            terms[part] = hidden[:, neuron, None] * (W @ W_out[neuron]) * factor[:, None]
        if some:
            mlp = Part(f"{mlp} rest", "mlp", mlp.layer)
            hidden = hidden.index_fill(1, torch.tensor(some, device=hidden.device), 0.0)
        if self._outputs_first(W):
            terms[mlp] = self.read(hidden @ W_out, W, factor)
        else:
            terms[mlp] = self.read(hidden, W @ W_out.mT, factor)
        return terms

    def _outputs_first(self, W: Directions) -> bool:
        """Whether there are fewer cells than directions, so that forming outputs is cheaper."""
        return 2 * len(self.rows) < W.shape[1]

    def read(self, x: Float[Tensor, "cell d"], W: Tensor, factor: Factor) -> Tensor:
        """x·W of each cell."""
        return (x[:, None] @ W.mT)[:, 0] * factor[:, None]

    def _of_bias(
        self, name: str, layer: int, bias: Tensor | None, written: StepDirections
    ) -> ReadTerms:
        """The term of a bias, if there is one."""
        if bias is None:
            return {}
        read = written.W @ bias.to(written.W.dtype)
        return {Part(name, "bias", layer): read * written.factor[:, None]}


Walk = Callable[[Stack, Cache, Columns, Columns], StreamWalk]
"""What makes a walk: :class:`StreamWalk`, or a class whose terms are others."""


def of_heads(name: str, layer: int, values: Float[Tensor, "head cell *more"]) -> dict[Part, Tensor]:
    """The term of each head."""
    return {Part(f"{name}H{n}", "head", layer, n): value for n, value in enumerate(values)}


def point_of_terms(step: Step) -> Point:
    """The point of the tensor that the terms of a sub-layer are computed from."""
    return step.f.out if isinstance(step.f, Experts) else step.f.hidden_point


def written_points(step: Step) -> tuple[Point, Point]:
    """The output of a sub-layer, and what it adds to the stream: after a norm of the output."""
    raw = step.points.raw if step.norms.output is not None else None
    return raw or step.points.writes, step.points.writes


def places_of_stream(model: Network, stack: Stack, layers: int | None = None) -> list[Place]:
    """The places of a stack that a run must record for a :class:`StreamWalk`.

    Args:
        model: the model.
        stack: the stack.
        layers: the number of layers that the walk passes; ``None`` for all.
    """
    points = {Point.SCALE, Point.FINAL_SCALE, Point.EMBED_SCALE}
    points |= {place.point for place in stack.terms()}
    points |= {point_of_terms(step) for _, step in stack.branches()}
    end = len(stack.blocks) if layers is None else layers
    return [
        place
        for place in model.layout
        if place.stack == stack.name_in_places
        and place.point in points
        and (layers is None or place.point is not Point.FINAL_SCALE)
        and (place.layer is None or place.layer < end)
    ]
