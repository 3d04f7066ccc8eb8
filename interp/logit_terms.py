"""A logit as a sum of what each part wrote into the stream (direct logit attribution).

    logit − b_U = norm(x)·w,   w = W_U[:, target]  (minus W_U[:, distractor] for a difference)

With its divisor as it was in the run, a norm is linear: norm(x)·w = x·w′ + c. So the direction w is
taken backward through every norm that it meets, and each term that was added to the stream gives
its product with the direction there; the terms and the constants sum to the logit exactly (Elhage
et al. 2021; nostalgebraist 2020; post-norm and norms of a sub-layer's output need no
approximation). A term says what a part writes in the direction of the logit, not what later parts
make of it.
"""

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from interp.cache.cache import Cache
from interp.errors import InvalidInput
from interp.model.attention.attention import Attention
from interp.model.experts import Experts
from interp.model.mlp import MLP
from interp.model.network import Network
from interp.model.norm import BlockNorm, Norm, ScaledNorm
from interp.model.residual import Step
from interp.model.unembedding import MaskedHead
from interp.points import Place, Point

Direction = Float[Tensor, "batch d_model"]
Terms = dict[str, Float[Tensor, " batch"]]


def logit_terms(
    model: Network, cache: Cache, direction: Direction, column: Int[Tensor, " batch"]
) -> Terms:
    """The terms of ``norm(x)·direction`` at one column of each row, by name.

    Args:
        model: the model; of an encoder–decoder, terms are those of the decoder.
        cache: a run of it that recorded :func:`places_of_terms`.
        direction: what the final norm's output is multiplied by, ``[batch d_model]``.
        column: the column of each row.

    Returns:
        The terms, last written first, in the unit of the logits: heads ``L1H4``, MLPs ``L1MLP``
        (their neurons), embeddings, and the biases of attention ``L1.b_O``, MLPs ``L1.b_out`` and
        norms ``L1.ln1.bias``.

    Raises:
        InvalidInput: a masked-language head stands between the stream and the logits.
    """
    walk = _Walk(model, cache, column)
    w = walk.walk(direction)
    terms = dict(walk.constants)
    for layer, step, own in walk.written:
        terms |= walk.terms_of(layer, step, own)
    for place in model.stacks[-1].terms():
        term = (walk.at(walk.place(place.point)) * w).sum(-1)
        terms[f"{walk.prefix}{place.point.label}"] = term
    return terms


def source_terms(
    model: Network, cache: Cache, direction: Direction, column: Int[Tensor, " batch"]
) -> dict[str, Float[Tensor, "batch key"]]:
    """The term of each head, by the token that it attends to: A_ij · v_j W_O · w.

    Arguments and errors are those of :func:`logit_terms`; the cache also holds the patterns and
    values of every head. The keys of cross-attention are the tokens of the source.
    """
    walk = _Walk(model, cache, column)
    walk.walk(direction)
    found: dict[str, Tensor] = {}
    for layer, step, w in walk.written:
        if isinstance(step.f, Attention):
            found |= walk.sources_of(layer, step.f, w)
    return found


def places_of_terms(model: Network, *, sources: bool = False) -> list[Place]:
    """What a run must record for :func:`logit_terms`, or for :func:`source_terms` too."""
    last = model.stacks[-1]
    name = last.name if len(model.stacks) > 1 else None
    steps = [
        step
        for layer in range(len(last.blocks))
        for whole in last.block(layer).steps
        for step in whole.branches
    ]
    points = {Point.SCALE, Point.FINAL_SCALE, Point.EMBED_SCALE}
    points |= {place.point for place in last.terms()} | {_read_of(step) for step in steps}
    if sources:
        attentions = [step.f for step in steps if isinstance(step.f, Attention)]
        points |= {p for f in attentions for p in (f.points.pattern, f.points.v)}
    return [place for place in model.layout if place.point in points and place.stack == name]


def _read_of(step: Step) -> Point:
    """The tensor that the terms of a sub-layer are computed from."""
    return step.f.out if isinstance(step.f, Experts) else step.f.hidden_point


class _Walk:
    """The walk of a direction from the logits to the embeddings, at one column of each row.

    Attributes:
        written: layer, step and the direction that its output is multiplied by.
        constants: the products of biases of norms with the direction there.
    """

    def __init__(self, model: Network, cache: Cache, column: Int[Tensor, " batch"]) -> None:
        if isinstance(model.stacks[-1].final_norm, MaskedHead):
            raise InvalidInput(
                "The unembedding of this model reads norm(act(x·W + b)), which is not linear in "
                "the stream; its logits are no sum of what was written."
            )
        self.stack, self.cache, self.column = model.stacks[-1], cache, column
        self.paired = len(model.stacks) > 1
        self.prefix = f"{self.stack.name}." if self.paired else ""
        self.written: list[tuple[int, Step, Direction]] = []
        self.constants: Terms = {}

    def walk(self, w: Direction) -> Direction:
        """Take ``w`` backward through the stack; returns the direction of the embeddings."""
        w = self._through(self.stack.final_norm, "ln_final", self.place(Point.FINAL_SCALE), w)
        for layer in reversed(range(len(self.stack.blocks))):
            for step in reversed(self.stack.block(layer).steps):
                w = self._through_step(step, layer, w)
        return self._through(self.stack.embed_norm, "embed.ln", self.place(Point.EMBED_SCALE), w)

    def terms_of(self, layer: int, step: Step, w: Direction) -> Terms:
        """What the heads or the neurons of a sub-layer write along ``w``, and its bias."""
        f, name = step.f, f"{self.prefix}L{layer}"
        if isinstance(f, Attention):
            name = f"cross.L{layer}" if f.is_cross else name
            z = self.at(self.place(f.points.z, layer))
            by_head = einsum(z, f.W_O, w, "b head d, head d d_model, b d_model -> head b")
            terms = {f"{name}H{head}": term for head, term in enumerate(by_head)}
            return terms if f.b_O is None else {**terms, f"{name}.b_O": w @ f.b_O}
        if isinstance(f, MLP):
            neurons = self.at(self.place(f.hidden_point, layer))
            terms = {f"{name}MLP": (neurons * (w @ f.W_out.mT)).sum(-1)}
            return terms if f.b_out is None else {**terms, f"{name}.b_out": w @ f.b_out}
        return {f"{name}MLP": (self.at(self.place(_read_of(step), layer)) * w).sum(-1)}

    def sources_of(self, layer: int, f: Attention, w: Direction) -> dict[str, Tensor]:
        """What each head writes along ``w``, by key."""
        name = f"cross.L{layer}" if f.is_cross else f"{self.prefix}L{layer}"
        rows = torch.arange(len(w), device=w.device)
        pattern = self.cache[self.place(f.points.pattern, layer)][rows, :, self.column]
        v = f.each_query(self.cache[self.place(f.points.v, layer)])
        along = einsum(f.W_O, w, "head d d_model, b d_model -> b head d")
        by_key = einsum(pattern, v, along, "b head key, b key head d, b head d -> head b key")
        return {f"{name}H{head}": terms for head, terms in enumerate(by_key)}

    def at(self, place: Place) -> Tensor:
        """The tensor at a place, at the column of each row."""
        whole = self.cache[place]
        return whole[torch.arange(len(whole), device=whole.device), self.column]

    def place(self, point: Point, layer: int | None = None, norm: str | None = None) -> Place:
        """A place of the stack."""
        return Place(point, layer, norm, self.stack.name if self.paired else None)

    def _through_step(self, step: Step, layer: int, w: Direction) -> Direction:
        """The direction before a step, whose sub-layers are noted with theirs."""
        w = self._through_block_norm(step.norms.sum, layer, w)
        for branch in step.branches:
            own = self._through_block_norm(branch.norms.output, layer, w)
            self.written.append((layer, branch, own))
        return self._through_block_norm(step.norms.base, layer, w)

    def _through_block_norm(self, norm: BlockNorm | None, layer: int, w: Direction) -> Direction:
        if norm is None:
            return w
        scale = self.place(Point.SCALE, layer, norm.name)
        return self._through(norm.norm, f"L{layer}.{norm.name}", scale, w)

    def _through(self, norm: Norm, name: str, scale: Place, w: Direction) -> Direction:
        """The direction before a norm, whose constant is noted."""
        if not isinstance(norm, ScaledNorm):
            return w
        w, constant = norm.pull_back(w, self.at(scale))
        if constant is not None:
            self.constants[f"{self.prefix}{name}.bias"] = constant
        return w
