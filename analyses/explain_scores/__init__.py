"""Why does a head attend there? Its score, as the sum of terms of pairs of writers.

    s = Σ_ab (x_a W_Q) R (x_b W_K)ᵀ / scale       a writes at the query, b at the key

x_a is what a part (a head, an MLP, the embedding, a bias) wrote into the stream, through the norm
before the head with its divisor from the run. R rotates by the positions; relative biases and ALiBi
are one more term. Norms of queries and keys are linear with their divisors fixed; what clipping
adds is a term of its own. The terms sum to the score, before any soft-cap (Elhage et al. 2021, "A
Mathematical Framework for Transformer Circuits"; Kamath et al. 2025, "Tracing Attention Computation
Through Feature Interactions").

Attention depends on differences of scores, so what is explained is the score of the key minus the
mean score of the other visible keys, weighted by the attention to them, or minus that of one other
key. The mean over all visible keys, the key itself included, gives the same terms times one minus
the attention to the key, which are all near zero where a head attends to one key alone.

A term is no effect of an ablation: what a writer does through other parts belongs to their terms,
and the divisors of norms would change. The check removes pairs of writers from what the head reads,
and measures both. The control is the same terms for a visible key drawn at random.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.explain_scores.cells import AGAINST, Choice, KeyChoice, as_cells, as_key, as_query
from analyses.explain_scores.explained import (
    BY,
    Grouping,
    PromptTerms,
    Writers,
    explain_cells,
    largest_neurons,
)
from analyses.explain_scores.removed import Removal, RemovedPairs
from analyses.methods.attribution import Agreement, Head
from analyses.results import (
    Drawing,
    Heatmap,
    Result,
    counted,
    effect_frame,
    effect_lines,
    fixed,
    grid,
    percent,
    rounding,
    signed,
)
from interp import Transformer
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.integers import as_seed, at_least
from interp.model import AttentionName, Batch, ImageInput
from interp.weights import check_finite_weights

SHOWN = 12
"""The most writers on each side of the figure; the others are summed."""
FIRST = 3
"""Pairs in the first line of a summary."""
POSITIONS = "position bias"
"""The name of the term of relative biases or ALiBi."""
REST = "all others"
COMPARED = {
    "others": "against the mean of the other keys",
    "mean": "against the mean of all keys",
    "nothing": "",
}


@dataclass(frozen=True, eq=False, repr=False)
class ScoreTerms(Result):
    """A head's score of a key, compared with other keys, as the sum of terms.

    Scores are in nats of log attention. Cells of one prompt are averaged.

    Attributes:
        value: the score, before any soft-cap, minus what it is compared with.
        effect: the term of each pair: what the first wrote at the query times what the second wrote
            at the key (minus at the other keys).
        control: the same terms for a visible key drawn at random; NaN if there is no other.
        position_bias: what relative biases or ALiBi add.
        query_writers: names of what writes queries; see
            :class:`analyses.methods.attribution.Part`.
        key_writers: names of what writes keys.
        cells: the cells that are explained: prompt, query, key and, for a contrast, other key, with
            the labels of their tokens.
        cell_values: the score of each cell, minus what it is compared with.
        pattern: the attention of each cell.
        checked: indices of the pairs that were also removed, in the order of the terms.
        exact: the terms of these pairs as measured: the change of the score that both removals make
            together beyond the sum of their changes alone.
        removed_pattern: the attention with both writers of these pairs removed.
        predicted_pattern: the same, predicted from the terms.
        name: the head.
        by: ``component``, ``layer`` or ``kind``.
        against: what the score is compared with: ``others``, ``mean``, ``nothing`` or ``key``.
        soft_cap: the soft-cap of the scores, which is not applied to ``value``; ``None`` if none.
        provenance: model, tokens and settings that the numbers depend on.
        notes: prompts without such a cell, and pairs that could not be removed.
    """

    value: Float[Tensor, " prompt"]
    effect: Float[Tensor, "query_writer key_writer prompt"]
    control: Float[Tensor, "query_writer key_writer prompt"]
    position_bias: Float[Tensor, " prompt"]
    query_writers: tuple[str, ...]
    key_writers: tuple[str, ...]
    cells: Mapping[str, Sequence[object]]
    cell_values: Float[Tensor, " cell"]
    pattern: Float[Tensor, " cell"]
    checked: Int[Tensor, " checked"]
    exact: Float[Tensor, "checked prompt"]
    removed_pattern: Float[Tensor, "checked prompt"]
    predicted_pattern: Float[Tensor, "checked prompt"]
    name: str
    by: str
    against: str
    soft_cap: float | None
    provenance: Provenance
    notes: tuple[str, ...] = ()

    @property
    def error(self) -> float:
        """The largest difference between Σ terms and ``value``, over the prompts, in nats."""
        total = self.effect.sum((0, 1)) + self.position_bias
        return (total - self.value).abs().max().item()

    @property
    def agreement(self) -> Agreement:
        """How the terms of the checked pairs agree with what their removal measures."""
        return Agreement.of(self._pairs[self.checked].mean(-1), self.exact.mean(-1))

    def to_frame(self) -> pd.DataFrame:
        """One row per pair of writers, largest size first.

        Columns:
            name, query_writer, key_writer: the pair; biases of positions are one more.
            effect, low, high: the mean term over prompts and its 95 % interval, in nats.
            size, share, n, p, q, significant: as in ``ablate_heads``, for a mean other than zero;
                share is that of the mean value.
            control: mean of |term| for a key drawn at random.
        """
        pairs = grid(query_writer=self.query_writers, key_writer=self.key_writers)
        effect, control = self._pairs, self.control.flatten(0, 1)
        if self.position_bias.any():
            pairs = {side: [*names, POSITIONS] for side, names in pairs.items()}
            effect = torch.cat([effect, self.position_bias[None]])
            control = torch.cat([control, torch.full_like(control[:1], torch.nan)])
        sizes = control.double().abs().nanmean(-1).tolist()
        names = list(map(_pair_name, *pairs.values()))
        columns = {"name": names, **pairs, "control": sizes}
        frame = effect_frame(columns, effect, self._noise, metric=self.value)
        frame["control"] = frame.pop("control")
        return frame

    def more_frames(self) -> dict[str, pd.DataFrame]:
        """See :meth:`Result.more_frames`."""
        checks = {"checks": self.to_check_frame()} if len(self.checked) else {}
        return {"writers": self.to_writer_frame(), "cells": self.to_cell_frame(), **checks}

    def to_writer_frame(self) -> pd.DataFrame:
        """One row per writer and side: the sum of its terms, largest size first.

        Columns:
            end: ``query`` or ``key``.
            writer: the writer.
            effect, low, high, size, share, n, p, q, significant: as in :meth:`to_frame`.
        """
        sides = {"query": self.query_writers, "key": self.key_writers}
        cells = {
            "end": [end for end, names in sides.items() for _ in names],
            "writer": [name for names in sides.values() for name in names],
        }
        sums = torch.cat([self.effect.sum(1), self.effect.sum(0)])
        return effect_frame(cells, sums, self._noise, metric=self.value)

    def to_cell_frame(self) -> pd.DataFrame:
        """One row per cell.

        Columns:
            prompt, query, key: the cell; ``other_key`` for a contrast.
            query_token, key_token: labels of the tokens.
            value: the score minus what it is compared with, in nats.
            pattern: the attention.
        """
        numbers = {"value": self.cell_values.numpy(), "pattern": self.pattern.numpy()}
        return pd.DataFrame({**self.cells, **numbers})

    def to_check_frame(self) -> pd.DataFrame:
        """One row per pair that was removed, in the order of their sizes.

        Columns:
            name, query_writer, key_writer: the pair.
            effect: the mean term, in nats.
            exact: the same as measured by removal, which only norms make differ.
            pattern: the mean attention to the key.
            predicted_pattern: the same without both writers, as the terms predict it.
            removed_pattern: the same as measured.
        """
        pairs = [divmod(pair, len(self.key_writers)) for pair in self.checked.tolist()]
        names = [(self.query_writers[a], self.key_writers[b]) for a, b in pairs]
        numbers = {
            "effect": self._pairs[self.checked].mean(-1),
            "exact": self.exact.mean(-1),
            "pattern": self.pattern.mean().expand(len(pairs)),
            "predicted_pattern": self.predicted_pattern.mean(-1),
            "removed_pattern": self.removed_pattern.mean(-1),
        }
        return pd.DataFrame(
            {
                "name": [_pair_name(*pair) for pair in names],
                "query_writer": [query for query, _ in names],
                "key_writer": [key for _, key in names],
                **{column: values.double().numpy() for column, values in numbers.items()},
            }
        )

    def drawing(self) -> Drawing:
        """Heatmap of the mean terms: writers of queries down, of keys across, largest first."""
        table, rows = _largest(self.effect.double().mean(-1), self.query_writers)
        table, columns = _largest(table.T, self.key_writers)
        return Heatmap(
            table.T,
            title=f"{self.name} {self._where}: terms of the score {self._compared}".rstrip(),
            rows=rows,
            columns=columns,
            axes=("written at the query", "written at the key"),
            unit="nats",
            diverging=True,
        )

    def summary(self, top: int = 10) -> str:
        """The score, the ``top`` pairs, how exactly the terms sum to it, and what checks show."""
        top = at_least(1, top, "top")
        lines = effect_lines(self.to_frame(), "nats", "pairs", top)
        cap = f", before their soft-cap of {self.soft_cap:g}" if self.soft_cap else ""
        exact = (
            f"{counted(len(self._pairs), 'term')} sum to it within {self.error:.1e} nats{cap}; "
            "a × b: written by a at the query, by b at the key"
        )
        return "\n".join([self.headline(), *lines, exact, *self._check_lines(), *self.notes])

    def conclusion(self) -> list[str]:
        """See :meth:`Result.conclusion`."""
        return [self.headline(), *self._check_lines()]

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        frame = self.to_frame()
        pairs = (
            f"{row['name']} {signed(row['effect'], 2)} ({percent(row['share'])})"
            for row in frame[frame["size"] > self._noise].head(FIRST).to_dict("records")
        )
        return f"{self.score_line}: {', '.join(pairs)}"

    @property
    def score_line(self) -> str:
        """The cell, its score with what it is compared with, and its attention."""
        score = f"score {signed(self.value.mean(), 2)} nats {self._compared}".rstrip()
        attention = f"(attention {fixed(self.pattern.mean(), 2)})"
        return f"{self.name} {self._where}: {score} {attention}"

    # ---- lines and labels --------------------------------------------------------------------

    @property
    def _pairs(self) -> Float[Tensor, "pair prompt"]:
        return self.effect.flatten(0, 1)

    @property
    def _noise(self) -> float:
        return rounding(self.value, self.provenance.dtype)

    @property
    def _compared(self) -> str:
        """What the score is compared with."""
        if self.against != "key":
            return COMPARED[self.against]
        key = f"key {self._end('other_key')}" if self._is_single else "another key"
        return f"against {key}"

    @property
    def _is_single(self) -> bool:
        return len(self.pattern) == 1

    @property
    def _where(self) -> str:
        """The cell, or the number of cells."""
        if self._is_single:
            return f"from query {self._end('query')} to key {self._end('key')}"
        prompts = counted(len(self.value), "prompt")
        return f"in {counted(len(self.pattern), 'cell')} of {prompts}"

    def _end(self, side: str) -> str:
        """Position and token of the only cell."""
        return f"{self.cells[side][0]} {self.cells[f'{side}_token'][0]}"

    def _check_lines(self) -> list[str]:
        frame = self.to_check_frame()
        return [
            f"{row['name']} removed: term {signed(row['effect'], 3)} nats, measured "
            f"{signed(row['exact'], 3)}; attention {fixed(row['pattern'], 3)} → "
            f"{fixed(row['removed_pattern'], 3)} (predicted {fixed(row['predicted_pattern'], 3)})"
            for row in frame.to_dict("records")
        ]


def explain_scores(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    prompts: Any,  # noqa: ANN401 - what model.check reads
    layer: int,
    head: int,
    *,
    query: int | str = -1,
    key: KeyChoice = "strongest",
    other_key: KeyChoice | None = None,
    cells: Sequence[tuple[int, int, int]] | None = None,
    against: str = "others",
    by: str = "component",
    neurons: int = 0,
    most: int = 64,
    check: int = 0,
    attention: AttentionName | None = None,
    seed: int = 0,
) -> ScoreTerms:
    """Explain a head's score of a key by what is written at the query and at the key.

    Args:
        model: the model.
        prompts: texts, token ids, images or a batch; ``(source, target)`` for an encoder–decoder.
        layer: the head's layer; negative values count from the end.
        head: the head's index (with grouped heads, that of the query head); negative values count
            from the end.
        query: the position of the query among the tokens of each prompt, or ``"all"``.
        key: the position of the key; ``"strongest"`` for the most attended one, ``"previous"``,
            ``"first"``, ``"same token"`` for the last earlier token that is the query's,
            ``"after same token"`` for the one after that; or a function of the ids of a prompt and
            the query. Queries without such a key are left out.
        other_key: likewise, a key whose score is subtracted, in place of ``against``.
        cells: prompt, query and key of each cell, in place of ``query`` and ``key``.
        against: what the score is compared with: ``"others"`` (the mean of the other visible keys,
            weighted by attention), ``"mean"`` (that of all visible keys) or ``"nothing"``.
        by: ``component`` has each head, MLP, embedding and bias; ``layer`` sums the heads of a
            layer, and all biases; ``kind`` sums heads, MLPs, embeddings and biases.
        neurons: number of neurons on each side, those that add most to the scores, that are writers
            of their own, where ``by`` does not sum MLPs; ``L1MLP rest`` is what is left of theirs.
        most: the most cells of a prompt, spread evenly over all.
        check: number of the largest pairs that are removed by edits of edges.
        attention: for an encoder–decoder, ``"encoder"``, ``"decoder"`` or ``"cross"``.
        seed: seed for the random keys of the control.

    Returns:
        The terms of all pairs of writers, biases included.

    Raises:
        InvalidInput: no such layer, head, query or key; a masked key; a query that sees one key
            alone; no cell in any prompt; an unknown setting; or pairs are to be removed where norms
            change the stream (post-norm), so that there are no edges.

    Examples:
        >>> model, cell = interp.load("induction-by-hand"), {"query": 4, "key": 2, "other_key": 3}
        >>> analyses.explain_scores(model, "abcab", layer=1, head=0, **cell)
        ScoreTerms(L1H0 from query 4 a to key 2 b: score +99.00 nats against key 3 c (attention
        1.00): embed × L0H0 +100.00 (101 %), L1.b_Q × pos_embed −1.00 (1 %))
    """
    check_finite_weights(model)
    for value, name, values in ((against, "against", AGAINST), (by, "by", BY)):
        if value not in values:
            raise InvalidInput(f"{name}={shorten(value)} is not one of {', '.join(values)}.")
    check, seed = at_least(0, check, "check"), as_seed(seed)
    neurons = at_least(0, neurons, "neurons")
    explained_head = Head.of(model, layer, head, attention)
    batches = model.batches(prompts)
    choice = Choice(
        as_query(query),
        as_key(key, "key"),
        None if other_key is None else as_key(other_key, "other_key"),
        None if cells is None else as_cells(cells, len(batches[0].ids)),
        against,
        at_least(1, most, "most"),
    )
    kind = explained_head.kind
    choice.check(*(batches[at].is_real.sum(-1).tolist() for at in (kind.query, kind.key)))
    split = largest_neurons(explained_head, batches, choice, neurons)
    grouping = Grouping(by, *split)
    writers, explained = explain_cells(explained_head, batches, choice, grouping, seed)
    if not explained:
        raise InvalidInput(
            "No prompt has a cell to explain: key= finds no visible key, other_key= finds none or "
            "the same, or queries see one key alone."
        )
    effect = torch.stack([terms.effect for terms in explained], -1)
    chosen, removed = _removed(explained_head, writers, effect, batches, choice, grouping, check)
    return ScoreTerms(
        value=torch.stack([terms.value.mean() for terms in explained]).cpu(),
        effect=effect,
        control=torch.stack([terms.control for terms in explained], -1),
        position_bias=effect.new_tensor([terms.position_bias for terms in explained]),
        query_writers=tuple(writers.query),
        key_writers=tuple(writers.key),
        cells=_cell_columns(explained_head, model, batches, explained),
        cell_values=torch.cat([terms.value for terms in explained]).cpu(),
        pattern=torch.cat([terms.pattern for terms in explained]).cpu(),
        checked=chosen,
        exact=removed.exact,
        removed_pattern=removed.patched,
        predicted_pattern=removed.predicted,
        name=explained_head.name,
        by=by,
        against=against if other_key is None else "key",
        soft_cap=getattr(explained_head.attn.soft_cap, "cap", None),
        provenance=Provenance.of(model, *batches, seed=seed),
        notes=tuple(_notes(len(batches[0].ids), explained, check, len(chosen))),
    )


def _removed(  # noqa: PLR0913, PLR0917 - of one call
    head: Head,
    writers: Writers,
    effect: Float[Tensor, "query_writer key_writer prompt"],
    batches: Sequence[Batch],
    choice: Choice,
    grouping: Grouping,
    check: int,
) -> tuple[Int[Tensor, " checked"], RemovedPairs]:
    """The indices of the largest pairs that can be removed, and what their removal measures."""
    none = effect.new_empty(0, effect.shape[-1])
    if not check:
        return torch.empty(0, dtype=torch.long), RemovedPairs(none, none, none)
    removal = Removal(head, writers)
    names = [(query, key) for query in writers.query for key in writers.key]
    sizes = effect.flatten(0, 1).abs().mean(-1)
    order = sizes.argsort(descending=True, stable=True)[: int((sizes > 0).sum())].tolist()
    chosen = [pair for pair in order if removal.can_remove(names[pair])][:check]
    if not chosen:
        raise InvalidInput(
            f"check={check}: no pair of writers can be removed by edits of edges, which remove "
            'outputs of heads, MLPs and embeddings, but no biases; by="component" has most of them.'
        )
    pairs = [names[pair] for pair in chosen]
    return torch.tensor(chosen), removal.measure(batches, choice, grouping, pairs)


def _notes(n_prompts: int, explained: Sequence[PromptTerms], check: int, removed: int) -> list[str]:
    """Notes on the prompts that have no cells, and on which pairs are removed."""
    notes: list[str] = []
    if len(explained) < n_prompts:
        notes.append(
            f"{n_prompts - len(explained)} of {counted(n_prompts, 'prompt')} have no such cell"
        )
    if check:
        notes.append(
            f"removed: {counted(removed, 'pair')}, the largest of outputs of heads, MLPs and "
            "embeddings; no edit of an edge removes a bias"
        )
    return notes


def _cell_columns(
    head: Head, model: Transformer, batches: Sequence[Batch], explained: Sequence[PromptTerms]
) -> dict[str, list[object]]:
    """The columns that name the cells."""
    cells = [(terms.prompt, *cell) for terms in explained for cell in terms.cells]
    columns: dict[str, list[object]] = {"prompt": [prompt for prompt, *_ in cells]}
    stacks = {"query": head.kind.query, "key": head.kind.key, "other_key": head.kind.key}
    for number_of_end, (end, stack) in enumerate(stacks.items(), 1):
        positions = [cell[number_of_end] for cell in cells]
        if None in positions:
            continue
        columns[end] = list(positions)
        columns[f"{end}_token"] = [
            _label(model, stack, batches[stack], cell[0], position)
            for cell, position in zip(cells, positions, strict=True)
            if position is not None
        ]
    return columns


def _label(model: Transformer, stack: int, batch: Batch, prompt: int, position: int) -> str:
    """The label of a token, or the number of an image's patch."""
    if isinstance(model.stacks[stack].input, ImageInput):
        return str(position)
    ids = batch.ids[prompt, batch.is_real[prompt]]
    return model.to_labels(ids[position : position + 1])[0]


def _pair_name(query: str, key: str) -> str:
    """The name of a pair of writers."""
    return query if query == key == POSITIONS else f"{query} × {key}"


def _largest(
    table: Float[Tensor, "writer other"], names: Sequence[str]
) -> tuple[Float[Tensor, "row other"], list[str]]:
    """The rows with the largest terms, largest first, and the sum of all others."""
    order: list[int] = table.abs().amax(-1).argsort(descending=True, stable=True).tolist()
    first, rest = order[:SHOWN], order[SHOWN:]
    labels = [names[row] for row in first]
    if not rest:
        return table[first], labels
    return torch.cat([table[first], table[rest].sum(0, keepdim=True)]), [*labels, REST]
