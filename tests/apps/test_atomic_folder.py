"""A folder of results is there whole, or not at all."""

from pathlib import Path

import pytest

from apps.atomic_folder import atomic_folder
from interp.errors import OutOfResources


def _write(folder: Path, error: BaseException) -> None:
    with atomic_folder(folder) as temporary:
        (temporary / "one").write_text("after")
        raise error


def test_files_appear_together(tmp_path):
    with atomic_folder(tmp_path / "a" / "b") as temporary:
        (temporary / "one").write_text("1")
        assert not (tmp_path / "a" / "b" / "one").exists()
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["one"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_after_an_error_nothing_is_left(tmp_path, error):
    with pytest.raises(error):
        _write(tmp_path / "a" / "b", error())
    assert not list(tmp_path.iterdir())


def test_after_an_error_what_was_there_stays(tmp_path):
    (tmp_path / "one").write_text("before")
    with pytest.raises(ValueError, match="now"):
        _write(tmp_path, ValueError("now"))
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OutOfResources, match="--out"), atomic_folder(folder):
            pytest.fail("there is no such folder")
