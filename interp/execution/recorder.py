"""The tap of a run, which applies its edits and stores the requested tensors."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from torch import Tensor

from interp.cache import Join
from interp.edits import EditSite
from interp.errors import InvalidEdit, InvalidInput
from interp.execution.plan import Plan
from interp.model import Context
from interp.points import Place, Point


@dataclass(frozen=True, eq=False)
class Recorder:
    """The tap of one run, scoped to one part of the model.

    Attributes:
        plan: what to edit and store.
        stored: stored tensors by place, filled as the forward runs.
        joins: how to join the tensors of which a part is stored, by place; filled likewise.
        earlier: tensors that later edits read, by place, filled as the forward runs.
        applied: places whose edits were applied.
        contexts: positions and padding of each stack.
        context: the context of the stack in scope.
        stack: the stack in scope.
        layer: the layer in scope.
        norm: the norm in scope.
        join_of: how to join the tensors of the scope, by place, if it stores parts of them.
        part_of: the part of an edited tensor that is stored, and with which the forward continues.
    """

    plan: Plan
    stored: dict[Place, Tensor] = field(default_factory=dict)
    joins: dict[Place, Join] = field(default_factory=dict)
    earlier: dict[Place, Tensor] = field(default_factory=dict)
    applied: set[Place] = field(default_factory=set)
    contexts: dict[str | None, Context] = field(default_factory=dict)
    context: Context | None = None
    stack: str | None = None
    layer: int | None = None
    norm: str | None = None
    join_of: Callable[[Place], Join] | None = None
    part_of: Callable[[Tensor], Tensor] | None = None

    def __call__(self, point: Point, value: Tensor) -> Tensor:
        """Edit ``value`` and store it, as planned."""
        place = self._place(point)
        if place in self.plan.edits:
            value = self._edited(value, place)
        if self.part_of is not None:
            value = self.part_of(value)
        if place in self.plan.stored:
            value = self._stored(value, place)
        if place in self.plan.read_by_edits:
            self.earlier[place] = value
        return value

    def _edited(self, value: Tensor, place: Place) -> Tensor:
        self.applied.add(place)
        site = self._site(place)
        for edit in self.plan.edits[place]:
            value = edit(value, site)
        return value

    def _stored(self, value: Tensor, place: Place) -> Tensor:
        if self.join_of is not None:
            self.joins[place] = self.join_of(place)
        if self.plan.differentiate:
            # A separate tensor: places that share a tensor would share its gradient.
            value = value.view_as(value) if value.requires_grad else value.detach()
            value = value.requires_grad_()
            self.stored[place] = value
        else:
            self.stored[place] = value if self.plan.keep_graph else value.detach()
        return value

    def is_edited(self, point: Point) -> bool:
        """Whether an edit changes the tensor at ``point`` in this scope."""
        return self._place(point) in self.plan.edits

    def is_read(self, point: Point) -> bool:
        """Whether an edit of another tensor reads the tensor at ``point`` in this scope."""
        return self._place(point) in self.plan.read_by_edits

    def must_form(self, *points: Point) -> bool:
        """Whether one of ``points`` is edited, stored as formed or differentiated in this scope."""
        if self.plan.explicit and any(point.is_matrix for point in points):
            return True
        return any(self._place(point) in self.plan.must_form for point in points)

    def scoped(self, **scope: object) -> "Recorder":
        """The same recorder for another part of the model."""
        moved = replace(self, **scope)  # pyright: ignore[reportArgumentType] - its own fields
        if "context" in scope and moved.context is not None:
            self.contexts[moved.stack if self.plan.paired else None] = moved.context.stored()
        return moved

    def check_applied(self) -> None:
        """Make sure that every edit was applied.

        Raises:
            InvalidEdit: an edit was not applied, because its tensor was never formed.
        """
        missed = [str(place) for place in self.plan.edits if place not in self.applied]
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
        hook = self.plan.hooks.get(place) or str(place)
        return EditSite(place, self.context, hook, self.earlier)
