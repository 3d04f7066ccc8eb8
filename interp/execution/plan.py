"""The plan of a run: where edits are applied, and which tensors must be stored and formed."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from interp.cache import needs_of, required_places
from interp.edits import Edit, EditSite, check_order, values_of
from interp.errors import InvalidEdit, InvalidInput, shorten
from interp.model import Network, Span, in_forward_mode
from interp.points import Place, Point

KERNELS = ("auto", "fused", "explicit")
Change = Callable[[Tensor, EditSite], Tensor]
"""Changes the tensor at a place: an edit, or the edits of several copies of a batch."""


@dataclass(frozen=True, eq=False)
class Plan:
    """What a run edits and stores.

    Attributes:
        edits: changes at each place, in order.
        stored: places whose tensors are stored.
        must_form: places that must exist as tensors, so that no fused kernel may skip them.
        read_by_edits: places whose tensors are read by edits of later places.
        explicit: whether every attention forms its matrix (``kernel="explicit"``).
        differentiate: whether gradients with respect to the stored tensors are computed.
        keep_graph: whether the stored tensors stay in the autograd graph.
        hooks: the TransformerLens name of each place, which is passed to functions of edits.
        paired: whether places include the name of their stack.
    """

    edits: Mapping[Place, Sequence[Change]] = field(default_factory=dict)
    stored: frozenset[Place] = frozenset()
    must_form: frozenset[Place] = frozenset()
    read_by_edits: frozenset[Place] = frozenset()
    explicit: bool = False
    differentiate: bool = False
    keep_graph: bool = False
    hooks: Mapping[Place, str] = field(default_factory=dict)
    paired: bool = False


def plan_of_edits(model: Network, edits: Sequence[Edit]) -> Plan:
    """The plan of a whole forward that applies edits and records nothing."""
    return plan_of(model, place_edits(model, edits, model.layout))


def plan_of(  # noqa: PLR0913 - settings by keyword
    model: Network,
    placed: Mapping[Place, Sequence[Edit]],
    recorded: Sequence[Place] = (),
    stored: Sequence[Place] = (),
    *,
    kernel: str = "auto",
    differentiate: bool = False,
    keep_graph: bool = False,
) -> Plan:
    """The plan of a run.

    Args:
        model: the model.
        placed: edits by place.
        recorded: places that can be read afterwards.
        stored: the recorded places that are stored as the forward forms them, and not derived.
        kernel: kernel of attention: ``auto``, ``fused`` or ``explicit``.
        differentiate: whether gradients with respect to the recorded tensors are computed.
        keep_graph: whether the stored tensors stay in the autograd graph.

    Raises:
        InvalidInput: the kernel is unknown, or it is ``fused`` and a matrix must be formed.
    """
    if kernel not in KERNELS:
        raise InvalidInput(f"kernel={shorten(kernel)} is not one of {', '.join(KERNELS)}.")
    if (keep_graph or differentiate) and torch.is_inference_mode_enabled():
        option = "keep_graph=True" if keep_graph else "gradients_of="
        raise InvalidInput(
            f"{option}: torch.inference_mode() records no autograd graph; run outside of it."
        )
    if kernel == "fused" and in_forward_mode():
        raise InvalidInput(
            'kernel="fused" has no forward-mode derivative; use kernel="auto", which then takes '
            "the explicit one."
        )
    formed = {*placed, *_before_edits(model, placed, recorded)}
    must_form = {*formed, *stored, *(recorded if differentiate else ())}
    matrices = [str(place) for place in must_form if place.point.is_matrix]
    if kernel == "fused" and matrices:
        raise InvalidInput(
            f'kernel="fused" never forms {matrices[0]}, which this run edits, stores or '
            'differentiates; use kernel="auto".'
        )
    needed = recorded if differentiate else {*_required(model, formed, recorded), *stored}
    return Plan(
        edits=placed,
        stored=frozenset(needed),
        must_form=frozenset(must_form),
        read_by_edits=read_by(placed),
        explicit=kernel == "explicit",
        differentiate=differentiate,
        keep_graph=keep_graph,
        hooks=model.names.hooks,
        paired=len(model.stacks) > 1,
    )


def places_in(model: Network, span: Span) -> list[Place]:
    """The places that a run of ``span`` passes, in order."""
    last = model.stacks[-1].name_in_places
    stop = len(model.stacks[-1].blocks) if span.stop is None else span.stop

    def passed(place: Place) -> bool:
        place = model.layout[place].reads_since or place
        if place.point is not Point.LOGITS and place.stack != last:
            return True
        if place.layer is not None:
            return span.start <= place.layer < stop
        return span.stream is None if place.point.value.region == "entry" else span.stop is None

    return [place for place in model.layout if passed(place)]


def place_edits(
    model: Network,
    edits: Sequence[Edit],
    passed: Collection[Place],
    *,
    keep_graph: bool = False,
) -> dict[Place, list[Edit]]:
    """Edits by place, each checked against the model.

    Raises:
        UnknownPlace: the model has no such place.
        InvalidEdit: this run does not compute the place, the point lacks an axis that is selected,
            values require a gradient that this run does not record, or an edit would have no
            effect because a later one overwrites all of it.
    """
    placed: dict[Place, list[Edit]] = {}
    for place, edit in resolve_edits(model, as_edits(edits, keep_graph=keep_graph)):
        missing = [at for at in (place, *edit.earlier) if at not in passed]
        if missing:
            raise InvalidEdit(
                f"{missing[0]} is not in the part of the model that this run computes."
            )
        edit.select.per_axis(place)
        placed.setdefault(place, []).append(edit)
    for place, several in placed.items():
        if len(several) > 1:
            check_order(several, place, model.fixed_axes(place))
    return placed


def resolve_edits(model: Network, edits: Sequence[Edit]) -> list[tuple[Place, Edit]]:
    """The edits of a run as applied to a model, each with its place.

    Raises:
        UnknownPlace: the model has no such place.
        InvalidEdit: an edit would have no effect, or can't be applied to this model.
    """
    edited = {edit.resolved(model, ())[0] for edit in edits}
    return [edit.resolved(model, edited) for edit in edits]


def read_by(placed: Mapping[Place, Sequence[Edit]]) -> frozenset[Place]:
    """The places whose tensors are read by edits, other than those that they change."""
    return frozenset(at for several in placed.values() for edit in several for at in edit.earlier)


def as_edits(edits: object, *, keep_graph: bool = False) -> list[Edit]:
    """Edits as a list; a single edit is a list of one.

    Raises:
        InvalidEdit: an element is not an edit, or, without ``keep_graph``, its values require a
            gradient (and gradients are enabled).
    """
    checked: list[Edit] = []
    for edit in edits if isinstance(edits, Iterable) else [edits]:
        if not isinstance(edit, Edit):
            raise InvalidEdit(
                f"edits= takes a list of edits as edits.zero(...), got {shorten(edit)}."
            )
        values = values_of(edit)
        lost = values is not None and values.wants_gradient and not keep_graph
        if lost and torch.is_grad_enabled():
            raise InvalidEdit(
                f"The values of edits.{edit.kind} at {edit.where} require a gradient, which is not "
                "recorded here. interp.run(..., keep_graph=True) records it; if it is not wanted, "
                "give values.detach()."
            )
        checked.append(edit)
    return checked


def _required(model: Network, formed: Collection[Place], recorded: Sequence[Place]) -> set[Place]:
    """The places to store so that all recorded places can be read.

    Places that can be derived from other recorded places are not stored, except in a block that is
    edited, where everything that the forward forms is stored.
    """
    edited = {(place.stack, place.layer) for place in formed}
    layout, whole = model.layout, set(recorded)
    stored: set[Place] = set()
    for place in recorded:
        recipe = layout[place]
        derived = recipe.compute is not None and whole.issuperset(needs_of(model, place, recipe))
        if (place.stack, place.layer) in edited or not derived:
            stored |= required_places(model, place, formed)
    return stored


def _before_edits(
    model: Network, placed: Collection[Place], recorded: Sequence[Place]
) -> list[Place]:
    """The recorded places that follow from tensors before their edits, and from no stored ones."""
    edited, layout = {(place.stack, place.layer) for place in placed}, model.layout
    before = [place for place in recorded if layout[place].before_edits]
    return [p for p in before if layout[p].compute is None or (p.stack, p.layer) in edited]
