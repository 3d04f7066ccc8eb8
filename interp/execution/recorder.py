"""Who listens to a forward? A tap that applies edits and keeps what was asked for.

All that it knows is the plan of one run and where in the model it is being called from; when
the run is over, so is it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from interp.edits import EditSite
from interp.errors import InvalidEdit, InvalidInput
from interp.model.context import Context
from interp.points import Place, Point

Change = Callable[[Tensor, EditSite], Tensor]
"""What is done to a tensor found at a place: an edit, or several that share a batch."""

ATTENTION_MATRICES = frozenset(
    {Point.SCORES, Point.PATTERN, Point.CROSS_SCORES, Point.CROSS_PATTERN}
)


@dataclass(frozen=True, eq=False)
class Plan:
    """What a run does beside computing.

    Attributes:
        edits: what happens at each place, in order.
        keep: places whose tensors are kept.
        forms: places that must exist as tensors: no fused kernel may go without them.
        explicit: whether every attention forms its matrix (``kernel="explicit"``).
        differentiate: whether what is kept takes part in a gradient.
        paired: whether places say which stack they are in.
    """

    edits: Mapping[Place, Sequence[Change]] = field(default_factory=dict)
    keep: frozenset[Place] = frozenset()
    forms: frozenset[Place] = frozenset()
    explicit: bool = False
    differentiate: bool = False
    paired: bool = False


@dataclass(frozen=True, eq=False)
class Listener:
    """The tap of one run, at one place of the model."""

    plan: Plan
    kept: dict[Place, Tensor] = field(default_factory=dict)
    met: set[Place] = field(default_factory=set)
    contexts: dict[str | None, Context] = field(default_factory=dict)
    context: Context | None = None
    stack: str | None = None
    layer: int | None = None
    norm: str | None = None

    def __call__(self, point: Point, value: Tensor) -> Tensor:
        """Edit ``value`` and keep it, as planned."""
        place = self._place(point)
        for edit in self.plan.edits.get(place, ()):
            self.met.add(place)
            value = edit(value, self._site(place))
        if place not in self.plan.keep:
            return value
        if self.plan.differentiate:
            # A tensor of its own: places that share one would share their gradients too.
            value = value.view_as(value) if value.requires_grad else value.detach()
            value = value.requires_grad_()
            self.kept[place] = value
        else:
            self.kept[place] = value.detach()
        return value

    def forms(self, *points: Point) -> bool:
        """Whether somebody edits one of ``points`` here, or wants its gradient."""
        if self.plan.explicit and not ATTENTION_MATRICES.isdisjoint(points):
            return True
        return any(self._place(point) in self.plan.forms for point in points)

    def at(self, **scope: object) -> "Listener":
        """The same listener elsewhere."""
        moved = replace(self, **scope)  # pyright: ignore[reportArgumentType] - its own fields
        if "context" in scope and moved.context is not None:
            self.contexts[moved.stack if self.plan.paired else None] = moved.context.kept()
        return moved

    def check_met(self) -> None:
        """Make sure that every edit took place.

        Raises:
            InvalidEdit: one did not: its tensor was never formed.
        """
        missed = [str(place) for place in self.plan.edits if place not in self.met]
        if missed:
            raise InvalidEdit(
                f"The edit of {missed[0]} had no effect: this forward never formed that tensor."
            )

    def _place(self, point: Point) -> Place:
        layer = self.layer if point.in_block else None
        stack = self.stack if self.plan.paired and point is not Point.LOGITS else None
        return Place(point, layer, self.norm, stack)

    def _site(self, place: Place) -> EditSite:
        if self.context is None:
            raise InvalidInput(f"{place} can't be edited outside a run.")
        return EditSite(place, self.context)
