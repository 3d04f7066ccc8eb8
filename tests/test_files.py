"""Only regular files of bounded size are read, whatever a path leads to."""

import os
from pathlib import Path

import pytest

import interp
from interp.errors import InterpError
from interp.io.files import UNREADABLE, read_bounded

READERS = {
    "load": interp.load,
    "load a checkpoint": lambda path: interp.load(path, allow_pickle=True),
    "tokenizer": interp.Tokenizer.from_file,
    "prompts": interp.read_prompts,
    "cache": interp.load_cache,
    "card": interp.card,
    "history": interp.history,
}
"""Everything of the façade that takes the path of a file or of a folder."""
NO_PATHS = ["\0", "a\0b", "x" * 5000, "\udcff", "", "nowhere/at/all"]


@pytest.fixture
def special(tmp_path: Path) -> dict[str, Path]:
    """Paths of what is no regular file."""
    os.mkfifo(tmp_path / "pipe.pt")
    links = {"zero": "/dev/zero", "null": "/dev/null", "loop": "loop.pt", "dangling": "nowhere"}
    for name, target in links.items():
        (tmp_path / f"{name}.pt").symlink_to(target)
    return {path.stem: path for path in tmp_path.iterdir()} | {"folder": tmp_path}


def test_what_is_no_regular_file_is_not_read(special):
    for path in special.values():
        with pytest.raises(UNREADABLE):
            read_bounded(path, 100)


def test_a_link_to_a_regular_file_is_read(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("file")
    assert read_bounded(tmp_path / "link", 3) == b"abc"
    with pytest.raises(ValueError, match="larger than 2 bytes"):
        read_bounded(tmp_path / "link", 2)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("reader", READERS)
def test_no_reader_reads_what_is_no_regular_file(reader, special):
    for path in special.values():
        with pytest.raises(InterpError) as error:
            READERS[reader](path)
        assert "\n" not in str(error.value)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("target", ["/dev/zero", "pipe", "nowhere"])
@pytest.mark.parametrize(
    ("file", "read"),
    [
        ("config.json", interp.load),
        ("model.safetensors", interp.load),
        ("tokenizer.json", interp.load),
        ("card.json", interp.card),
        ("history.json", interp.history),
    ],
)
def test_a_models_folder_with_a_file_that_is_no_regular_one_is_refused(
    file, read, target, tmp_path
):
    folder = tmp_path / "model"
    folder.mkdir()
    for path in (interp.loading.MODEL_FOLDER / "dates").iterdir():
        (folder / path.name).symlink_to(path)
    read(folder)
    (folder / file).unlink()
    os.mkfifo(tmp_path / "pipe")
    (folder / file).symlink_to(target if target.startswith("/") else tmp_path / target)
    if (file, target) == ("tokenizer.json", "nowhere"):  # a model need not have one
        assert interp.load(folder).tokenizer is None
        return
    with pytest.raises(InterpError, match=file):
        read(folder)


@pytest.mark.parametrize("reader", READERS)
def test_a_name_that_no_file_can_have_is_an_error_of_this_package(reader):
    for name in NO_PATHS:
        with pytest.raises(InterpError) as error:
            READERS[reader](name)
        assert len(str(error.value)) <= 1100
