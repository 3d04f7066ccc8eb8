"""How are a model's products faster on a CPU? By oneDNN, with each weight laid out for it once.

The default kernel arranges a weight anew for every product x·Wᵀ, or reads it as it lies; on AMD
processors it then reaches less than half of what they can do. oneDNN's inner product takes a weight
that was packed beforehand, in blocks of its own choosing: the same mathematics to within rounding.

    fast = interp.packed(model)          # the same parameters; packs each at its first product
    interp.packing_gain(model)           # is it worth it on this machine? 2.3 means 2.3 × as fast

The operation that does it (``torch.ops.mkldnn._linear_pointwise``) is private to PyTorch and knows
no gradients, so whatever it was not made for goes to the default kernel (:class:`PackedLinear`).
Method: the packing that PyTorch's own inductor does for weights that are frozen.
"""

import copy
import time
import weakref
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from statistics import median
from threading import Lock
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

from interp.errors import InvalidInput
from interp.model.linear import DEFAULT, Kernel, Linear
from interp.model.network import Network
from interp.weight_version import WeightVersion, owner_of

Model = TypeVar("Model", bound=Network)


def packed(model: Model) -> Model:
    """The same model, its products by oneDNN with packed weights where that is possible.

    The new model shares parameters, buffers and tokenizer with ``model``, which stays as it is:
    what trains or moves one, trains or moves the other. The packed weights take their memory once
    more, from the first product on. A weight that is changed in place (by an optimizer, by
    loading) or swapped is packed again at its next product; a write through ``weight.data``, which
    torch does not count, is not noticed: call ``packed`` again. Copies and pickles of the new model
    pack their own weights.

    **Only where no gradient is wanted**: in ``interp.run``, ``model.generate`` and whatever else
    runs without them, and under ``torch.no_grad()`` or ``torch.inference_mode()``. A plain
    ``model(tokens)`` records gradients, as parameters want them, and takes the default kernel. So
    does all that is not float32 on a CPU. Gradients are therefore those of ``model``, bit by bit.

    The operation is private to PyTorch, ``torch.ops.mkldnn._linear_pointwise``; tested with 2.13.
    It was more than twice as fast as the default on an AMD processor; on others, most of all
    Intel's, expect nothing before :func:`packing_gain` has measured it.

    Args:
        model: any model; one that is packed already gives another.

    Raises:
        InvalidInput: nothing of this model could be packed: weights that are not float32 on a CPU,
            or that were made under ``torch.inference_mode()``, or a PyTorch without the operation.
    """
    _check(model)
    tokenizer = getattr(model, "tokenizer", None)
    shared = [*model.parameters(), *model.buffers(), model.config, tokenizer]
    twin = copy.deepcopy(model, {id(one): one for one in shared})
    kernel = PackedLinear()
    for part in _parts(twin):
        part.linear = kernel
    return twin


def packing_gain(model: Network, rows: int = 256) -> float:
    """How many times as fast packed products are as the default's, on this machine, for this model.

    Measures products of the model's own shapes (large ones in part), alternating between the two
    kernels, and compares the medians, in less than a second on a machine that is otherwise idle (on
    a busy one the packed kernel's threads wait for one another). Below 1 packing is a loss. What
    else a forward does (norms, attention's own products) gains nothing.

    Args:
        model: whose weights' shapes are tried; it stays as it is.
        rows: positions that a forward reads, batch × pos; the gain depends on it.

    Raises:
        InvalidInput: this model can't be packed (see :func:`packed`), or no rows.
    """
    _check(model)
    if rows < 1:
        raise InvalidInput(f"rows={rows}: a product needs at least one row; say batch × pos.")
    shapes = Counter(
        (weight.shape[0], weight.shape[1])
        for part in _parts(model)
        for weight in part.parameters(recurse=False)
        if weight.ndim == 2  # noqa: PLR2004 - a matrix
    )
    trials = [_Trial(*shape, rows, count) for shape, count in shapes.items()]
    deadline = time.perf_counter() + SECONDS
    for done in range(ROUNDS):
        if done <= FEWEST_ROUNDS or time.perf_counter() < deadline:
            for trial in trials:
                trial.measure()
    default, by_packing = (sum(each) for each in zip(*(t.seconds for t in trials), strict=True))
    return default / by_packing


class PackedLinear:
    """The kernel x·Wᵀ + b by oneDNN, which remembers the weights that it has packed.

    The private operation is reached only by a product in float32 on a CPU, of a parameter or a
    slice of one, through which nobody differentiates (backward or forward), that nobody
    transforms (``torch.func``), compiles or casts (autocast); any other is ``F.linear``. So is one
    with weights made under ``torch.inference_mode()``: nobody counts their changes.

    A packing is known by the parameter and the memory that it was made from, the slice, and how
    often the parameter had been changed. It goes when the parameter or that memory goes: what lies
    at the same address later is something else. Several threads may call it.
    """

    name = "packed (oneDNN)"

    def __init__(self) -> None:
        self._packings: dict[Hashable, _Packing] = {}
        self._lock = Lock()

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """x·Wᵀ + b: ``x [... n_in]``, ``weight [n_out n_in]``, ``bias [n_out]`` or ``None``."""
        given = (x, weight) if bias is None else (x, weight, bias)
        plain = _is_ordinary() and not _differentiates(*given) and _can_pack(weight)
        if not (plain and _fit(x, weight, bias)):
            return F.linear(x, weight, bias)
        # A bias that does not lie in one piece would be read wrongly, without an error.
        bias = None if bias is None else bias.contiguous()
        packing = self._packing(weight)
        return torch.ops.mkldnn._linear_pointwise(x, packing.packed, bias, "none", [], "")

    def name_for(self, weight: Tensor) -> str:
        """Which kernel computes products with ``weight`` where no gradient is wanted."""
        return self.name if _can_pack(weight) else DEFAULT

    def __reduce__(self) -> tuple[Callable[[], "PackedLinear"], tuple[()]]:
        """Copies and pickles begin empty: what is packed can be neither copied nor written."""
        return type(self), ()

    def _packing(self, weight: Tensor) -> "_Packing":
        key = (weight.data_ptr(), weight.shape, weight.stride())
        held = self._packings.get(key)
        if held is not None and held.weight.matches(weight):
            return held
        with self._lock:  # a thread that had to wait may find it packed
            held = self._packings.get(key)
            if held is None or not held.weight.matches(weight):
                held = self._packings[key] = _Packing.of(weight, self._forgetting(key))
            return held

    def _forgetting(self, key: Hashable) -> Callable[[object], None]:
        """Drops a packing once its weight is gone; without a lock, as it may run at any moment."""
        own = weakref.ref(self)  # so that a model's end frees its packings at once

        def forget(_: object) -> None:
            kernel = own()
            if kernel is not None:
                kernel._packings.pop(key, None)

        return forget


@dataclass(frozen=True, eq=False)
class _Packing:
    """A packed weight, and what it was made from."""

    weight: WeightVersion
    packed: Tensor

    @classmethod
    def of(cls, weight: Tensor, forget: Callable[[object], None]) -> "_Packing":
        was = WeightVersion.of(
            weight, forget
        )  # before it is read: a change meanwhile will be noticed
        with torch.inference_mode(mode=False), torch.no_grad():
            laid_out = torch.ops.mkldnn._reorder_linear_weight(weight)
        return cls(was, laid_out)


def _check(model: Network) -> None:
    """Make sure that packing this model's weights is possible at all."""
    weight = next(model.parameters())
    if not _is_there():
        raise InvalidInput(
            f"PyTorch {torch.__version__} lacks oneDNN on this machine, or its operation "
            "torch.ops.mkldnn._linear_pointwise, so weights can't be packed; use the model as it "
            "is."
        )
    if weight.device.type != "cpu" or weight.dtype != torch.float32:
        raise InvalidInput(
            f"This model's weights are {str(weight.dtype).removeprefix('torch.')} on "
            f"{weight.device.type}; only float32 on a CPU can be packed. Use the model as it is, "
            "or pack model.float().cpu()."
        )
    if weight.is_inference():
        raise InvalidInput(
            "This model's weights were made under torch.inference_mode(), where nobody counts "
            "their changes, so they can't be packed; load or build the model outside of it."
        )


def _is_there() -> bool:
    """Whether this PyTorch has the operation."""
    operations = torch.ops.mkldnn
    names = ("_linear_pointwise", "_reorder_linear_weight")
    return torch.backends.mkldnn.is_available() and all(hasattr(operations, n) for n in names)


def _is_ordinary() -> bool:
    """Whether tensors are just tensors now: nobody compiles, transforms or casts."""
    # Nothing public tells whether torch.func is at work.
    transformed = torch._C._are_functorch_transforms_active()  # pyright: ignore[reportPrivateUsage]
    return not (transformed or torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"))


def _differentiates(*tensors: Tensor) -> bool:
    """Whether a derivative by one of them is wanted, which the operation would drop."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return True
    # Forward mode, which no_grad leaves on.
    return any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors)


def _can_pack(weight: Tensor) -> bool:
    """Whether it is a parameter, or a slice of one, that the operation takes."""
    lasts = isinstance(owner_of(weight), nn.Parameter)  # others are made for a single product
    return lasts and _is_there() and _is_plain(weight) and not weight.is_inference()


def _fit(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether the shapes make a product, and one that is not empty; ``F.linear`` knows the rest."""
    if bias is not None and not (_is_plain(bias) and bias.shape == weight.shape[:1]):
        return False
    full = x.numel() > 0 and weight.numel() > 0
    return full and _is_plain(x) and weight.ndim == 2 and x.shape[-1:] == weight.shape[1:]  # noqa: PLR2004


def _is_plain(tensor: Tensor) -> bool:
    return (
        type(tensor) in (Tensor, nn.Parameter)
        and tensor.dtype is torch.float32
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
    )


def _parts(model: Network) -> list[Linear]:
    return [part for part in model.modules() if isinstance(part, Linear)]


ROUNDS, FEWEST_ROUNDS, SECONDS = 9, 3, 0.5
MOST_WORK, FEW_ROWS = 2**28, 32
"""Multiply-adds of one timed product, some milliseconds; with fewer rows, memory is the limit."""


class _Trial:
    """Products of one shape, timed by both kernels; seconds for all ``count`` weights of it."""

    def __init__(self, n_out: int, n_in: int, rows: int, count: int) -> None:
        tried = min(n_out, max(64, MOST_WORK // (n_in * max(rows, FEW_ROWS))))
        self._weight = nn.Parameter(torch.ones(tried, n_in), requires_grad=False)
        self._x = torch.ones(rows, n_in)
        self._times = count * n_out / tried
        self._kernels: tuple[Kernel, Kernel] = (F.linear, PackedLinear())
        self._seconds: tuple[list[float], list[float]] = ([], [])

    def measure(self) -> None:
        """Time one product by each."""
        for kernel, seconds in zip(self._kernels, self._seconds, strict=True):
            started = time.perf_counter()
            kernel(self._x, self._weight, None)
            seconds.append(time.perf_counter() - started)

    @property
    def seconds(self) -> tuple[float, float]:
        """By the default and by the packed kernel; the first round warms up, and packs."""
        default, by_packing = (self._times * median(each[1:]) for each in self._seconds)
        return default, by_packing
