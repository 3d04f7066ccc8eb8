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
class KL(Metric):
    """KL(reference ‖ model) of the next-token distribution, mean over positions, in nats.

    Attributes:
        reference: logits ``[batch pos vocab]``.
    """

    kind = "kl"
    name = "KL divergence"
    unit = "nats"

    reference: TensorData | None = None

    def __call__(
        self, logits: Float[Tensor, "batch pos vocab"], batch: Batch
    ) -> Float[Tensor, " batch"]:
        """Σ_v p_ref(v) (log p_ref(v) − log p(v)), mean over real tokens."""
        values = divergence(_reference_logits(self.reference, logits), logits)
        if batch.real is None:
            return values.mean(-1)
        return (values * batch.real).sum(-1) / batch.real.sum(-1)


@dataclass(frozen=True)
class KLAt(AtPosition):
    """KL(reference ‖ model) of the next-token distribution at one position, in nats.

    Attributes:
        reference: logits ``[batch pos vocab]``, or ``[batch vocab]`` at this position only.
    """

    kind = "kl_at"
    name = "KL divergence"
    unit = "nats"

    reference: TensorData | None = None

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


def kl(reference: Float[Tensor, "batch pos vocab"], pos: Position = None) -> KL | KLAt:
    """KL(reference ‖ model) in nats, at a position, or by default the mean over all positions."""
    data = TensorData(reference.detach())
    return KL(None, data) if pos is None else KLAt(as_position(pos), data)


def _reference_logits(reference: TensorData | None, logits: Tensor) -> Tensor:
    """The reference, checked to have the shape of ``logits``."""
    if reference is None:
        raise InvalidInput(
            "kl needs reference logits to compare with: interp.metrics.kl(reference)."
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
