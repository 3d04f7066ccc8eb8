"""An edit that calls a user's function, and the hash of the function.

The hash is the same in every process that runs the same source. It covers the function's name and
code, nested functions, and captured data: defaults and closure cells that hold numbers, text,
tuples of them, tensors or functions. Of any other captured object (a list that the function fills,
a model) it only covers the type. Global variables are not covered.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from inspect import signature
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interp.edits.edit import Edit
from interp.edits.selection import EditSite, Index
from interp.errors import HookFailed, InvalidEdit
from interp.io import TensorData, tensor_bytes
from interp.model import version_of
from interp.points import Place


@dataclass(frozen=True)
class Hook:
    """The second argument of a user's function, which describes its tensor.

    Attributes:
        name: the TransformerLens name of the place.
        place: the place itself.
    """

    name: str
    place: Place

    def layer(self) -> int | None:
        """The layer; ``None`` outside the blocks."""
        return self.place.layer


def takes_two_arguments(fn: Callable[..., object]) -> bool:
    """Whether ``fn(tensor, hook)`` is a valid call, as far as a signature says."""
    try:
        signature(fn).bind(None, None)
    except (TypeError, ValueError) as error:
        return isinstance(error, ValueError)  # a function of C without a signature
    return True


@dataclass(frozen=True)
class Apply(Edit):
    """Call a user's function: ``fn(tensor, hook)``.

    The function gets a copy of the selected part, with no axis dropped. It may return a tensor of
    the same shape, dtype and device, or ``None``: then the copy is used if it was changed in place,
    and otherwise nothing changes. Gradients with respect to tensors that it uses are recorded by
    ``interp.run(..., keep_graph=True)`` and, in the caller's grad mode, by
    ``model.run_with_hooks``; elsewhere it is called with gradients disabled.
    """

    kind = "apply"
    fn: Callable[[Tensor, Hook], Tensor | None] = lambda tensor, hook: None  # noqa: ARG005

    def replacement(self, old: Tensor, whole: Tensor, index: Index, site: EditSite) -> Tensor:  # noqa: ARG002
        """The result of the function on a copy of ``old``."""
        hook = Hook(site.hook, site.place)
        copy = old.clone()
        before = version_of(copy)
        try:
            returned: object = self.fn(copy, hook)
        except Exception as error:
            raise HookFailed(
                f"The function given for {hook.name} raised {type(error).__name__}: {error}"
                f"{'' if takes_two_arguments(self.fn) else '. It is called as fn(tensor, hook).'}"
            ) from error
        if returned is None:
            return old if version_of(copy) == before and before >= 0 else copy
        return check_returned(returned, old, hook.name)

    @property
    def reads_other_rows(self) -> bool:
        """True, because a Python function may read anything."""
        return True

    @property
    def pointwise(self) -> bool:
        """False, because a Python function may depend on the position."""
        return False

    def to_dict(
        self,
        of_tensor: Callable[[TensorData], object] = TensorData.to_json,  # noqa: ARG002
    ) -> dict[str, Any]:
        """Not available: a function is not data.

        Raises:
            InvalidEdit: always.
        """
        raise InvalidEdit(
            f"edits.apply at {self.where} holds a Python function, which can't be written as JSON; "
            "use zero, mean, resample, scale, add or replace."
        )

    @property
    def digest(self) -> str:
        """SHA-256 of place, selection and function; see :func:`function_digest`."""
        text = f"apply {self.where} {self.select} {function_digest(self.fn)}"
        return hashlib.sha256(text.encode()).hexdigest()


def check_returned(returned: object, old: Tensor, name: str) -> Tensor:
    """The result of a user's function, if it can replace ``old``.

    Raises:
        InvalidEdit: it is not a tensor, or its shape, dtype or device differs.
    """
    if not isinstance(returned, Tensor):
        raise InvalidEdit(
            f"The function given for {name} returned {type(returned).__name__}; it should return a "
            "tensor, or None for no change beyond what it did in place."
        )
    for attribute in ("shape", "dtype", "device"):
        got, expected = getattr(returned, attribute), getattr(old, attribute)
        if got != expected:
            if attribute == "shape":
                got, expected = tuple(got), tuple(expected)
            raise InvalidEdit(
                f"The function given for {name} returned {attribute} {got}; expected {expected}."
            )
    return returned


SCALARS = (bool, int, float, complex, str, bytes, np.generic, type(None), type(Ellipsis))


def function_digest(fn: object) -> str:
    """SHA-256 of a function or of another callable."""
    return hashlib.sha256("\n".join(_parts(fn, set())).encode()).hexdigest()


def _parts(value: object, seen: set[int]) -> Iterator[str]:
    """Text that is equal for two values if and only if they are the same data."""
    if isinstance(value, SCALARS):
        yield f"{type(value).__name__} {value!r}"
    elif isinstance(value, tuple):
        yield f"tuple {len(value)}"
        for member in value:
            yield from _parts(member, seen)
    elif isinstance(value, frozenset):
        # The order of a set differs between processes.
        yield f"frozenset {sorted(' '.join(_parts(member, seen)) for member in value)}"
    elif isinstance(value, Tensor | np.ndarray) and (data := _bytes(value)) is not None:
        digest = hashlib.sha256(data).hexdigest()
        yield f"{type(value).__name__} {value.dtype} {tuple(value.shape)} {digest}"
    elif id(value) not in seen:  # a function may capture itself
        seen.add(id(value))
        yield from _parts_of_code(value, seen)


def _parts_of_code(value: object, seen: set[int]) -> Iterator[str]:
    """The text for code and callables; for any other object, its type."""
    if isinstance(value, CodeType):
        yield f"code {value.co_name} {value.co_code.hex()} {value.co_names} {value.co_varnames}"
        yield from _parts(value.co_consts, seen)
    elif isinstance(value, FunctionType):
        yield f"function {value.__module__} {value.__qualname__}"
        cells = tuple(_cell_contents(cell) for cell in value.__closure__ or ())
        named = tuple(sorted((value.__kwdefaults__ or {}).items()))
        for part in (value.__code__, value.__defaults__, named, cells):
            yield from _parts(part, seen)
    elif isinstance(value, MethodType):
        yield from _parts((value.__func__, value.__self__), seen)
    elif isinstance(value, partial):
        named = tuple(sorted(value.keywords.items()))
        yield from _parts(("partial", value.func, value.args, named), seen)
    else:
        described: Any = value if hasattr(value, "__qualname__") else type(value)
        module = getattr(described, "__module__", None)
        yield f"{type(value).__name__} {module} {described.__qualname__}"


def _cell_contents(cell: object) -> object:
    try:
        return cell.cell_contents  # pyright: ignore[reportAttributeAccessIssue] - of a closure
    except ValueError:  # not assigned yet
        return ()


def _bytes(value: Tensor | np.ndarray) -> bytes | memoryview | None:
    """The bytes of a tensor or an array; ``None`` if it holds no data of its own."""
    if isinstance(value, np.ndarray):
        return None if value.dtype.hasobject else value.tobytes()
    return tensor_bytes(value) if value.layout == torch.strided and not value.is_meta else None
