"""Where does a head attend? A_h on one prompt: the weights of each query over its keys.

    A = softmax_rows(q kᵀ / scale + mask)          rows: queries; columns: keys

That a head attends to a token does not show that what it moves from there is used. For an
encoder–decoder also cross-attention, from target tokens to source tokens (Bahdanau, Cho and Bengio
2015, figure 3).
"""

from dataclasses import dataclass
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from jaxtyping import Float
from torch import Tensor

from analyses.figures import escaped, heatmap
from analyses.result import Result
from interp import Transformer, run
from interp.errors import InvalidInput
from interp.integers import within
from interp.model.attentions import AttentionName, attentions_of
from interp.model.batch import Batch, ImageInput

LONGEST_HOVER = 256
"""Longer prompts get no hover text in each cell, which would take megabytes."""


@dataclass(frozen=True, eq=False, repr=False)
class AttentionPattern(Result):
    """One head's attention on one prompt.

    Attributes:
        pattern: A, one row a query; rows sum to one. Padding has neither rows nor columns.
        queries: label of each query token; of an image's patch, its row and column.
        keys: label of each key token.
        layer: of the head.
        head: its index in the layer.
        attention: of an encoder–decoder, which attention; else ``None``.
    """

    pattern: Float[Tensor, "query key"]
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    layer: int
    head: int
    attention: AttentionName | None = None

    @property
    def name(self) -> str:
        """The head, e.g. ``L1H4``, or ``cross.L1H4`` in an encoder–decoder."""
        which = f"{self.attention}." if self.attention else ""
        return f"{which}L{self.layer}H{self.head}"

    def to_frame(self) -> pd.DataFrame:
        """One row a cell: layer, head, query, key, query_token, key_token, attention."""
        cells = [(q, k) for q in range(len(self.queries)) for k in range(len(self.keys))]
        return pd.DataFrame(
            {
                "layer": self.layer,
                "head": self.head,
                "query": [q for q, _ in cells],
                "key": [k for _, k in cells],
                "query_token": [self.queries[q] for q, _ in cells],
                "key_token": [self.keys[k] for _, k in cells],
                "attention": self.pattern.flatten().tolist(),
            }
        )

    def figure(self) -> go.Figure:
        """Heatmap of the weights, from 0 to 1: queries down, keys across."""
        return heatmap(
            self.pattern,
            title=f"Attention of {self.name}",
            rows=self.queries,
            columns=self.keys,
            axes=("query", "key"),
            unit="weight",
            top=1.0,
            hover=self._hover() if self.pattern.numel() <= LONGEST_HOVER**2 else None,
        )

    def _hover(self) -> list[list[str]]:
        queries, keys = ([escaped(label) for label in side] for side in (self.queries, self.keys))
        return [
            [
                f"query {q} {queries[q]}<br>key {k} {keys[k]}<br>attention {weight:.3f}"
                for k, weight in enumerate(row)
            ]
            for q, row in enumerate(self.pattern.tolist())
        ]

    def summary(self) -> str:
        """The most attended key of each query."""
        top = self.pattern.max(-1)
        lines = [
            f"{q:>4} {self.queries[q]:<12} → {int(k):>4} {self.keys[int(k)]:<12} {w:.2f}"
            for q, (k, w) in enumerate(zip(top.indices, top.values, strict=True))
        ]
        return "\n".join([f"{self.name}: most attended key of each query", *lines])


def attention_pattern(
    model: Transformer,
    prompt: Any,  # noqa: ANN401 - one row of what model.batch reads
    layer: int,
    head: int,
    *,
    target: Any = None,  # noqa: ANN401 - likewise
    attention: AttentionName | None = None,
) -> AttentionPattern:
    """The pattern of one head on one prompt.

    Args:
        model: the model.
        prompt: a text, token ids ``[pos]`` or ``[1 pos]``, an image, or a batch of one row that
            ``model.batch`` made (with token types, say): of an encoder–decoder, the source.
        layer: of the head; negative counts from the end.
        head: its index; negative counts from the end.
        target: the decoder's input in an encoder–decoder: a text, or token ids (or their batch)
            that begin with its start token, as ``model.generate(prompt)`` returns.
        attention: of an encoder–decoder, ``"encoder"`` or ``"decoder"`` for the attention of that
            stack to itself, or ``"cross"``: queries from the decoder, keys from the encoder.

    Raises:
        InvalidInput: the model has no such layer or head, several prompts were given, or ``target``
            and ``attention`` do not match the model's stacks.
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
            raise InvalidInput(f"attention_pattern takes one prompt; got {len(batch.ids)}.")
    n_layers = len(kind.layers)
    layer = within(-n_layers, n_layers - 1, layer, "layer") % n_layers
    n_heads = kind.layers[layer].n_heads
    head = within(-n_heads, n_heads - 1, head, "head") % n_heads
    place = model.names.resolve(kind.places(layer)[0])
    pattern = run(model, *batches, record=place).cache[place][0]
    queries, keys = batches[kind.query].is_real[0], batches[kind.key].is_real[0]
    return AttentionPattern(
        pattern[head][queries][:, keys].cpu(),
        _labels(model, kind.query, batches[kind.query]),
        _labels(model, kind.key, batches[kind.key]),
        layer,
        head,
        attention,
    )


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
