"""The kinds of edit: zero, mean, resample, scale, add, replace.

An edit is frozen, hashable and JSON-serialisable (except one that holds a function): the same edit
can be used in a notebook, in the explorer and in a report, and its hash is stored with the result.
Zero and mean ablation: e.g. Wang et al. 2022; resample ablation: Chan et al. 2022, "Causal
Scrubbing".
"""

import hashlib
import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from interp.edits.selection import EditSite, Index, Selection
from interp.edits.values import batch_mean, broadcast_values, donor_rows
from interp.errors import InvalidEdit
from interp.io import TensorData
from interp.model import Network
from interp.points import Place

EVERYTHING = Selection()
OF_BATCH = "batch"
"""The JSON form of the values of a mean or of resampling that come from the run's own batch."""


@dataclass(frozen=True)
class Edit:
    """A change of the tensor at one place.

    Attributes:
        kind: the name of the kind in JSON.
        required: the required fields of its JSON form.
        where: the place as the user named it, e.g. ``("z", 1)``; each model resolves it.
        select: the part of the tensor that changes.
    """

    kind: ClassVar[str]
    required: ClassVar[tuple[str, ...]] = ()

    where: tuple[str | int, ...]
    select: Selection = EVERYTHING

    def __str__(self) -> str:
        """``zero("z", 1, head=4)``: the place and the selection, without values."""
        parts = [f'"{part}"' if isinstance(part, str) else str(part) for part in self.where]
        selected = {field.name: getattr(self.select, field.name) for field in fields(self.select)}
        parts += [f"{name}={which}" for name, which in selected.items() if which is not None]
        return f"{self.kind}({', '.join(parts)})"

    def resolved(self, model: Network, edited: Collection[Place]) -> "tuple[Place, Edit]":  # noqa: ARG002
        """The place that it changes in a model, and the edit as applied to this model.

        Args:
            model: the model.
            edited: the places of other edits of the same run.

        Raises:
            UnknownPlace: the model has no such place.
        """
        return model.names.resolve(self.where), self

    def replacement(self, old: Tensor, whole: Tensor, index: Index, site: EditSite) -> Tensor:
        """The replacement of ``old``, which is ``whole[index]`` with no axis dropped."""
        raise NotImplementedError

    def __call__(self, x: Tensor, site: EditSite) -> Tensor:
        """A copy of ``x`` with the selected part replaced.

        Raises:
            InvalidEdit: the selection or the values do not fit ``x``.
        """
        index = site.index(self.select, x.shape)
        new = self.replacement(x[index], x, index, site)
        if self.select.selects_all:
            # A copy, so that the run shares no memory with the edit's values or the user's tensors.
            return new.expand_as(x).clone()
        changed = x.clone()
        changed[index] = new
        return changed

    def write(self, x: Tensor, site: EditSite) -> None:
        """Replace the selected part of ``x`` in place, without copying ``x``.

        Raises:
            InvalidEdit: the selection or the values do not fit ``x``.
        """
        index = site.index(self.select, x.shape)
        x[index] = self.replacement(x[index], x, index, site)

    @property
    def earlier(self) -> tuple[Place, ...]:
        """Other places of the same forward whose tensors it reads."""
        return ()

    def axes_of_values(self, place: Place) -> tuple[Place, Selection]:
        """The place whose axes the values have if applied at ``place``, and the selection there."""
        return place, self.select

    @property
    def reads_other_rows(self) -> bool:
        """Whether its result for a row may depend on the other rows of the batch."""
        return False

    @property
    def pointwise(self) -> bool:
        """Whether it changes all positions in the same way, without reading the others."""
        here = self.select
        return here.pos is None and here.key is None and not may_vary_by_position(self)

    def to_dict(
        self, of_tensor: Callable[[TensorData], object] = TensorData.to_json
    ) -> dict[str, Any]:
        """Plain data, from which :func:`interp.edits.from_dict` builds an equal edit.

        Args:
            of_tensor: function that converts the values of an edit to plain data.
        """
        out: dict[str, Any] = {"kind": self.kind, "where": list(self.where)}
        for field in fields(self.select):
            value = getattr(self.select, field.name)
            if value is not None:
                out[field.name] = list(value) if isinstance(value, tuple) else value
        for field in fields(self):
            if field.name not in ("where", "select"):
                value = getattr(self, field.name)
                if isinstance(value, TensorData):
                    value = of_tensor(value)
                out[field.name] = OF_BATCH if value is None else value
        return out

    @property
    def digest(self) -> str:
        """SHA-256 of the JSON form, with each tensor replaced by its hash."""
        plain = self.to_dict(lambda data: data.digest)
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def values_of(edit: Edit) -> TensorData | None:
    """The tensor that an edit holds; ``None`` if it holds none."""
    values = getattr(edit, "values", None)
    return values if isinstance(values, TensorData) else None


def may_vary_by_position(edit: Edit) -> bool:
    """Whether an edit's values have an axis that may be positions: any but the last may be."""
    values = values_of(edit)
    return values is not None and len(values.shape) > 1


@dataclass(frozen=True)
class Zero(Edit):
    """Write zeros."""

    kind = "zero"

    def replacement(self, old: Tensor, whole: Tensor, index: Index, site: EditSite) -> Tensor:  # noqa: ARG002
        """Zeros in the shape of ``old``."""
        return torch.zeros_like(old)


@dataclass(frozen=True)
class Scale(Edit):
    """Multiply by a factor."""

    kind = "scale"
    required = ("factor",)
    factor: float = 1.0

    def replacement(self, old: Tensor, whole: Tensor, index: Index, site: EditSite) -> Tensor:  # noqa: ARG002
        """``factor · old``."""
        return old * self.factor


@dataclass(frozen=True)
class Add(Edit):
    """Add values, e.g. a steering vector."""

    kind = "add"
    required = ("values",)
    values: TensorData | float = 0.0

    def replacement(self, old: Tensor, whole: Tensor, index: Index, site: EditSite) -> Tensor:
        """``old + values``."""
        return old + broadcast_values(self.values, old, whole, index, self.select, site)


@dataclass(frozen=True)
class Replace(Edit):
    """Write values instead of the activations."""

    kind = "replace"
    required = ("values",)
    values: TensorData | float = 0.0

    def replacement(self, old: Tensor, whole: Tensor, index: Index, site: EditSite) -> Tensor:
        """The values, broadcast to ``old``."""
        return broadcast_values(self.values, old, whole, index, self.select, site)


@dataclass(frozen=True)
class Mean(Edit):
    """Write a mean: the given one, or the mean over rows and tokens of the run's own batch."""

    kind = "mean"
    required = ("values",)
    values: TensorData | None = None

    def replacement(self, old: Tensor, whole: Tensor, index: Index, site: EditSite) -> Tensor:
        """The mean, broadcast to ``old``."""
        if self.values is not None:
            return broadcast_values(self.values, old, whole, index, self.select, site)
        return batch_mean(whole, site).expand_as(whole)[index]

    @property
    def reads_other_rows(self) -> bool:
        """True for the mean of the run's own batch."""
        return self.values is None

    @property
    def pointwise(self) -> bool:
        """False for the mean of the run's own batch."""
        return self.values is not None and super().pointwise


@dataclass(frozen=True)
class Resample(Edit):
    """Write the activation of another prompt: the given one, or that of another row of the batch.

    Without values, row i gets the activation of row σ(i), where σ is a cyclic permutation of all
    rows drawn with ``seed``; no row keeps its own.
    """

    kind = "resample"
    required = ("values", "seed")
    values: TensorData | None = None
    seed: int = 0

    def replacement(self, old: Tensor, whole: Tensor, index: Index, site: EditSite) -> Tensor:
        """The donor's activation in the same columns."""
        if self.values is not None:
            return broadcast_values(self.values, old, whole, index, self.select, site)
        n = whole.shape[0]
        if n < 2 or site.context.real is not None or site.context.encoder_real is not None:  # noqa: PLR2004
            raise InvalidEdit(
                f"{site.place}: resampling within a batch needs at least two prompts, all of one "
                "length. Otherwise give the donors' activations: edits.resample(values=...)."
            )
        return whole[donor_rows(n, self.seed).to(whole.device)][index]

    @property
    def reads_other_rows(self) -> bool:
        """True if the donors are rows of the same batch."""
        return self.values is None

    @property
    def pointwise(self) -> bool:
        """False: each position gets the activation of the donor at the same position."""
        return False
