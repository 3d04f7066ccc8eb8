"""Refines the steps of a path: they are halved until they explain the metric's change.

Over a step, Σ Δx · (g + g′)/2 for the whole stream x at some depth estimates the change of the
metric, by the trapezoidal rule. Its error is the error of conductance over the cut of the graph at
this depth. The output of a saturating model (a softmax that switches, a steep ReLU) may change
within a thousandth of the path, which uniform steps miss.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.methods.attribution.path import Path, Times
from interp.metrics import relative_rounding
from interp.model import Network, Stack
from interp.points import Place, Point

MAX_FACTOR = 10
"""A path has at most ``MAX_FACTOR`` times the requested number of steps."""
AT_ONCE = 4
"""In each round, 1 / ``AT_ONCE`` of the requested number of steps are halved."""


@dataclass(frozen=True, eq=False)
class Trace:
    """The metric along a path, and the streams of every cut with their gradients.

    Attributes:
        times: the positions of the points on the path.
        values: the metric at each point.
        cuts: for each cut, pairs of a stream and its gradient, each ``[point prompt element]``.
    """

    times: Times
    values: Float[Tensor, "point prompt"]
    cuts: list[list[tuple[Tensor, Tensor]]]

    @classmethod
    def of(cls, path: Path, times: Times) -> "Trace":
        """The trace at some times."""
        cuts = cuts_of_streams(path.model)
        points = path.run(times, [*{place: None for cut in cuts for place in cut}])
        read = {
            place: (points.read(place).flatten(2), points.gradient(place).flatten(2))
            for cut in cuts
            for place in cut
        }
        return cls(times, points.values, [[read[place] for place in cut] for cut in cuts])

    def with_points(self, other: "Trace") -> "Trace":
        """The points of both, in order."""
        times = torch.cat([self.times, other.times])
        order = times.argsort(dim=0, stable=True)

        def merged(first: Tensor, second: Tensor) -> Tensor:
            both = torch.cat([first, second])
            index = order.reshape(*order.shape, *[1] * (both.ndim - 2)).expand_as(both)
            return both.gather(0, index)

        cuts = [
            [
                (merged(x, x_other), merged(g, g_other))
                for (x, g), (x_other, g_other) in zip(cut, others, strict=True)
            ]
            for cut, others in zip(self.cuts, other.cuts, strict=True)
        ]
        return Trace(merged(self.times, other.times), merged(self.values, other.values), cuts)

    @property
    def errors(self) -> Float[Tensor, "step prompt"]:
        """The largest error of a cut over each step."""
        change = self.values.diff(dim=0)
        estimates = [
            sum((x.diff(dim=0) * (g[1:] + g[:-1])).sum(-1) / 2 for x, g in cut) for cut in self.cuts
        ]
        return torch.stack([(estimate - change).abs() for estimate in estimates]).amax(0)


def refined(path: Path, steps: int, tolerance: float) -> Times:
    """Times of ``steps`` steps or more, which are shorter where the metric changes faster.

    Steps are halved until the error of every cut is at most ``tolerance``, as a share of the
    metric's range along the path, or there are ``MAX_FACTOR`` times as many. Each prompt's points
    depend on that prompt only; if others have more points, its last one, at 1, is repeated.
    """
    trace = Trace.of(path, path.uniform(steps))
    at_once = max(1, steps // AT_ONCE)
    while len(trace.times) + at_once <= 1 + steps * MAX_FACTOR:
        errors = trace.errors
        tolerated = _tolerated(trace.values, path.model.dtype, tolerance)
        done = errors.sum(0) <= tolerated
        if bool(done.all()):
            break
        halved = errors.topk(at_once, dim=0).indices
        middle = (trace.times.gather(0, halved) + trace.times.gather(0, halved + 1)) / 2
        trace = trace.with_points(Trace.of(path, middle.masked_fill(done, 1.0)))
    return trace.times


def cuts_of_streams(model: Network) -> list[list[Place]]:
    """Sets of streams such that every path from the inputs to the logits passes through one.

    In an encoder–decoder: each stream of the encoder with the first stream of the decoder, and the
    last stream of the decoder. (Streams of the decoder in between do not cut off the encoder.)
    """
    *before, last = (_streams(stack) for stack in model.stacks)
    if not before:
        return [[place] for place in last]
    return [*([place, last[0]] for streams in before for place in streams), [last[-1]]]


def _streams(stack: Stack) -> list[Place]:
    """The streams of a stack: before its first step, and after each."""
    name = stack.name_in_places
    sums = (Place(step.points.sum, layer, stack=name) for layer, step in stack.branches())
    return [Place(Point.RESID_PRE, 0, stack=name), *dict.fromkeys(sums)]


def _tolerated(
    values: Float[Tensor, "point prompt"], dtype: torch.dtype, tolerance: float
) -> Float[Tensor, " prompt"]:
    largest, least = values.amax(0), values.amin(0)
    rounding = relative_rounding(dtype) * values.abs().amax(0).clamp(min=1.0)
    return torch.maximum(tolerance * (largest - least), rounding)
