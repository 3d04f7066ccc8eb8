"""How the tensor at one place is computed from the tensors at others.

Every part of a model lists its places in the order of its forward, each with a :class:`Recipe`: the
function of earlier places that the forward itself applies. A place whose recipe has no function can
only be stored. A cache of all places stores those and derives the others when they are read.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from interp.model.context import Context
from interp.points import Place, Point


@runtime_checkable
class Reader(Protocol):
    """Provides the inputs of a recipe: tensors of the same block, and the context of the run."""

    context: Context

    def __call__(self, point: Point, norm: str | None = None) -> Tensor:
        """The tensor at this place of the same block."""
        ...

    def is_scratch(self, point: Point) -> bool:
        """Whether the tensor is computed anew for each reader, so that it may be overwritten."""
        ...


@dataclass(frozen=True)
class Recipe:
    """How a tensor is computed.

    Attributes:
        compute: ``compute(part, of)``, where ``part`` is the module that owns the place and ``of``
            reads other places of the same block; ``None`` if the tensor can only be stored.
        needs: the places that ``compute`` reads.
        absent_when_fused: whether fused kernels skip it unless it is edited or differentiated.
        before_edits: whether the forward computes it from tensors as they are before their edits,
            so that in a block with edits, or if it can only be stored, it must be formed.
        carried: whether its edits reach later blocks by another tensor than the stream.
        reads_since: the first place of an earlier block that it depends on beside the stream.
        part: path of the owning module below its block (set by the block).
        sizes: sizes of axes that the configuration of the model does not give, by name.
        hook: TransformerLens name below the block, where it differs from the point's own.
    """

    compute: Callable[[Any, Reader], Tensor] | None = None
    needs: tuple[Place, ...] = ()
    absent_when_fused: bool = False
    before_edits: bool = False
    carried: bool = False
    reads_since: Place | None = None
    part: str = ""
    sizes: tuple[tuple[str, int], ...] = ()
    hook: str | None = None


Layout = dict[Place, Recipe]
"""The places of one part, in the order of its forward."""

STORED = Recipe()
"""The recipe of a tensor that can't be derived and must be stored."""


def owned(part: str, layout: Layout) -> Layout:
    """The same layout, with ``part`` prefixed to the path of the module that owns each place."""
    return {
        place: replace(recipe, part=f"{part}.{recipe.part}" if recipe.part else part)
        for place, recipe in layout.items()
    }
