"""From one forward to the rows of a graph: which logits are traced, and what they read."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.attribution_graph.estimate import GraphEstimate, estimate_of
from analyses.attribution_graph.filling import Filling, stored_share
from analyses.attribution_graph.kinds import Kinds
from analyses.attribution_graph.nodes import Placed
from analyses.attribution_graph.rows import Readers
from analyses.methods.attribution import logit_direction, unembedding_of
from analyses.methods.finite import check_total
from analyses.methods.frozen import FrozenModel
from interp import Transformer, estimate, run
from interp.errors import InvalidInput
from interp.io import return_freed_memory
from interp.metrics import at_least_float32
from interp.model import Batch

ENOUGH = 0.95
"""The probability that the logits of a graph have together, if no targets are given."""
MOST_LOGITS = 10
"""The most logits of a graph without targets."""


class Traced:
    """The rows of one prompt.

    Attributes:
        logits: what the logits read.
        probability: the probability of each.
        start: the share of each in the answer.
        labels: the label of each logit's token.
        tokens: the label of the token at each position; of an image patch, its number.
    """

    def __init__(
        self,
        model: Transformer,
        batch: Batch,
        column: int,
        named: Int[Tensor, " logit"] | None,
        kinds: Kinds,
    ) -> None:
        places = kinds.places(model)
        self.run = estimate(model, batch, record=places)
        done = run(model, batch, record=places)
        if done.logits is None:
            raise InvalidInput("This model has no logits, so there is nothing to trace.")
        probabilities = done.logits[0, column].double().softmax(-1).cpu()
        cache = done.cache
        problem = "The logits of this prompt are NaN or infinite, so no graph sums to them"
        check_total(probabilities, cache, problem)
        del done  # with the logits of all positions
        return_freed_memory()
        ids = _most_probable(probabilities) if named is None else named
        self.probability = probabilities[ids]
        real = batch.is_real[0].nonzero()[:, 0]
        pos = int((real == column).nonzero())
        frozen = FrozenModel(model, cache, real)
        self.pos, self.ids = pos, ids
        self.logits = _read_by_logits(model, frozen, ids.to(real.device), pos)
        self.start = self.probability / self.probability.sum()
        self.rows = kinds.rows(model, frozen, self.logits.mean(self.start))
        self.labels = [model.label(token) for token in ids.tolist()]
        is_image = batch.images is not None
        labels = map(str, range(len(real))) if is_image else model.to_labels(batch.ids[0, real])
        self.tokens = [*labels]

    def filled(self, max_nodes: int, progress: Callable[[int, int], None] | None) -> Placed:
        """Where the nodes are, once the rows of up to ``max_nodes`` units are computed."""
        filling = Filling(self.rows, self.logits, self.start, self._share(max_nodes))
        filling.fill(max_nodes, progress)
        return Placed(filling.filled(), self.rows, self.pos, self.ids, self.start)

    def _share(self, max_nodes: int) -> float:
        """The share of a row from which an entry is stored."""
        n_active = sum(each.n_active for each in self.rows.units.values())
        return stored_share(min(max_nodes, n_active) + len(self.ids), self.rows.columns.n)

    def estimated(self, max_nodes: int, *, heads: bool, check: int) -> GraphEstimate:
        """What the graph takes."""
        sizes = {"n_logits": len(self.ids), "max_nodes": max_nodes}
        return estimate_of(self.rows, self.run, **sizes, heads=heads, check=check)


def _read_by_logits(
    model: Transformer, frozen: FrozenModel, ids: Int[Tensor, " logit"], pos: int
) -> Readers:
    """What logits read, minus what the mean of all logits reads."""
    unembed = unembedding_of(model)
    direction, _ = logit_direction(unembed, ids)
    direction = direction - at_least_float32(unembed.W_U.mean(1))
    direction, bias = frozen.logits_direction(direction, pos)
    if unembed.b_U is not None:
        b_U = at_least_float32(unembed.b_U)
        bias = bias + b_U[ids] - b_U.mean()
    n = len(ids)
    where = torch.full((n,), pos, device=ids.device)
    before = torch.full_like(where, len(frozen.parts))
    return Readers.of_stream(before, where, direction, bias)


def _most_probable(probabilities: Float[Tensor, " vocab"]) -> Int[Tensor, " logit"]:
    """The fewest tokens with enough of the probability."""
    values, ids = probabilities.topk(min(MOST_LOGITS, len(probabilities)))
    return ids[values.cumsum(0) - values < ENOUGH]
