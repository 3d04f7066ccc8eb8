"""The part of a tensor that an edit changes: rows, positions, heads, keys, units, experts.

Positions count the real tokens of a row: ``pos=0`` is a row's first token and ``pos=-1`` its last,
wherever the padding is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.errors import InvalidEdit
from interp.model import Context, column_of
from interp.points import TOKEN_AXES, Place

AxisIndices = int | tuple[int, ...] | None
Index = tuple[slice | Tensor, ...]

UNITS = ("d_model", "d_head", "d_mlp", "vocab", "feature", "written")


@dataclass(frozen=True)
class Selection:
    """Indices along the axes of a point: an int, a tuple of ints, or ``None`` for all.

    Attributes:
        batch: rows.
        pos: positions (of the query, in scores and pattern) among each row's real tokens.
        head: heads (key/value heads for k and v).
        key: key positions, in scores, pattern, and the keys and values of cross-attention.
        unit: indices along the last axis: d_model, d_head, d_mlp, vocabulary or features.
        expert: experts, at the points of a mixture of experts.
    """

    batch: AxisIndices = None
    pos: AxisIndices = None
    head: AxisIndices = None
    key: AxisIndices = None
    unit: AxisIndices = None
    expert: AxisIndices = None

    @property
    def selects_all(self) -> bool:
        """Whether the whole tensor is selected."""
        return self == Selection()

    def per_axis(self, place: Place) -> tuple[AxisIndices, ...]:
        """The selected indices along each axis of ``place``.

        Raises:
            InvalidEdit: the selection names an axis that the point does not have.
        """
        axes = place.point.axes
        unit = next((axis for axis in axes if axis in UNITS), "unit")
        token = "query" if "query" in axes else "pos"
        head = "kv_head" if "kv_head" in axes else "head"
        key = "source" if "source" in axes else "key"
        selected = {"batch": self.batch, token: self.pos, head: self.head, key: self.key}
        selected |= {unit: self.unit, "expert": self.expert}
        for axis, which in selected.items():
            if which is not None and axis not in axes:
                raise InvalidEdit(
                    f"{place} has the axes [{' '.join(axes)}]; it has no {axis!r} to select."
                )
        return tuple(selected.get(axis) for axis in axes)


@dataclass(frozen=True, eq=False)
class EditSite:
    """The place of an edit, with the positions and the padding of the run.

    Attributes:
        place: the place in the model.
        context: the columns that the forward computes at this place, and which are padding.
        hook: the TransformerLens name of the place.
        earlier: tensors of the same forward, at other places that its edits read.
        changed_inputs: the input stream of each head, as changed by earlier edits of edges.
    """

    place: Place
    context: Context
    hook: str = ""
    earlier: Mapping[Place, Tensor] = field(default_factory=dict)
    changed_inputs: dict[object, Tensor] = field(default_factory=dict)

    def real(self, axis: str) -> Bool[Tensor, "batch key"] | None:
        """Mask of the columns along ``axis`` that hold tokens; ``None`` without padding."""
        if axis == "source":
            return self.context.encoder_real
        return self.context.real

    def index(self, selection: Selection, shape: torch.Size) -> Index:
        """The index of the selected part of a tensor of ``shape``.

        No axis is dropped: a single index becomes a slice of length one.

        Raises:
            InvalidEdit: an index is out of range or selected twice, a row is too short, or a
                position was computed by an earlier forward.
        """
        axes = self.place.point.axes
        indices: list[slice | Tensor] = []
        for axis, which, size in zip(axes, selection.per_axis(self.place), shape, strict=True):
            if axis in TOKEN_AXES and which is not None:
                rows = self._resolve("batch", selection.batch, shape[0])
                indices.append(self._token_columns(axis, as_tuple(which), size, rows))
            else:
                indices.append(self._resolve(axis, which, size))
        if all(isinstance(index, slice) for index in indices):
            return tuple(indices)
        return open_mesh(indices, shape, self.context.positions.device)

    def _relative_to(self, first: int, positions: tuple[int, ...], n: int) -> tuple[int, ...]:
        """Positions among ``n`` as indices into the columns that start at ``first``."""
        if first == 0:
            return positions
        columns = tuple(p + n - first if p < 0 else p - first for p in positions)
        for position, column in zip(positions, columns, strict=True):
            if column < 0:
                raise InvalidEdit(
                    f"{self.place}: position {position} was computed by an earlier forward; its "
                    "keys and values are cached and can't be edited now."
                )
        return columns

    def _resolve(self, axis: str, which: AxisIndices, size: int) -> slice | Tensor:
        """The checked index along an axis, with negative indices counted from the end."""
        if which is None:
            return slice(None)
        indices = as_tuple(which)
        for index in indices:
            if not -size <= index < size:
                raise InvalidEdit(
                    f"{self.place}: {axis} {index} is outside 0..{size - 1} ({size} in all)."
                )
        indices = tuple(index % size for index in indices)
        if len(set(indices)) < len(indices):
            raise InvalidEdit(f"{self.place}: {axis} {which} selects the same one twice.")
        if len(indices) == 1:
            return slice(indices[0], indices[0] + 1)
        return torch.tensor(indices, device=self.context.positions.device)

    def _token_columns(
        self, axis: str, positions: tuple[int, ...], size: int, rows: slice | Tensor
    ) -> slice | Tensor:
        """The columns of positions: shared by all rows, or ``[batch n]`` with padding."""
        real, first = self.real(axis), 0 if axis in ("key", "source") else self.context.offset
        if real is None:
            n = size if axis in ("key", "source") else self.context.n_key
            return self._resolve(axis, self._relative_to(first, positions, n), size)
        columns = torch.stack([self._column_of(real, p, rows) for p in positions], dim=1) - first
        ordered = columns[rows].sort(dim=1).values
        if bool((ordered[:, 1:] == ordered[:, :-1]).any()):
            raise InvalidEdit(
                f"{self.place}: {axis} {positions} selects the same position of a row twice."
            )
        return columns

    def _column_of(
        self, real: Bool[Tensor, "batch key"], position: int, rows: slice | Tensor
    ) -> Int[Tensor, " batch"]:
        """The column of a position in each row; unselected rows may lack it."""
        columns, lacking = column_of(real, position)
        selected = torch.zeros_like(lacking)
        selected[rows] = True
        short = selected & lacking
        if bool(short.any()):
            row = int(short.nonzero()[0])
            raise InvalidEdit(
                f"{self.place}: there is no position {position} of row {row}, which has only "
                f"{int(real[row].sum())} tokens."
            )
        return columns


def as_tuple(which: int | tuple[int, ...]) -> tuple[int, ...]:
    """One index or several, as a tuple."""
    return (which,) if isinstance(which, int) else which


def open_mesh(
    indices: list[slice | Tensor], shape: torch.Size, device: torch.device
) -> tuple[Tensor, ...]:
    """Index tensors that broadcast to the shape of the selection, like those of ``numpy.ix_``.

    A two-dimensional index, ``[batch n]``, selects different columns in each row.
    """
    n = len(shape)
    mesh: list[Tensor] = []
    for axis, (index, size) in enumerate(zip(indices, shape, strict=True)):
        if isinstance(index, slice):
            index = torch.arange(size, device=device)[index]  # noqa: PLW2901 - the same, as indices
        view = [1] * n
        view[axis] = index.shape[-1]
        if index.ndim == 2:  # noqa: PLR2004 - [batch n]
            index = index[indices[0]]  # noqa: PLW2901 - of the selected rows
            view[0] = index.shape[0]
        mesh.append(index.reshape(view))
    return tuple(mesh)
