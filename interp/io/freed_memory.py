"""Memory that was freed, and that the allocator of the C library keeps."""

import sys
from ctypes import CDLL


def return_freed_memory() -> bool:
    """Give freed memory back to the system; whether the C library can, which is glibc.

    glibc keeps what is freed below a block in use: 140 MB after the `tokenizers` library has parsed
    a vocabulary of 262,144 tokens, and over a gigabyte after the forwards of a model of some size.
    """
    trim = getattr(CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is None:
        return False
    trim(0)
    return True
