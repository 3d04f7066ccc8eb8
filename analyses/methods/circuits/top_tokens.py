"""Tables of tokens that a circuit pairs: for each token, those with the largest entries."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.circuits.top_entries import top_columns
from analyses.results import Heatmap, grid, number, signed
from interp import Transformer
from interp.errors import InvalidTokens, shorten
from interp.linalg import LowRank
from interp.model import Stack, whole_numbers
from interp.zoo import trained_tokens

Ids = Int[Tensor, " token"]
TokenList = Sequence[int | str] | Ids | int | str
"""Ids, texts of one token each, or a single one."""
ENDS = ("+", "-")
"""The two ends of a direction."""


@dataclass(frozen=True)
class TopTokens:
    """For each of some tokens, those that a circuit pairs with it most.

    Attributes:
        tokens: ids of the tokens.
        labels: labels of these tokens.
        top: ids of the tokens paired with each, largest entry first.
        top_labels: labels of these tokens.
        values: the entries of the circuit.
        controls: mean of each entry over all tokens that might be attended to, or attend.
    """

    tokens: Ids
    labels: tuple[str, ...]
    top: Int[Tensor, "token k"]
    top_labels: tuple[tuple[str, ...], ...]
    values: Float[Tensor, "token k"]
    controls: Float[Tensor, "token k"]

    def frame(self, token: str, top: str, value: str) -> pd.DataFrame:
        """One row per token and rank; the arguments name the columns."""
        n, k = self.top.shape
        return pd.DataFrame(
            {
                token: [label for label in self.labels for _ in range(k)],
                top: [label for row in self.top_labels for label in row],
                "rank": list(range(1, k + 1)) * n,
                value: self.values.flatten().numpy(),
                "control": self.controls.flatten().numpy(),
            }
        )

    def drawing(self, *, title: str, token: str, top: str, unit: str) -> Heatmap:
        """Heatmap of the entries: tokens down, ranks across, with the labels in the cells."""
        return Heatmap(
            self.values,
            title=title,
            rows=self.labels,
            columns=[str(rank + 1) for rank in range(self.top.shape[1])],
            axes=(token, f"{top}, by rank"),
            unit=unit,
            diverging=True,
            text=self.top_labels,
        )

    def rows(self, most: int | None = None, shown: int = 5) -> list[tuple[str, str]]:
        """Up to ``most`` tokens, each with the first ``shown`` that are paired with it."""
        rows: list[tuple[str, str]] = []
        for label, top, values in zip(
            self.labels[:most], self.top_labels, self.values.tolist(), strict=False
        ):
            pairs = list(zip(top, values, strict=True))[:shown]
            rows.append((label, "  ".join(f"{token} {signed(value, 2)}" for token, value in pairs)))
        return rows

    def lines(self, most: int) -> list[str]:
        """The same as lines of a summary."""
        rows = self.rows(most)
        width = max((len(label) for label, _ in rows), default=0)
        return [f"{label:<{width}} {beside}" for label, beside in rows]


@dataclass(frozen=True, eq=False)
class Side:
    """The tokens on one side of a circuit, or the classes that logits are of.

    Attributes:
        model: the model.
        ids: the ids that are compared.
        size: upper bound of valid ids, exclusive.
        are_classes: whether ids are those of classes.
    """

    model: Transformer
    ids: Ids
    size: int
    are_classes: bool = False

    @classmethod
    def of_stack(cls, model: Transformer, stack: Stack) -> "Side":
        """The tokens that a stack reads: the trained ones of the model's card, or all."""
        size = model.config.vocabulary_of(stack.name)
        ids = trained_tokens(model) if len(model.stacks) == 1 else tuple(range(size))
        return cls(model, torch.tensor(ids, device=model.device), size)

    @classmethod
    def of_logits(cls, model: Transformer) -> "Side":
        """The tokens, or classes, that logits are of."""
        size = model.config.n_logits
        ids = torch.arange(size, device=model.device)
        return cls(model, ids, size, are_classes=model.config.n_classes is not None)

    def some(self, ids: Ids) -> "Side":
        """This side with other ids."""
        return replace(self, ids=ids)

    def labels(self, ids: Ids) -> tuple[str, ...]:
        """For each id, a label in which spaces are visible, or its number."""
        tokenizer = None if self.are_classes else self.model.tokenizer
        numbers = ids.tolist()
        return tuple(
            str(n) if tokenizer is None or n not in tokenizer else tokenizer.display([n])[0]
            for n in numbers
        )


def given_tokens(tokens: TokenList, *sides: Side) -> Ids:
    """The distinct ids of the given tokens.

    Args:
        tokens: the tokens.
        sides: sides of the circuit; the ids must be valid on each.

    Raises:
        InvalidTokens: a text is several tokens, which the message lists; no token at all, or an id
            outside the vocabulary.
    """
    model = sides[0].model
    several = [tokens] if isinstance(tokens, str) else tokens
    if isinstance(several, Sequence):
        several = [
            model.to_single_token(token) if isinstance(token, str) else token for token in several
        ]
    ids = whole_numbers(several).reshape(-1)
    if not len(ids):
        raise InvalidTokens(f"tokens={shorten(tokens)} holds no token; leave it out to search all.")
    size = min(side.size for side in sides)
    if int(ids.min()) < 0 or int(ids.max()) >= size:
        raise InvalidTokens(f"tokens={shorten(tokens)}: ids should be within 0..{size - 1}.")
    return torch.tensor(list(dict.fromkeys(ids.tolist())), device=model.device)


def top_tokens(
    matrix: LowRank,
    rows: Side,
    columns: Side,
    controls: Float[Tensor, "#row #column"],
    k: int,
) -> TopTokens:
    """The ``k`` largest entries of each row of a circuit.

    Args:
        matrix: the circuit, ``[row column]``.
        rows: the tokens of the rows.
        columns: the tokens of the columns.
        controls: the control of each entry.
        k: number of entries per row.
    """
    top, values = top_columns(matrix, k)
    ids = columns.ids[top]
    return TopTokens(
        rows.ids.cpu(),
        rows.labels(rows.ids),
        ids.cpu(),
        tuple(columns.labels(row) for row in ids),
        values.cpu(),
        controls.expand(matrix.shape).gather(1, top).cpu(),
    )


# ---- singular vectors --------------------------------------------------------------------------


@dataclass(frozen=True)
class SingularTokens:
    """The tokens with the largest readings of each singular vector, on both sides of a circuit.

    The sign of a pair of vectors is free; here the largest reading of the first side is positive.

    Attributes:
        values: singular values, the largest first.
        first: the largest readings of the first side (end +), and the smallest (end -).
        first_labels: labels of their tokens.
        second: readings of the second side, likewise.
        second_labels: labels of their tokens.
    """

    values: Float[Tensor, " component"]
    first: Float[Tensor, "component end k"]
    first_labels: tuple[tuple[tuple[str, ...], ...], ...]
    second: Float[Tensor, "component end k"]
    second_labels: tuple[tuple[tuple[str, ...], ...], ...]

    def frame(self, first: str, second: str) -> pd.DataFrame:
        """One row per component, end and rank; the arguments name the columns of tokens."""
        components, ends, k = self.first.shape
        cells = grid(component=range(components), end=ENDS[:ends], rank=range(1, k + 1))
        values = self.values.repeat_interleave(ends * k)
        return pd.DataFrame(
            {
                **cells,
                "singular_value": values.numpy(),
                first: [label for pair in self.first_labels for end in pair for label in end],
                f"{first}_reading": self.first.flatten().numpy(),
                second: [label for pair in self.second_labels for end in pair for label in end],
                f"{second}_reading": self.second.flatten().numpy(),
            }
        )

    def lines(self, most: int = 2, shown: int = 4) -> list[str]:
        """A line for each end of the largest components."""
        return [
            f"σ{n} {number(self.values[n], 3)} {ENDS[end]}  "
            f"{' '.join(self.first_labels[n][end][:shown])} → "
            f"{' '.join(self.second_labels[n][end][:shown])}"
            for n in range(min(most, len(self.values)))
            for end in range(len(ENDS))
        ]


def singular_tokens(
    values: Float[Tensor, " component"],
    first: tuple[Side, Float[Tensor, "first component"]],
    second: tuple[Side, Float[Tensor, "second component"]],
    k: int,
) -> SingularTokens:
    """The tokens at both ends of each pair of singular vectors.

    Args:
        values: singular values.
        first: one side, and its readings of each vector.
        second: the other.
        k: number of tokens at each end, if both sides have as many.
    """
    most = min(k, *(len(readings) for _, readings in (first, second)))
    largest = first[1].gather(0, first[1].abs().argmax(0, keepdim=True))
    columns: list[Any] = []
    for side, readings in (first, second):
        signed = (readings * largest.sign()).T
        top = [(sign * signed).topk(most) for sign in (1, -1)]
        ids = torch.stack([side.ids[entries.indices] for entries in top], 1)
        numbers = torch.stack([top[0].values, -top[1].values], 1)
        columns += [numbers.cpu(), tuple(tuple(map(side.labels, end)) for end in ids)]
    return SingularTokens(values.cpu(), *columns)
