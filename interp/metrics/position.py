"""Metrics of the logits at one position: a logit, a difference, a probability, an accuracy.

A position counts a row's real tokens, or is that of its mask token; a target is a token, or one per
prompt.
"""

import reprlib
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import InvalidInput, shorten
from interp.integers import whole_number
from interp.metrics.metric import NO_MASK_TOKEN, Metric, Position
from interp.model import Batch, column_of

Targets = int | str | tuple[int | str, ...]
"""A token, or one per prompt: its id, or a text that the model's tokenizer reads as one token."""
TargetLike = int | str | Sequence[int | str] | Tensor


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


def logit(target: TargetLike, pos: Position = None) -> Logit:
    """The logit of ``target`` (a token, or one per prompt) at a position."""
    return Logit(as_position(pos), as_targets(target))


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


def logit_diff(target: TargetLike, distractor: TargetLike, pos: Position = None) -> LogitDiff:
    """The logit of ``target`` minus that of ``distractor`` at a position."""
    return LogitDiff(as_position(pos), as_targets(target), as_targets(distractor))


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


def prob(target: TargetLike, pos: Position = None) -> Probability:
    """The probability of ``target`` at a position."""
    return Probability(as_position(pos), as_targets(target))


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


def accuracy(target: TargetLike, pos: Position = None) -> Accuracy:
    """1 where ``target`` has the highest logit at a position, else 0."""
    return Accuracy(as_position(pos), as_targets(target))


def _renumbered(targets: Targets, first: int) -> Targets:
    """The targets as consecutive numbers from ``first`` on."""
    return tuple(range(first, first + len(targets))) if isinstance(targets, tuple) else first


# ---- positions and targets ----------------------------------------------------------------------


def as_position(pos: object) -> Position:
    """The checked value of a ``pos=`` argument.

    Raises:
        InvalidInput: it is not an integer, ``"mask"`` or ``None``.
    """
    if pos is None:
        return None
    if isinstance(pos, str) and pos == "mask":
        return "mask"
    try:
        return whole_number(pos)
    except TypeError as error:
        raise InvalidInput(
            f'pos={reprlib.repr(pos)} should be a whole number, "mask" or None.'
        ) from error


def as_targets(target: Any) -> Targets:  # noqa: ANN401 - checked here
    """The checked value of a ``target=`` or ``distractor=`` argument.

    Raises:
        InvalidInput: a target is neither an integer nor a text.
    """

    def token(value: Any) -> int | str:  # noqa: ANN401 - likewise
        return value if isinstance(value, str) else whole_number(value)

    is_several = isinstance(target, Iterable) and not isinstance(target, str)
    try:
        if not is_several or (isinstance(target, Tensor) and target.ndim == 0):
            return token(target)
        return tuple(map(token, target))
    except TypeError as error:
        raise InvalidInput(
            "Targets are token ids or texts of one token, one or one per prompt; got "
            f"{reprlib.repr(target)}."
        ) from error


def at_position(
    x: Float[Tensor, "batch pos ..."], batch: Batch, pos: Position
) -> Float[Tensor, "batch ..."]:
    """``x`` at one position of each row; see :func:`columns_read`."""
    return x[torch.arange(x.shape[0], device=x.device), columns_read(batch, pos)]


def columns_read(batch: Batch, pos: Position) -> Int[Tensor, " batch"]:
    """The column that a metric at ``pos`` reads in each row.

    Args:
        batch: checked tokens.
        pos: an index among each row's real tokens; ``"mask"`` for the position of its only mask
            token; ``None`` for the position of the mask token if a row of an encoder has one, and
            otherwise the last position.

    Raises:
        InvalidInput: a row is too short to have this position, or has several mask tokens, or
            none although ``pos`` is ``"mask"``.
    """
    if isinstance(pos, int):
        return required_columns(batch, pos)
    last = required_columns(batch, -1)
    if batch.masked is None:
        if pos == "mask":
            raise InvalidInput(NO_MASK_TOKEN)
        return last
    counts = batch.masked.sum(-1)
    wrong = (counts != 1) if pos == "mask" else (counts > 1)
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise InvalidInput(
            f'Prompt {row} holds {int(counts[row])} mask tokens; pos="mask", the default for '
            "prompts with a mask token, reads exactly one. Give pos= as a number, or measure "
            "masked_loss(tokens)."
        )
    return batch.masked.int().argmax(-1).where(counts == 1, last)


def required_columns(batch: Batch, pos: int) -> Int[Tensor, " batch"]:
    """The column of position ``pos`` in each row.

    Raises:
        InvalidInput: a row is too short to have this position.
    """
    columns, lacking = column_of(batch.is_real, pos)
    if bool(lacking.any()):
        row = int(lacking.nonzero()[0])
        length = int(batch.is_real[row].sum())
        raise InvalidInput(
            f"There is no position {pos} in prompt {row}, which has {length} tokens."
        )
    return columns


def gather_targets(x: Float[Tensor, "batch vocab"], target: Targets) -> Float[Tensor, " batch"]:
    """``x[i, target_i]`` for each row i.

    Raises:
        InvalidInput: a target is outside the vocabulary, or there is not one for each row.
    """
    return x.gather(-1, row_targets(x, target)[:, None]).squeeze(-1)


def row_targets(x: Float[Tensor, "batch vocab"], target: Targets) -> Int[Tensor, " batch"]:
    """The target of each row, checked against the vocabulary.

    Raises:
        InvalidInput: a target is outside the vocabulary, or there is not one for each row.
    """
    targets = as_tuple(target)
    outside = [t for t in targets if not 0 <= t < x.shape[1]]
    if outside:
        raise InvalidInput(f"Target {outside[0]} is outside the vocabulary 0..{x.shape[1] - 1}.")
    if isinstance(target, tuple) and len(targets) != x.shape[0]:
        raise InvalidInput(f"{len(targets)} targets were given for {x.shape[0]} prompts.")
    return torch.tensor(targets, device=x.device).expand(x.shape[0])


def as_tuple(target: Targets) -> tuple[int, ...]:
    """The ids of one target or several, as a tuple.

    Raises:
        InvalidInput: a target is a text, whose id only a model's tokenizer knows.
    """
    targets = target if isinstance(target, tuple) else (target,)
    ids = tuple(target for target in targets if isinstance(target, int))
    if len(ids) < len(targets):
        text = next(target for target in targets if isinstance(target, str))
        raise InvalidInput(
            f"The target {shorten(text)} is a text: metric.with_ids(model.to_single_token) is the "
            "metric with its id."
        )
    return ids
