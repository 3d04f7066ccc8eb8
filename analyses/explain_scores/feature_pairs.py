"""The scores of a head's cells as sums over pairs of features, of which the largest are kept.

    s = Σ_ab q_a·k_b        q_a, k_b: what feature a gives to the query, and b to the key

Thousands of active features make millions of pairs. Their terms are formed block by block; the
largest pairs, by mean |term| over prompts, are kept with their terms, and of all others the sum.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.explain_scores.cells import Cell, Choice
from analyses.explain_scores.explained import ids_of, queries_of, scores_of_prompts, value_of
from analyses.methods.attribution import Head, Part, SparseVectors, parts_in_order
from interp.model import Batch

BLOCK = 1024
"""Writers on each side whose pairs are formed at a time."""
GATHERED = 2**22
"""Numbers of vectors that are gathered at a time, at most."""
Block = Float[Tensor, "some_query some_key"]


@dataclass(frozen=True, eq=False)
class PromptVectors:
    """What the terms of a prompt's cells are computed from.

    Attributes:
        prompt: index of the prompt.
        cells: the cells.
        value: the number that is explained, for each cell.
        pattern: the attention to the key of each cell.
        position_bias: what biases of positions add, mean over cells.
        query: the vectors of queries, by cell.
        key: those of keys, by position.
        queries: the weight of each query, mean over cells.
        keys: for each cell, the weight of each key.
        drawn_queries: the weights of queries for random keys; no rows if there are none.
        drawn_keys: those of keys.
    """

    prompt: int
    cells: tuple[Cell, ...]
    value: Float[Tensor, " cell"]
    pattern: Float[Tensor, " cell"]
    position_bias: float
    query: SparseVectors
    key: SparseVectors
    queries: Float[Tensor, "cell every_cell"]
    keys: Float[Tensor, "cell key"]
    drawn_queries: Float[Tensor, "drawn every_cell"]
    drawn_keys: Float[Tensor, "drawn key"]


@dataclass(frozen=True, eq=False)
class FeaturePairs:
    """The largest pairs, and sums over all of them.

    Attributes:
        query: the writers of queries.
        key: those of keys.
        pairs: of each pair that is kept, the indices of its writers; the largest first.
        effect: the terms of these pairs.
        control: the same for random keys; NaN if there are none.
        rest: the sum of the terms of all other pairs.
        n_rest: the number of other pairs whose term is not zero.
        query_effect: the sum of the terms of each writer of queries.
        key_effect: the same for keys.
    """

    query: tuple[Part, ...]
    key: tuple[Part, ...]
    pairs: Int[Tensor, "pair 2"]
    effect: Float[Tensor, "pair prompt"]
    control: Float[Tensor, "pair prompt"]
    rest: Float[Tensor, " prompt"]
    n_rest: int
    query_effect: Float[Tensor, "query_writer prompt"]
    key_effect: Float[Tensor, "key_writer prompt"]


@torch.no_grad()
def vectors_of_prompts(
    head: Head, batches: Sequence[Batch], choice: Choice, seed: int
) -> list[PromptVectors]:
    """The vectors of the cells of all prompts that have cells.

    Args:
        head: the head, with features as parts.
        batches: the prompts of each stack.
        choice: how cells are chosen.
        seed: seed for the random keys of the control.

    Raises:
        InvalidInput: a cell is masked or not in its prompt.
    """
    prompts: list[PromptVectors] = []
    for prompt, scores in scores_of_prompts(head, batches):
        cells = choice.of(scores, prompt, ids_of(head, batches, prompt))
        if not cells:
            continue
        queries, weights = queries_of(cells, scores), choice.weights(scores, cells)
        bias = (weights * scores.bias[queries]).sum(-1)
        generator = torch.Generator().manual_seed((seed + prompt) % 2**63)
        drawn = choice.drawn(scores, cells, generator)
        numbers = [number for number, cell in enumerate(drawn) if cell is not None]
        chosen = [cell for cell in drawn if cell is not None]
        every = torch.eye(len(cells)).to(weights)
        prompts.append(
            PromptVectors(
                prompt,
                tuple(cells),
                value_of(scores.scores[queries], weights) + bias,
                scores.pattern[queries, [key for _, key, _ in cells]],
                float(bias.mean()),
                scores.sparse_vectors("Q", queries),
                scores.sparse_vectors("K", torch.arange(len(scores.keys), device=queries.device)),
                every / len(cells),
                weights,
                every[numbers] / max(1, len(numbers)),
                choice.weights(scores, chosen) if chosen else weights[:0],
            )
        )
    return prompts


@torch.no_grad()
def largest_pairs(prompts: Sequence[PromptVectors], n: int) -> FeaturePairs:
    """The ``n`` pairs with the largest mean |term| over prompts, and the sums of all."""
    query, query_vectors = _together([each.query for each in prompts])
    key, key_vectors = _together([each.key for each in prompts])
    search = _Search(prompts, query_vectors, key_vectors, len(query), len(key))
    search.run(n)
    pairs = search.pairs[search.size > 0]
    effect = search.terms(pairs, [(each.queries, each.keys) for each in prompts])
    drawn = [(each.drawn_queries, each.drawn_keys) for each in prompts]
    rest = search.query_effect.sum(0) - effect.sum(0)
    return FeaturePairs(
        query,
        key,
        pairs.cpu(),
        effect.cpu(),
        search.terms(pairs, drawn).cpu(),
        rest.cpu() if len(pairs) < search.n_pairs else torch.zeros_like(rest).cpu(),
        search.n_pairs - len(pairs),
        search.query_effect.cpu(),
        search.key_effect.cpu(),
    )


def _together(
    several: Sequence[SparseVectors],
) -> tuple[tuple[Part, ...], list[SparseVectors]]:
    """The parts of all prompts, and the vectors with the indices of these."""
    every = parts_in_order(vectors.parts for vectors in several)
    index = {part: number for number, part in enumerate(every)}
    return every, [vectors.among(index, every) for vectors in several]


class _Search:
    """Goes through all pairs, block by block.

    Attributes:
        pairs: the largest pairs so far, largest first.
        size: their mean |term| over prompts.
        n_pairs: the number of pairs whose term is not zero.
        query_effect: the sum of the terms of each writer of queries.
        key_effect: the same for keys.
    """

    def __init__(
        self,
        prompts: Sequence[PromptVectors],
        query: list[SparseVectors],
        key: list[SparseVectors],
        n_query: int,
        n_key: int,
    ) -> None:
        self._prompts, self._query, self._key = prompts, query, key
        some = query[0].vectors
        self.query_effect = some.new_zeros(n_query, len(prompts))
        self.key_effect = some.new_zeros(n_key, len(prompts))
        self.pairs = torch.empty(0, 2, dtype=torch.long, device=some.device)
        self.size, self.n_pairs = some.new_zeros(0), 0

    def run(self, n: int) -> None:
        """Go through all pairs, and keep the ``n`` largest."""
        device = self.size.device
        every_key = torch.arange(len(self.key_effect), device=device)
        for a in torch.arange(len(self.query_effect), device=device).split(BLOCK):
            queries = [
                vectors.formed(a, each.queries).flatten(1)
                for vectors, each in zip(self._query, self._prompts, strict=True)
            ]
            for b in every_key.split(BLOCK):
                self._add(a, b, self._sizes(queries, a, b), n)

    def _sizes(self, queries: list[Tensor], a: Tensor, b: Tensor) -> Block:
        """The mean |term| of the pairs of a block, whose sums are added up."""
        sizes = queries[0].new_zeros(len(a), len(b))
        for prompt, (query, vectors) in enumerate(zip(queries, self._key, strict=True)):
            terms = query @ vectors.formed(b, self._prompts[prompt].keys).flatten(1).mT
            self.query_effect[a, prompt] += terms.sum(1)
            self.key_effect[b, prompt] += terms.sum(0)
            sizes += terms.abs()
        return sizes / len(queries)

    def _add(self, a: Tensor, b: Tensor, sizes: Block, n: int) -> None:
        """Merge the largest pairs of a block with those so far."""
        self.n_pairs += int((sizes > 0).sum())
        size, at = sizes.flatten().topk(min(n, sizes.numel()))
        pairs = torch.stack([a[at // len(b)], b[at % len(b)]], -1)
        every, size = torch.cat([self.pairs, pairs]), torch.cat([self.size, size])
        order = size.argsort(descending=True, stable=True)[:n]
        self.pairs, self.size = every[order], size[order]

    def terms(
        self, pairs: Int[Tensor, "pair 2"], weights: Sequence[tuple[Tensor, Tensor]]
    ) -> Float[Tensor, "pair prompt"]:
        """The terms of some pairs, with the weights of queries and of keys of each prompt."""
        query, a = pairs[:, 0].unique(return_inverse=True)
        key, b = pairs[:, 1].unique(return_inverse=True)
        terms = self.size.new_full((len(pairs), len(self._prompts)), torch.nan)
        for prompt, (queries, keys) in enumerate(weights):
            if not len(queries):
                continue
            q = self._query[prompt].formed(query, queries).flatten(1)
            k = self._key[prompt].formed(key, keys).flatten(1)
            rows = max(1, GATHERED // max(1, q.shape[1]))
            for part in torch.arange(len(pairs), device=q.device).split(rows):
                terms[part, prompt] = (q[a[part]] * k[b[part]]).sum(-1)
        return terms
