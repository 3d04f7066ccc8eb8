"""The kernels of products with weights, the choice among them by measurement, and the hardware."""

from interp.kernels.choice import (
    AUTO,
    KERNELS,
    PACKED,
    check_kernel,
    faster_kernel,
    kernel_of,
    with_kernel,
)
from interp.kernels.machine import DispatchMode, OperationLog, processor
from interp.kernels.packed import (
    can_pack,
    is_available,
    packed,
    packing_gain,
    product_shapes,
)

__all__ = [
    "AUTO",
    "KERNELS",
    "PACKED",
    "DispatchMode",
    "OperationLog",
    "can_pack",
    "check_kernel",
    "faster_kernel",
    "is_available",
    "kernel_of",
    "packed",
    "packing_gain",
    "processor",
    "product_shapes",
    "with_kernel",
]
