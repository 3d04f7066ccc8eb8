"""What will a run do beside computing? Which edits where, and the least that it must keep."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from interp.cache.derive import leaves, needs_of
from interp.edits import Edit
from interp.errors import InvalidEdit, InvalidInput
from interp.execution.recorder import ATTENTION_MATRICES, Plan
from interp.model.network import Network
from interp.model.stack import Span
from interp.points import ENTRY, Place, PlaceLike, Point

KERNELS = ("auto", "fused", "explicit")
Record = PlaceLike | Iterable[PlaceLike] | Callable[[str], bool] | None


@dataclass(frozen=True, eq=False)
class Wanted:
    """What a run is to give.

    Attributes:
        recorded: places that can be read afterwards.
        stored: those among them that are held as the forward forms them.
        kernel: of attention: ``auto``, ``fused`` or ``explicit``.
        differentiate: whether gradients by what is recorded are taken.
    """

    recorded: list[Place]
    stored: list[Place]
    kernel: str
    differentiate: bool


def edit_plan(model: Network, edits: Sequence[Edit]) -> Plan:
    """The plan of a whole forward that edits and records nothing."""
    planned = planned_of(model, edits, list(model.layout))
    return Plan(edits=planned, forms=frozenset(planned), paired=len(model.stacks) > 1)


def reached_by(model: Network, span: Span) -> list[Place]:
    """The places that a run of ``span`` passes, in order."""
    last = model.stacks[-1].name if len(model.stacks) > 1 else None
    stop = len(model.stacks[-1].blocks) if span.stop is None else span.stop

    def passed(place: Place) -> bool:
        if place.point is not Point.LOGITS and place.stack != last:
            return True
        if place.layer is not None:
            return span.start <= place.layer < stop
        if place.point in ENTRY:
            return span.stream is None
        return span.stop is None

    return [place for place in model.layout if passed(place)]


def planned_of(
    model: Network, edits: Sequence[Edit], reached: list[Place]
) -> dict[Place, list[Edit]]:
    """Edits by the place that they name, each checked against the model.

    Raises:
        UnknownPlace: the model has no such place.
        InvalidEdit: the run does not pass there, or the point lacks an axis that is selected.
    """
    planned: dict[Place, list[Edit]] = {}
    for edit in listed(edits):
        place = model.atlas.find(edit.where)
        if place not in reached:
            raise InvalidEdit(f"{place} is not in the part of the model that this run passes.")
        edit.select.per_axis(place)
        planned.setdefault(place, []).append(edit)
    return planned


def listed(edits: object) -> list[Edit]:
    """Edits as a list; a single one is a list of one.

    Raises:
        InvalidEdit: something among them is no edit.
    """
    found: list[Edit] = []
    for edit in edits if isinstance(edits, Iterable) else [edits]:
        if not isinstance(edit, Edit):
            raise InvalidEdit(f"edits= takes a list of edits as edits.zero(...), got {edit!r}.")
        found.append(edit)
    return found


def asked_of(model: Network, record: Record, reached: list[Place]) -> list[Place]:
    """The places that ``record`` names, in the order of the forward.

    Raises:
        UnknownPlace: the model has no such place.
        InvalidInput: the run does not pass there.
    """
    if record is None:
        return []
    if isinstance(record, str) and record == "all":
        return reached
    if callable(record):
        hooks = model.atlas.hooks
        return [place for place in reached if record(hooks[place])]
    several = [record] if isinstance(record, str | tuple | Place | Point) else list(record)
    named: set[Place] = set()
    for name in several:
        passed = set(model.atlas.find_all(name)).intersection(reached)
        if not passed:
            raise InvalidInput(f"{name!r} can't be recorded: this run does not pass there.")
        named |= passed
    return [place for place in reached if place in named]


def plan_of(
    model: Network,
    planned: dict[Place, list[Edit]],
    wanted: Wanted,
) -> Plan:
    """The plan of a run that makes ``planned`` edits and gives what is ``wanted``.

    Raises:
        InvalidInput: an unknown kernel, or the fused one where a matrix must be formed.
    """
    asked, kernel, differentiate = wanted.recorded, wanted.kernel, wanted.differentiate
    if kernel not in KERNELS:
        raise InvalidInput(f"kernel={kernel!r} is not known; it is one of {', '.join(KERNELS)}.")
    forms = {*planned, *wanted.stored, *(asked if differentiate else [])}
    matrices = [str(place) for place in forms if place.point in ATTENTION_MATRICES]
    if kernel == "fused" and matrices:
        raise InvalidInput(
            f'kernel="fused" never forms {matrices[0]}, which is to be formed here; '
            'say kernel="auto".'
        )
    keep = set(asked) if differentiate else {*_least(model, planned, asked), *wanted.stored}
    return Plan(
        edits=planned,
        keep=frozenset(keep),
        forms=frozenset(forms),
        explicit=kernel == "explicit",
        differentiate=differentiate,
        paired=len(model.stacks) > 1,
    )


def _least(model: Network, planned: dict[Place, list[Edit]], asked: list[Place]) -> set[Place]:
    """The places to keep so that all that is asked can be read.

    What follows from other places that are asked is not kept; but in a block that is edited,
    all that the forward forms is.
    """
    edited = {(place.stack, place.layer) for place in planned}
    layout, whole = model.layout, set(asked)
    keep: set[Place] = set()
    for place in asked:
        recipe = layout[place]
        follows = recipe.make is not None and whole.issuperset(needs_of(model, place, recipe))
        if (place.stack, place.layer) in edited or not follows:
            keep |= leaves(model, place, planned)
    return keep
