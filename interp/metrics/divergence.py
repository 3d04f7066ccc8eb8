"""KL(reference ‖ model) of next-token distributions, over all positions or at one."""

from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from interp.errors import InvalidInput
from interp.io import TensorData
from interp.metrics.metric import Metric, Position, at_least_float32
from interp.metrics.position import AtPosition, as_position, at_position
from interp.model import Batch


@dataclass(frozen=True)
class _Divergence(Metric):
    """What both kinds share.

    Attributes:
        reference: logits ``[batch pos vocab]``; of :class:`KLAt`, also ``[batch vocab]`` at its
            position only. ``None`` means those of the forward of a sweep without edits.
    """

    name = "KL divergence"
    unit = "nats"

    reference: TensorData | None = None

    @property
    def lacks_reference(self) -> bool:
        """See :attr:`Metric.lacks_reference`."""
        return self.reference is None

    def with_reference(self, logits: Float[Tensor, "batch *pos vocab"]) -> Metric:
        """See :meth:`Metric.with_reference`."""
        return replace(self, reference=TensorData.unchecked(logits))


@dataclass(frozen=True)
class KL(_Divergence):
    """KL(reference ‖ model) of the next-token distribution, mean over positions, in nats."""

    kind = "kl"

    def __call__(
        self, logits: Float[Tensor, "batch pos vocab"], batch: Batch
    ) -> Float[Tensor, " batch"]:
        """Σ_v p_ref(v) (log p_ref(v) − log p(v)), mean over real tokens."""
        values = divergence(_reference_logits(self.reference, logits), logits)
        if batch.real is None:
            return values.mean(-1)
        return (values * batch.real).sum(-1) / batch.real.sum(-1)


@dataclass(frozen=True)
class KLAt(_Divergence, AtPosition):
    """KL(reference ‖ model) of the next-token distribution at one position, in nats."""

    kind = "kl_at"

    def for_batch(self, batch: Batch) -> "KLAt":
        """The metric with its reference reduced to the position."""
        if self.reference is None or self.reference.tensor.ndim != 3:  # noqa: PLR2004
            return self
        reference = self.reference.tensor.to(batch.ids.device)
        if reference.shape[:2] != batch.ids.shape:
            raise InvalidInput(
                f"kl: the reference is {tuple(reference.shape)}, the tokens "
                f"{tuple(batch.ids.shape)}."
            )
        return replace(self, reference=TensorData(at_position(reference, batch, self.pos)))

    def compute(self, logits: Float[Tensor, "batch vocab"]) -> Float[Tensor, " batch"]:
        """Σ_v p_ref(v) (log p_ref(v) − log p(v)) at the position."""
        return divergence(_reference_logits(self.reference, logits), logits)


def kl(
    reference: Float[Tensor, "batch pos vocab"] | None = None, pos: Position = None
) -> KL | KLAt:
    """KL(reference ‖ model) in nats, at a position, or by default the mean over all positions.

    Args:
        reference: logits to compare with. Without them, the metric is one of :func:`interp.sweep`,
            which compares with the forward without edits; it holds its logits for the prompts of
            one forward at a time.
        pos: the position, as for :class:`Metric`.
    """
    data = None if reference is None else TensorData(reference.detach())
    return KL(None, data) if pos is None else KLAt(as_position(pos), data)


def _reference_logits(reference: TensorData | None, logits: Tensor) -> Tensor:
    """The reference, checked to have the shape of ``logits``."""
    if reference is None:
        raise InvalidInput(
            "kl needs reference logits to compare with: interp.metrics.kl(reference). Only in a "
            "sweep does kl() compare with the forward without edits."
        )
    if reference.tensor.shape != logits.shape:
        raise InvalidInput(
            f"kl: the reference is {tuple(reference.tensor.shape)}, the logits "
            f"{tuple(logits.shape)}."
        )
    return at_least_float32(reference.tensor).to(logits.device)


def divergence(
    reference: Float[Tensor, "... vocab"], logits: Float[Tensor, "... vocab"]
) -> Float[Tensor, "..."]:
    """Σ_v p_ref(v) (log p_ref(v) − log p(v)), in nats."""
    log_p, log_q = reference.log_softmax(-1), logits.log_softmax(-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1)
