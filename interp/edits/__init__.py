"""Edits as data: ``edits.zero("z", layer=1, head=4)``.

Each function takes a point (``"z"``, a :class:`~interp.points.Point`, a tuple or a hook name). The
keywords ``layer``, ``norm`` and ``stack`` specify which tensor; ``batch``, ``pos``, ``head``,
``key``, ``unit`` and ``expert`` select a part of it, by one index or a list of indices (for a
boolean mask, ``mask.nonzero()[:, 0]``).
"""

import reprlib
from collections.abc import Callable, Iterable, Sequence
from math import isnan
from typing import Any, Protocol, TypedDict, Unpack, runtime_checkable

from torch import Tensor

from interp.edits.edge import Edge, attention_at, input_of, term_of
from interp.edits.edit import (
    OF_BATCH,
    Add,
    Edit,
    Mean,
    Replace,
    Resample,
    Scale,
    Zero,
    values_of,
)
from interp.edits.function import Apply, Hook
from interp.edits.order import check_order
from interp.edits.scope import BatchSplit, batch_split, first_changed_column, for_rows
from interp.edits.selection import EditSite, Selection
from interp.edits.values import donor_rows, summing_dtype, token_mean
from interp.errors import InvalidEdit
from interp.integers import as_integer, whole_number
from interp.io import TensorData
from interp.points import Place, PlaceLike, Point

Indices = int | Sequence[int] | None


class Where(TypedDict, total=False):
    """The keyword arguments of every edit."""

    layer: int
    norm: str
    stack: str
    batch: Indices
    pos: Indices
    head: Indices
    key: Indices
    unit: Indices
    expert: Indices


@runtime_checkable
class Activations(Protocol):
    """The activations of a run: :class:`interp.Cache`."""

    def part(self, name: PlaceLike, select: Selection) -> Tensor:
        """The selected part of the tensor at a place, with no axis dropped."""
        ...


_SELECTED = ("batch", "pos", "head", "key", "unit", "expert")
KINDS: dict[str, type[Edit]] = {
    kind.kind: kind for kind in (Zero, Mean, Resample, Scale, Add, Replace, Apply, Edge)
}
"""Each kind by its name in JSON."""


def zero(point: PlaceLike, **where: Unpack[Where]) -> Zero:
    """Write zeros."""
    return Zero(*_target(point, where))


def mean(point: PlaceLike, values: Tensor | None = None, **where: Unpack[Where]) -> Mean:
    """Write ``values``, a mean over some data; by default the mean over the run's own batch.

    The default is the mean over rows and real tokens, so it depends on the other prompts of the
    batch.
    """
    return Mean(*_target(point, where), None if values is None else TensorData(values))


def resample(
    point: PlaceLike, values: Tensor | None = None, seed: int = 0, **where: Unpack[Where]
) -> Resample:
    """Write ``values``, another prompt's activations; by default those of another row.

    By default the rows are paired by a cyclic permutation drawn with ``seed``.
    """
    data = None if values is None else TensorData(values)
    return Resample(*_target(point, where), data, _seed(seed))


def scale(point: PlaceLike, factor: float, **where: Unpack[Where]) -> Scale:
    """Multiply by ``factor``."""
    return Scale(*_target(point, where), _number(factor))


def add(point: PlaceLike, values: Tensor | float, **where: Unpack[Where]) -> Add:
    """Add ``values``, broadcast to the selected part."""
    return Add(*_target(point, where), _values(values))


def replace(point: PlaceLike, values: Tensor | float, **where: Unpack[Where]) -> Replace:
    """Write ``values``, broadcast to the selected part; see also :func:`patch`.

    If the values have the shape of the whole tensor, such as ``cache["z", 3]``, the same part of
    them is written. (If the part is as large as the whole, they are in the order of the given
    indices.) The same holds for the values of every edit.
    """
    return Replace(*_target(point, where), _values(values))


def patch(cache: Activations, point: PlaceLike, **where: Unpack[Where]) -> Replace:
    """Write the activations of another run: the selected part of the tensor in ``cache``.

    Positions count the real tokens of each row in both runs; without ``pos=``, the columns of both
    runs must correspond. A run of a single prompt is written to every row.

    Raises:
        NotRecorded: the other run did not record the place.
        InvalidEdit: the selection is outside the other run's tensor.
    """
    if not isinstance(cache, Activations):  # pyright: ignore[reportUnnecessaryIsInstance] - of users
        raise InvalidEdit(f"edits.patch takes the cache of a run first; got {type(cache)}.")
    name, select = _target(point, where)
    return Replace(name, select, TensorData(cache.part(name, select)))


def edge(
    writer: str,
    reader: str,
    values: Tensor | float,
    *,
    batch: Indices = None,
    pos: Indices = None,
) -> Edge:
    """Replace the output of ``writer`` in the input of ``reader`` only.

    Args:
        writer: name of the writer in :func:`interp.computation_graph`, e.g. ``"L0H1"``,
            ``"embed"``.
        reader: name of the reader, e.g. ``"L1H0.q"``, ``"L1MLP"``, ``"logits"``.
        values: the output that the reader gets instead, broadcast to ``[batch pos d_model]``: from
            another run, a mean, or 0.
        batch: the rows to change, by default all.
        pos: the positions to change, by default all.
    """
    names = tuple(str(name) for name in (writer, reader))
    select = Selection(batch=_indices(batch, "batch"), pos=_indices(pos, "pos"))
    return Edge(names, select, _values(values))


def apply(
    point: PlaceLike, fn: Callable[[Tensor, Hook], Tensor | None], **where: Unpack[Where]
) -> Apply:
    """Call ``fn(tensor, hook)`` on a copy of the selected part; see :class:`Apply`."""
    return Apply(*_target(point, where), fn)


def from_dict(
    values: Any,  # noqa: ANN401 - parsed JSON, checked here
    to_tensor: Callable[[Any], TensorData] = TensorData.from_json,
) -> Edit:
    """The edit that :meth:`Edit.to_dict` describes.

    Args:
        values: parsed JSON.
        to_tensor: function that reads what ``to_dict`` wrote for the values of an edit.

    Raises:
        InvalidEdit: the kind or a field is unknown, a field is missing, or a value has the wrong
            type.
    """
    if not isinstance(values, dict):
        got = reprlib.repr(values)
        raise InvalidEdit(f"An edit read from JSON should be an object, got {got}.")
    rest = dict(values)
    kind = KINDS.get(str(rest.pop("kind", None)))
    if kind is None or kind is Apply:
        kinds = ", ".join(name for name in KINDS if name != "apply")
        raise InvalidEdit(
            f"An edit read from JSON must have a kind among {kinds}; got "
            f"{reprlib.repr(values.get('kind'))}."
        )
    where = rest.pop("where", None)
    if not isinstance(where, list) or not all(map(_names, where)):
        got = reprlib.repr(where)
        raise InvalidEdit(f'An edit\'s where should be a list as ["z", 1], got {got}.')
    selected = {name: _indices(rest.pop(name, None), name) for name in _SELECTED}
    for name in kind.required:
        if rest.get(name) is None:
            raise InvalidEdit(f"An edit of kind {kind.kind!r} needs {name!r}.")
    fields = {name: _field(kind, name, value, to_tensor) for name, value in rest.items()}
    try:
        return kind(tuple(where), Selection(**selected), **fields)
    except TypeError as error:
        raise InvalidEdit(f"An edit of kind {kind.kind!r}: {error}.") from error


def _field(
    kind: type[Edit], name: str, value: object, to_tensor: Callable[[Any], TensorData]
) -> object:
    """The value of an edit's field, from its JSON form."""
    if name == "seed":
        return _seed(value)
    if name == "values" and issubclass(kind, Mean | Resample):
        # null is refused, because it may stand for a tensor that could not be written as JSON.
        if value == OF_BATCH:
            return None
        if not isinstance(value, dict):
            raise InvalidEdit(
                f'The values of an edit of kind {kind.kind!r} are a tensor or "{OF_BATCH}"; got '
                f"{reprlib.repr(value)}."
            )
    if name == "values" and isinstance(value, dict):
        return to_tensor(value)
    try:
        return _number(value)
    except InvalidEdit as error:
        raise InvalidEdit(f"The {name} of an edit: {error}") from error


def _names(part: object) -> bool:
    """Whether ``part`` can be a part of a place's name: a string or a layer."""
    return isinstance(part, str | int) and not isinstance(part, bool)


def _target(point: PlaceLike, where: Where) -> tuple[tuple[str | int, ...], Selection]:
    """The place and the selection given by the arguments of an edit."""
    rest: dict[str, Any] = dict(where)
    name: list[Any] = _parts(point)
    name += [rest.pop(part) for part in ("layer", "norm", "stack") if rest.get(part) is not None]
    selected = {part: _indices(rest.pop(part, None), part) for part in _SELECTED}
    if rest:
        fields_of_where = ", ".join(Where.__annotations__)
        raise InvalidEdit(f"An edit has no {min(rest)!r}; it takes {fields_of_where}.")
    return tuple(_plain(part) for part in name), Selection(**selected)


def _plain(part: Any) -> Any:  # noqa: ANN401 - checked where the name is resolved
    """A part of a name, with integers of other libraries converted to ``int``, as JSON needs."""
    number = as_integer(part)
    return part if number is None else number


def _parts(point: PlaceLike) -> list[Any]:
    """The name of a point as plain data: label, layer, norm and stack, as far as given."""
    if isinstance(point, Place):
        return [part for part in point.to_json() if part is not None]
    if isinstance(point, tuple):
        return [part.label if isinstance(part, Point) else part for part in point]
    return [point.label if isinstance(point, Point) else point]


def _indices(which: object, name: str) -> int | tuple[int, ...] | None:
    """One index, a tuple of several, or ``None`` for all, from any kind of whole numbers.

    Booleans are refused: a mask would be read as the indices 0 and 1.
    """
    if which is None:
        return None
    try:
        if not isinstance(which, Iterable) or (isinstance(which, Tensor) and which.ndim == 0):
            return whole_number(which)
        indices = tuple(whole_number(index) for index in which)
    except TypeError as error:
        raise InvalidEdit(
            f"{name}={reprlib.repr(which)} should be one or several whole numbers; of a boolean "
            "mask, mask.nonzero()[:, 0]."
        ) from error
    if not indices or len(set(indices)) < len(indices):
        got = reprlib.repr(list(indices))
        raise InvalidEdit(f"{name} needs one or more different indices, got {got}.")
    return indices


def _seed(seed: object) -> int:
    try:
        return whole_number(seed)
    except TypeError as error:
        raise InvalidEdit(f"seed={reprlib.repr(seed)} should be a whole number.") from error


def _values(values: Tensor | float) -> TensorData | float:
    return TensorData(values) if isinstance(values, Tensor) else _number(values)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidEdit(f"An edit writes numbers or tensors; {reprlib.repr(value)} is neither.")
    try:
        number = float(value)
    except OverflowError as error:
        raise InvalidEdit("An edit can't write a number that no float can hold.") from error
    if isnan(number):
        raise InvalidEdit("An edit can't write NaN: every number computed from it would be NaN.")
    return number


__all__ = [
    "Apply",
    "BatchSplit",
    "Edge",
    "Edit",
    "EditSite",
    "Hook",
    "Replace",
    "Selection",
    "add",
    "apply",
    "attention_at",
    "batch_split",
    "check_order",
    "donor_rows",
    "edge",
    "first_changed_column",
    "for_rows",
    "from_dict",
    "input_of",
    "mean",
    "patch",
    "replace",
    "resample",
    "scale",
    "summing_dtype",
    "term_of",
    "token_mean",
    "values_of",
    "zero",
]
