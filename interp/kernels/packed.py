"""Faster products on a CPU: oneDNN with packed weights.

The default kernel rearranges a weight for every product x·Wᵀ, or reads it in its stored layout; on
AMD processors it reaches less than half of the peak rate. oneDNN's inner product takes a weight
that was packed once, in a blocked layout of its own choice. The results agree to within rounding.

    fast = interp.packed(model)          # the same parameters; each is packed at its first product
    interp.packing_gain(model)           # speed-up on this machine: 2.3 means 2.3 times as fast

The operation (``torch.ops.mkldnn._linear_pointwise``) is private to PyTorch and has no gradients;
every product that it can't compute uses the default kernel (see :class:`PackedLinear`). Method:
the packing of frozen weights in PyTorch's inductor.
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
from torch.nn import functional as F  # noqa: N812 - the usual alias

from interp.errors import InvalidInput
from interp.model import DEFAULT, Kernel, Linear, Network, WeightVersion, as_network, owner_of

Model = TypeVar("Model", bound=Network)


def packed(model: Model) -> Model:
    """A copy of a model that computes products with packed weights where that is possible.

    The copy shares parameters, buffers and tokenizer with ``model``: training or moving one trains
    or moves the other. From the first product on, the packed weights need as much memory again. A
    weight that is changed in place (by an optimizer, by loading) or replaced is packed again at its
    next product. A write through ``weight.data``, which PyTorch does not track, is not detected:
    call ``packed`` again. Copies and pickles of the result pack their own weights.

    **Only without gradients**: in ``interp.run``, ``model.generate`` and other functions that run
    without them, and under ``torch.no_grad()`` or ``torch.inference_mode()``. A plain
    ``model(tokens)`` records an autograd graph for the parameters and uses the default kernel, as
    does everything that is not float32 on a CPU. Gradients are therefore bit-identical to those of
    ``model``.

    The operation is private to PyTorch, ``torch.ops.mkldnn._linear_pointwise``; tested with 2.13.
    It was more than twice as fast as the default on an AMD processor; measure other processors,
    Intel's above all, with :func:`packing_gain`.

    Args:
        model: any model, packed or not.

    Raises:
        InvalidInput: no weight of this model can be packed: they are not float32 on a CPU, they
            were made under ``torch.inference_mode()``, or PyTorch lacks the operation.

    Examples:
        >>> model = interp.load("induction-by-hand")
        >>> run = interp.run(interp.packed(model), "abcab")
        >>> torch.allclose(run.logits, interp.run(model, "abcab").logits, atol=1e-4)
        True
    """
    _check(model)
    tokenizer = getattr(model, "tokenizer", None)
    shared = [*model.parameters(), *model.buffers(), model.config, tokenizer]
    result = copy.deepcopy(model, {id(tensor): tensor for tensor in shared})
    kernel = PackedLinear()
    for part in _linears(result):
        part.linear = kernel
    return result


def packing_gain(model: Network, rows: int = 256) -> float:
    """The speed-up of products by packed weights, for this model on this machine.

    Products of the model's shapes (slices of the large ones) are timed with both kernels in turn,
    and the medians compared. This takes less than a second on an idle machine; on a busy one the
    packed kernel's threads wait for one another. A value below 1 means that packing is slower.
    Norms and attention's own products are not included: they are not affected.

    Args:
        model: the model whose shapes are timed; it is not changed.
        rows: number of positions in a forward, batch × pos; the speed-up depends on it.

    Returns:
        Seconds of the default kernel over seconds of the packed kernel.

    Raises:
        InvalidInput: this model can't be packed (see :func:`packed`), or ``rows`` is below 1.
    """
    _check(model)
    if rows < 1:
        raise InvalidInput(f"rows={rows}: a product needs at least one row; pass batch × pos.")
    trials = [_Trial(*shape, rows, count) for shape, count in product_shapes(model).items()]
    deadline = time.perf_counter() + SECONDS
    for done in range(ROUNDS):
        if done <= MIN_ROUNDS or time.perf_counter() < deadline:
            for trial in trials:
                trial.measure()
    default, packing = (sum(each) for each in zip(*(t.seconds for t in trials), strict=True))
    return default / packing


def product_shapes(model: Network) -> Counter[tuple[int, int]]:
    """The shapes ``(n_out, n_in)`` of the model's weights in products, with their numbers."""
    return Counter(
        (weight.shape[0], weight.shape[1])
        for part in _linears(model)
        for weight in part.parameters(recurse=False)
        if weight.ndim == 2  # noqa: PLR2004 - a matrix
    )


def can_pack(model: Network) -> bool:
    """Whether this model's weights can be packed on this machine."""
    try:
        _check(model)
    except InvalidInput:
        return False
    return True


class PackedLinear:
    """The kernel x·Wᵀ + b by oneDNN, with a cache of packed weights.

    The private operation computes a product if it is float32 on a CPU, of a parameter or a slice of
    one, without gradients (backward or forward mode), and outside of ``torch.func`` transforms,
    compilation and autocast. Every other product is ``F.linear``, including those with weights made
    under ``torch.inference_mode()``, whose in-place changes have no version.

    A packed weight is identified by the parameter and the storage that it was made from, the slice,
    and the parameter's in-place version. It is discarded with the parameter or the storage, as
    another tensor may get the same address later. Safe to call from several threads.
    """

    name = "packed (oneDNN)"

    def __init__(self) -> None:
        self._packings: dict[Hashable, _Packing] = {}
        self._lock = Lock()

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """x·Wᵀ + b, for ``x [... n_in]``, ``weight [n_out n_in]``, ``bias [n_out]`` or ``None``."""
        inputs = (x, weight) if bias is None else (x, weight, bias)
        supported = _is_eager() and not _needs_gradient(*inputs) and _can_pack(weight)
        if not (supported and _has_valid_shapes(x, weight, bias)):
            return F.linear(x, weight, bias)
        # The operation silently gives wrong results for a bias that is not contiguous.
        bias = None if bias is None else bias.contiguous()
        packing = self._packing(weight)
        return torch.ops.mkldnn._linear_pointwise(x, packing.packed, bias, "none", [], "")

    def name_for(self, weight: Tensor) -> str:
        """The name of the kernel that computes products with ``weight`` without gradients."""
        return self.name if _can_pack(weight) else DEFAULT

    def __reduce__(self) -> tuple[Callable[[], "PackedLinear"], tuple[()]]:
        """Copies and pickles start with an empty cache: packed weights support neither."""
        return type(self), ()

    def _packing(self, weight: Tensor) -> "_Packing":
        key = (weight.data_ptr(), weight.shape, weight.stride())
        packing = self._packings.get(key)
        if packing is not None and packing.weight.matches(weight):
            return packing
        with self._lock:  # another thread may have packed it in the meantime
            packing = self._packings.get(key)
            if packing is None or not packing.weight.matches(weight):
                packing = self._packings[key] = _Packing.of(weight, self._discard(key))
            return packing

    def _discard(self, key: Hashable) -> Callable[[object], None]:
        """A callback that discards a packed weight; without a lock, as it may run at any point."""
        reference = weakref.ref(self)  # a strong one would keep packed weights beyond the model

        def discard(_: object) -> None:
            kernel = reference()
            if kernel is not None:
                kernel._packings.pop(key, None)

        return discard


@dataclass(frozen=True, eq=False)
class _Packing:
    """A packed weight, and the weight and version that it was made from."""

    weight: WeightVersion
    packed: Tensor

    @classmethod
    def of(cls, weight: Tensor, discard: Callable[[object], None]) -> "_Packing":
        # Before the weight is read, so that a change in the meantime is detected.
        version = WeightVersion.of(weight, discard)
        with torch.inference_mode(mode=False), torch.no_grad():
            reordered = torch.ops.mkldnn._reorder_linear_weight(weight)
        return cls(version, reordered)


def _check(model: Network) -> None:
    """Raise ``InvalidInput`` unless this model's weights can be packed."""
    weight = next(as_network(model).parameters())
    if not is_available():
        raise InvalidInput(
            f"PyTorch {torch.__version__} lacks oneDNN on this machine, or its operation "
            "torch.ops.mkldnn._linear_pointwise, so weights can't be packed; use the model without "
            "packing."
        )
    if weight.device.type != "cpu" or weight.dtype != torch.float32:
        raise InvalidInput(
            f"This model's weights are {str(weight.dtype).removeprefix('torch.')} on "
            f"{weight.device.type}; only float32 on a CPU can be packed. Use the model without "
            "packing, or pack model.float().cpu()."
        )
    if weight.is_inference():
        raise InvalidInput(
            "This model's weights were made under torch.inference_mode(), where in-place changes "
            "have no version, so they can't be packed; load or build the model outside of it."
        )


def is_available() -> bool:
    """Whether this PyTorch has the operation on this machine."""
    operations = torch.ops.mkldnn
    names = ("_linear_pointwise", "_reorder_linear_weight")
    return torch.backends.mkldnn.is_available() and all(hasattr(operations, n) for n in names)


def _is_eager() -> bool:
    """Whether neither compilation, a ``torch.func`` transform nor autocast is active."""
    # PyTorch has no public function for this.
    transformed = torch._C._are_functorch_transforms_active()  # pyright: ignore[reportPrivateUsage]
    return not (transformed or torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"))


def _needs_gradient(*tensors: Tensor) -> bool:
    """Whether a derivative with respect to a tensor is recorded, which the operation would drop."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return True
    # Forward mode, which no_grad does not disable.
    return any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors)


def _can_pack(weight: Tensor) -> bool:
    """Whether a weight is a parameter, or a slice of one, that the operation supports."""
    is_parameter = isinstance(owner_of(weight), nn.Parameter)  # others are used only once
    return is_parameter and is_available() and _is_dense(weight) and not weight.is_inference()


def _has_valid_shapes(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether the shapes make a product that is not empty; ``F.linear`` handles all others."""
    if bias is not None and not (_is_dense(bias) and bias.shape == weight.shape[:1]):
        return False
    full = x.numel() > 0 and weight.numel() > 0
    return full and _is_dense(x) and weight.ndim == 2 and x.shape[-1:] == weight.shape[1:]  # noqa: PLR2004


def _is_dense(tensor: Tensor) -> bool:
    """Whether a tensor is an ordinary dense float32 tensor on the CPU."""
    return (
        type(tensor) in (Tensor, nn.Parameter)
        and tensor.dtype is torch.float32
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
    )


def _linears(model: Network) -> list[Linear]:
    return [part for part in model.modules() if isinstance(part, Linear)]


ROUNDS, MIN_ROUNDS, SECONDS = 9, 3, 0.5
MAX_WORK, FEW_ROWS = 2**28, 32
"""Maximum number of multiply-adds of a timed product, which takes some milliseconds. With fewer
rows than ``FEW_ROWS``, memory bandwidth is the limit."""


class _Trial:
    """Products of one shape, timed with both kernels and scaled to ``count`` weights."""

    def __init__(self, n_out: int, n_in: int, rows: int, count: int) -> None:
        timed = min(n_out, max(64, MAX_WORK // (n_in * max(rows, FEW_ROWS))))
        self._weight = nn.Parameter(torch.ones(timed, n_in), requires_grad=False)
        self._x = torch.ones(rows, n_in)
        self._factor = count * n_out / timed
        self._kernels: tuple[Kernel, Kernel] = (F.linear, PackedLinear())
        self._seconds: tuple[list[float], list[float]] = ([], [])

    def measure(self) -> None:
        """Time one product with each kernel."""
        for kernel, seconds in zip(self._kernels, self._seconds, strict=True):
            started = time.perf_counter()
            kernel(self._x, self._weight, None)
            seconds.append(time.perf_counter() - started)

    @property
    def seconds(self) -> tuple[float, float]:
        """Median seconds of the default and the packed kernel, without the first (packing)."""
        default, packing = (self._factor * median(each[1:]) for each in self._seconds)
        return default, packing
