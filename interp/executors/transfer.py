"""How models and jobs travel: pickles whose tensors are sent apart, or as their bytes.

A model is a small pickle and one block of bytes with all of its weights, which the workers of a
machine map into memory instead of copying it. A job is a pickle with its tensors as plain bytes.
Functions travel by value if cloudpickle is installed; the modules and weights of the model that
they refer to are sent as names, and are those of the worker there. Pickles go only from a driver to
the workers that it started, and back.
"""

import io
import mmap
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import IO, Any

import torch
from torch import Tensor, nn

from interp.errors import InterpError, InvalidInput, OutOfResources, first_line, reason
from interp.io import tensor_bytes

ALIGNMENT = 64
"""Storages begin at multiples of so many bytes."""
Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


class _Device:
    """Stands for the worker's device in a pickle."""


_DEVICE = _Device()


@dataclass(frozen=True)
class _Block:
    """Stands for a storage of the block of bytes.

    Attributes:
        start: its first byte.
        nbytes: its number of bytes.
        on_device: whether it was not in the memory of the CPU.
    """

    start: int
    nbytes: int
    on_device: bool


@dataclass(frozen=True)
class _Named:
    """Stands for a module, a parameter or a buffer of the model.

    Attributes:
        name: its name in the model; empty for the model itself.
        is_module: whether it is a module.
    """

    name: str
    is_module: bool

    def of(self, model: nn.Module) -> object:
        """The part of this name."""
        if self.is_module:
            return model.get_submodule(self.name)
        module, _, name = self.name.rpartition(".")
        return getattr(model.get_submodule(module), name)


def _parts(model: nn.Module | None) -> dict[int, _Named]:
    """The names of all parts of a model, by the identity of each."""
    if model is None:
        return {}
    tensors = [*model.named_parameters(), *model.named_buffers()]
    names = {id(tensor): _Named(name, is_module=False) for name, tensor in tensors}
    return names | {id(part): _Named(name, is_module=True) for name, part in model.named_modules()}


def _from_bytes(dtype: torch.dtype, shape: tuple[int, ...], data: bytes, device: object) -> Tensor:
    """A tensor from its bytes in row-major order."""
    if not data:
        return torch.empty(shape, dtype=dtype)
    tensor = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype).reshape(shape)
    return tensor if device is None else tensor.to(device)  # pyright: ignore[reportArgumentType, reportCallIssue]


def _from_storage(
    storage: torch.UntypedStorage, dtype: torch.dtype, view: tuple[Any, ...], kind: str
) -> Tensor:
    """A tensor of a storage, or a parameter."""
    tensor = torch.empty(0, dtype=dtype, device=storage.device).set_(storage, *view)
    return tensor if kind == "tensor" else nn.Parameter(tensor, requires_grad=kind == "trained")


def _is_plain(value: Any) -> bool:  # noqa: ANN401 - whatever is pickled
    """Whether a value is a tensor or a parameter, strided and with data."""
    is_tensor = type(value) is Tensor or type(value) is nn.Parameter
    return is_tensor and value.layout == torch.strided and value.device.type != "meta"


@cache
def _base() -> Any:  # noqa: ANN401 - a class
    """The class of picklers: cloudpickle's, if it is installed."""
    try:
        import cloudpickle  # noqa: PLC0415 - an optional dependency
    except ImportError:
        return pickle.Pickler
    return cloudpickle.Pickler


@cache
def _pickler() -> Any:  # noqa: ANN401 - a class
    """The class of picklers that call ``reduce_tensor`` for tensors."""
    base = _base()

    class Pickler(base):
        reduce_tensor: Callable[[Tensor], Reduced]
        parts: dict[int, _Named]

        def persistent_id(self, value: object) -> object:
            if value is _DEVICE:
                return "device"
            return value if isinstance(value, _Block) else self.parts.get(id(value))

        def reducer_override(self, value: Any) -> Any:  # noqa: ANN401 - as pickle calls it
            if _is_plain(value):
                return self.reduce_tensor(value)
            inherited = getattr(super(), "reducer_override", None)
            return NotImplemented if inherited is None else inherited(value)

    return Pickler


class _Unpickler(pickle.Unpickler):
    """Reads what a pickler wrote; ``resolve`` gives what its persistent ids stand for."""

    resolve: Callable[[Any], object]

    def persistent_load(self, pid: Any) -> object:  # noqa: ANN401 - as pickle calls it
        return self.resolve(pid)


def dumps(value: object, model: nn.Module | None = None) -> bytes:
    """Pickle a value with the bytes of its tensors; those on a GPU go to the worker's device.

    Args:
        value: the value.
        model: a model whose parts, where the value refers to them, are replaced by their names.

    Raises:
        InvalidInput: it holds something that can't be pickled.
    """
    return _pickled(value, _as_bytes, model)


def _as_bytes(tensor: Tensor) -> Reduced:
    """How a tensor is pickled with its bytes."""
    where = None if tensor.device.type == "cpu" else _DEVICE
    data = bytes(tensor_bytes(tensor))
    return _from_bytes, (tensor.dtype, tuple(tensor.shape), data, where)


def loads(data: bytes, device: torch.device | str = "cpu", model: nn.Module | None = None) -> Any:  # noqa: ANN401 - what was pickled
    """The inverse of :func:`dumps`; named parts are those of ``model``."""
    unpickler = _Unpickler(io.BytesIO(data))
    unpickler.resolve = lambda pid: pid.of(model) if isinstance(pid, _Named) else device  # pyright: ignore[reportArgumentType]
    return unpickler.load()


def _pickled(
    value: object, reduce_tensor: Callable[[Tensor], Reduced], model: nn.Module | None = None
) -> bytes:
    """The pickle of a value.

    Raises:
        InvalidInput: it holds something that can't be pickled.
    """
    file = io.BytesIO()
    pickler = _pickler()(file, protocol=pickle.HIGHEST_PROTOCOL)
    pickler.reduce_tensor, pickler.parts = reduce_tensor, _parts(model)
    try:
        pickler.dump(value)
    except InterpError:
        raise
    except Exception as error:  # what an object's own methods raise
        raise InvalidInput(
            f"This can't be sent to workers: {type(error).__name__}: {first_line(error)}. "
            "Functions defined in a script or a notebook need cloudpickle: pip install "
            "'interp[processes]'. A function must not use open files, locks or connections."
        ) from error
    return file.getvalue()


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A model as it is sent: a pickle without tensors, and a file without a name.

    Attributes:
        skeleton: the pickle.
        file: the bytes of all storages; deleted when it is closed, also if the driver is killed.
        nbytes: their number.
    """

    skeleton: bytes
    file: IO[bytes]
    nbytes: int

    @classmethod
    def of(cls, value: object) -> "Snapshot":
        """The snapshot of a model.

        Raises:
            OutOfResources: the disk of temporary files has no room.
            InvalidInput: the model can't be pickled.
        """
        file = tempfile.TemporaryFile(prefix="interp-weights-")  # noqa: SIM115 - closed with it
        blocks: dict[tuple[int, int], _Block] = {}

        def block_of(storage: torch.UntypedStorage) -> _Block:
            key = storage.data_ptr(), storage.nbytes()
            if key not in blocks:
                blocks[key] = _Block(file.tell(), storage.nbytes(), storage.device.type != "cpu")
                data = torch.empty(0, dtype=torch.uint8).set_(storage.cpu())
                file.write(tensor_bytes(data))
                file.write(bytes(-file.tell() % ALIGNMENT))
            return blocks[key]

        def in_block(tensor: Tensor) -> Reduced:
            view = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
            kind = "trained" if tensor.requires_grad else "fixed"
            kind = kind if isinstance(tensor, nn.Parameter) else "tensor"
            return _from_storage, (block_of(tensor.untyped_storage()), tensor.dtype, view, kind)

        try:
            skeleton = _pickled(value, in_block)
            file.flush()
        except OSError as error:
            file.close()
            raise OutOfResources(
                f"The weights can't be written to {tempfile.gettempdir()}, from where workers map "
                f"them: {reason(error)}. Set TMPDIR to a folder with more room."
            ) from error
        return cls(skeleton, file, file.tell())

    def close(self) -> None:
        """Delete the file; workers that have mapped it keep it."""
        self.file.close()


def mapped(file: int, nbytes: int) -> Tensor:
    """The bytes of a file as a tensor, read on demand; writes to it are private."""
    if nbytes == 0:
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(mmap.mmap(file, nbytes, access=mmap.ACCESS_COPY), dtype=torch.uint8)


def load_snapshot(skeleton: bytes, data: Tensor, device: torch.device | str) -> Any:  # noqa: ANN401
    """The model of a snapshot, whose weights are views of ``data``, a tensor of bytes.

    Those that were on a GPU are copied to ``device``.
    """
    whole = data.untyped_storage()
    storages: dict[_Block, torch.UntypedStorage] = {}

    def storage_of(block: _Block) -> torch.UntypedStorage:
        if block not in storages:
            part = whole[block.start : block.start + block.nbytes]
            storages[block] = part.to(device=torch.device(device)) if block.on_device else part
        return storages[block]

    unpickler = _Unpickler(io.BytesIO(skeleton))
    unpickler.resolve = storage_of
    return unpickler.load()
