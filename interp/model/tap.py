"""Access to the tensors of a forward, which calls ``tap(point, tensor)`` and uses the result.

A tap is an argument of one forward, never an attribute of a module: nothing is registered on the
model, so nothing needs to be removed, and threads with different taps do not interfere.
"""

from typing import Protocol, runtime_checkable

from torch import Tensor

from interp.points import Point


@runtime_checkable
class Tap(Protocol):
    """Reads and replaces the tensors of one forward."""

    def __call__(self, point: Point, value: Tensor) -> Tensor:
        """Called with the tensor at ``point``; the forward continues with what it returns."""
        ...

    def must_form(self, *points: Point) -> bool:
        """Whether one of ``points`` must exist as a tensor in this forward.

        If not, the forward may take a kernel that never forms it (fused attention, fused norms).
        """
        ...

    def scoped(self, **scope: object) -> "Tap":
        """The same tap, for calls from one part of the model (``layer=``, ``norm=``, …)."""
        ...


class Untouched:
    """The tap of a plain forward: returns every tensor unchanged."""

    def __call__(self, point: Point, value: Tensor) -> Tensor:  # noqa: ARG002 - Tap's signature
        """Return ``value``."""
        return value

    def must_form(self, *points: Point) -> bool:  # noqa: ARG002 - Tap's signature
        """False: every fused kernel may be taken."""
        return False

    def scoped(self, **scope: object) -> "Untouched":  # noqa: ARG002 - Tap's signature
        """The tap itself."""
        return self


untouched = Untouched()
