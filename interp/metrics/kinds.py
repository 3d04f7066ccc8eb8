"""What kinds of metrics are there? Each a number a prompt, and each says what it reads."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from interp.errors import InvalidInput
from interp.metrics.logits import (
    Targets,
    at_position,
    next_token_losses,
    per_row,
    picked,
    several,
    widened,
)
from interp.model.batch import Batch
from interp.tensor_data import TensorData


@dataclass(frozen=True)
class Metric(ABC):
    """A number a prompt.

    Attributes:
        pos: the position read, among each row's real tokens; ``None`` if it is not a single one.
    """

    unit: ClassVar[str] = "logits"
    name: ClassVar[str]

    pos: int | None = None

    @property
    def columns(self) -> tuple[int, ...] | None:
        """The vocabulary columns read; ``None`` if all are."""
        return None

    @property
    def laid_out(self) -> bool:
        """Whether it compares with something laid along the batch's own columns."""
        return False

    def of_rows(self, rows: Sequence[int], n: int) -> "Metric":
        """The same metric for some of ``n`` prompts: what is given one a prompt goes with them.

        Raises:
            InvalidInput: it was made for another number of prompts.
        """
        changed: dict[str, object] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, tuple):
                if len(value) != n:
                    raise InvalidInput(f"{len(value)} {field.name}s were given for {n} prompts.")
                changed[field.name] = tuple(value[row] for row in rows)
            elif isinstance(value, TensorData):
                changed[field.name] = TensorData(value.tensor[list(rows)])
        return replace(self, **changed)

    @abstractmethod
    def __call__(
        self, logits: Float[Tensor, "batch pos vocab"], batch: Batch
    ) -> Float[Tensor, " batch"]:
        """One number a row."""


@dataclass(frozen=True)
class Loss(Metric):
    """Next-token cross-entropy, mean over a prompt's predictions, in nats."""

    name = "loss"
    unit = "nats"

    def __call__(
        self, logits: Float[Tensor, "batch pos vocab"], batch: Batch
    ) -> Float[Tensor, " batch"]:
        """−log p(next token), averaged over each row's real tokens but the first."""
        losses, counted = next_token_losses(logits, batch)
        if bool((counted.sum(-1) == 0).any()):
            row = int((counted.sum(-1) == 0).nonzero()[0])
            raise InvalidInput(f"Prompt {row} is a single token: it has no next token to predict.")
        return losses.sum(-1) / counted.sum(-1)


@dataclass(frozen=True)
class AtPosition(Metric):
    """A metric of the logits at one position."""

    def __call__(
        self, logits: Float[Tensor, "batch pos vocab"], batch: Batch
    ) -> Float[Tensor, " batch"]:
        """What :meth:`of` says of the logits at the position."""
        return self.bound(batch).of(at_position(logits, batch, self.pos))

    def bound(self, batch: Batch) -> "AtPosition":  # noqa: ARG002 - most compare with nothing
        """The same metric of this batch alone: what it compares with is that at the position."""
        return self

    @abstractmethod
    def of(self, here: Float[Tensor, "batch vocab"]) -> Float[Tensor, " batch"]:
        """One number a row, from the logits at its position."""

    def among_columns(self) -> "AtPosition":
        """The same metric of logits that hold only ``columns``, in their order."""
        return self


@dataclass(frozen=True)
class Logit(AtPosition):
    """The logit of a target."""

    name = "logit"
    target: Targets = 0

    @property
    def columns(self) -> tuple[int, ...]:
        """The targets."""
        return several(self.target)

    def of(self, here: Float[Tensor, "batch vocab"]) -> Float[Tensor, " batch"]:
        """logits[pos, target]."""
        return picked(here, self.target)

    def among_columns(self) -> "Logit":
        """The target is where it stands among the columns."""
        return replace(self, target=_renumbered(self.target, 0))


@dataclass(frozen=True)
class LogitDiff(AtPosition):
    """The logit of a target less that of a distractor."""

    name = "logit difference"
    target: Targets = 0
    distractor: Targets = 1

    @property
    def columns(self) -> tuple[int, ...]:
        """Targets and distractors."""
        return (*several(self.target), *several(self.distractor))

    def of(self, here: Float[Tensor, "batch vocab"]) -> Float[Tensor, " batch"]:
        """logits[pos, target] − logits[pos, distractor]."""
        return picked(here, self.target) - picked(here, self.distractor)

    def among_columns(self) -> "LogitDiff":
        """Targets come first among the columns, then distractors."""
        first = len(several(self.target))
        target, distractor = _renumbered(self.target, 0), _renumbered(self.distractor, first)
        return replace(self, target=target, distractor=distractor)


@dataclass(frozen=True)
class Probability(AtPosition):
    """The probability of a target."""

    name = "probability"
    unit = "probability"

    target: Targets = 0

    def of(self, here: Float[Tensor, "batch vocab"]) -> Float[Tensor, " batch"]:
        """softmax(logits[pos])[target]."""
        return picked(here.softmax(-1), self.target)


@dataclass(frozen=True)
class Accuracy(AtPosition):
    """Whether the target has the highest logit (1 or 0)."""

    name = "accuracy"
    unit = "share"

    target: Targets = 0

    def of(self, here: Float[Tensor, "batch vocab"]) -> Float[Tensor, " batch"]:
        """1 where the target is the argmax."""
        return (here.argmax(-1) == per_row(here, self.target)).to(here.dtype)


@dataclass(frozen=True)
class KL(Metric):
    """KL(reference ‖ model) over the next token, mean over a prompt's positions, in nats."""

    name = "KL divergence"
    unit = "nats"

    reference: TensorData | None = None

    @property
    def laid_out(self) -> bool:
        """The reference has the batch's columns."""
        return True

    def __call__(
        self, logits: Float[Tensor, "batch pos vocab"], batch: Batch
    ) -> Float[Tensor, " batch"]:
        """Σ_v p_ref(v) (log p_ref(v) − log p(v)), averaged over real tokens."""
        divergence = _divergence(_compared_with(self.reference, logits), logits)
        if batch.real is None:
            return divergence.mean(-1)
        return (divergence * batch.real).sum(-1) / batch.real.sum(-1)


@dataclass(frozen=True)
class KLAt(AtPosition):
    """KL(reference ‖ model) over the next token at one position, in nats.

    Attributes:
        reference: logits ``[batch pos vocab]``, or those at the position alone: ``[batch vocab]``.
    """

    name = "KL divergence"
    unit = "nats"

    reference: TensorData | None = None

    @property
    def laid_out(self) -> bool:
        """The reference has the batch's columns."""
        return True

    def bound(self, batch: Batch) -> "KLAt":
        """Compared with the reference at the position alone."""
        if self.reference is None or self.reference.tensor.ndim != 3:  # noqa: PLR2004
            return self
        there = self.reference.tensor.to(batch.ids.device)
        if there.shape[:2] != batch.ids.shape:
            raise InvalidInput(
                f"kl: the reference is {tuple(there.shape)}, the tokens {tuple(batch.ids.shape)}."
            )
        return replace(self, reference=TensorData(at_position(there, batch, self.pos)))

    def of(self, here: Float[Tensor, "batch vocab"]) -> Float[Tensor, " batch"]:
        """Σ_v p_ref(v) (log p_ref(v) − log p(v)) at the position."""
        return _divergence(_compared_with(self.reference, here), here)


def _compared_with(reference: TensorData | None, logits: Tensor) -> Tensor:
    """The logits to compare with, of the same shape."""
    if reference is None:
        raise InvalidInput("kl needs the logits to compare with: interp.metrics.kl(logits).")
    if reference.tensor.shape != logits.shape:
        raise InvalidInput(
            f"kl: the reference is {tuple(reference.tensor.shape)}, the logits "
            f"{tuple(logits.shape)}."
        )
    return widened(reference.tensor).to(logits.device)


def _divergence(
    reference: Float[Tensor, "... vocab"], logits: Float[Tensor, "... vocab"]
) -> Tensor:
    log_p, log_q = reference.log_softmax(-1), logits.log_softmax(-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def _renumbered(targets: Targets, first: int) -> Targets:
    """Where targets stand if they are listed from ``first`` on."""
    return first if isinstance(targets, int) else tuple(range(first, first + len(targets)))
