"""What all sharded parts of a model are made of: local weights, and weights read whole.

Inputs and outputs of a sharded part are the same on all ranks, and those of the part that it
replaces. The weights of this rank are in ``part.local``; read by their name (``part.weight_in``),
weights are joined from all ranks, as a copy.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, TypeVar, cast

from torch import Tensor, nn

from interp.cache import Join
from interp.execution import Recorder
from interp.model import Tap, Untouched
from interp.points import Place, Point
from interp.tensor_parallel.ranks import Ranks, Shares

LOCAL = "local"
"""The name of the part that holds the weights of this rank."""


@dataclass(frozen=True, eq=False)
class Split:
    """How a weight is divided among the ranks.

    Attributes:
        axis: the axis that is divided.
        shares: which indices each rank holds.
    """

    axis: int
    shares: Shares

    def share(self, weight: Tensor, ranks: Ranks) -> Tensor:
        """The share of this rank, as a copy."""
        return ranks.select(weight, self.shares, self.axis).clone()

    def whole(self, weight: Tensor, ranks: Ranks) -> Tensor:
        """The weight, joined from all ranks."""
        return ranks.joined(weight, self.shares, self.axis)


Splits = Mapping[str, Split]
"""How the weights of a part are divided, by name; those that are not named are on all ranks."""


class ShardedPart(nn.Module):
    """What all sharded parts have.

    Attributes:
        local: a part of the class that it replaces, with the weights of this rank.
        splits: how the weights are divided.
        ranks: the ranks.
    """

    local: Any
    splits: Splits
    ranks: Ranks


Sharded = TypeVar("Sharded", bound=ShardedPart)


def with_local(
    part: nn.Module, kind: type[Sharded], splits: Splits, ranks: Ranks
) -> tuple[Sharded, Any]:
    """Make a part, whose weights are shares already, a sharded part of class ``kind``.

    Returns:
        The part, and a part of its former class with the weights of this rank. The latter has no
        weights that are on all ranks, such as the bias that is added to the sum over ranks.
    """
    local = type(part).__new__(type(part))
    nn.Module.__init__(local)
    on_all_ranks = set(dict(part.named_parameters(recurse=False))) - set(splits)
    for name in on_all_ranks:
        local.register_parameter(name, None)
    for name, value in vars(part).items():
        if not name.startswith("_") and name not in splits:
            setattr(local, name, value)
    for name, child in part.named_children():
        setattr(local, name, child)
    for name in splits:
        weight = getattr(part, name)
        delattr(part, name)
        local.register_parameter(name, weight)
    part.__class__ = sharded_class(kind, type(part), tuple(splits))
    sharded = cast("Sharded", part)
    sharded.local, sharded.splits, sharded.ranks = local, splits, ranks
    return sharded, local


@cache
def sharded_class(kind: type[Any], of: type[nn.Module], names: tuple[str, ...]) -> type[Any]:
    """The class of a sharded part: ``kind``, then the class of the part that it replaces.

    Args:
        kind: overrides what the ranks compute together.
        of: the class of the part.
        names: its weights that are divided.
    """
    whole = {name: property(partial(_whole, name)) for name in names}
    return type(f"Sharded{of.__name__}", (kind, of), whole)


def _whole(name: str, part: Any) -> Tensor | None:  # noqa: ANN401 - any sharded part
    weight = getattr(part.local, name)
    return None if weight is None else part.splits[name].whole(weight, part.ranks)


def tap_of_share(
    tap: Tap, points: Collection[Point], axes: Mapping[str, Shares], ranks: Ranks
) -> Tap:
    """The tap of a part of which this rank computes its share alone.

    Args:
        tap: the tap of the forward.
        points: the points of tensors that are divided.
        axes: which indices each rank holds, by the name of the axis that is divided.
        ranks: the ranks.
    """
    return tap if type(tap) is Untouched else TapOfShare(tap, points, axes, ranks)


@dataclass(frozen=True, eq=False)
class TapOfShare:
    """Takes this rank's share of tensors, where the tap of the forward takes whole ones.

    Each rank stores its share of what is recorded, with gradients or their graph too; shares are
    joined when the cache is read. A tensor that is edited is joined first, as edits see all of it;
    the forward then continues with this rank's share. One that an edit reads is joined and stays
    so, as do keys and values of which ranks hold copies, if their gradients are recorded.

    Attributes:
        tap: the tap of the forward.
        points: the points of tensors that are divided.
        axes: which indices each rank holds, by the name of the axis that is divided.
        ranks: the ranks.
    """

    tap: Tap
    points: Collection[Point]
    axes: Mapping[str, Shares]
    ranks: Ranks

    def __call__(self, point: Point, value: Tensor) -> Tensor:
        """The share with which the forward continues, given that of the tensor at ``point``."""
        if point not in self.points:
            return self.tap(point, value)
        (divided,) = self.axes.keys() & point.axes
        shares, axis = self.axes[divided], point.axes.index(divided)

        if not isinstance(self.tap, Recorder) or self._stays_whole(self.tap, point, shares):
            whole = self.tap(point, self.ranks.joined(value, shares, axis))
            return self.ranks.share(whole, shares, axis)
        tap = self.tap.scoped(join_of=partial(_join_of, shares, axis, self.ranks))
        if not tap.is_edited(point):
            return tap(point, value)

        def part_of(edited: Tensor) -> Tensor:
            return self.ranks.share(edited, shares, axis).clone()  # not a view of all of it

        return tap.scoped(part_of=part_of)(point, self.ranks.joined(value, shares, axis))

    @staticmethod
    def _stays_whole(recorder: Recorder, point: Point, shares: Shares) -> bool:
        """Whether edits read the tensor, or copies have a part of its gradient."""
        has_parts = recorder.plan.differentiate and shares.has_copies
        formed = recorder.must_form(point) or recorder.is_edited(point)
        return recorder.is_read(point) or (has_parts and formed)

    def must_form(self, *points: Point) -> bool:
        """As of the tap of the forward."""
        return self.tap.must_form(*points)

    def scoped(self, **scope: object) -> "TapOfShare":
        """The same tap for another part of the model."""
        return replace(self, tap=self.tap.scoped(**scope))


def _join_of(shares: Shares, axis: int, ranks: Ranks, place: Place) -> Join:
    """How the shares of the tensor at a place are joined, when all ranks read it."""

    def join(share: Tensor) -> Tensor:
        ranks.check_alike(str(place))
        return ranks.joined(share, shares, axis)

    return join
