"""The hash of a Python function, which is the same in every process that runs the same source.

It covers the function's name and code, nested functions, and captured data: defaults and closure
cells that hold numbers, text, tuples of them, tensors or functions. Of any other captured object (a
list that the function fills, a model) it only covers the type. Global variables are not covered.
"""

import hashlib
from collections.abc import Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interp.io import tensor_bytes

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
