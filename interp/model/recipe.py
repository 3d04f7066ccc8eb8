"""How does the tensor at one place follow from the tensors at others?

Every part of a model lays out its places in the order of its forward, each with a
:class:`Recipe`: the function of earlier places that the forward itself applies. A place whose
recipe has no function can only be kept. A cache of "everything" keeps those alone and
derives the rest when asked.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from interp.model.context import Context
from interp.points import Place, Point


@runtime_checkable
class Reader(Protocol):
    """Gives a recipe what it needs: the tensors of its own block, and the run's context."""

    context: Context

    def __call__(self, point: Point, norm: str | None = None) -> Tensor:
        """The tensor at that place of the same block."""
        ...

    def derives(self, point: Point) -> bool:
        """Whether that tensor is made anew for whoever reads it, and so may be written into."""
        ...


@dataclass(frozen=True)
class Recipe:
    """How a tensor is had.

    Attributes:
        make: ``make(part, of)``, where ``part`` is the module that owns the place and ``of``
            reads other places of the same block; ``None`` if the tensor can only be kept.
        needs: the places that ``make`` reads.
        on_demand: whether the fused kernels go without this tensor, so that a forward forms it
            only when somebody edits it or asks for its gradient.
        part: path of the owning module below its block (set by the block).
        hook: TransformerLens name below the block, where it differs from the point's own.
    """

    make: Callable[[Any, Reader], Tensor] | None = None
    needs: tuple[Place, ...] = ()
    on_demand: bool = False
    part: str = ""
    hook: str | None = None


Layout = dict[Place, Recipe]
"""The places of one part, in the order of its forward."""

KEPT = Recipe()


def owned(part: str, layout: Layout) -> Layout:
    """The same layout, told in which module its parts are."""
    return {
        place: replace(recipe, part=f"{part}.{recipe.part}" if recipe.part else part)
        for place, recipe in layout.items()
    }
