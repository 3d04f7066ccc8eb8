"""Pairs of writers removed by edits of edges, and the scores that are measured then.

    t_ab = s − s₋a − s₋b + s₋ab         s₋a: the query reads the stream without what a wrote

Exactly so without norms; a norm before the queries and keys is computed anew for the stream that is
left, so that the measured number differs from the term by what the norm's divisor changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.explain_scores.cells import Cell, Choice
from analyses.explain_scores.explained import (
    Grouping,
    Writers,
    grouped,
    ids_of,
    queries_of,
    scores_of_prompts,
    value_of,
)
from analyses.methods.attribution import Head, Part
from interp.edits import Edge, Edit, Selection
from interp.graph import computation_graph
from interp.io import TensorData
from interp.model import Batch
from interp.points import Place

Pair = tuple[str, str]


@dataclass(frozen=True, eq=False)
class RemovedPairs:
    """What the removal of pairs of writers does, mean over the cells of each prompt.

    Attributes:
        exact: the term of each pair, as measured: the change that both removals make together
            beyond the sum of their changes alone.
        patched: the attention to the key with both removed.
        predicted: the same with the divisors of norms as they were.
    """

    exact: Float[Tensor, "pair prompt"]
    patched: Float[Tensor, "pair prompt"]
    predicted: Float[Tensor, "pair prompt"]


@dataclass(frozen=True, eq=False)
class _Baseline:
    """The cells of a prompt, and what is computed of them before anything is removed."""

    cells: list[Cell]
    weights: Float[Tensor, "cell key"]
    value: Float[Tensor, " cell"]
    predicted: Float[Tensor, " pair"]


class Removal:
    """Removes writers of queries and of keys of a head."""

    def __init__(self, head: Head, writers: Writers) -> None:
        graph = computation_graph(head.model)
        self.head = head
        self._writers = {writer.name: writer for writer in graph.writers}
        self._readers = {
            place: next(
                reader.name
                for reader in graph.readers
                if reader.place == place and reader.head == index
            )
            for place, index in zip(head.places_of_scores, (head.index, head.kv_head), strict=True)
        }
        self.query, self.key = (
            {name: edges for name, parts in side.items() if (edges := self._edges(parts, place))}
            for side, place in zip((writers.query, writers.key), self._readers, strict=True)
        )

    def can_remove(self, pair: Pair) -> bool:
        """Whether both writers of a pair are outputs of nodes of the computation graph."""
        return pair[0] in self.query and pair[1] in self.key

    @torch.no_grad()
    def measure(
        self, batches: Sequence[Batch], choice: Choice, grouping: Grouping, pairs: Sequence[Pair]
    ) -> RemovedPairs:
        """Remove each pair, on all prompts.

        Args:
            batches: the prompts of each stack.
            choice: how cells are chosen.
            grouping: the writers.
            pairs: the names of the writers of queries and of keys.
        """
        baselines = self._baselines(batches, choice, grouping, pairs)
        of_query = {name: self.query[name] for name, _ in pairs}
        of_key = {name: self.key[name] for _, name in pairs}
        without_query = {
            name: self._values(batches, baselines, edges)[0] for name, edges in of_query.items()
        }
        without_key = {
            name: self._values(batches, baselines, edges)[0] for name, edges in of_key.items()
        }
        exact: list[Tensor] = []
        patched: list[Tensor] = []
        for query, key in pairs:
            both, pattern = self._values(batches, baselines, [*of_query[query], *of_key[key]])
            whole = torch.stack([baseline.value.mean() for baseline in baselines.values()])
            exact.append(whole - without_query[query] - without_key[key] + both)
            patched.append(pattern)
        predicted = torch.stack([baseline.predicted for baseline in baselines.values()], -1)
        return RemovedPairs(torch.stack(exact).cpu(), torch.stack(patched).cpu(), predicted.cpu())

    def _baselines(
        self, batches: Sequence[Batch], choice: Choice, grouping: Grouping, pairs: Sequence[Pair]
    ) -> dict[int, _Baseline]:
        """The baseline of each prompt that has cells."""
        baselines: dict[int, _Baseline] = {}
        for prompt, scores in scores_of_prompts(self.head, batches):
            cells = choice.of(scores, prompt, ids_of(self.head, batches, prompt))
            if not cells:
                continue
            queries, weights = queries_of(cells, scores), choice.weights(scores, cells)
            query = grouped(scores.query_vectors(queries, grouping.query), grouping.by)
            key = grouped(scores.key_vectors(grouping.key), grouping.by)
            q, k = torch.stack([*query.values()]).sum(0), torch.stack([*key.values()]).sum(0)
            keys, of_cells = [at for _, at, _ in cells], torch.arange(len(cells))
            predicted = [
                scores.pattern_of((q - query[a]) @ (k - key[b]).mT, queries)[of_cells, keys].mean()
                for a, b in pairs
            ]
            value = value_of(scores.scores[queries], weights)
            baselines[prompt] = _Baseline(cells, weights, value, torch.stack(predicted))
        return baselines

    def _values(
        self, batches: Sequence[Batch], baselines: dict[int, _Baseline], edges: Sequence[Edit]
    ) -> tuple[Float[Tensor, " prompt"], Float[Tensor, " prompt"]]:
        """The weighted sum of the scores, and the attention to the key, with edges removed."""
        values: list[Tensor] = []
        patterns: list[Tensor] = []
        for prompt, scores in scores_of_prompts(self.head, batches, edges):
            if prompt in baselines:
                baseline = baselines[prompt]
                queries = queries_of(baseline.cells, scores)
                values.append(value_of(scores.scores[queries], baseline.weights).mean())
                keys = [key for _, key, _ in baseline.cells]
                patterns.append(scores.pattern[queries, keys].mean())
        return torch.stack(values), torch.stack(patterns)

    def _edges(self, parts: Sequence[Part], place: Place) -> list[Edit]:
        """The edits that remove parts from what a reader reads; none if one can't be removed."""
        edges = [self._edge(part, self._readers[place]) for part in parts]
        return [edge for edge in edges if edge is not None] if None not in edges else []

    def _edge(self, part: Part, reader: str) -> Edit | None:
        """The edit that removes a part; ``None`` unless it is the output of a node of the graph.

        Biases are not. Nor are heads and neurons where a norm follows the output of a sub-layer,
        or embeddings that have a norm of their own.
        """
        model, writer = self.head.model, self._writers.get(part.name)
        if part.kind == "bias" or writer is None or writer.place is None:
            return None
        point, stack = writer.place.point, model.stack(writer.stack)
        if part.kind == "embedding" and point not in {place.point for place in stack.terms()}:
            return None
        if part.kind != "mlp":
            return Edge((writer.name, reader), Selection())
        step = next(
            step for layer, step in stack.branches() if layer == part.layer and step.part == "mlp"
        )
        if step.norms.output is not None:
            return None
        bias = None if writer.bias is None else model.get_parameter(writer.bias).to(model.device)
        rest = 0.0 if bias is None else TensorData(bias.detach())
        return Edge((writer.name, reader), Selection(), rest)
