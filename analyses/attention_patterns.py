"""Where does a head look? A_h of one prompt: each query's weights over its keys."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go
from jaxtyping import Float
from torch import Tensor

from analyses.figures import escaped, heatmap
from interp import Transformer, run
from interp.errors import InvalidInput

LONGEST_HOVER = 256
"""Beyond so many tokens, a text in each cell would make the figure megabytes."""


@dataclass(frozen=True, eq=False)
class AttentionPattern:
    """One head's attention on one prompt.

    Attributes:
        pattern: A, each row a query's weights over keys; rows sum to one.
        labels: how each token is shown.
        layer: of the head.
        head: which head.
    """

    pattern: Float[Tensor, "query key"]
    labels: tuple[str, ...]
    layer: int
    head: int

    @property
    def name(self) -> str:
        """The head, as ``L1H4``."""
        return f"L{self.layer}H{self.head}"

    def to_frame(self) -> pd.DataFrame:
        """One row a cell: layer, head, query, key, their tokens, and the weight."""
        n = len(self.labels)
        return pd.DataFrame(
            {
                "layer": self.layer,
                "head": self.head,
                "query": [q for q in range(n) for _ in range(n)],
                "key": list(range(n)) * n,
                "query_token": [self.labels[q] for q in range(n) for _ in range(n)],
                "key_token": list(self.labels) * n,
                "attention": self.pattern.flatten().tolist(),
            }
        )

    def figure(self) -> go.Figure:
        """Queries down, keys across; the colour is the weight, from 0 to 1."""
        return heatmap(
            self.pattern,
            title=f"Attention of {self.name}",
            rows=self.labels,
            columns=self.labels,
            axes=("query", "key"),
            unit="weight",
            top=1.0,
            hover=self._hover() if len(self.labels) <= LONGEST_HOVER else None,
        )

    def _hover(self) -> list[list[str]]:
        labels = [escaped(label) for label in self.labels]
        return [
            [
                f"query {q} {labels[q]}<br>key {k} {labels[k]}<br>attention {weight:.3f}"
                for k, weight in enumerate(row)
            ]
            for q, row in enumerate(self.pattern.tolist())
        ]

    def summary(self) -> str:
        """What each query looks at most."""
        top = self.pattern.max(-1)
        lines = [
            f"{q:>4} {self.labels[q]:<12} → {int(k):>4} {self.labels[int(k)]:<12} {w:.2f}"
            for q, (k, w) in enumerate(zip(top.indices, top.values, strict=True))
        ]
        return "\n".join([f"{self.name}: most attended key of each query", *lines])


def attention_pattern(
    model: Transformer, prompt: str | Sequence[str] | Sequence[int] | Tensor, layer: int, head: int
) -> AttentionPattern:
    """The pattern of one head on one prompt.

    Args:
        model: a model with a single stack.
        prompt: a text, or token ids ``[pos]`` or ``[1 pos]``.
        layer: of the head; negative counts from the end.
        head: which head; negative counts from the end.

    Raises:
        UnknownPlace: there is no such layer.
        InvalidInput: there is no such head, or there are several prompts.
    """
    batch = model.batch(prompt)
    if batch.ids.shape[0] != 1:
        raise InvalidInput(f"A pattern is of one prompt; {batch.ids.shape[0]} were given.")
    place = model.atlas.find(("pattern", layer))
    pattern = run(model, batch.ids, record=place).cache[place][0]
    if not -len(pattern) <= head < len(pattern):
        raise InvalidInput(f"Head {head}: layer {place.layer} has heads 0..{len(pattern) - 1}.")
    labels = tuple(model.to_labels(batch.ids[0]))
    return AttentionPattern(pattern[head].cpu(), labels, place.layer or 0, head % len(pattern))
