"""The kinds of metric: each gives one number per prompt, and declares which logits it reads."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import InvalidInput
from interp.io import TensorData
from interp.metrics.logits import (
    Position,
    Targets,
    as_tuple,
    columns_read,
    gather_targets,
    masked_losses,
    next_token_losses,
    row_targets,
)
from interp.model import Batch

_Metric = TypeVar("_Metric", bound="Metric")


@dataclass(frozen=True)
class Metric(ABC):
    """A function of the logits with one number per prompt.

    Attributes:
        kind: its name in JSON.
        unit: unit of the number.
        name: name that results and figures show.
        targets: the fields that hold target tokens.
        pos: the position that is read, for a metric at a single position: an index among each row's
            real tokens, or ``"mask"`` for the position of its mask token. ``None`` is the default
            position (see :func:`~interp.metrics.columns_read`).
    """

    kind: ClassVar[str]
    unit: ClassVar[str] = "logits"
    name: ClassVar[str]
    targets: ClassVar[tuple[str, ...]] = ()

    pos: Position = None

    @property
    def columns(self) -> tuple[int, ...] | None:
        """The vocabulary columns that are read; ``None`` for all."""
        return None

    @property
    def is_aligned_with_batch(self) -> bool:
        """Whether it has a tensor aligned with the columns, which repadding would misalign."""
        return any(isinstance(getattr(self, field.name), TensorData) for field in fields(self))

    @property
    def reads_other_rows(self) -> bool:
        """Whether the value for a prompt may depend on the other rows of the batch."""
        return False

    def for_rows(self, rows: Sequence[int], n: int) -> "Metric":
        """The metric for some of ``n`` prompts, with the targets and references of these rows.

        Raises:
            InvalidInput: the metric has targets for another number of prompts.
        """
        changed: dict[str, object] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, tuple):
                if len(value) != n:
                    raise InvalidInput(f"{len(value)} {field.name}s were given for {n} prompts.")
                changed[field.name] = tuple(value[row] for row in rows)
            elif isinstance(value, TensorData):
                changed[field.name] = value.rows(rows)
        return replace(self, **changed)

    def with_ids(self: _Metric, to_single_token: Callable[[str], int]) -> _Metric:
        """The metric with ids in place of targets that are texts.

        Args:
            to_single_token: maps a text to its single token id, e.g. ``model.to_single_token``.

        Raises:
            InvalidTokens: a text is not one token; the message shows how it is split.
        """

        def id_of(token: object) -> object:
            return to_single_token(token) if isinstance(token, str) else token

        targets = {name: getattr(self, name) for name in self.targets}
        ids = {
            name: tuple(map(id_of, target)) if isinstance(target, tuple) else id_of(target)
            for name, target in targets.items()
        }
        return self if ids == targets else replace(self, **ids)

    def to_dict(
        self, of_tensor: Callable[[TensorData], object] = TensorData.to_json
    ) -> dict[str, Any]:
        """Plain data, from which :func:`interp.metrics.from_dict` builds an equal metric.

        Args:
            of_tensor: function that converts a reference or tokens to plain data.
        """
        out: dict[str, Any] = {"kind": self.kind}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, TensorData):
                value = of_tensor(value)
            out[field.name] = list(value) if isinstance(value, tuple) else value
        return out

    @abstractmethod
    def __call__(
        self, logits: Float[Tensor, "batch pos vocab"], batch: Batch
    ) -> Float[Tensor, " batch"]:
        """One number per row."""


@dataclass(frozen=True)
class Loss(Metric):
    """Next-token cross-entropy, mean over a prompt's predictions, in nats."""

    kind = "loss"
    name = "loss"
    unit = "nats"

    def __call__(
        self, logits: Float[Tensor, "batch pos vocab"], batch: Batch
    ) -> Float[Tensor, " batch"]:
        """−log p(next token), mean over each row's real tokens except the first."""
        losses, counted = next_token_losses(logits, batch)
        if bool((counted.sum(-1) == 0).any()):
            row = int((counted.sum(-1) == 0).nonzero()[0])
            raise InvalidInput(f"Prompt {row} is a single token: it has no next token to predict.")
        return losses.sum(-1) / counted.sum(-1)


@dataclass(frozen=True)
class MaskedLoss(Metric):
    """Cross-entropy of the true tokens at mask tokens, mean over each prompt, in nats.

    Attributes:
        tokens: the true tokens ``[batch pos]``; only read at mask tokens.
    """

    kind = "masked_loss"
    name = "masked loss"
    unit = "nats"

    tokens: TensorData | None = None

    def __call__(
        self, logits: Float[Tensor, "batch pos vocab"], batch: Batch
    ) -> Float[Tensor, " batch"]:
        """−log p(true token), mean over each row's mask tokens."""
        if self.tokens is None:
            raise InvalidInput("masked_loss needs the true tokens: masked_loss(tokens).")
        losses, counted = masked_losses(logits, self.tokens.tensor, batch)
        return losses.sum(-1) / counted.sum(-1)


@dataclass(frozen=True)
class AtPosition(Metric):
    """A metric of the logits at one position."""

    def __call__(
        self, logits: Float[Tensor, "batch pos vocab"], batch: Batch
    ) -> Float[Tensor, " batch"]:
        """:meth:`compute` on the logits at the position."""
        rows = torch.arange(len(logits), device=logits.device)
        return self.for_batch(batch).compute(logits[rows, self.read_columns(batch)])

    def read_columns(self, batch: Batch) -> Int[Tensor, " batch"]:
        """The column that it reads in each row."""
        return columns_read(batch, self.pos)

    def for_batch(self, batch: Batch) -> "AtPosition":  # noqa: ARG002 - most have no reference
        """The metric for one batch, with its reference reduced to the logits at the position."""
        return self

    @abstractmethod
    def compute(self, logits: Float[Tensor, "batch vocab"]) -> Float[Tensor, " batch"]:
        """One number per row, from the logits at its position."""

    def restricted_to_columns(self) -> "AtPosition":
        """The metric for logits of the vocabulary columns in ``columns`` only, in that order."""
        return self


@dataclass(frozen=True)
class Logit(AtPosition):
    """The logit of a target."""

    kind = "logit"
    name = "logit"
    targets = ("target",)
    target: Targets = 0

    @property
    def columns(self) -> tuple[int, ...]:
        """The targets."""
        return as_tuple(self.target)

    def compute(self, logits: Float[Tensor, "batch vocab"]) -> Float[Tensor, " batch"]:
        """``logits[target]``."""
        return gather_targets(logits, self.target)

    def restricted_to_columns(self) -> "Logit":
        """The metric with the targets renumbered from 0."""
        return replace(self, target=_renumbered(self.target, 0))


@dataclass(frozen=True)
class LogitDiff(AtPosition):
    """The logit of a target minus that of a distractor."""

    kind = "logit_diff"
    name = "logit difference"
    targets = ("target", "distractor")
    target: Targets = 0
    distractor: Targets = 1

    @property
    def columns(self) -> tuple[int, ...]:
        """Targets and distractors."""
        return (*as_tuple(self.target), *as_tuple(self.distractor))

    def compute(self, logits: Float[Tensor, "batch vocab"]) -> Float[Tensor, " batch"]:
        """``logits[target] − logits[distractor]``."""
        return gather_targets(logits, self.target) - gather_targets(logits, self.distractor)

    def restricted_to_columns(self) -> "LogitDiff":
        """The metric with the targets renumbered from 0, and the distractors after them."""
        first = len(as_tuple(self.target))
        target, distractor = _renumbered(self.target, 0), _renumbered(self.distractor, first)
        return replace(self, target=target, distractor=distractor)


@dataclass(frozen=True)
class Probability(AtPosition):
    """The probability of a target."""

    kind = "prob"
    name = "probability"
    unit = "probability"
    targets = ("target",)

    target: Targets = 0

    def compute(self, logits: Float[Tensor, "batch vocab"]) -> Float[Tensor, " batch"]:
        """``softmax(logits)[target]``."""
        return gather_targets(logits.softmax(-1), self.target)


@dataclass(frozen=True)
class Accuracy(AtPosition):
    """Whether the target has the highest logit (1 or 0)."""

    kind = "accuracy"
    name = "accuracy"
    unit = "share"
    targets = ("target",)

    target: Targets = 0

    def compute(self, logits: Float[Tensor, "batch vocab"]) -> Float[Tensor, " batch"]:
        """1 if the target is the argmax, else 0."""
        return (logits.argmax(-1) == row_targets(logits, self.target)).to(logits.dtype)


def _renumbered(targets: Targets, first: int) -> Targets:
    """The targets as consecutive numbers from ``first`` on."""
    return tuple(range(first, first + len(targets))) if isinstance(targets, tuple) else first
