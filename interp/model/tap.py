"""How does a forward let others look in? It calls ``tap(point, tensor)`` and takes the answer.

A tap is an argument of one forward, never a property of the module: nothing is registered, so
nothing can be left behind, and two threads with different taps on one model never meet.
"""

from typing import Protocol, runtime_checkable

from torch import Tensor

from interp.points import Point


@runtime_checkable
class Tap(Protocol):
    """What a forward asks of whoever listens."""

    def __call__(self, point: Point, value: Tensor) -> Tensor:
        """See ``value``, found at ``point``; what is returned takes its place."""
        ...

    def forms(self, *points: Point) -> bool:
        """Whether one of ``points`` must exist as a tensor in this forward.

        False lets the forward take a kernel that never forms it (fused attention, fused norms).
        """
        ...

    def at(self, **scope: object) -> "Tap":
        """The same tap, told where the next calls come from (``layer=``, ``norm=``, …)."""
        ...


class Untouched:
    """The tap of a plain forward: sees nothing, changes nothing."""

    def __call__(self, point: Point, value: Tensor) -> Tensor:  # noqa: ARG002 - Tap's signature
        """Return ``value``."""
        return value

    def forms(self, *points: Point) -> bool:  # noqa: ARG002 - Tap's signature
        """Nobody needs anything."""
        return False

    def at(self, **scope: object) -> "Untouched":  # noqa: ARG002 - Tap's signature
        """Itself."""
        return self


untouched = Untouched()
