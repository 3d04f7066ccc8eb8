"""Files of ``torch.save``, which are pickles: read only if allowed, weights only.

Unpickling can execute code. ``weights_only=True`` reads tensors and plain containers and refuses
everything else; there is no fallback.
"""

import pickle
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile, is_zipfile

import torch
from torch import Tensor

from interp.errors import ModelLoadError, first_line, reason, shorten
from interp.io import open_regular, size_of

OLD_FORMAT = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""The first bytes of a file of ``torch.save`` before version 1.6."""
MAX_NAMES = 4
"""How many names one number of the file may have in the weights. Encoder–decoders have four of one
matrix: the shared embedding, those of both stacks and the unembedding."""


def unpickled(path: Path, source: Path | None = None, *, allow_pickle: bool) -> object:
    """The content of a pickle: tensors and plain values.

    Args:
        path: the file.
        source: what ``interp convert`` takes, the file by default.
        allow_pickle: whether it may be read.

    Raises:
        ModelLoadError: ``allow_pickle`` is not set, or the file is damaged or holds anything else.
    """
    if not allow_pickle:
        raise ModelLoadError(
            f"{path} is a pickle, which can execute code when it is read. If you trust it, pass "
            "load(..., allow_pickle=True) (only weights are read even then), or convert it to "
            f"safetensors once: interp convert {source or path} FOLDER --allow-pickle."
        )
    if not path.is_file():
        raise ModelLoadError(f"{path} is missing or not a file.")
    try:
        # An archive is memory-mapped, so that no tensor is allocated or extends beyond the file.
        return torch.load(path, map_location="cpu", weights_only=True, mmap=_is_archive(path))
    except pickle.UnpicklingError as error:
        raise ModelLoadError(
            f"{path} holds more than weights and plain values, so it is not read: "
            f"{first_line(error)}"
        ) from error
    except Exception as error:  # damaged files make the unpickler raise exceptions of any type
        raise ModelLoadError(f"{path} is not a valid checkpoint: {reason(error)}.") from error


def _is_archive(path: Path) -> bool:
    """Whether a file of ``torch.save`` is a zip archive, as it is since version 1.6.

    Raises:
        OSError: there is no such file, or no permission.
        ValueError: it is not a regular file or has neither format, or the parts of the archive are
            compressed or overlap.
    """
    with open_regular(path) as file:
        size = size_of(file)
        if not is_zipfile(file):
            file.seek(0)
            if file.read(len(OLD_FORMAT)) == OLD_FORMAT:
                return False
            raise ValueError("it is not a file of torch.save; fetch or save it again")
        with ZipFile(file) as archive:
            if sum(part.file_size for part in archive.infolist()) > size:
                raise ValueError("its parts have more bytes than the file")
    return True


def check_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Refuse tensors that repeat numbers of the file more often than tied weights do.

    Raises:
        ModelLoadError: a tensor is sparse or quantised, or tensors repeat numbers of the file.
    """
    for name, weight in weights.items():
        if weight.layout != torch.strided or weight.is_quantized:
            raise ModelLoadError(
                f"{path}: {shorten(name)} is sparse or quantised; store it as a dense tensor."
            )
    size = path.stat().st_size
    total = sum(weight.numel() * weight.itemsize for weight in weights.values())
    if total > MAX_NAMES * size:
        raise ModelLoadError(
            f"{path}: its weights have {total} bytes, but the file only {size}: tensors repeat "
            "numbers of the file. Save contiguous copies of them."
        )
