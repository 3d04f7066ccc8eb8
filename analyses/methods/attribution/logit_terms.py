"""A logit as a sum of the outputs of all parts (direct logit attribution).

    logit − b_U = norm(x)·w,   w = W_U[:, target]  (minus W_U[:, distractor] for a difference)

With its divisor fixed at the value from the run, a norm is linear: norm(x)·w = x·w′ + c. So the
direction w is pulled back through every norm, from the logits to the embeddings, and each output
that was added to the stream is multiplied by the direction at its place; these terms and the
constants sum to the logit exactly (Elhage et al. 2021; nostalgebraist 2020; post-norm and norms of
a sub-layer's output need no approximation). A term is the direct contribution of a part, without
its effects through later parts.
"""

from dataclasses import replace

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.attribution.stream_terms import (
    Part,
    StepDirections,
    StreamWalk,
    Walk,
    of_heads,
    places_of_stream,
)
from interp.cache import Cache
from interp.errors import InvalidInput
from interp.metrics import at_least_float32
from interp.model import Attention, MaskedHead, Network, Unembedding
from interp.points import Place

Direction = Float[Tensor, "batch d_model"]
TokenIds = Int[Tensor, " batch"]
Column = Int[Tensor, " batch"]
Terms = dict[Part, Float[Tensor, " batch"]]


def logit_terms(
    model: Network, cache: Cache, direction: Direction, column: Column, walk: Walk = StreamWalk
) -> Terms:
    """The terms of ``norm(x)·direction`` at one column of each row.

    Args:
        model: the model; for an encoder–decoder, the terms are those of the decoder.
        cache: cache of a run that recorded :func:`places_of_terms`.
        direction: vector that the final norm's output is multiplied by, ``[batch d_model]``.
        column: the column of each row.
        walk: what splits outputs into terms.

    Returns:
        The terms in the unit of the logits, in the order of the forward; biases of norms last.

    Raises:
        InvalidInput: a masked-language head is between the stream and the logits, or they are those
            of the mean of all patches.
    """
    terms = walk_from_logits(model, cache, direction, column, walk).terms()
    return {part: values[:, 0] for part, values in terms.items()}


def walk_from_logits(
    model: Network, cache: Cache, direction: Direction, column: Column, walk: Walk = StreamWalk
) -> StreamWalk:
    """The direction of each row, pulled back from the logits to the embeddings.

    Arguments and errors are those of :func:`logit_terms`.
    """
    check_linear_logits(model)
    stack = model.stacks[-1]
    rows = torch.arange(len(column), device=column.device)
    return walk(stack, cache, rows, column).from_end(direction[:, None])


def direction_at_mlp(
    model: Network, cache: Cache, direction: Direction, column: Column, layer: int
) -> Direction:
    """The vector that the output of a layer's MLP is multiplied by in ``norm(x)·direction``.

    Arguments and errors are those of :func:`logit_terms`; the layer must have an MLP.
    """
    walk = walk_from_logits(model, cache, direction, column)
    written = (w for w in walk.written if (w.layer, w.step.part) == (layer, "mlp"))
    return next(written).directions[:, 0]


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
    model: Network, cache: Cache, direction: Direction, column: Column
) -> dict[Part, Float[Tensor, "batch key"]]:
    """The term of each head, by the token that it attends to: A_ij · v_j W_O · w.

    Arguments and errors are those of :func:`logit_terms`; the cache must also have the patterns and
    values of every head. The keys of cross-attention are the tokens of the source.
    """
    walk = walk_from_logits(model, cache, direction, column)
    terms: dict[Part, Tensor] = {}
    for written in reversed(walk.written):
        if isinstance(written.step.f, Attention):
            terms |= _by_key(walk, written, written.step.f)
    return terms


def places_of_terms(model: Network, *, sources: bool = False) -> list[Place]:
    """The places that a run must record for :func:`logit_terms`, and for :func:`source_terms`."""
    last = model.stacks[-1]
    attentions = [step.f for _, step in last.branches() if isinstance(step.f, Attention)]
    points = {p for f in attentions for p in (f.points.pattern, f.points.v)} if sources else set()
    terms = set(places_of_stream(model, last))
    return [
        place
        for place in model.layout
        if place in terms or (place.stack == last.name_in_places and place.point in points)
    ]


def _by_key(walk: StreamWalk, written: StepDirections, f: Attention) -> dict[Part, Tensor]:
    """The term of each head of an attention, by key."""
    layer, w = written.layer, written.directions[:, 0]
    pattern = walk.cache[walk.place(f.points.pattern, layer)]
    pattern = at_least_float32(pattern[walk.rows, :, walk.columns])
    v = at_least_float32(f.values(walk.cache[walk.place(f.points.v, layer)]))
    along = einsum(f.W_O.to(w.dtype), w, "head d d_model, b d_model -> b head d")
    by_key = einsum(pattern, v, along, "b head key, b key head d, b head d -> head b key")
    return of_heads(walk.name(layer, f), layer, by_key)
