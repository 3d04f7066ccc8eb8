"""What may be done to a tensor of a forward? Seven kinds of edit, each a piece of data.

An edit is frozen, hashable and JSON-serialisable (save :class:`Apply`, which holds a function):
the same specification runs in a notebook, in the explorer and in a report, and its hash stands
beside the result. Zero and mean ablation: e.g. Wang et al. 2022; resample ablation: Chan et al.
2022, "Causal Scrubbing".
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from interp.edits.broadcast import aligned, checked, donors, laid_along_positions, mean_of
from interp.edits.selection import Index, Selection, Site
from interp.errors import HookFailed, InvalidEdit
from interp.points import Place
from interp.tensor_data import TensorData
from interp.weight_version import version_of

EVERYTHING = Selection()


@dataclass(frozen=True)
class Hook:
    """What a user's function is told beside the tensor.

    Attributes:
        name: the TransformerLens name of the place.
        place: the place itself.
    """

    name: str
    place: Place

    def layer(self) -> int | None:
        """The layer; ``None`` at the entry and the exit."""
        return self.place.layer


@dataclass(frozen=True)
class Edit:
    """A change of the tensor found at one place.

    Attributes:
        where: the place as the user named it, e.g. ``("z", 1)``; resolved by each model.
        select: the part of the tensor that changes.
    """

    kind: ClassVar[str]

    where: tuple[str | int, ...]
    select: Selection = EVERYTHING

    def new(self, old: Tensor, whole: Tensor, index: Index, site: Site) -> Tensor:
        """What replaces ``old``, the selected part of ``whole`` (every axis kept)."""
        raise NotImplementedError

    def __call__(self, x: Tensor, site: Site) -> Tensor:
        """``x`` with the selected part replaced; ``x`` itself is left alone.

        Raises:
            InvalidEdit: the selection or what is written does not fit ``x``.
        """
        index = site.index(self.select, x.shape)
        new = self.new(x[index], x, index, site)
        if self.select.everything:
            # A tensor of the run's own: neither the edit's data nor the user's is handed on.
            return new.expand_as(x).clone()
        changed = x.clone()
        changed[index] = new
        return changed

    @property
    def reads_rows(self) -> bool:
        """Whether what it writes depends on more of the run than the selected part of the row."""
        return False

    @property
    def pointwise(self) -> bool:
        """Whether what it does at one position neither knows of others nor of its own place."""
        return self.select.pos is None and self.select.key is None

    def to_dict(self) -> dict[str, Any]:
        """Plain data; :func:`interp.edits.from_dict` reads it back to an equal edit."""
        out: dict[str, Any] = {"kind": self.kind, "where": list(self.where)}
        for field in fields(self.select):
            value = getattr(self.select, field.name)
            if value is not None:
                out[field.name] = list(value) if isinstance(value, tuple) else value
        for field in fields(self):
            if field.name not in ("where", "select"):
                value = getattr(self, field.name)
                out[field.name] = value.to_json() if isinstance(value, TensorData) else value
        return out

    @property
    def digest(self) -> str:
        """SHA-256 of what the edit says."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Zero(Edit):
    """Write zeros."""

    kind = "zero"

    def new(self, old: Tensor, whole: Tensor, index: Index, site: Site) -> Tensor:  # noqa: ARG002
        """Zeros."""
        return torch.zeros_like(old)


@dataclass(frozen=True)
class Scale(Edit):
    """Multiply by a factor."""

    kind = "scale"
    factor: float = 1.0

    def new(self, old: Tensor, whole: Tensor, index: Index, site: Site) -> Tensor:  # noqa: ARG002
        """Factor · old."""
        return old * self.factor


@dataclass(frozen=True)
class Add(Edit):
    """Add values, e.g. a steering vector."""

    kind = "add"
    values: TensorData | float = 0.0

    def new(self, old: Tensor, whole: Tensor, index: Index, site: Site) -> Tensor:  # noqa: ARG002
        """Old + values."""
        return old + aligned(self.values, old, self.select, site)

    @property
    def pointwise(self) -> bool:
        """Not if the values might be laid along positions."""
        return super().pointwise and not laid_along_positions(self.values)


@dataclass(frozen=True)
class Replace(Edit):
    """Write values in place of what is there."""

    kind = "replace"
    values: TensorData | float = 0.0

    def new(self, old: Tensor, whole: Tensor, index: Index, site: Site) -> Tensor:  # noqa: ARG002
        """The values."""
        return aligned(self.values, old, self.select, site)

    @property
    def pointwise(self) -> bool:
        """Not if the values might be laid along positions."""
        return super().pointwise and not laid_along_positions(self.values)


@dataclass(frozen=True)
class Mean(Edit):
    """Write a mean: the one given, or that of this very run over rows and positions."""

    kind = "mean"
    values: TensorData | None = None

    def new(self, old: Tensor, whole: Tensor, index: Index, site: Site) -> Tensor:
        """The mean activation."""
        if self.values is not None:
            return aligned(self.values, old, self.select, site)
        return mean_of(whole, site).expand_as(whole)[index]

    @property
    def reads_rows(self) -> bool:
        """If it is a mean over this run."""
        return self.values is None

    @property
    def pointwise(self) -> bool:
        """Not if it is a mean over this run, nor if the values might be laid along positions."""
        given = self.values is not None and not laid_along_positions(self.values)
        return given and super().pointwise


@dataclass(frozen=True)
class Resample(Edit):
    """Write the activation of another prompt: the one given, or another row of this very run.

    Without values, row i takes that of row σ(i), where σ is a cycle through all rows drawn from
    ``seed``, so that no row keeps its own.
    """

    kind = "resample"
    values: TensorData | None = None
    seed: int = 0

    def new(self, old: Tensor, whole: Tensor, index: Index, site: Site) -> Tensor:
        """The donor's activation at the same positions."""
        if self.values is not None:
            return aligned(self.values, old, self.select, site)
        n = whole.shape[0]
        if n < 2 or site.context.real is not None or site.context.encoder_real is not None:  # noqa: PLR2004
            raise InvalidEdit(
                f"{site.place}: resampling among the rows of a run needs at least two prompts, all "
                "of one length. Give edits.resample(values=...) the donor's activations instead."
            )
        return whole[donors(n, self.seed).to(whole.device)][index]

    @property
    def reads_rows(self) -> bool:
        """If the donor is another row of this run."""
        return self.values is None

    @property
    def pointwise(self) -> bool:
        """Never: a donor's positions are its own."""
        return False


@dataclass(frozen=True)
class Apply(Edit):
    """Call a function of the user's: ``fn(tensor, hook)``.

    It is handed a copy of the selected part (every axis kept) and may return a new tensor of the
    same shape, dtype and device, or change the copy in place, or return ``None`` to leave all as
    it is.
    """

    kind = "apply"
    fn: Callable[[Tensor, Hook], Tensor | None] = lambda tensor, hook: None  # noqa: ARG005
    hook: Hook | None = None

    def new(self, old: Tensor, whole: Tensor, index: Index, site: Site) -> Tensor:  # noqa: ARG002
        """What the function makes of ``old``."""
        hook = self.hook or Hook(str(site.place), site.place)
        handed = old.clone()
        before = version_of(handed)
        try:
            returned: object = self.fn(handed, hook)
        except Exception as error:
            raise HookFailed(
                f"The function given for {hook.name} raised {type(error).__name__}: {error}"
            ) from error
        if returned is None:
            return old if version_of(handed) == before and before >= 0 else handed
        return checked(returned, old, hook.name)

    @property
    def reads_rows(self) -> bool:
        """Nobody knows what a function reads."""
        return True

    @property
    def pointwise(self) -> bool:
        """Nobody knows what a function reads."""
        return False

    def to_dict(self) -> dict[str, Any]:
        """Refused: a function is not data.

        Raises:
            InvalidEdit: always.
        """
        raise InvalidEdit(
            f"edits.apply at {self.where} holds a Python function, which can't be written as JSON; "
            "say it with zero, mean, resample, scale, add or replace."
        )

    @property
    def digest(self) -> str:
        """Of the place, and of the function's name and code (not of what it closes over)."""
        name = getattr(self.fn, "__qualname__", repr(self.fn))
        code = getattr(self.fn, "__code__", None)
        body = "" if code is None else f"{code.co_code.hex()} {code.co_consts} {code.co_names}"
        said = f"apply {self.where} {self.select} {name} {body}"
        return hashlib.sha256(said.encode()).hexdigest()
