"""Scores of edges: estimates of the metric's change when one reader reads a corrupted writer.

    effect(w → r) = m(x_r + u′_w − u_w) − m            x_r: the stream, as r alone reads it
    score(w → r)  = Σ_k g_k · Δ_k                      see :mod:`interp.attribution.rules`

g is the gradient of the metric by x_r through that reader alone: the gradient by its queries, keys
or values, pulled back through their weights and through the norm, whose divisor varies with x_r.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from einops import einsum, rearrange
from jaxtyping import Float, Int
from torch import Tensor

from interp.attribution.path import Path, Points, Times
from interp.attribution.refine import refined
from interp.attribution.rules import RULES, Weights
from interp.edits.edge import attention_at, term_of
from interp.graph import Graph, Reader, Writer
from interp.model.network import Network
from interp.model.norm import Norm
from interp.points import Place
from interp.sweeps.memory import Budget

Written = Float[Tensor, "prompt writer point pos d_model"]
Gradients = Float[Tensor, "prompt reader point pos d_model"]


@dataclass(frozen=True, eq=False)
class EdgeScores:
    """Scores of all edges of a graph, in the unit of the metric.

    Attributes:
        scores: in the order of ``graph.edges``.
        clean: the metric of the clean prompts.
        corrupt: of the corrupted ones.
        points: how many points the path of each prompt has.
    """

    scores: Float[Tensor, "edge prompt"]
    clean: Float[Tensor, " prompt"]
    corrupt: Float[Tensor, " prompt"]
    points: Int[Tensor, " prompt"]


def edge_scores(  # noqa: PLR0913 - settings by keyword
    path: Path,
    graph: Graph,
    method: str,
    *,
    steps: int,
    adaptive: bool,
    memory: object = None,
    progress: Callable[[int, int], None] | None = None,
) -> EdgeScores:
    """Score every edge for every prompt.

    Args:
        path: from the clean to the corrupted prompts.
        graph: of its model.
        method: a name of ``RULES``.
        steps: of the path; ``eap`` takes one step, from end to end.
        adaptive: whether steps are halved where the metric changes fast.
        memory: bytes to take, about; by default a quarter of what is free.
        progress: called with the prompts done and all prompts.

    Raises:
        InvalidInput: the model has no logits, or the metric has no gradient, or is NaN.
    """
    most = max(1, Budget.of(path.model, memory).nbytes // _bytes_of_point(path, graph))
    record, found = places_of_edges(path.model, graph), list[EdgeScores]()
    for rows in _parts(path.prompts, most // (steps + 1)):
        part = path.rows(rows)
        times = _times(part, method, steps, adaptive=adaptive)
        for own in _parts(len(rows), most // len(times)):
            chosen = _trimmed(times[:, own])
            points = part.rows(own).run(chosen, record)
            with torch.no_grad():
                scores = scores_at(path.model, graph, points, RULES[method](chosen))
            found.append(
                EdgeScores(
                    scores,
                    points.values[0],
                    points.values[-1],
                    1 + (chosen.diff(dim=0) > 0).sum(0),
                )
            )
            if progress is not None:
                progress(sum(len(one.clean) for one in found), path.prompts)
    return EdgeScores(
        torch.cat([one.scores for one in found], dim=1),
        *(torch.cat([getattr(one, of) for one in found]) for of in ("clean", "corrupt", "points")),
    )


def places_of_edges(model: Network, graph: Graph) -> list[Place]:
    """The places that a run must record for scores of edges."""
    places = {place for writer in graph.writers if (place := term_of(model, writer)[0])}
    places |= {place for reader in graph.readers for place in (reader.place, reader.stream)}
    return [place for place in model.layout if place in places]


def scores_at(
    model: Network, graph: Graph, points: Points, weights: Weights
) -> Float[Tensor, "edge prompt"]:
    """Σ_k g_k · Δ_k of each edge, in the order of ``graph.edges``; 0 of a bias, which is constant.

    Args:
        model: the model.
        graph: of the model.
        points: a run that recorded :func:`places_of_edges`.
        weights: D of the rule.
    """
    changes = {
        stack: changes_written(model, list(writers), points, weights)
        for stack, writers in groupby(graph.writers, lambda writer: writer.stack)
    }
    found: list[Tensor] = []
    for _, readers in groupby(graph.readers, lambda reader: reader.place):
        first = next(readers)
        own = [n for n, source in enumerate(first.sources) if source.place is not None]
        change = changes[first.stream.stack][:, : len(own)]
        gradients = gradients_read(model, first, points)
        products = torch.bmm(gradients.flatten(2), change.flatten(2).mT)
        scores = products.new_zeros(products.shape[1], len(first.sources), len(products))
        scores[:, own] = products.permute(1, 2, 0)
        found.append(scores.flatten(0, 1))
    return torch.cat(found)


def changes_written(
    model: Network, writers: Sequence[Writer], points: Points, weights: Weights
) -> Written:
    """Δ_k of each writer of a stack, biases left out."""
    found: list[Tensor] = []
    for place, heads in groupby(writers, lambda writer: writer.place):
        first = next(heads)
        source, _ = term_of(model, first)
        if place is None or source is None:
            continue
        change = einsum(weights, points.read(source), "b k l, l b p ... -> b k p ...")
        if first.head is None:
            found.append(change[:, None])
        else:
            W_O = attention_at(model, place)[1].W_O.to(change.dtype)
            by_head = einsum(change, W_O, "b k p head d, head d d_model -> b head k p d_model")
            found.append(by_head)
    return torch.cat(found, dim=1)


def gradients_read(model: Network, reader: Reader, points: Points) -> Gradients:
    """The gradients of the metric by the stream that all readers at one place read, each alone."""
    by_place = points.gradient(reader.place)
    if reader.head is None:
        return rearrange(by_place, "k b p d_model -> b 1 k p d_model")
    (_, attn), point = attention_at(model, reader.place), reader.place.point
    weights = {attn.points.q: attn.W_Q, attn.points.k: attn.W_K, attn.points.v: attn.W_V}
    W = weights[point].to(by_place.dtype)
    by_normed = einsum(by_place, W, "k b p head d, head d_model d -> b head k p d_model")
    x = rearrange(points.read(reader.stream), "k b p d_model -> b 1 k p d_model")
    return _norm_before(model, reader).gradient(by_normed, x)


def _norm_before(model: Network, reader: Reader) -> Norm:
    """The norm between the stream that a head reads and its queries, keys or values."""
    if reader.stream.stack != reader.place.stack:
        return model.stack(reader.stream.stack).final_norm
    return attention_at(model, reader.place)[0].input_norm


def _times(path: Path, method: str, steps: int, *, adaptive: bool) -> Times:
    if method == "eap":
        return path.uniform(1)
    return refined(path, steps) if adaptive else path.uniform(steps)


def _trimmed(times: Times) -> Times:
    """Without points that repeat the last one of every prompt."""
    return times[: 1 + int((times < 1).sum(0).max())]


def _parts(n: int, size: int) -> list[list[int]]:
    """The numbers below n, so many at a time."""
    return [list(range(n)[first : first + max(1, size)]) for first in range(0, n, max(1, size))]


def _bytes_of_point(path: Path, graph: Graph) -> int:
    """About what one point of one prompt takes while it is run and while edges are scored."""
    config, width = path.model.config, max(batch.ids.shape[1] for batch in path.batches)
    heads = max(stack.attention.n_heads for stack in config.stacks.values())
    layers = sum(stack.n_layers for stack in config.stacks.values())
    streams = 2 * len(graph.writers) + STREAMS_A_HEAD * heads + STREAMS_A_LAYER * layers
    itemsize = torch.promote_types(path.model.dtype, torch.float32).itemsize
    return width * itemsize * (config.d_model * streams + LOGITS * config.n_logits)


STREAMS_A_HEAD, STREAMS_A_LAYER, LOGITS = 4, 40, 4
"""Tensors of the size of a stream, or of the logits, that exist at a time."""
