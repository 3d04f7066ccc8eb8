"""Pretended GPUs: tensors on the CPU that say they are on ``cuda:0``, and refuse to be mixed.

    with PretendedDevices() as devices:
        model = interp.load("python-2l", device_map={"embed": "cuda:0", 0: "cuda:0", 1: "cuda:1"})
        model(tokens)                               # the numbers of the CPU
        devices.moved                               # bytes that crossed, by pair of devices

Every function of PyTorch that is called in the block is checked as PyTorch checks real devices: its
tensors must be on one device, but for numbers on the CPU, indices on the CPU, and what copies
between devices. Results are on the device of the arguments. Unlike PyTorch's ``FakeTensorMode``,
tensors have values, so that whole analyses run. Operations of a backward pass are not checked, nor
those in functions that PyTorch itself calls.
"""

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._pytree import tree_leaves

from interp.execution.free_bytes import _FIXED

CPU = torch.device("cpu")
COPIES = {"copy_", "set_", "type_as", "grad", "backward", "_has_compatible_shallow_copy_type"}
"""Functions that read tensors of several devices."""
ON_CPU_ONLY = {"numpy", "__array__"}
N_GPUS = 4
FREE = 2**31
"""Bytes that a pretended GPU has free."""


class MixedDevices(RuntimeError):
    """Tensors of two devices in one operation."""


class PretendedDevices(TorchFunctionMode):
    """The mode; see the module.

    Attributes:
        moved: bytes that were copied, by pair of devices.
    """

    def __init__(self) -> None:
        super().__init__()
        self.moved: Counter[tuple[str, str]] = Counter()
        self._placed: dict[int, tuple[Any, torch.device]] = {}
        """Storages of tensors that were moved or made on a device, each kept alive."""

    def device_of(self, tensor: Tensor) -> torch.device:
        """The device that a tensor is said to be on."""
        label = getattr(tensor, "pretended", None)
        if label is None and not tensor.is_meta:
            label = self._placed.get(_storage(tensor), (None, None))[1]
        return tensor.device if label is None else label

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Check and label one call."""
        kwargs, name = dict(kwargs or {}), _name_of(func)
        if name in ("device.__get__", "is_cuda.__get__"):
            device = self.device_of(args[0])
            return device if name == "device.__get__" else device.type == "cuda"
        if name == "data.__set__":
            func(*args)
            return self._label(args[0], self.device_of(args[1]))
        if name in ("to", "cpu", "cuda"):
            return self._to(name, args, kwargs)
        return self._computed(name, func, args, kwargs)

    def _computed(
        self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The result of a function that does not move tensors, on the device of its arguments."""
        device, args, kwargs = self._requested(name, args, kwargs)
        shared = self._shared(name, args, kwargs)
        if name in ON_CPU_ONLY and shared is not None and shared.type != "cpu":
            raise TypeError(f"can't convert {shared} device type tensor to numpy.")
        result = func(*args, **kwargs)
        if name == "grad":  # of torch.autograd: each as its input
            for tensor, of in zip(result, _tensors(args[1]), strict=True):
                self._label(tensor, self.device_of(of))
            return result
        arguments = {id(tensor) for tensor in _tensors((args, kwargs))}
        for tensor in _tensors(result):
            if id(tensor) not in arguments:
                self._label(tensor, device or shared or CPU, new=device is not None)
        return result

    # ---- moving --------------------------------------------------------------------------------

    def _to(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A tensor on another device, or in another dtype."""
        x, *rest = args
        here = there = self.device_of(x)
        if name != "to":
            there = CPU if name == "cpu" else torch.device("cuda:0")
            rest, kwargs = [], {}
        settings: list[Any] = []
        for setting in (*rest, kwargs.pop("device", None), kwargs.pop("other", None)):
            if isinstance(setting, Tensor):
                there, setting = self.device_of(setting), setting.dtype  # noqa: PLW2901
            elif isinstance(setting, bool):  # whether the copy blocks
                continue
            elif isinstance(setting, str | torch.device | int):
                there = checked(setting)
                continue
            settings += [] if setting is None else [setting]
        if there.type == "meta" or x.is_meta:
            return x.to(there, *settings, **kwargs)
        if there == here:
            result = torch.Tensor.to(x, *settings, **kwargs) if settings or kwargs else x
            return result if result is x else self._label(result, there)
        self.moved[str(here), str(there)] += x.nbytes
        kwargs["copy"] = True
        result = torch.Tensor.to(x, *settings, **kwargs) if settings else x.clone()
        return self._label(result, there, new=True)

    def _requested(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[torch.device | None, tuple[Any, ...], dict[str, Any]]:
        """The device that a call names, and the call without it."""
        requested = kwargs.get("device")
        if requested is None:
            return (CPU if name in FACTORIES else None), args, kwargs
        device = checked(requested)
        if device.type == "meta":
            return None, args, kwargs
        first = args[0] if args else None
        if name == "as_tensor" and isinstance(first, Tensor):
            args = (self._to("to", (first, device), {}), *args[1:])
        return device, args, {**kwargs, "device": "cpu"}

    # ---- checking ------------------------------------------------------------------------------

    def _shared(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> torch.device | None:
        """The device of all tensors of a call.

        Raises:
            MixedDevices: there are two.
        """
        if name in COPIES:
            return self.device_of(_tensors(args)[0])
        if name in ("__getitem__", "__setitem__"):
            return self._indexed(name, *args)
        tensors = [x for x in _tensors((args, kwargs)) if not x.is_meta]
        devices = {self.device_of(x) for x in tensors if x.ndim or self.device_of(x) != CPU}
        if len(devices) > 1:
            named = " and ".join(sorted(map(str, devices)))
            raise MixedDevices(f"{name} has tensors on {named}: expected one device.")
        return next(iter(devices), CPU if tensors else None)

    def _indexed(self, name: str, x: Tensor, index: Any, value: Any = None) -> torch.device:
        here, indices = self.device_of(x), list(_tensors(index))
        for tensor in indices:
            if self.device_of(tensor) not in (here, CPU):
                raise MixedDevices(f"{name}: x on {here}, index on {self.device_of(tensor)}.")
        if isinstance(value, Tensor) and self.device_of(value) != here:
            if indices and (value.ndim or self.device_of(value) != CPU):
                raise MixedDevices(f"{name}: x on {here}, value on {self.device_of(value)}.")
            self.moved[str(self.device_of(value)), str(here)] += value.nbytes
        return here

    def _label(self, tensor: Any, device: torch.device, *, new: bool = False) -> Any:
        if isinstance(tensor, Tensor) and not tensor.is_meta:
            tensor.pretended = device  # pyright: ignore[reportAttributeAccessIssue]
            if new and tensor.numel():
                self._placed[_storage(tensor)] = tensor.untyped_storage(), device
        return tensor


FACTORIES = {
    *("arange", "empty", "eye", "full", "linspace", "logspace", "ones", "rand", "randint", "randn"),
    *("randperm", "tensor", "tril_indices", "triu_indices", "zeros", "from_numpy"),
}
"""Functions that make tensors on the CPU if no device is named."""


def _name_of(func: Any) -> str:
    """The last part of a function's name; for properties with ``.__get__`` or ``.__set__``."""
    whole = resolve_name(func) or getattr(func, "__name__", str(func))
    name = whole.rpartition(".")[2]
    return ".".join(whole.split(".")[-2:]) if name in ("__get__", "__set__") else name


def checked(name: Any) -> torch.device:
    """A device, if it is pretended or real."""
    device = torch.device("cuda", name) if isinstance(name, int) else torch.device(name)
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda:0")
    if device.type not in ("cpu", "cuda", "meta") or (device.index or 0) >= N_GPUS:
        raise RuntimeError(f"CUDA error: invalid device ordinal ({device})")
    return device


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


class CPUGenerator(torch.Generator):
    """A generator of the CPU, whatever device it is made for."""

    def __new__(cls, device: object = CPU) -> "CPUGenerator":
        """Make it."""
        return super().__new__(cls, CPU)  # pyright: ignore[reportCallIssue] - as PyTorch has it


@contextmanager
def pretended_devices() -> Generator[PretendedDevices]:
    """Pretend GPUs in the block, whose free memory and generators are pretended too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(_FIXED, "cuda", FREE)
        patch.setattr(torch.cuda, "device_count", lambda: N_GPUS)
        patch.setattr(torch, "Generator", CPUGenerator)
        with PretendedDevices() as devices:
            yield devices
