"""What attention asks of a position scheme, and attention without positions."""

from jaxtyping import Float
from torch import Tensor

from interp.model.context import Context
from interp.model.recipe import Layout
from interp.model.shapes import Heads
from interp.model.tap import Tap
from interp.points import Place

PositionBias = Float[Tensor, "#batch head query key"]


class PositionScheme:
    """Base class: how queries, keys and scores depend on positions; by default, they do not."""

    has_bias = False
    """Whether a bias is added to the scores."""
    needs_length = False
    """Whether activations at early tokens depend on the length of the whole text."""

    def query(self, q: Heads, context: Context, tap: Tap) -> Heads:  # noqa: ARG002
        """Queries, unchanged."""
        return q

    def key(self, k: Heads, context: Context, tap: Tap) -> Heads:  # noqa: ARG002
        """Keys, unchanged."""
        return k

    def rotated(self, x: Tensor, positions: Tensor) -> Tensor:  # noqa: ARG002
        """``x`` rotated by ``positions``: unchanged."""
        return x

    def bias(self, context: Context) -> PositionBias | None:  # noqa: ARG002
        """The bias of the scores: none."""
        return None

    def layout(self, query: Place, key: Place) -> Layout:  # noqa: ARG002
        """No places besides queries and keys."""
        return {}


class NoPositions(PositionScheme):
    """Scores do not depend on positions."""
