"""A path from one batch to another: runs on embeddings interpolated between the two.

    x(t) = (1 − t) · x(clean) + t · x(corrupt)        0 ≤ t ≤ 1

(Sundararajan et al. 2017, "Axiomatic Attribution for Deep Networks"). The embeddings of tokens,
positions and types, or their norm, are interpolated. The points of a path run as rows of one batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp import edits
from interp.cache import Cache
from interp.execution import run, run_measured
from interp.graph import Graph
from interp.metrics import Metric
from interp.model import Batch, Network
from interp.points import Place

Times = Float[Tensor, "point prompt"]
"""The positions of each prompt's points on its path, in ascending order: 0 is clean, 1 corrupt."""


@dataclass(frozen=True, eq=False)
class Points:
    """A run at the points of a path. Recorded tensors are read in the dtype of the times.

    Attributes:
        cache: cache of the run, whose rows are the first points of all prompts, then the second
            points, and so on.
        times: the positions of the points on the path.
        values: the metric at each point.
    """

    cache: Cache
    times: Times
    values: Float[Tensor, "point prompt"]

    def read(self, place: Place) -> Float[Tensor, "point prompt ..."]:
        """The tensor at a place."""
        return self._by_point(self.cache[place])

    def gradient(self, place: Place) -> Float[Tensor, "point prompt ..."]:
        """The gradient of the metric with respect to the tensor at a place."""
        label, *rest = (part for part in place.to_json() if part is not None)
        return self._by_point(self.cache[f"{label}_grad", *rest])

    def _by_point(self, x: Tensor) -> Tensor:
        return x.to(self.times.dtype).unflatten(0, self.times.shape)


@dataclass(frozen=True, eq=False)
class Path:
    """The straight path between two batches, with a metric along it.

    Attributes:
        model: the model.
        batches: the clean tokens of each stack, which the metric reads.
        ends: the embeddings in the clean and in the corrupted run, by place.
        metric: a metric with one number per prompt.
    """

    model: Network
    batches: Sequence[Batch]
    ends: Mapping[Place, tuple[Tensor, Tensor]]
    metric: Metric

    @classmethod
    def between(
        cls,
        model: Network,
        graph: Graph,
        clean: Sequence[Batch],
        corrupt: Sequence[Batch],
        metric: Metric,
    ) -> "Path":
        """The path from ``clean`` to ``corrupt``, whose tokens are in the same columns."""
        places = [w.place for w in graph.writers if w.place is not None and w.place.layer is None]
        start, end = (
            run(model, *batches, record=places, stop_at_layer=0).cache
            for batches in (clean, corrupt)
        )
        return cls(model, clean, {place: (start[place], end[place]) for place in places}, metric)

    @property
    def prompts(self) -> int:
        """Number of prompts."""
        return len(self.batches[-1].ids)

    def rows(self, chosen: Sequence[int]) -> "Path":
        """The paths of some of the prompts."""
        index = torch.tensor(chosen, device=self.model.device)
        ends = {place: (start[index], other[index]) for place, (start, other) in self.ends.items()}
        batches = [batch.rows(index) for batch in self.batches]
        return Path(self.model, batches, ends, self.metric.for_rows(chosen, self.prompts))

    def uniform(self, steps: int) -> Times:
        """Times of ``steps`` steps of equal length."""
        dtype = torch.promote_types(self.model.dtype, torch.float32)
        times = torch.linspace(0.0, 1.0, steps + 1, dtype=dtype, device=self.model.device)
        return times[:, None].repeat(1, self.prompts)

    def run(self, times: Times, record: Sequence[Place]) -> Points:
        """Run all points of all prompts: tensors, gradients and the metric.

        Raises:
            InvalidInput: the model has no logits, or the metric has no gradient or is NaN.
        """
        n = len(times)
        metric = self.metric.for_rows([*range(self.prompts)] * n, self.prompts)
        values, cache = run_measured(
            self.model,
            *(batch.repeated(n) for batch in self.batches),
            metric=metric,
            record=record,
            edits=[edits.replace(place, _between(times, *x)) for place, x in self.ends.items()],
        )
        return Points(cache, times, values.to(times.dtype).unflatten(0, times.shape))


def _between(times: Times, start: Tensor, end: Tensor) -> Float[Tensor, "row pos d_model"]:
    """The values at each time; at 0 and 1 bit-identical to the ends."""
    weight = times.to(start.dtype)[..., None, None]
    shape = (len(times), *start.shape)
    return torch.lerp(start.expand(shape), end.expand(shape), weight).flatten(0, 1)
