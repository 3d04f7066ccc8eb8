"""Soft-capping of scores or logits: x ↦ cap · tanh(x / cap) (Gemma 2, 2024)."""

from dataclasses import dataclass

from torch import Tensor


class NoSoftCap:
    """x ↦ x; the base class of :class:`SoftCap`."""

    is_fused = True
    """Whether fused attention computes it."""

    def __call__(self, x: Tensor) -> Tensor:
        """x, unchanged."""
        return x


@dataclass(frozen=True)
class SoftCap(NoSoftCap):
    """x ↦ cap · tanh(x / cap), between −cap and cap."""

    is_fused = False
    cap: float

    def __call__(self, x: Tensor) -> Tensor:
        """``cap * tanh(x / cap)``."""
        return self.cap * (x / self.cap).tanh()


def soft_cap_of(cap: float | None) -> NoSoftCap:
    """The soft-cap of a configuration; the identity if ``cap`` is ``None``."""
    return NoSoftCap() if cap is None else SoftCap(cap)
