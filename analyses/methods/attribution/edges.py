"""Scores of edges: estimates of the metric's change when one reader reads a corrupted writer.

    effect(w → r) = m(x_r + u′_w − u_w) − m            x_r: the stream that r reads
    score(w → r)  = Σ_k g_k · Δ_k                      see :mod:`analyses.methods.attribution.rules`

g is the gradient of the metric with respect to x_r through this reader only: the gradient with
respect to its queries, keys or values, pulled back through their weights and through the norm,
whose divisor varies with x_r.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from einops import einsum, rearrange
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.attribution.path import Path, Points, Times
from analyses.methods.attribution.refine import MAX_FACTOR, refined
from analyses.methods.attribution.rules import RULES, Weights
from interp.edits import attention_at, term_of
from interp.graph import Graph, Reader, Writer
from interp.io import ProgressLike, as_progress
from interp.model import Network, Norm
from interp.points import Place
from interp.sweeps import Budget

STEPS = 10
"""Number of steps of a path, unless another one is asked for."""
TOLERANCE = 0.01
"""Largest error of a cut, as a share of the metric's range, to which conductance is refined."""
Written = Float[Tensor, "writer point prompt pos d_model"]
Gradients = Float[Tensor, "reader prompt pos d_model"]


@dataclass(frozen=True, eq=False)
class EdgeScores:
    """Scores of all edges of a graph, in the unit of the metric.

    Attributes:
        scores: the scores, in the order of ``graph.edges``.
        clean: the metric on the clean prompts.
        corrupt: the metric on the corrupted prompts.
        points: number of points of each prompt's path.
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
    tolerance: float | None,
    memory: object = None,
    progress: ProgressLike = None,
) -> EdgeScores:
    """Score every edge for every prompt.

    Args:
        path: path from the clean to the corrupted prompts.
        graph: graph of the path's model.
        method: a key of ``RULES``.
        steps: number of steps of the path; ``eap`` uses a single step from end to end.
        tolerance: halve steps until the error of every cut is at most this share of the metric's
            range; see :func:`analyses.methods.attribution.refine.refined`. ``None``: exactly
            ``steps`` steps.
        memory: approximate number of bytes to use; by default as for :func:`interp.sweep`.
        progress: called with the number of prompts done, and of all prompts.

    Raises:
        InvalidInput: the model has no logits, or the metric has no gradient or is NaN.
    """
    report = as_progress(progress, "prompts")
    most = max(1, Budget.of(path.model, memory).nbytes // _bytes_of_point(path, graph))
    record, parts = places_of_edges(path.model, graph), list[EdgeScores]()
    for rows in _parts(path.prompts, most // (steps + 1)):
        part = path.rows(rows)
        times = _times(part, method, steps, tolerance)
        for prompts_part in _parts(len(rows), most // len(times)):
            chosen, some = _trimmed(times[:, prompts_part]), part.rows(prompts_part)
            parts.append(_scores_along(some, graph, method, chosen, record, most))
            if report is not None:
                report(sum(len(part.clean) for part in parts), path.prompts)
    return EdgeScores(
        torch.cat([part.scores for part in parts], dim=1),
        *(
            torch.cat([getattr(part, of) for part in parts])
            for of in ("clean", "corrupt", "points")
        ),
    )


def _scores_along(
    path: Path, graph: Graph, method: str, times: Times, record: Sequence[Place], most: int
) -> EdgeScores:
    """The scores of all prompts of a path at some times, run in blocks of about ``most`` points.

    Only for conductance, a sum over steps; a block begins with the last point of the one before.
    """
    size = max(2, most // path.prompts) if method == "conductance" else len(times)
    scores, values = torch.zeros(()), list[Tensor]()
    for first in range(0, max(1, len(times) - 1), size - 1):
        block = times[first : first + size]
        points = path.run(block, record)
        with torch.no_grad():
            scores = scores_at(path.model, graph, points, RULES[method](block)) + scores
        values += [points.values[0], points.values[-1]]
    return EdgeScores(scores, values[0], values[-1], 1 + (times.diff(dim=0) > 0).sum(0))


def places_of_edges(model: Network, graph: Graph) -> list[Place]:
    """The places that a run must record for scores of edges."""
    places = {place for writer in graph.writers if (place := term_of(model, writer)[0])}
    places |= {place for reader in graph.readers for place in (reader.place, reader.stream)}
    return [place for place in model.layout if place in places]


def scores_at(
    model: Network, graph: Graph, points: Points, weights: Weights
) -> Float[Tensor, "edge prompt"]:
    """Σ_k g_k · Δ_k for each edge, in the order of ``graph.edges``; 0 for biases, as constants.

    Args:
        model: the model.
        graph: graph of the model.
        points: a run that recorded :func:`places_of_edges`.
        weights: the matrix D of the rule.
    """
    changes = {
        stack: changes_written(model, list(writers), points, weights)
        for stack, writers in groupby(graph.writers, lambda writer: writer.stack)
    }
    by_stream: list[Tensor] = []
    for stream, group in groupby(graph.readers, lambda reader: reader.stream):
        readers = list(group)
        sources = readers[0].sources
        written_sources = _non_biases(sources)
        products = changes[stream.stack].new_zeros(
            points.times.shape[1], len(readers), len(written_sources)
        )
        for k, gradients in enumerate(gradients_read(model, readers, points)):
            change = changes[stream.stack][: len(written_sources), k]
            products += einsum(
                gradients.flatten(2),
                change.flatten(2),
                "reader prompt x, writer prompt x -> prompt reader writer",
            )
        scores = products.new_zeros(len(readers), len(sources), len(products))
        scores[:, written_sources] = rearrange(
            products, "prompt reader writer -> reader writer prompt"
        )
        by_stream.append(scores.flatten(0, 1))
    return torch.cat(by_stream)


def _non_biases(writers: Sequence[Writer]) -> list[int]:
    """The indices of the writers that are not biases."""
    return [number for number, writer in enumerate(writers) if writer.place is not None]


def changes_written(
    model: Network, writers: Sequence[Writer], points: Points, weights: Weights
) -> Written:
    """Δ_k for each writer of a stack except biases."""
    moving = [writers[number] for number in _non_biases(writers)]
    groups = [list(group) for _, group in groupby(moving, lambda writer: writer.place)]
    sources = [place for first, *_ in groups if (place := term_of(model, first)[0])]
    changes = [
        einsum(weights, points.read(source), "b k l, l b p ... -> k b p ...") for source in sources
    ]
    written = changes[0].new_empty(len(moving), *changes[0].shape[:3], model.config.d_model)
    parts = written.split([len(group) for group in groups])
    for (first, *_), change, part in zip(groups, changes, parts, strict=True):
        if first.place is None or first.head is None:
            part[0] = change
        else:  # z W_O
            W_O = attention_at(model, first.place)[1].W_O.to(change.dtype)
            z = rearrange(change, "k b p head d -> head (k b p) d")
            torch.bmm(z, W_O, out=part.flatten(1, 3))
    return written


def gradients_read(
    model: Network, readers: Sequence[Reader], points: Points
) -> Iterator[Gradients]:
    """g_k with respect to the stream that some readers read, through each reader separately.

    Points are yielded one at a time, so that their memory is reused: fresh memory is slow.

    Args:
        model: the model.
        readers: all queries, keys and values of an attention that read one stream; or a single
            reader that is not a head.
        points: a run that recorded :func:`places_of_edges`.
    """
    first, places = readers[0], list(dict.fromkeys(reader.place for reader in readers))
    if first.head is None:
        yield from points.gradient(first.place)[:, None]
        return
    attn, norm = attention_at(model, first.place)[1], _norm_before(model, first)
    projections = zip(*(attn.projection(place.point) for place in places), strict=True)
    W, b = (torch.cat(matrices).to(points.times.dtype) for matrices in projections)
    pulled, constant = norm.pull_back(W.mT, W.new_ones(1))
    y, by_y = (
        torch.cat([*map(tensor_at, places)], dim=-2) for tensor_at in (points.read, points.gradient)
    )
    y -= b if constant is None else b + constant
    for x, y_k, by_y_k in zip(points.read(first.stream), y, by_y, strict=True):
        yield norm.gradients(x, pulled, y_k, by_y_k)


def _norm_before(model: Network, reader: Reader) -> Norm:
    """The norm between the stream that a head reads and its queries, keys or values."""
    if reader.stream.stack != reader.place.stack:
        return model.stack(reader.stream.stack).final_norm
    return attention_at(model, reader.place)[0].input_norm


def steps_and_tolerance(
    method: str, steps: int | None, tolerance: float | None
) -> tuple[int, float | None]:
    """The number of steps and the tolerance, with the defaults of a method.

    Only conductance is complete over every cut, so only it can be refined until its sums are right;
    it is, unless a number of steps is asked for.
    """
    if steps is None and tolerance is None and method == "conductance":
        tolerance = TOLERANCE
    return STEPS if steps is None else steps, tolerance


def most_points(method: str, steps: int, tolerance: float | None = None) -> int:
    """The most points that :func:`edge_scores` runs forward and backward for a prompt.

    Without a tolerance it is their exact number. With one, it includes the points of the trace by
    which steps are halved.
    """
    if method == "eap":
        return 2
    return steps + 1 if tolerance is None else 2 * (MAX_FACTOR * steps + 1)


def _times(path: Path, method: str, steps: int, tolerance: float | None) -> Times:
    if method == "eap":
        return path.uniform(1)
    return path.uniform(steps) if tolerance is None else refined(path, steps, tolerance)


def _trimmed(times: Times) -> Float[Tensor, "fewer_points prompt"]:
    """The times without points at the end that repeat the last one of every prompt."""
    return times[: 1 + int((times < 1).sum(0).max())]


def _parts(n: int, size: int) -> list[list[int]]:
    """The numbers below ``n``, in parts of ``size``."""
    return [list(range(n)[first : first + max(1, size)]) for first in range(0, n, max(1, size))]


def _bytes_of_point(path: Path, graph: Graph) -> int:
    """Approximate memory of one point of one prompt while it is run and edges are scored."""
    config, width = path.model.config, max(batch.ids.shape[1] for batch in path.batches)
    heads = max(stack.attention.n_heads for stack in config.stacks.values())
    layers = sum(stack.n_layers for stack in config.stacks.values())
    streams = 2 * len(graph.writers) + STREAMS_A_HEAD * heads + STREAMS_A_LAYER * layers
    itemsize = torch.promote_types(path.model.dtype, torch.float32).itemsize
    return width * itemsize * (config.d_model * streams + LOGITS * config.n_logits)


STREAMS_A_HEAD, STREAMS_A_LAYER, LOGITS = 4, 40, 4
"""Number of tensors of the size of a stream, or of the logits, that exist at a time."""
