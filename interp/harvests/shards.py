"""Shards of a harvest: memory-mapped tensors, checked against the index."""

import re
from pathlib import Path

from safetensors import safe_open
from torch import Tensor

from interp.errors import InvalidInput, reason
from interp.harvests.index import DTYPES, IDS, Index, shard_name
from interp.io import CHECKSUM, DAMAGED, STORED, Header, read_header, verify_checksum

SHARD_FILE = re.compile(r"shard-(\d{5,})\.safetensors")
HARVEST, SHARD = "harvest", "shard"
"""Entries of a shard's metadata: the SHA-256 of the index, and the number of the shard."""


def present_shards(index: Index, folder: Path) -> set[int]:
    """The shards that are there."""
    matches = (SHARD_FILE.fullmatch(path.name) for path in folder.iterdir())
    return {int(match[1]) for match in matches if match and int(match[1]) < index.n_shards}


def check_shard(folder: Path, index: Index, shard: int, *, checksum: bool = False) -> None:
    """Check that a file is a shard of this harvest.

    Args:
        folder: the folder of the harvest.
        index: its index.
        shard: the number of the shard.
        checksum: whether to read the whole file and compare its SHA-256, not only its header.

    Raises:
        InvalidInput: it is missing, damaged, or of another harvest.
    """
    path = folder / shard_name(shard)
    try:
        header = read_header(path)
        problem = _difference(header, index, shard)
        if problem:
            raise ValueError(problem)
        if checksum:
            verify_checksum(path, header)
    except DAMAGED as error:
        raise InvalidInput(
            f"{path} is not shard {shard} of this harvest: {reason(error)}. Move it away; the same "
            "call of interp.harvest then computes it anew."
        ) from error


def _difference(header: Header, index: Index, shard: int) -> str:
    """How a header differs from that of a shard; empty if it does not."""
    if header.metadata.get(HARVEST) != index.digest:
        return "it belongs to another harvest"
    if header.metadata.get(SHARD) != str(shard):
        return f"it is shard {header.metadata.get(SHARD)}"
    if CHECKSUM not in header.metadata:
        return "it has no checksum"
    n = len(index.rows_of(shard))
    expected = {place.name: ((n, *place.shape), DTYPES[index.dtype]) for place in index.places}
    expected |= {name: ((n,), dtype) for name, dtype in IDS.items()}
    entries = {name: (e.shape, STORED.get(e.dtype)) for name, e in header.entries.items()}
    return "" if entries == expected else "its tensors are not those that the index lists"


def open_shard(folder: Path, index: Index, shard: int) -> dict[str, Tensor]:
    """The tensors of a shard, memory-mapped: what is read of them is read from the file.

    Raises:
        InvalidInput: as :func:`check_shard`.
    """
    check_shard(folder, index, shard)
    with safe_open(folder / shard_name(shard), framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
