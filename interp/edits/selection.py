"""Which part of a tensor does an edit concern? Rows, positions, heads, keys, units.

A position is counted among the real tokens of its own row: ``pos=0`` is a row's first token and
``pos=-1`` its last, wherever padding put them.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.errors import InvalidEdit
from interp.model.batch import column_of
from interp.model.context import Context
from interp.points import TOKEN_AXES, Place

Which = int | tuple[int, ...] | None
Index = tuple[slice | Tensor, ...]

UNITS = ("d_model", "d_head", "d_mlp", "vocab")


@dataclass(frozen=True)
class Selection:
    """Indices along the axes of a point; ``None`` means all, a tuple several.

    Attributes:
        batch: rows.
        pos: positions (of the query, in scores and pattern) among each row's real tokens.
        head: heads (key/value heads for k and v).
        key: key positions, in scores, pattern, and the keys and values of cross-attention.
        unit: dimensions of the last axis: d_model, d_head, d_mlp or vocabulary.
        expert: experts, in the points of a mixture.
    """

    batch: Which = None
    pos: Which = None
    head: Which = None
    key: Which = None
    unit: Which = None
    expert: Which = None

    @property
    def everything(self) -> bool:
        """Whether nothing is left out."""
        return self == Selection()

    def per_axis(self, place: Place) -> tuple[Which, ...]:
        """What is selected along each axis of ``place``.

        Raises:
            InvalidEdit: an axis is selected that the point does not have.
        """
        axes = place.point.axes
        unit = next((axis for axis in axes if axis in UNITS), "unit")
        token = "query" if "query" in axes else "pos"
        head = "kv_head" if "kv_head" in axes else "head"
        key = "source" if "source" in axes else "key"
        asked = {"batch": self.batch, token: self.pos, head: self.head, key: self.key}
        asked |= {unit: self.unit, "expert": self.expert}
        for axis, which in asked.items():
            if which is not None and axis not in axes:
                raise InvalidEdit(
                    f"{place} has the axes [{' '.join(axes)}]: there is no {axis!r} to select."
                )
        return tuple(asked.get(axis) for axis in axes)


@dataclass(frozen=True, eq=False)
class Site:
    """Where an edit happens: the place, and the run's positions and padding."""

    place: Place
    context: Context

    def real(self, axis: str) -> Bool[Tensor, "batch key"] | None:
        """Which columns along a token axis hold tokens; ``None`` if all do."""
        if axis == "source":
            return self.context.encoder_real
        return self.context.real

    def index(self, selection: Selection, shape: torch.Size) -> Index:
        """How to index a tensor of ``shape``, which holds the columns that the context reads.

        Every axis stays: a single index selects a slice of length one.
        """
        axes = self.place.point.axes
        chosen: list[slice | Tensor] = []
        for axis, which, size in zip(axes, selection.per_axis(self.place), shape, strict=True):
            if axis in TOKEN_AXES and which is not None:
                rows = self._plain("batch", selection.batch, shape[0])
                chosen.append(self._columns(axis, as_tuple(which), size, rows))
            else:
                chosen.append(self._plain(axis, which, size))
        if all(isinstance(index, slice) for index in chosen):
            return tuple(chosen)
        return open_mesh(chosen, shape, self.context.positions.device)

    def _from(self, first: int, wanted: tuple[int, ...], n: int) -> tuple[int, ...]:
        """Indices into the columns from ``first`` on of positions among ``n``."""
        if first == 0:
            return wanted
        counted = tuple(p + n - first if p < 0 else p - first for p in wanted)
        for position, column in zip(wanted, counted, strict=True):
            if column < 0:
                raise InvalidEdit(f"{self.place}: position {position} was read before.")
        return counted

    def _plain(self, axis: str, which: Which, size: int) -> slice | Tensor:
        if which is None:
            return slice(None)
        wanted = as_tuple(which)
        for index in wanted:
            if not -size <= index < size:
                raise InvalidEdit(
                    f"{self.place}: {axis} {index} is outside 0..{size - 1} ({size} in all)."
                )
        wanted = tuple(index % size for index in wanted)
        if len(set(wanted)) < len(wanted):
            raise InvalidEdit(f"{self.place}: {axis} {which} selects the same one twice.")
        if len(wanted) == 1:
            return slice(wanted[0], wanted[0] + 1)
        return torch.tensor(wanted, device=self.context.positions.device)

    def _columns(
        self, axis: str, wanted: tuple[int, ...], size: int, rows: slice | Tensor
    ) -> slice | Tensor:
        """Columns of positions: the same for all rows without padding, else ``[batch n]``."""
        real, first = self.real(axis), 0 if axis in ("key", "source") else self.context.offset
        if real is None:
            n = size if axis in ("key", "source") else self.context.n_key
            return self._plain(axis, self._from(first, wanted, n), size)
        columns = torch.stack([self._column(real, p, rows) for p in wanted], dim=1) - first
        ordered = columns[rows].sort(dim=1).values
        if bool((ordered[:, 1:] == ordered[:, :-1]).any()):
            raise InvalidEdit(f"{self.place}: {axis} {wanted} selects a position twice in a row.")
        return columns

    def _column(
        self, real: Bool[Tensor, "batch key"], position: int, rows: slice | Tensor
    ) -> Int[Tensor, " batch"]:
        """The column of a position in every row; only the selected rows need to have it."""
        columns, lacking = column_of(real, position)
        selected = torch.zeros_like(lacking)
        selected[rows] = True
        short = selected & lacking
        if bool(short.any()):
            row = int(short.nonzero()[0])
            raise InvalidEdit(
                f"{self.place}: position {position} of row {row}, which has only "
                f"{int(real[row].sum())} tokens."
            )
        return columns


def as_tuple(which: int | tuple[int, ...]) -> tuple[int, ...]:
    """One or several indices as several."""
    return (which,) if isinstance(which, int) else which


def open_mesh(
    chosen: list[slice | Tensor], shape: torch.Size, device: torch.device
) -> tuple[Tensor, ...]:
    """Index tensors that broadcast to the selection, axis by axis (as ``numpy.ix_``).

    A two-dimensional index, ``[batch n]``, picks other columns in every row.
    """
    n = len(shape)
    mesh: list[Tensor] = []
    for axis, (index, size) in enumerate(zip(chosen, shape, strict=True)):
        if isinstance(index, slice):
            index = torch.arange(size, device=device)[index]  # noqa: PLW2901 - the same, spelt out
        view = [1] * n
        view[axis] = index.shape[-1]
        if index.ndim == 2:  # noqa: PLR2004 - [batch n]
            index = index[chosen[0]]  # noqa: PLW2901 - of the rows that are selected
            view[0] = index.shape[0]
        mesh.append(index.reshape(view))
    return tuple(mesh)
