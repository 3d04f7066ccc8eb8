"""How well did the model do? A number a prompt, from the logits.

A metric is data: it says which positions and vocabulary columns it reads, so that nothing else
need be computed. Logarithms are natural: losses and divergences are in nats. A plain function
of the logits ``[batch pos vocab]`` serves as a metric too, and reads all.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from operator import index
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.errors import InvalidInput
from interp.model.context import Batch, column_of, tokens_first
from interp.values import Values

MetricLike = Callable[[Tensor], Tensor]
Targets = int | tuple[int, ...]
TargetLike = int | Sequence[int] | Tensor


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
            elif isinstance(value, Values):
                changed[field.name] = Values(value.tensor[list(rows)])
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
        return self.of(at_position(logits, batch, self.pos))

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
        return _several(self.target)

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
        return (*_several(self.target), *_several(self.distractor))

    def of(self, here: Float[Tensor, "batch vocab"]) -> Float[Tensor, " batch"]:
        """logits[pos, target] − logits[pos, distractor]."""
        return picked(here, self.target) - picked(here, self.distractor)

    def among_columns(self) -> "LogitDiff":
        """Targets come first among the columns, then distractors."""
        first = len(_several(self.target))
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
        return (here.argmax(-1) == _per_row(here, self.target)).to(here.dtype)


@dataclass(frozen=True)
class KL(Metric):
    """KL(reference ‖ model) over the next token, in nats; mean over positions if none is given."""

    name = "KL divergence"
    unit = "nats"

    reference: Values | None = None

    @property
    def laid_out(self) -> bool:
        """The reference has the batch's columns."""
        return True

    def __call__(
        self, logits: Float[Tensor, "batch pos vocab"], batch: Batch
    ) -> Float[Tensor, " batch"]:
        """Σ_v p_ref(v) (log p_ref(v) − log p(v))."""
        if self.reference is None:
            raise InvalidInput("kl needs the logits to compare with: interp.metrics.kl(logits).")
        reference = self.reference.tensor.to(logits.device)
        if reference.shape != logits.shape:
            raise InvalidInput(
                f"kl: the reference is {tuple(reference.shape)}, the logits {tuple(logits.shape)}."
            )
        log_p, log_q = reference.log_softmax(-1), logits.log_softmax(-1)
        divergence = (log_p.exp() * (log_p - log_q)).sum(-1)
        if self.pos is not None:
            return at_position(divergence, batch, self.pos)
        if batch.real is None:
            return divergence.mean(-1)
        return (divergence * batch.real).sum(-1) / batch.real.sum(-1)


def loss() -> Loss:
    """Next-token cross-entropy in nats, mean over each prompt."""
    return Loss()


def logit(target: TargetLike, pos: int = -1) -> Logit:
    """The logit of ``target`` (an id, or one a prompt) at a position."""
    return Logit(pos, _targets(target))


def logit_diff(target: TargetLike, distractor: TargetLike, pos: int = -1) -> LogitDiff:
    """The logit of ``target`` less that of ``distractor`` at a position."""
    return LogitDiff(pos, _targets(target), _targets(distractor))


def prob(target: TargetLike, pos: int = -1) -> Probability:
    """The probability of ``target`` at a position."""
    return Probability(pos, _targets(target))


def accuracy(target: TargetLike, pos: int = -1) -> Accuracy:
    """Whether ``target`` is the likeliest token at a position."""
    return Accuracy(pos, _targets(target))


def kl(reference: Float[Tensor, "batch pos vocab"], pos: int | None = None) -> KL:
    """KL(reference ‖ model) in nats, at a position or averaged over all."""
    return KL(pos, Values(reference))


def measure(
    metric: Metric | MetricLike, logits: Float[Tensor, "batch pos vocab"], batch: Batch
) -> Tensor:
    """What ``metric`` says of ``logits``: one number a row (a plain function may give a scalar).

    Raises:
        InvalidInput: a result that is neither, or that is not a number.
    """
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    if not callable(metric):
        raise InvalidInput(f"A metric is one of interp.metrics or a function, not {metric!r}.")
    return checked(_called(metric, logits, batch), logits.shape[0])


def checked(values: object, n: int) -> Tensor:
    """``values``, if they are what a metric may say of ``n`` prompts; see :func:`measure`."""
    if not isinstance(values, Tensor):
        raise InvalidInput(f"A metric gives a tensor; this one gave {type(values).__name__}.")
    if values.shape not in ((), (n,)):
        raise InvalidInput(
            f"A metric gives one number a prompt, [{n}]; this one gave shape {tuple(values.shape)}."
        )
    if bool(values.isnan().any()):
        raise InvalidInput(
            "The metric is NaN: the logits hold NaN or infinity. Look for non-finite weights or "
            "edits; in half precision, try float32."
        )
    return values


def _called(metric: Metric | MetricLike, logits: Tensor, batch: Batch) -> object:
    return metric(logits, batch) if isinstance(metric, Metric) else metric(logits)


def next_token_losses(
    logits: Float[Tensor, "batch pos vocab"], batch: Batch
) -> tuple[Float[Tensor, "batch prediction"], Bool[Tensor, "batch prediction"]]:
    """−log p of each next token in nats (0 at padding), and where there is one."""
    targets = _next_real(batch)[:, :-1]
    losses = -logits[:, :-1].log_softmax(-1).gather(-1, targets[..., None]).squeeze(-1)
    if batch.real is None:
        return losses, torch.ones_like(losses, dtype=torch.bool)
    lengths = batch.real.sum(-1, keepdim=True)
    counted = (batch.real & (batch.real.cumsum(-1) < lengths))[:, :-1]
    return losses.where(counted, 0.0), counted


def _next_real(batch: Batch) -> Int[Tensor, "batch pos"]:
    """The token that follows each token among the real ones of its row, whatever is between."""
    if batch.real is None:
        return batch.ids.roll(-1, dims=1)
    order = tokens_first(batch.real)
    following = batch.ids.gather(-1, order).roll(-1, dims=1)
    return torch.zeros_like(batch.ids).scatter_(1, order, following)


def at_position(
    x: Float[Tensor, "batch pos ..."], batch: Batch, pos: int | None
) -> Float[Tensor, "batch ..."]:
    """``x`` at position ``pos`` among each row's real tokens.

    Raises:
        InvalidInput: a row is too short to have that position.
    """
    columns = required_columns(batch, -1 if pos is None else pos)
    return x[torch.arange(x.shape[0], device=x.device), columns]


def required_columns(batch: Batch, pos: int) -> Int[Tensor, " batch"]:
    """The column of position ``pos`` in each row.

    Raises:
        InvalidInput: a row is too short to have that position.
    """
    columns, lacking = column_of(batch.is_real, pos)
    if bool(lacking.any()):
        row = int(lacking.nonzero()[0])
        length = int(batch.is_real[row].sum())
        raise InvalidInput(f"Position {pos} of prompt {row}, which has {length} tokens.")
    return columns


def picked(x: Float[Tensor, "batch vocab"], target: Targets) -> Float[Tensor, " batch"]:
    """``x`` in the column of each row's target.

    Raises:
        InvalidInput: a target outside the vocabulary, or not one for each row.
    """
    return x.gather(-1, _per_row(x, target)[:, None]).squeeze(-1)


def _per_row(x: Float[Tensor, "batch vocab"], target: Targets) -> Int[Tensor, " batch"]:
    several = _several(target)
    outside = [t for t in several if not 0 <= t < x.shape[1]]
    if outside:
        raise InvalidInput(f"Target {outside[0]} is outside the vocabulary 0..{x.shape[1] - 1}.")
    if not isinstance(target, int) and len(several) != x.shape[0]:
        raise InvalidInput(f"{len(several)} targets were given for {x.shape[0]} prompts.")
    return torch.tensor(several, device=x.device).expand(x.shape[0])


def _several(target: Targets) -> tuple[int, ...]:
    return (target,) if isinstance(target, int) else target


def _renumbered(targets: Targets, first: int) -> Targets:
    """Where targets stand if they are listed from ``first`` on."""
    return first if isinstance(targets, int) else tuple(range(first, first + len(targets)))


def _targets(target: Any) -> Targets:  # noqa: ANN401 - checked here
    try:
        if not isinstance(target, Iterable) or (isinstance(target, Tensor) and target.ndim == 0):
            return index(target)
        return tuple(index(one) for one in target)
    except TypeError as error:
        raise InvalidInput(
            f"Targets are token ids, one or one a prompt; got {target!r}."
        ) from error
