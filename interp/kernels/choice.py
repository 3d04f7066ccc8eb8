"""Chooses the kernel of a model's products with weights: PyTorch's own, or packed weights.

    interp.load("smollm2-135m", kernel="auto")

Packed weights (:mod:`interp.kernels.packed`) are faster on some processors and of no use on others,
so ``auto`` times products of the model's shapes with both kernels, which takes about a second. The
speed-up is kept in the user's cache folder, by shapes, dtype, processor, threads and PyTorch
version. The kernel is set when the model is built; no forward asks for it.
"""

import hashlib
import json
import math
import os
import sys
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TypeVar

import torch

from interp.errors import InterpError, InvalidInput, OutOfResources, shorten
from interp.execution import free_bytes, size_of
from interp.io import UNREADABLE, read_json, write_text_whole
from interp.kernels.machine import processor
from interp.kernels.packed import can_pack, packed, packing_gain, product_shapes
from interp.model import DEFAULT, Network

Model = TypeVar("Model", bound=Network)
PACKED, AUTO = "packed", "auto"
KERNELS = (DEFAULT, PACKED, AUTO)
MARGIN = 1.1
"""``auto`` packs if products are at least this much faster. Repeated measurements on a quiet
machine differ by a few percent. Packing a weight takes as long as about 100 rows of its products,
which a gain of 1.1 repays after a thousand rows: the tokens of some short prompts, in all forwards.
"""
LARGE = 2**26
"""``auto`` measures models with at least this many bytes of weights. A forward of a smaller one
takes milliseconds, which the measurement of a second would not repay."""
COPIES = 2
"""``auto`` packs if this many times the weights' bytes are free: the packed copy, and as much for
the tensors of forwards."""
MAX_GAINS, MAX_BYTES = 64, 2**16
"""Limits of the file of measured speed-ups: entries, of which the newest are kept, and bytes."""


def check_kernel(kernel: object) -> None:
    """Make sure that ``kernel`` is one of :data:`KERNELS`.

    Raises:
        InvalidInput: it is not.
    """
    if kernel not in KERNELS:
        raise InvalidInput(f"kernel={shorten(kernel)} is not one of {', '.join(KERNELS)}.")


def with_kernel(model: Model, kernel: str) -> Model:
    """A model that was just loaded, with a kernel and with the reason if it was chosen.

    Raises:
        InvalidInput: ``kernel`` is ``packed`` and this model can't be packed.
    """
    reason = None
    if kernel == AUTO:
        kernel, reason = faster_kernel(model)
    result = packed(model) if kernel == PACKED else model
    result.kernel_choice = reason
    return result


def kernel_of(model: Network) -> str:
    """The kernel that a model has: ``default`` or ``packed``."""
    return DEFAULT if model.products == DEFAULT else PACKED


def faster_kernel(model: Network) -> tuple[str, str | None]:
    """The kernel for a model on this machine, ``default`` or ``packed``, and why.

    Packed weights are taken where they are measured to be faster, see :data:`MARGIN`,
    :data:`LARGE` and :data:`COPIES`. There is no reason if there was no choice.
    """
    nbytes = sum(weight.nbytes for weight in model.parameters())
    if nbytes < LARGE or not can_pack(model):
        return DEFAULT, None
    if free_bytes(model.device) < COPIES * nbytes:
        return DEFAULT, f"less than {size_of(COPIES * nbytes)} were free for packed weights"
    gain = _gain(model)
    measured = f"packed weights were measured to be {gain:.2f} × as fast"
    if gain < MARGIN:
        return DEFAULT, f"{measured}; they are used from {MARGIN} × on"
    return PACKED, measured


def cache_folder() -> Path:
    """The folder of this package in the user's cache folder.

    Raises:
        RuntimeError: the user has no home folder.
    """
    chosen = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    on_mac = sys.platform == "darwin" and not chosen
    if chosen:
        return Path(chosen) / "interp"
    return Path.home() / ("Library/Caches" if on_mac else ".cache") / "interp"


def _gain(model: Network) -> float:
    """The speed-up by packed weights, measured now or earlier on the same shapes and machine."""
    try:
        file = cache_folder() / "kernels.json"
    except RuntimeError:
        return packing_gain(model)
    key, gains = _key(model), _read(file)
    if key not in gains:
        gains = {key: packing_gain(model), **gains}
        with suppress(OSError, OutOfResources):  # without the file, the next model is measured
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text_whole(file, json.dumps(dict(islice(gains.items(), MAX_GAINS)), indent=2))
    return gains[key]


def _key(model: Network) -> str:
    """A hash of what the speed-up depends on."""
    content = [
        sorted((*shape, count) for shape, count in product_shapes(model).items()),
        str(model.dtype),
        processor(),
        torch.get_num_threads(),
        torch.__version__,
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _read(file: Path) -> dict[str, float]:
    """The speed-ups in a file, newest first; none if it is missing or damaged."""
    try:
        contents = read_json(file, MAX_BYTES)
    except (*UNREADABLE, InterpError):
        return {}
    entries = contents.items() if isinstance(contents, dict) else ()
    return {
        key: gain
        for key, gain in entries
        if isinstance(gain, float) and math.isfinite(gain) and gain > 0
    }
