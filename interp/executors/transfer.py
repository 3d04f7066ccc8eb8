"""How models and jobs travel: pickles whose tensors are sent apart, or as their bytes.

A model is a small pickle and one block of bytes with all of its weights, which the workers of a
machine map into memory instead of copying it. A job is a pickle with its tensors as plain bytes.
Functions travel by value if cloudpickle is installed. Pickles go only from a driver to the workers
that it started, and back.
"""

import io
import mmap
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

import torch
from torch import Tensor, nn

from interp.errors import InterpError, InvalidInput, OutOfResources, first_line, reason
from interp.io import tensor_bytes

ALIGNMENT = 64
"""Storages begin at multiples of so many bytes."""
Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


def _pickler() -> type[pickle.Pickler]:
    """The class of picklers: cloudpickle's, if it is installed."""
    try:
        import cloudpickle  # noqa: PLC0415 - an optional dependency
    except ImportError:
        return pickle.Pickler
    return cloudpickle.Pickler


@dataclass(frozen=True)
class _Device:
    """Stands for the worker's device in a pickle."""


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


def _from_bytes(dtype: torch.dtype, shape: tuple[int, ...], data: bytes, device: object) -> Tensor:
    """A tensor from its bytes in row-major order."""
    if not data:
        return torch.empty(shape, dtype=dtype)
    tensor = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype).reshape(shape)
    return tensor if device is None else tensor.to(device)  # pyright: ignore[reportArgumentType, reportCallIssue]


def _from_storage(
    storage: torch.UntypedStorage, dtype: torch.dtype, view: tuple[Any, ...], gradient: bool | None
) -> Tensor:
    """A tensor of a storage; a parameter unless ``gradient`` is ``None``."""
    tensor = torch.empty(0, dtype=dtype, device=storage.device).set_(storage, *view)
    return tensor if gradient is None else nn.Parameter(tensor, requires_grad=gradient)


def _is_plain(value: object) -> bool:
    """Whether a value is a tensor or a parameter, strided and with data."""
    is_tensor = type(value) is Tensor or type(value) is nn.Parameter
    return is_tensor and value.layout == torch.strided and value.device.type != "meta"


def dumps(value: object) -> bytes:
    """Pickle a value with the bytes of its tensors; those on a GPU go to the worker's device.

    Raises:
        InvalidInput: it holds something that can't be pickled.
    """
    base: Any = _pickler()
    device = _Device()

    class Pickler(base):
        def persistent_id(self, value: object) -> str | None:
            return "device" if value is device else None

        def reducer_override(self, value: Any) -> Any:  # noqa: ANN401 - as pickle calls it
            if not _is_plain(value):
                inherited = getattr(super(), "reducer_override", None)
                return NotImplemented if inherited is None else inherited(value)
            where = None if value.device.type == "cpu" else device
            data = bytes(tensor_bytes(value))
            return _from_bytes, (value.dtype, tuple(value.shape), data, where)

    return _pickled(Pickler, value)


def loads(data: bytes, device: torch.device | str = "cpu") -> Any:  # noqa: ANN401 - what was pickled
    """The inverse of :func:`dumps`."""

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, pid: Any) -> object:  # noqa: ANN401 - as pickle calls it
            return device

    return Unpickler(io.BytesIO(data)).load()


def _pickled(pickler: Any, value: object) -> bytes:  # noqa: ANN401 - a class made in a function
    """The pickle of a value.

    Raises:
        InvalidInput: it holds something that can't be pickled.
    """
    file = io.BytesIO()
    try:
        pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    except InterpError:
        raise
    except Exception as error:  # what an object's own methods raise
        raise InvalidInput(
            f"This sweep can't be sent to workers: {type(error).__name__}: {first_line(error)}. "
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
        base: Any = _pickler()
        blocks: dict[tuple[int, int], _Block] = {}

        def block_of(storage: torch.UntypedStorage) -> _Block:
            key = storage.data_ptr(), storage.nbytes()
            if key not in blocks:
                blocks[key] = _Block(file.tell(), storage.nbytes(), storage.device.type != "cpu")
                data = torch.empty(0, dtype=torch.uint8).set_(storage.cpu())
                file.write(tensor_bytes(data))
                file.write(bytes(-file.tell() % ALIGNMENT))
            return blocks[key]

        class Pickler(base):
            def persistent_id(self, value: object) -> object:
                return value if isinstance(value, _Block) else None

            def reducer_override(self, value: Any) -> Any:  # noqa: ANN401 - as pickle calls it
                if not _is_plain(value):
                    inherited = getattr(super(), "reducer_override", None)
                    return NotImplemented if inherited is None else inherited(value)
                view = (value.storage_offset(), tuple(value.shape), value.stride())
                gradient = value.requires_grad if isinstance(value, nn.Parameter) else None
                block = block_of(value.untyped_storage())
                return _from_storage, (block, value.dtype, view, gradient)

        try:
            skeleton = _pickled(Pickler, value)
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

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, pid: _Block) -> object:
            if pid not in storages:
                part = whole[pid.start : pid.start + pid.nbytes]
                storages[pid] = part.to(device=torch.device(device)) if pid.on_device else part
            return storages[pid]

    return Unpickler(io.BytesIO(skeleton)).load()
