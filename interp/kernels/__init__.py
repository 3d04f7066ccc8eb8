"""Other kernels of products with weights, and the choice among them by measurement."""

from interp.kernels.choice import (
    AUTO,
    KERNELS,
    PACKED,
    check_kernel,
    faster_kernel,
    kernel_of,
    with_kernel,
)
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
    "can_pack",
    "check_kernel",
    "faster_kernel",
    "is_available",
    "kernel_of",
    "packed",
    "packing_gain",
    "product_shapes",
    "with_kernel",
]
