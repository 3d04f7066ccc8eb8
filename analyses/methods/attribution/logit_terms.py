"""A logit as a sum of the outputs of all parts (direct logit attribution).

    logit − b_U = norm(x)·w,   w = W_U[:, target]  (minus W_U[:, distractor] for a difference)

With its divisor fixed at the value from the run, a norm is linear: norm(x)·w = x·w′ + c. So the
direction w is pulled back through every norm, from the logits to the embeddings, and each output
that was added to the stream is multiplied by the direction at its place; these terms and the
constants sum to the logit exactly (Elhage et al. 2021; nostalgebraist 2020; post-norm and norms of
a sub-layer's output need no approximation). A term is the direct contribution of a part, without
its effects through later parts.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from interp.cache import Cache
from interp.errors import InvalidInput
from interp.metrics import at_least_float32
from interp.model import (
    MLP,
    Attention,
    BlockNorm,
    Experts,
    MaskedHead,
    Network,
    Norm,
    ScaledNorm,
    Step,
    Sublayer,
    Unembedding,
)
from interp.points import Place, Point

Direction = Float[Tensor, "batch d_model"]
TokenIds = Int[Tensor, " batch"]


@dataclass(frozen=True)
class Part:
    """The part of a model that a term belongs to.

    Attributes:
        name: head ``L1H4``, MLP ``L1MLP`` (its neurons), embedding ``embed``; biases of attention
            ``L1.b_O``, of an MLP ``L1.b_out``, of a norm ``L1.ln1.bias`` and ``b_U``. In an
            encoder–decoder names begin with ``decoder.`` or, for heads of cross-attention,
            ``cross.``.
        kind: the kind of part.
        layer: index of its block, or ``None``.
        head: index of the head in its layer, or ``None`` (including all heads, ``L1 heads``).
    """

    name: str
    kind: Literal["embedding", "head", "mlp", "bias"]
    layer: int | None = None
    head: int | None = None

    def __str__(self) -> str:
        """The name."""
        return self.name


Terms = dict[Part, Float[Tensor, " batch"]]


def logit_terms(
    model: Network, cache: Cache, direction: Direction, column: Int[Tensor, " batch"]
) -> Terms:
    """The terms of ``norm(x)·direction`` at one column of each row.

    Args:
        model: the model; for an encoder–decoder, the terms are those of the decoder.
        cache: cache of a run that recorded :func:`places_of_terms`.
        direction: vector that the final norm's output is multiplied by, ``[batch d_model]``.
        column: the column of each row.

    Returns:
        The terms in the unit of the logits, in the order of the forward; biases of norms last.

    Raises:
        InvalidInput: a masked-language head is between the stream and the logits, or they are those
            of the mean of all patches.
    """
    walk = _Walk(model, cache, column)
    w = walk.walk(direction)
    terms: Terms = {}
    for place in model.stacks[-1].terms():
        embedded = walk.at(walk.place(place.point))
        terms[Part(f"{walk.prefix}{place.point.label}", "embedding")] = (embedded * w).sum(-1)
    for layer, step, term in reversed(walk.written):
        terms |= walk.terms_of(layer, step, term)
    return terms | dict(reversed(walk.constants.items()))


def direction_at_mlp(
    model: Network, cache: Cache, direction: Direction, column: Int[Tensor, " batch"], layer: int
) -> Direction:
    """The vector that the output of a layer's MLP is multiplied by in ``norm(x)·direction``.

    Arguments and errors are those of :func:`logit_terms`; the layer must have an MLP.
    """
    walk = _Walk(model, cache, column)
    walk.walk(direction)
    written = ((at, step.part, w) for at, step, w in walk.written)
    return next(w for at, part, w in written if (at, part) == (layer, "mlp"))


def check_linear_logits(model: Network) -> None:
    """Check that logits are linear in the stream at their position, with divisors of norms fixed.

    Raises:
        InvalidInput: they are not; see :func:`logit_terms`.
    """
    if isinstance(model.stacks[-1].final_norm, MaskedHead):
        raise InvalidInput(
            "The unembedding of this model reads norm(act(x·W + b)), which is not linear in "
            "the stream, so its logits are not a sum of outputs."
        )
    if model.stacks[-1].final_norm.mixes_positions:
        raise InvalidInput(
            "The unembedding of this model reads the mean of all patches at position 0, so its "
            "logits are not a sum of outputs at one position."
        )


def logit_direction(
    unembed: Unembedding, target: TokenIds, distractor: TokenIds | None = None
) -> tuple[Direction, Terms]:
    """``(w, term of b_U)`` with logit = norm(x)·w + b_U, before any soft-cap.

    Args:
        unembed: the unembedding of the model.
        target: token id of each row.
        distractor: token ids whose logits are subtracted; w and b_U are then those of the
            difference.
    """
    w, bias = at_least_float32(unembed.W_U[:, target].mT), unembed.b_U
    b = None if bias is None else at_least_float32(bias[target])
    if distractor is not None:
        w = w - at_least_float32(unembed.W_U[:, distractor].mT)
        b = None if bias is None or b is None else b - bias[distractor]
    return w, {} if b is None else {Part("b_U", "bias"): b}


def heads_together(terms: Terms) -> Terms:
    """The terms with the heads of each layer summed: ``L1 heads``."""
    sums: Terms = {}
    for part, values in terms.items():
        layer = part.name.removesuffix(f"H{part.head}")
        whole = part if part.head is None else replace(part, name=f"{layer} heads", head=None)
        sums[whole] = sums[whole] + values if whole in sums else values
    return sums


def source_terms(
    model: Network, cache: Cache, direction: Direction, column: Int[Tensor, " batch"]
) -> dict[Part, Float[Tensor, "batch key"]]:
    """The term of each head, by the token that it attends to: A_ij · v_j W_O · w.

    Arguments and errors are those of :func:`logit_terms`; the cache must also have the patterns and
    values of every head. The keys of cross-attention are the tokens of the source.
    """
    walk = _Walk(model, cache, column)
    walk.walk(direction)
    terms: dict[Part, Tensor] = {}
    for layer, step, w in reversed(walk.written):
        if isinstance(step.f, Attention):
            terms |= walk.sources_of(layer, step.f, w)
    return terms


def places_of_terms(model: Network, *, sources: bool = False) -> list[Place]:
    """The places that a run must record for :func:`logit_terms`, and for :func:`source_terms`."""
    last = model.stacks[-1]
    steps = [step for _, step in last.branches()]
    points = {Point.SCALE, Point.FINAL_SCALE, Point.EMBED_SCALE}
    points |= {place.point for place in last.terms()} | {_point_of_terms(step) for step in steps}
    if sources:
        attentions = [step.f for step in steps if isinstance(step.f, Attention)]
        points |= {p for f in attentions for p in (f.points.pattern, f.points.v)}
    stack_places = (place for place in model.layout if place.stack == last.name_in_places)
    return [place for place in stack_places if place.point in points]


def _point_of_terms(step: Step) -> Point:
    """The point of the tensor that the terms of a sub-layer are computed from."""
    return step.f.out if isinstance(step.f, Experts) else step.f.hidden_point


class _Walk:
    """Pulls a direction back from the logits to the embeddings, at one column of each row.

    Attributes:
        written: layer, step and the direction that its output is multiplied by, last step first.
        constants: the products of biases of norms with the direction, last norm first.
    """

    def __init__(self, model: Network, cache: Cache, column: Int[Tensor, " batch"]) -> None:
        check_linear_logits(model)
        self.stack, self.cache, self.column = model.stacks[-1], cache, column
        name = self.stack.name_in_places
        self.prefix = "" if name is None else f"{name}."
        self.written: list[tuple[int, Step, Direction]] = []
        self.constants: Terms = {}

    def walk(self, w: Direction) -> Direction:
        """Pull ``w`` back through the stack; returns the direction at the embeddings."""
        w = self._through(self.stack.final_norm, "ln_final", self.place(Point.FINAL_SCALE), w)
        for layer in reversed(range(len(self.stack.blocks))):
            for step in reversed(self.stack.block(layer).steps):
                w = self._through_step(step, layer, w)
        w, constant = self.stack.embed_projection.pull_back(w)
        if constant is not None:
            self.constants[Part(f"{self.prefix}embed.projection.bias", "bias")] = constant
        return self._through(self.stack.embed_norm, "embed.ln", self.place(Point.EMBED_SCALE), w)

    def terms_of(self, layer: int, step: Step, w: Direction) -> Terms:
        """The terms of the heads or the neurons of a sub-layer along ``w``, and of its bias."""
        f, name = step.f, self.name(layer, step.f)
        if isinstance(f, Attention):
            z = self.at(self.place(f.points.z, layer))
            by_head = einsum(
                z, f.W_O.to(w.dtype), w, "b head d, head d d_model, b d_model -> head b"
            )
            return _of_heads(name, layer, by_head) | _of_bias(f"{name}.b_O", layer, f.b_O, w)
        mlp = Part(f"{name}MLP", "mlp", layer)
        hidden = self.at(self.place(_point_of_terms(step), layer))
        if isinstance(f, MLP):
            written = (hidden * (w @ f.W_out.mT.to(w.dtype))).sum(-1)
            return {mlp: written} | _of_bias(f"{name}.b_out", layer, f.b_out, w)
        return {mlp: (hidden * w).sum(-1)}

    def sources_of(self, layer: int, f: Attention, w: Direction) -> dict[Part, Tensor]:
        """The term of each head along ``w``, by key."""
        rows = torch.arange(len(w), device=w.device)
        whole = self.cache[self.place(f.points.pattern, layer)]
        pattern = at_least_float32(whole[rows, :, self.column])
        v = at_least_float32(f.values(self.cache[self.place(f.points.v, layer)]))
        along = einsum(f.W_O.to(w.dtype), w, "head d d_model, b d_model -> b head d")
        by_key = einsum(pattern, v, along, "b head key, b key head d, b head d -> head b key")
        return _of_heads(self.name(layer, f), layer, by_key)

    def name(self, layer: int, f: Sublayer) -> str:
        """The prefix of the names of a sub-layer's terms."""
        crosses = isinstance(f, Attention) and f.is_cross
        return f"{'cross.' if crosses else self.prefix}L{layer}"

    def at(self, place: Place) -> Tensor:
        """The tensor at a place, indexed at the column of each row."""
        whole = self.cache[place]
        rows = torch.arange(len(whole), device=whole.device)
        return at_least_float32(whole[rows, self.column])

    def place(self, point: Point, layer: int | None = None, norm: str | None = None) -> Place:
        """A place of the stack."""
        return Place(point, layer, norm, self.stack.name_in_places)

    def _through_step(self, step: Step, layer: int, w: Direction) -> Direction:
        """The direction before a step; the steps' own directions are added to ``written``."""
        w = self._through_block_norm(step.norms.sum, layer, w)
        for branch in reversed(step.branches):
            pulled = self._through_block_norm(branch.norms.output, layer, w)
            self.written.append((layer, branch, pulled))
        return self._through_block_norm(step.norms.base, layer, w)

    def _through_block_norm(self, norm: BlockNorm | None, layer: int, w: Direction) -> Direction:
        if norm is None:
            return w
        scale = self.place(Point.SCALE, layer, norm.name)
        return self._through(norm.norm, f"L{layer}.{norm.name}", scale, w)

    def _through(self, norm: Norm, name: str, scale: Place, w: Direction) -> Direction:
        """The direction before a norm, whose constant is added to ``constants``."""
        if not isinstance(norm, ScaledNorm):
            return w
        w, constant = norm.pull_back(w, self.at(scale))
        if constant is not None:
            self.constants[Part(f"{self.prefix}{name}.bias", "bias", scale.layer)] = constant
        return w


def _of_heads(
    name: str, layer: int, values: Float[Tensor, "head batch *key"]
) -> dict[Part, Tensor]:
    """The term of each head."""
    return {Part(f"{name}H{n}", "head", layer, n): value for n, value in enumerate(values)}


def _of_bias(name: str, layer: int, bias: Tensor | None, w: Direction) -> Terms:
    """The term of a bias, if there is one."""
    return {} if bias is None else {Part(name, "bias", layer): w @ bias.to(w.dtype)}
