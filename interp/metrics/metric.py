"""A metric: one number per prompt, from the logits that it declares; and the losses of tokens.

Metrics of the logits at one position are in :mod:`interp.metrics.position`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.errors import InvalidInput
from interp.io import TensorData
from interp.model import Batch, tokens_first

_Metric = TypeVar("_Metric", bound="Metric")
Position = int | Literal["mask"] | None
"""An index among a row's real tokens, ``"mask"`` for its mask token, or ``None`` for the default
(see :func:`columns_read`)."""
NO_MASK_TOKEN = (
    "This model is not an encoder with a mask token (config.tokens.mask); give the position of the "
    "prediction as a number, as in pos=-1."
)
WHOLE_NUMBERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
AT_A_TIME = 2**26
"""Maximum number of logits that are formed at a time."""


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
    def lacks_reference(self) -> bool:
        """Whether it compares with the logits of a sweep without edits."""
        return False

    def with_reference(self, logits: Float[Tensor, "batch *pos vocab"]) -> "Metric":  # noqa: ARG002
        """The metric that compares with ``logits``; one without a reference is unchanged."""
        return self

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


def loss() -> Loss:
    """Next-token cross-entropy in nats, mean over each prompt."""
    return Loss()


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


def masked_loss(tokens: Int[Tensor, "*batch pos"] | Sequence[object]) -> MaskedLoss:
    """Cross-entropy in nats of the true token at each mask token, mean over each prompt.

    Args:
        tokens: the true token of each position; only read at mask tokens.
    """
    try:
        ids = torch.as_tensor(tokens)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInput(f"masked_loss takes token ids [batch pos]: {error}") from error
    if ids.ndim not in (1, 2) or ids.dtype not in WHOLE_NUMBERS:
        raise InvalidInput(
            f"masked_loss takes token ids [batch pos]; got {tuple(ids.shape)} {ids.dtype}."
        )
    return MaskedLoss(None, TensorData(torch.atleast_2d(ids.long())))


# ---- the losses of tokens -----------------------------------------------------------------------


def next_token_losses(
    logits: Float[Tensor, "batch pos vocab"], batch: Batch
) -> tuple[Float[Tensor, "batch prediction"], Bool[Tensor, "batch prediction"]]:
    """−log p of each next token in nats (0 where there is none), and the mask of predictions."""
    targets = _next_token_ids(batch)[:, :-1]
    # Sliced afterwards, because the kernel would first copy a slice.
    losses = -logits.log_softmax(-1)[:, :-1].gather(-1, targets[..., None]).squeeze(-1)
    if batch.real is None:
        return losses, torch.ones_like(losses, dtype=torch.bool)
    lengths = batch.real.sum(-1, keepdim=True)
    counted = (batch.real & (batch.real.cumsum(-1) < lengths))[:, :-1]
    return losses.where(counted, 0.0), counted


def batch_loss(logits: Float[Tensor, "batch pos vocab"], batch: Batch) -> Float[Tensor, ""]:
    """Next-token cross-entropy in nats, mean over all predictions of the batch.

    Raises:
        InvalidInput: every prompt is a single token.
    """
    losses, counted = next_token_losses(logits, batch)
    if not bool(counted.any()):
        raise InvalidInput("Every prompt is a single token: there is no next token to predict.")
    return losses.sum() / counted.sum()


def _next_token_ids(batch: Batch) -> Int[Tensor, "batch pos"]:
    """The id of the next real token after each token of a row, skipping padding between them."""
    if batch.real is None:
        return batch.ids.roll(-1, dims=1)
    order = tokens_first(batch.real)
    following = batch.ids.gather(-1, order).roll(-1, dims=1)
    return torch.zeros_like(batch.ids).scatter_(1, order, following)


def masked_losses(
    logits: Float[Tensor, "batch pos vocab"], tokens: Int[Tensor, "row column"], batch: Batch
) -> tuple[Float[Tensor, "batch pos"], Bool[Tensor, "batch pos"]]:
    """−log p of the true token at each mask token in nats (0 elsewhere), and the mask of these.

    Raises:
        InvalidInput: the model has no mask token, a row contains none, or ``tokens`` has another
            shape or ids outside the vocabulary.
    """
    if batch.masked is None:
        raise InvalidInput(NO_MASK_TOKEN)
    if tokens.shape != batch.ids.shape:
        raise InvalidInput(
            f"masked_loss takes the true token of each position, {tuple(batch.ids.shape)}; got "
            f"{tuple(tokens.shape)}."
        )
    without = ~batch.masked.any(-1)
    if bool(without.any()):
        raise InvalidInput(f"Prompt {int(without.nonzero()[0])} holds no mask token.")
    targets = tokens.to(batch.ids.device).where(batch.masked, 0)
    if bool(((targets < 0) | (targets >= logits.shape[-1])).any()):
        raise InvalidInput(
            f"masked_loss: a true token is outside the vocabulary 0..{logits.shape[-1] - 1}."
        )
    losses = -logits.log_softmax(-1).gather(-1, targets[..., None]).squeeze(-1)
    return losses.where(batch.masked, 0.0), batch.masked


# ---- logits of any metric -----------------------------------------------------------------------


def at_least_float32(logits: Tensor) -> Tensor:
    """Logits in float32 if they are in half precision, else unchanged."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def parts_of_rows(
    shape: Sequence[int], device: torch.device, most: int | None = None
) -> tuple[Int[Tensor, " row"], ...]:
    """The rows of logits, split into parts that can be formed at a time.

    Args:
        shape: shape of the logits, ``[batch pos vocab]``.
        device: device of the row indices.
        most: maximum number of rows in a part; ``None`` for no limit.
    """
    n, width, vocab = shape
    rows = min(AT_A_TIME // (width * vocab), most or n)
    return torch.arange(n, device=device).split(max(1, rows))


def relative_rounding(dtype: torch.dtype) -> float:
    """The rounding error that a forward may have, relative to its largest value.

    100 units in the last place; half a unit in half precision, in which sums are formed in float32.
    """
    half = dtype in (torch.float16, torch.bfloat16)
    return (0.5 if half else 100) * torch.finfo(dtype).eps
