"""Tensors are read as they were written, or the change is noticed."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from interp.errors import InterpError
from interp.io.tensor_file import (
    CHECKSUM,
    DAMAGED,
    STORED,
    read_header,
    save_tensors,
    verify_checksum,
)

TENSORS = {str(dtype): torch.arange(6).reshape(2, 3).to(dtype) for dtype in STORED.values()} | {
    "scalar": torch.tensor(1.5),
    "empty": torch.zeros(0, 3),
    "odd": torch.ones(3).char(),
}
METADATA = {"text": '{"sha256":"' + "0" * 64 + '"}', "é": "\n"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save_tensors(TENSORS, tmp_path / "a.safetensors", METADATA)
    return tmp_path / "a.safetensors"


def check(path: Path) -> None:
    verify_checksum(path, read_header(path))


def is_refused(path: Path) -> bool:
    try:
        check(path)
    except DAMAGED:
        return True
    return False


def test_the_library_reads_what_is_written(path):
    read = load_file(path)
    assert read.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert read[name].dtype == tensor.dtype
        assert torch.equal(read[name].float(), tensor.float())
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    assert {name: metadata[name] for name in METADATA} == METADATA
    assert read_header(path).metadata == metadata


def test_the_same_tensors_give_the_same_bytes(path, tmp_path):
    other = dict(reversed(TENSORS.items()))
    save_tensors(other, tmp_path / "b", METADATA)
    assert (tmp_path / "b").read_bytes() == path.read_bytes()


def test_a_tensor_of_any_layout_is_written_in_order(tmp_path):
    x = torch.arange(24.0).reshape(2, 3, 4)
    save_tensors({"t": x.mT, "s": x[:, 1:, ::2], "e": x[:1].expand(5, 3, 4)}, tmp_path / "a", {})
    read = load_file(tmp_path / "a")
    assert torch.equal(read["t"], x.mT)
    assert torch.equal(read["s"], x[:, 1:, ::2])
    assert torch.equal(read["e"], x[:1].expand(5, 3, 4))


def test_any_changed_byte_is_noticed(path):
    """Also in the header and in the checksum; but for its name, where it is then none."""
    content = path.read_bytes()
    check(path)
    for index in range(len(content)):
        path.write_bytes(content[:index] + bytes([content[index] ^ 1]) + content[index + 1 :])
        assert is_refused(path) or CHECKSUM not in read_header(path).metadata


def test_a_file_without_a_checksum_is_read(path):
    """As of other libraries, and of versions that wrote none."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    del header["__metadata__"][CHECKSUM]
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    check(path)


def test_damage_is_no_error_of_another_family():
    assert not any(issubclass(kind, InterpError) for kind in DAMAGED)
