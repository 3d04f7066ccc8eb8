"""The GGUF files of a model: one, or the parts that llama.cpp splits large ones into.

    NAME-00001-of-00003.gguf    metadata, and the first tensors
    NAME-00002-of-00003.gguf    more tensors
    …

Each part names its number and that of all parts (``split.no``, from 0, and ``split.count``).
"""

import re
from pathlib import Path

from interp.errors import ModelLoadError, reason, shorten
from interp.io import UNREADABLE
from interp.loading.gguf.header import GgufHeader, GgufValue, read_gguf_header
from interp.loading.gguf.tensors import FileTensor, tensors_of

PART = re.compile(r"(?P<name>.+)-\d{5}-of-\d{5}(?P<suffix>\.[^.]+)")
"""The file name of a part."""
COUNT, NUMBER = "split.count", "split.no"
MAX_PARTS = 99_999


def read_files(path: Path) -> tuple[dict[str, GgufValue], dict[str, FileTensor]]:
    """The metadata of a model, and its tensors by name.

    Args:
        path: the file, or any part of the model.

    Raises:
        ModelLoadError: a file is missing, damaged or not a part of this model.
    """
    header = _header(path)
    count = header.metadata.get(COUNT, 1)
    if count in (0, 1):
        return header.metadata, _tensors(path, header)
    metadata: dict[str, GgufValue] = {}
    tensors: dict[str, FileTensor] = {}
    for number, part in enumerate(_parts(path, count)):
        header = _header(part)
        place = header.metadata.get(NUMBER), header.metadata.get(COUNT)
        if place != (number, count):
            raise ModelLoadError(
                f"{part} should be part {number} of {count}, but has {NUMBER}={shorten(place[0])} "
                f"and {COUNT}={shorten(place[1])}."
            )
        more = _tensors(part, header)
        for key in more:
            if key in tensors:
                raise ModelLoadError(f"{part} has {shorten(key)}, as has {tensors[key].file}.")
        metadata = header.metadata | metadata
        tensors |= more
    return metadata, tensors


def name_of_file(path: Path) -> str:
    """The file name without its suffix and without the number of a part."""
    match = PART.fullmatch(path.name)
    return path.stem if match is None else match["name"]


def _parts(path: Path, count: GgufValue) -> list[Path]:
    """The files of all parts, by the name of one of them."""
    match = PART.fullmatch(path.name)
    if not isinstance(count, int) or not 0 < count <= MAX_PARTS or match is None:
        raise ModelLoadError(
            f"{path} is one of {shorten(count)} parts of a model; its name should be "
            "NAME-00001-of-00002.gguf, as llama.cpp writes it, and the others should lie beside it."
        )
    parts = [
        path.with_name(f"{match['name']}-{number:05}-of-{count:05}{match['suffix']}")
        for number in range(1, count + 1)
    ]
    missing = next((part for part in parts if not part.is_file()), None)
    if missing is not None:
        raise ModelLoadError(f"{path} is one of {count} parts of a model; {missing} is missing.")
    return parts


def _header(path: Path) -> GgufHeader:
    try:
        return read_gguf_header(path)
    except UNREADABLE as error:
        raise ModelLoadError(f"{path} is not a valid GGUF file: {reason(error)}.") from error


def _tensors(path: Path, header: GgufHeader) -> dict[str, FileTensor]:
    try:
        return tensors_of(path, header)
    except ModelLoadError as error:
        raise ModelLoadError(f"{path}: {error}") from error
