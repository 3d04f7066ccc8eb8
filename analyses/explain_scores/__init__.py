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

By feature, what dictionaries reconstruct is taken apart into features, an error and a bias: outputs
of MLPs and of attention, and the stream itself, at the dictionary that is nearest to the head. The
largest pairs of features are terms, and all other pairs are one sum.

A term is no effect of an ablation: what a writer does through other parts belongs to their terms,
and the divisors of norms would change. The check removes pairs of writers from what the head reads,
and measures both. The control is the same terms for a visible key drawn at random.
"""

from collections.abc import Sequence
from typing import Any

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
from analyses.explain_scores.feature_pairs import (
    FeaturePairs,
    PromptVectors,
    largest_pairs,
    vectors_of_prompts,
)
from analyses.explain_scores.feature_score_terms import FeatureScoreTerms, pair_fields
from analyses.explain_scores.removed import Removal, RemovedPairs
from analyses.explain_scores.score_terms import ScoreTerms
from analyses.methods.attribution import Head, not_read
from analyses.methods.finite import check_finite_weights
from analyses.methods.heads import AttentionName
from analyses.results import counted
from interp import Transformer
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.integers import as_seed, at_least
from interp.model import Batch, ImageInput
from interp.prompts import read_batches

Explained = Sequence[PromptTerms] | Sequence[PromptVectors]
"""The prompts that have cells."""


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
    pairs: int = 256,
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
            layer, and all biases; ``kind`` sums heads, MLPs, embeddings and biases. ``feature``, of
            ``interp.with_dictionaries(model, dictionaries)``, has each active feature, and the
            error and bias of each dictionary, in place of the MLP, the heads or the stream that it
            is of.
        neurons: number of neurons on each side, those that add most to the scores, that are writers
            of their own, where ``by`` does not sum MLPs; ``L1MLP rest`` is what is left of theirs.
        most: the most cells of a prompt, spread evenly over all.
        check: number of the largest pairs that are removed by edits of edges.
        pairs: by feature, the number of pairs that are kept, those with the largest mean |term|;
            the others are one sum.
        attention: for an encoder–decoder, ``"encoder"``, ``"decoder"`` or ``"cross"``.
        seed: seed for the random keys of the control.

    Returns:
        The terms of all pairs of writers, biases included; by feature, as
        :class:`FeatureScoreTerms`, those of the largest pairs and the sum of all others.

    Raises:
        InvalidInput: no such layer, head, query or key; a masked key; a query that sees one key
            alone; no cell in any prompt; an unknown setting; by feature, no dictionary before the
            head, or neurons or a check; or pairs are to be removed where norms change the stream
            (post-norm), so that there are no edges.

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
    pairs, explained_head = at_least(1, pairs, "pairs"), Head.of(model, layer, head, attention)
    if by == "feature":
        explained_head = _with_features(explained_head, neurons=neurons, check=check)
    batches = read_batches(model, prompts)
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
    if by == "feature":
        vectors = vectors_of_prompts(explained_head, batches, choice, seed)
        _check_any(vectors)
        largest = largest_pairs(vectors, pairs)
        notes = [*_notes(len(batches[0].ids), vectors, 0, 0), *_unused(explained_head, largest)]
        of_writers = pair_fields(largest) | _nothing_removed(largest.effect)
        return FeatureScoreTerms(
            **_common(explained_head, model, batches, choice, vectors),  # pyright: ignore[reportArgumentType]
            **of_writers,  # pyright: ignore[reportArgumentType]
            by=by,
            provenance=Provenance.of(model, *batches, seed=seed),
            notes=tuple(notes),
        )
    split = largest_neurons(explained_head, batches, choice, neurons)
    grouping = Grouping(by, *split)
    writers, explained = explain_cells(explained_head, batches, choice, grouping, seed)
    _check_any(explained)
    effect = torch.stack([terms.effect for terms in explained], -1)
    chosen, removed = _removed(explained_head, writers, effect, batches, choice, grouping, check)
    return ScoreTerms(
        **_common(explained_head, model, batches, choice, explained),  # pyright: ignore[reportArgumentType]
        effect=effect,
        control=torch.stack([terms.control for terms in explained], -1),
        query_writers=tuple(writers.query),
        key_writers=tuple(writers.key),
        checked=chosen,
        exact=removed.exact,
        removed_pattern=removed.patched,
        predicted_pattern=removed.predicted,
        by=by,
        provenance=Provenance.of(model, *batches, seed=seed),
        notes=tuple(_notes(len(batches[0].ids), explained, check, len(chosen))),
    )


def _with_features(head: Head, *, neurons: int, check: int) -> Head:
    """The head with features as writers.

    Raises:
        InvalidInput: there are none, or neurons or removals are asked for.
    """
    for value, name in ((neurons, "neurons"), (check, "check")):
        if value:
            raise InvalidInput(
                f'{name}={value} has no effect with by="feature": features are writers in place of '
                "neurons, and no edit of an edge removes one. Leave it out."
            )
    return head.with_features()


def _check_any(explained: Explained) -> None:
    """Check that a prompt has a cell.

    Raises:
        InvalidInput: none has.
    """
    if not explained:
        raise InvalidInput(
            "No prompt has a cell to explain: key= finds no visible key, other_key= finds none or "
            "the same, or queries see one key alone."
        )


def _common(
    head: Head, model: Transformer, batches: Sequence[Batch], choice: Choice, explained: Explained
) -> dict[str, object]:
    """The fields that a result has whatever the writers are."""
    value = torch.stack([terms.value.mean() for terms in explained]).cpu()
    return {
        "value": value,
        "position_bias": value.new_tensor([terms.position_bias for terms in explained]),
        "cells": _cell_columns(head, model, batches, explained),
        "cell_values": torch.cat([terms.value for terms in explained]).cpu(),
        "pattern": torch.cat([terms.pattern for terms in explained]).cpu(),
        "name": head.name,
        "against": choice.against if choice.other_key is None else "key",
        "soft_cap": getattr(head.attn.soft_cap, "cap", None),
    }


def _nothing_removed(like: Float[Tensor, "pair prompt"]) -> dict[str, object]:
    """The fields of a check that removed nothing."""
    none = like[:0]
    numbers = dict.fromkeys(("exact", "removed_pattern", "predicted_pattern"), none)
    return {"checked": torch.empty(0, dtype=torch.long), **numbers}


def _unused(head: Head, pairs: FeaturePairs) -> list[str]:
    """A note on dictionaries that are not on the way to the head.

    Raises:
        InvalidInput: none is.
    """
    unused, notes = not_read(head.outputs, [*pairs.query, *pairs.key])
    if len(unused) == len(head.outputs):
        raise InvalidInput(
            f'by="feature" takes dictionaries of the stream that {head.name} reads, or of what an '
            f"MLP or an attention writes into it; those before it are of {', '.join(unused)}."
        )
    return notes


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


def _notes(n_prompts: int, explained: Explained, check: int, removed: int) -> list[str]:
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
    head: Head, model: Transformer, batches: Sequence[Batch], explained: Explained
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
