"""How large may scores or logits become? x ↦ cap · tanh(x / cap) (Gemma 2, 2024)."""

from dataclasses import dataclass

from torch import Tensor


class Uncapped:
    """As large as they are."""

    fuses = True
    """Whether fused kernels know it."""

    def __call__(self, x: Tensor) -> Tensor:
        """x, as it is."""
        return x


@dataclass(frozen=True)
class Cap(Uncapped):
    """x ↦ cap · tanh(x / cap)."""

    fuses = False
    cap: float

    def __call__(self, x: Tensor) -> Tensor:
        """Between −cap and cap."""
        return self.cap * (x / self.cap).tanh()


def cap_of(cap: float | None) -> Uncapped:
    """The cap, if there is one."""
    return Uncapped() if cap is None else Cap(cap)
