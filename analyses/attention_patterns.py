"""Where do heads attend? A_h on one prompt: the weights of each query over its keys.

    A = softmax_rows(q kᵀ / scale + mask)          rows: queries; columns: keys

That a head attends to a token does not show that what it moves from there is used. Patterns are
therefore also available with the weights A_ij ‖v_j W_O‖, divided by their sum over j (Kobayashi et
al. 2020, "Attention is Not Only a Weight"). An encoder–decoder also has cross-attention, from
target tokens to source tokens (Bahdanau, Cho and Bengio 2015, figure 3).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from analyses.methods.components import Replacements, components_named
from analyses.methods.finite import check_finite_weights
from analyses.methods.heads import (
    AttentionName,
    Attentions,
    attentions_of,
    output_norms,
    pattern_at,
    value_weights,
)
from analyses.results import Drawing, Heatmap, Result, as_bytes, fixed, reduced
from interp import Transformer, run
from interp.edits import Edit
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.integers import as_seed, within
from interp.model import Batch, ImageInput
from interp.prompts import read_batches

LONGEST_HOVER = 256
"""Longer prompts get no hover text in each cell, which would take megabytes."""


@dataclass(frozen=True, eq=False, repr=False)
class AttentionPattern(Result):
    """One head's attention on one prompt.

    Attributes:
        pattern: A, one row per query; rows sum to one (to less, with sinks). Padding has neither
            rows nor columns.
        query_tokens: label of each query token; for an image patch, its row and column.
        key_tokens: label of each key token.
        layer: the head's layer.
        head: the head's index in the layer.
        attention: which attention of an encoder–decoder; ``None`` with one stack.
    """

    pattern: Float[Tensor, "query key"]
    query_tokens: tuple[str, ...]
    key_tokens: tuple[str, ...]
    layer: int
    head: int
    attention: AttentionName | None = None

    @property
    def name(self) -> str:
        """The head, e.g. ``L1H4``, or ``cross.L1H4`` in an encoder–decoder."""
        which = f"{self.attention}." if self.attention else ""
        return f"{which}L{self.layer}H{self.head}"

    def to_frame(self) -> pd.DataFrame:
        """One row per cell: layer, head, query, key, query_token, key_token, pattern."""
        cells = [(q, k) for q in range(len(self.query_tokens)) for k in range(len(self.key_tokens))]
        return pd.DataFrame(
            {
                "layer": self.layer,
                "head": self.head,
                "query": [q for q, _ in cells],
                "key": [k for _, k in cells],
                "query_token": [self.query_tokens[q] for q, _ in cells],
                "key_token": [self.key_tokens[k] for _, k in cells],
                "pattern": self.pattern.flatten().tolist(),
            }
        )

    def drawing(self) -> Drawing:
        """Heatmap of the weights, from 0 to 1: queries down, keys across."""
        return Heatmap(
            self.pattern,
            title=f"Attention of {self.name}",
            rows=self.query_tokens,
            columns=self.key_tokens,
            axes=("query", "key"),
            unit="weight",
            top=1.0,
            hover=self._hover() if self.pattern.numel() <= LONGEST_HOVER**2 else None,
        )

    def _hover(self) -> list[list[str]]:
        queries, keys = self.query_tokens, self.key_tokens
        return [
            [
                f"query {q} {queries[q]}\nkey {k} {keys[k]}\nattention {fixed(weight, 3)}"
                for k, weight in enumerate(row)
            ]
            for q, row in enumerate(self.pattern.tolist())
        ]

    def summary(self) -> str:
        """The most attended key of each query."""
        top = self.pattern.max(-1)
        lines = [
            f"{q:>4} {self.query_tokens[q]:<12} → {int(k):>4} {self.key_tokens[int(k)]:<12} "
            f"{fixed(w, 2)}"
            for q, (k, w) in enumerate(zip(top.indices, top.values, strict=True))
        ]
        return "\n".join([self.headline(), *lines])

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        return f"{self.name}: most attended key of each query"


@dataclass(frozen=True, eq=False, repr=False)
class AttentionPatterns(Result):
    """The attention of every head on one prompt.

    Attributes:
        patterns: for each layer, A of its heads, one row per query; rows sum to one (to less, with
            sinks). Padding has neither rows nor columns.
        query_tokens: label of each query token; for an image patch, its row and column.
        key_tokens: label of each key token.
        query_ids: token id of each query; empty for images.
        key_ids: token id of each key; empty for images.
        is_causal: whether no query may attend to later keys; the weights there are 0.
        weighted: whether the weights are A_ij ‖v_j W_O‖, renormalised; rows whose values are all
            zero are then zero.
        attention: which attention of an encoder–decoder; ``None`` with one stack.
        provenance: model, tokens and edits that the numbers depend on.
        ablated_names: names of the parts that were ablated together in this run.
        method: ``zero``, ``mean`` or ``resample``; ``""`` if nothing was ablated.
    """

    patterns: tuple[Float[Tensor, "head query key"], ...]
    query_tokens: tuple[str, ...]
    key_tokens: tuple[str, ...]
    query_ids: tuple[int, ...]
    key_ids: tuple[int, ...]
    is_causal: bool
    weighted: bool
    attention: AttentionName | None
    provenance: Provenance
    ablated_names: tuple[str, ...] = ()
    method: str = ""

    def thumbnails(self, most: int) -> UInt8[Tensor, "layer head row column"]:
        """All patterns as bytes, with at most so many rows and columns.

        See :func:`analyses.results.as_bytes` and :func:`analyses.results.reduced`.
        """
        return torch.stack([as_bytes(reduced(patterns, most)) for patterns in self.patterns])

    def of(self, layer: int, head: int) -> AttentionPattern:
        """The pattern of one head."""
        pattern = self.patterns[layer][head]
        return AttentionPattern(
            pattern, self.query_tokens, self.key_tokens, layer, head, self.attention
        )

    def to_frame(self) -> pd.DataFrame:
        """One row per cell: layer, head, query, key, query_token, key_token, pattern."""
        frames = [self.of(layer, head).to_frame() for layer, head in self._heads]
        return pd.concat(frames, ignore_index=True)

    def drawing(self) -> Drawing:
        """The key that each head attends to most at each query, by its weight: heads down."""
        top = [self.patterns[layer][head].max(-1) for layer, head in self._heads]
        return Heatmap(
            torch.stack([largest.values for largest in top]),
            title=f"Most attended key of each query ({self._weights}){self._edit}",
            rows=[self.of(layer, head).name for layer, head in self._heads],
            columns=self.query_tokens,
            axes=("head", "query"),
            unit="weight",
            top=1.0,
            text=[[self.key_tokens[key] for key in largest.indices.tolist()] for largest in top],
        )

    def summary(self) -> str:
        """The key that each head attends to most, on average over queries."""
        return "\n".join([self.headline(), *(self._line(*place) for place in self._heads)])

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        n_heads, which = len(self._heads), f"{self.attention} " if self.attention else ""
        return (
            f"{n_heads} {which}heads, {len(self.query_tokens)} queries: most attended key, mean "
            f"{self._weights}{self._edit}"
        )

    def _line(self, layer: int, head: int) -> str:
        weight, key = self.patterns[layer][head].mean(0).max(-1)
        label = self.key_tokens[int(key)]
        return f"{self.of(layer, head).name:<12} → {int(key):>4} {label:<12} {fixed(weight, 2)}"

    @property
    def _heads(self) -> list[tuple[int, int]]:
        layers = enumerate(self.patterns)
        return [(layer, head) for layer, patterns in layers for head in range(len(patterns))]

    @property
    def _weights(self) -> str:
        return "value-weighted attention" if self.weighted else "attention"

    @property
    def _edit(self) -> str:
        names = ", ".join(self.ablated_names)
        return f", {names} ablated ({self.method})" if names else ""


def attention_pattern(
    model: Transformer,
    prompt: Any,  # noqa: ANN401 - one row of what model.batch reads
    layer: int,
    head: int,
    *,
    target: Any = None,  # noqa: ANN401 - likewise
    attention: AttentionName | None = None,
) -> AttentionPattern:
    """Compute the pattern of one head on one prompt.

    Args:
        model: the model.
        prompt: a text, token ids ``[pos]`` or ``[1 pos]``, an image, or a batch of one row that
            ``model.batch`` made (with token types, say); for an encoder–decoder, the source.
        layer: the head's layer; negative values count from the end.
        head: the head's index; negative values count from the end.
        target: the decoder's input in an encoder–decoder: a text, or token ids (or their batch)
            that begin with its start token, as ``model.generate(prompt)`` returns.
        attention: for an encoder–decoder, ``"encoder"`` or ``"decoder"`` for the attention of that
            stack to itself, or ``"cross"``: queries from the decoder, keys from the encoder.

    Raises:
        InvalidInput: the model has no such layer or head, several prompts were given, or ``target``
            and ``attention`` do not match the model's stacks.

    Examples:
        >>> model = interp.load("induction-by-hand")
        >>> print(analyses.attention_pattern(model, "abcab", layer=1, head=0).summary())
        L1H0: most attended key of each query
           0 <|bos|>      →    0 <|bos|>      1.00
           1 a            →    0 <|bos|>      1.00
           2 b            →    0 <|bos|>      1.00
           3 c            →    0 <|bos|>      1.00
           4 a            →    2 b            1.00
           5 b            →    3 c            1.00
    """
    check_finite_weights(model)
    kind, batches = _checked(model, prompt, target, attention)
    n_layers = len(kind.layers)
    layer = within(-n_layers, n_layers - 1, layer, "layer") % n_layers
    n_heads = kind.layers[layer].n_heads
    head = within(-n_heads, n_heads - 1, head, "head") % n_heads
    (patterns,) = _patterns(model, kind, batches, [layer], weighted=False)
    queries, keys = _tokens(model, kind, batches)
    return AttentionPattern(patterns[head], queries, keys, layer, head, attention)


def attention_patterns(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    prompt: Any,  # noqa: ANN401 - one row of what model.batch reads
    *,
    target: Any = None,  # noqa: ANN401 - likewise
    attention: AttentionName | None = None,
    weighted: bool = False,
    ablate: Sequence[str] = (),
    method: str = "mean",
    reference: Any = None,  # noqa: ANN401 - what model.batch reads
    seed: int = 0,
) -> AttentionPatterns:
    """Compute the patterns of all heads on one prompt, in one forward.

    Args:
        model: the model.
        prompt: as in :func:`attention_pattern`.
        target: likewise.
        attention: likewise.
        weighted: weight each key by what is moved from it: A_ij ‖v_j W_O‖ / Σ_j A_ij ‖v_j W_O‖.
        ablate: names of heads, or other components, that are ablated together in this run; as in
            :mod:`analyses.methods.components.components`.
        method: ``zero``, ``mean`` or ``resample``; as in :func:`analyses.ablate`.
        reference: prompts from which means or donors come; by default the prompt itself.
        seed: seed for the resampling.

    Raises:
        InvalidInput: several prompts were given, attention is not finite, ``target`` and
            ``attention`` do not match the model's stacks; an unknown method, or one that needs
            several prompts; or a component named twice.
        UnknownPlace: the model has no such component.

    Examples:
        >>> model = interp.load("induction-by-hand")
        >>> print(analyses.attention_patterns(model, "abcab").summary())
        8 heads, 6 queries: most attended key, mean attention
        L0H0         →    0 <|bos|>      0.33
        L0H1         →    0 <|bos|>      0.41
        L0H2         →    0 <|bos|>      0.41
        L0H3         →    0 <|bos|>      0.41
        L1H0         →    0 <|bos|>      0.67
        L1H1         →    0 <|bos|>      0.41
        L1H2         →    0 <|bos|>      0.41
        L1H3         →    0 <|bos|>      0.41
    """
    check_finite_weights(model)
    if not isinstance(weighted, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"weighted={shorten(weighted)} should be True or False.")
    kind, batches = _checked(model, prompt, target, attention)
    components = components_named(model, ablate)
    others = None if reference is None else read_batches(model, reference)
    replacements = Replacements(model, batches, method, others, seed=as_seed(seed))
    edits = [edit for _, edit in replacements.edits_of(components)]
    layers = range(len(kind.layers))
    patterns = _patterns(model, kind, batches, layers, edits, weighted=weighted)
    queries, keys = _tokens(model, kind, batches)
    return AttentionPatterns(
        patterns,
        queries,
        keys,
        _ids(model, kind.query, batches[kind.query]),
        _ids(model, kind.key, batches[kind.key]),
        is_causal=not (kind.is_cross or kind.is_bidirectional),
        weighted=weighted,
        attention=attention,
        provenance=Provenance.of(model, *batches, edits=edits, seed=seed),
        ablated_names=tuple(component.name for component in components),
        method=method if components else "",
    )


def _checked(
    model: Transformer,
    prompt: Any,  # noqa: ANN401 - as of attention_pattern
    target: Any,  # noqa: ANN401 - likewise
    attention: AttentionName | None,
) -> tuple[Attentions, list[Batch]]:
    """Resolve the attention, and make a batch of one row for each stack.

    Raises:
        InvalidInput: see :func:`attention_pattern`.
    """
    pair = len(model.stacks) > 1
    if pair and (target is None or attention is None):
        raise InvalidInput("An encoder–decoder needs target= and attention=.")
    if not pair and target is not None:
        raise InvalidInput("target= is for encoder–decoders; this model has one stack.")
    kind = attentions_of(model, attention)
    batches = model.batches((prompt, target) if pair else prompt)
    for batch in batches:
        if len(batch.ids) != 1:
            raise InvalidInput(f"Patterns are computed for one prompt; got {len(batch.ids)}.")
    return kind, batches


@torch.no_grad()
def _patterns(
    model: Transformer,
    kind: Attentions,
    batches: Sequence[Batch],
    layers: Sequence[int],
    edits: Sequence[Edit] = (),
    *,
    weighted: bool,
) -> tuple[Float[Tensor, "head query key"], ...]:
    """The patterns of the heads of each layer, without padding."""
    places = [kind.places(layer) for layer in layers]
    wanted = [
        place for pattern, v in places for place in ((pattern, v) if weighted else (pattern,))
    ]
    cache = run(model, *batches, record=wanted, edits=edits).cache
    queries, keys = batches[kind.query].is_real[0], batches[kind.key].is_real[0]
    patterns: list[Tensor] = []
    for layer, (place, v) in zip(layers, places, strict=True):
        pattern = pattern_at(cache, place)
        if weighted:
            attn = kind.layers[layer]
            norms = output_norms(attn, attn.values(cache[v]))
            pattern = value_weights(pattern, norms)
        patterns.append(pattern[0][:, queries][:, :, keys].cpu())
    return tuple(patterns)


def _tokens(
    model: Transformer, kind: Attentions, batches: Sequence[Batch]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The labels of queries and keys."""
    queries, keys = (_labels(model, stack, batches[stack]) for stack in (kind.query, kind.key))
    return queries, keys


def _labels(model: Transformer, stack: int, batch: Batch) -> tuple[str, ...]:
    """A label for each token of the only row, without padding."""
    inputs = model.stacks[stack].input
    if isinstance(inputs, ImageInput):
        patches = inputs.patches
        across = patches.width // patches.size
        cells = (divmod(n, across) for n in range(patches.n_patches))
        special = (f"special {n}" for n in range(patches.n_special))
        return (*special, *(f"{row},{column}" for row, column in cells))
    return tuple(model.to_labels(batch.ids[0, batch.is_real[0]]))


def _ids(model: Transformer, stack: int, batch: Batch) -> tuple[int, ...]:
    """The token ids of the only row, without padding; empty for images."""
    if isinstance(model.stacks[stack].input, ImageInput):
        return ()
    return tuple(batch.ids[batch.is_real].tolist())
