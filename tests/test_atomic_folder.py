"""The files of a folder are replaced together, by one writer, and only where they are its own."""

import errno
import fcntl
import json
import os
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from interp.errors import InterpError, InvalidInput, OutOfResources
from interp.io.atomic_folder import MANIFEST, atomic_folder
from interp.io.files import locked, write_text_whole

atomic = import_module("interp.io.atomic_folder")


def write(
    folder: Path, *names: str, text: str = "1", then: Callable[[], object] = lambda: None
) -> None:
    """Write files with a text, and call ``then`` before they take their place."""
    with atomic_folder(folder) as new:
        for name in names:
            (new / name).parent.mkdir(exist_ok=True)
            (new / name).write_text(text)
        then()


def raising(error: BaseException) -> Callable[[], object]:
    def fail() -> None:
        raise error

    return fail


def content(folder: Path) -> dict[str, bytes]:
    """The bytes of every file below a folder, by its path."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_files_appear_together(tmp_path):
    folder = tmp_path / "a" / "b"
    with atomic_folder(folder) as new:
        (new / "one").write_text("1")
        assert not folder.exists()
    assert sorted(content(folder)) == [MANIFEST, "one"]
    assert [path.name for path in folder.parent.iterdir()] == ["b"]


def test_the_manifest_lists_the_files_as_sha256sum_does(tmp_path):
    write(tmp_path / "a", "one", "steps/2", text="abc")
    manifest = json.loads((tmp_path / "a" / MANIFEST).read_text())
    of_abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert manifest["files"] == {"one": of_abc, "steps/2": of_abc}
    assert manifest["version"] == 1


def test_what_was_written_before_is_replaced_whole(tmp_path):
    folder = tmp_path / "a"
    write(folder, "one", "steps/2", text="before")
    folder.chmod(0o750)
    write(folder, "one", "three", text="after")
    assert sorted(content(folder)) == [MANIFEST, "one", "three"]
    assert (folder / "one").read_text() == "after"
    assert folder.stat().st_mode & 0o777 == 0o750


def test_there_is_always_a_folder(tmp_path, monkeypatch):
    """It is never renamed away: before the exchange it is the old one, after it the new one."""
    folder, states = tmp_path / "a", []
    write(folder, "one", text="old")
    for name in ("replace", "fsync", "unlink", "rmdir", "rename"):
        system_call = getattr(os, name)

        def watched(*args, system_call=system_call, **options):
            states.append((folder / "one").read_text())
            return system_call(*args, **options)

        monkeypatch.setattr(os, name, watched)
    write(folder, "one", text="new")
    assert [*dict.fromkeys(states)] == ["old", "new"]


def test_where_folders_can_not_be_exchanged_they_are_renamed(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "exchange", lambda *_: False)
    for text in ("old", "new"):
        write(tmp_path / "a", "one", text=text)
        assert (tmp_path / "a" / "one").read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_after_an_error_nothing_is_left(tmp_path, error):
    with pytest.raises(error):
        write(tmp_path / "a" / "b", "one", then=raising(error()))
    assert not list(tmp_path.iterdir())


def test_after_an_error_what_was_there_stays(tmp_path):
    write(tmp_path / "a", "one")
    before = content(tmp_path)
    with pytest.raises(ValueError, match="now"):
        write(tmp_path / "a", "one", text="after", then=raising(ValueError("now")))
    assert content(tmp_path) == before


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OutOfResources, match=r"can't be written.*Choose another"):
            write(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_link_stays_and_its_target_is_replaced(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for name in ("one", "two"):
        write(tmp_path / "link", name)
    assert sorted(content(tmp_path / "a")) == [MANIFEST, "two"]
    assert (tmp_path / "link").is_symlink()


def test_a_loop_of_links_is_an_error(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(OutOfResources, match="can't be written"):
        write(tmp_path / "loop")


def test_the_current_folder_and_those_above_are_refused(tmp_path, monkeypatch):
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    for folder in (Path(), tmp_path / "a", Path("/")):
        with pytest.raises(InvalidInput, match="choose a folder inside it"):
            write(folder, "one")
    assert not content(tmp_path)
    write(Path("c"), "one")


# What this package did not write.


def own_file(folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")


def own_file_below(folder: Path) -> None:
    (folder / "steps").mkdir(exist_ok=True)
    (folder / "steps" / "notes.txt").write_text("mine")


def changed_file(folder: Path) -> None:
    (folder / "one").write_text("mine")


def own_manifest(folder: Path) -> None:
    (folder / MANIFEST).write_text('{"files": ["mine"]}')


def nested_manifest(folder: Path) -> None:
    (folder / MANIFEST).write_text("[" * 100_000)


def extended_manifest(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**manifest, "version": 99}))


def link_in_place_of_a_file(folder: Path) -> None:
    (folder.parent / "elsewhere").write_text("1")
    (folder / "one").unlink()
    (folder / "one").symlink_to(folder.parent / "elsewhere")


def link_to_a_folder(folder: Path) -> None:
    (folder / "own").symlink_to(folder.parent)


def pipe(folder: Path) -> None:
    (folder / "one").unlink()
    os.mkfifo(folder / "one")


def pipe_as_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    os.mkfifo(folder / MANIFEST)


FOREIGN = [
    own_file,
    own_file_below,
    changed_file,
    own_manifest,
    nested_manifest,
    extended_manifest,
    link_in_place_of_a_file,
    link_to_a_folder,
    pipe,
    pipe_as_manifest,
]


@pytest.mark.parametrize("intrude", FOREIGN)
def test_a_folder_with_anything_of_the_users_is_refused_by_name(tmp_path, intrude):
    folder = tmp_path / "a"
    write(folder, "one")
    intrude(folder)
    before = content(tmp_path)
    with pytest.raises(InvalidInput, match=r"holds .*(notes\.txt|one|manifest\.json|own)"):
        write(folder, "one", text="after")
    assert content(tmp_path) == before
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("intrude", FOREIGN)
def test_what_the_user_adds_during_the_work_stays_and_the_work_is_kept(tmp_path, intrude):
    folder = tmp_path / "a"
    write(folder, "one")
    before = {}

    def intrude_and_look() -> None:
        intrude(folder)
        before.update(content(folder))

    with pytest.raises(InvalidInput, match=r"The new files are in .*a-2"):
        write(folder, "one", text="after", then=intrude_and_look)
    assert content(folder) == before
    assert (tmp_path / "a-2" / "one").read_text() == "after"
    assert not list(tmp_path.glob(".*"))


def test_the_error_is_short_whatever_the_folder_holds(tmp_path):
    for number in range(100):
        (tmp_path / f"{number:03d}{'x' * 200}").touch()
    with pytest.raises(InvalidInput) as error:
        write(tmp_path)
    assert len(str(error.value)) < 400 + len(str(tmp_path))


# One writer.


@pytest.mark.parametrize("start", [write, write_text_whole, lambda path, _: write(path, "one")])
def test_a_second_writer_is_refused_by_name(tmp_path, start):
    path = tmp_path / "a"
    with locked(path):
        with pytest.raises(OutOfResources, match=f"written by process {os.getpid()}"):
            start(path, "text")
        assert sorted(path.name for path in tmp_path.iterdir()) == [".a.interp-lock"]
    start(path, "text")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(("writes", "who"), [(True, "process 12345"), (False, "another process")])
def test_a_holder_is_named_once_it_has_written_its_id(tmp_path, monkeypatch, writes, who):
    """It writes the id just after it has locked the file, so a refusal can come in between."""
    lock = tmp_path / ".a.interp-lock"
    with lock.open("wb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        monkeypatch.setattr("time.sleep", lambda _: lock.write_text("12345" if writes else ""))
        with pytest.raises(OutOfResources, match=f"written by {who}"):
            write(tmp_path / "a", "one")


def test_of_many_threads_each_writes_whole_or_is_refused(tmp_path):
    """The lock file of one writer may vanish while the next one opens it."""
    folder, refused, others = tmp_path / "a", [], []

    def repeat(number: int) -> None:
        for _ in range(30):
            try:
                write(folder, "one", "two", text=str(number))
            except OutOfResources:
                refused.append(number)
            except BaseException as error:  # a thread's own would be lost
                others.append(error)

    threads = [threading.Thread(target=repeat, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not others
    assert len(refused) < 120
    assert (folder / "one").read_text() == (folder / "two").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_lock_left_by_a_killed_process_is_no_obstacle(tmp_path):
    (tmp_path / ".a.interp-lock").write_text("4194304")
    write(tmp_path / "a", "one")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path):
    (tmp_path / "mine").write_text("kept")
    (tmp_path / ".a.interp-lock").symlink_to(tmp_path / "mine")
    with pytest.raises(InterpError, match="can't be written"):
        write(tmp_path / "a", "one")
    assert (tmp_path / "mine").read_text() == "kept"


def test_a_file_is_refused_where_there_is_no_folder(tmp_path):
    (tmp_path / "file").touch()
    for folder, error in (("missing", FileNotFoundError), ("file", NotADirectoryError)):
        with pytest.raises(error):
            write_text_whole(tmp_path / folder / "a", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_file_system_without_locks_is_written_to(tmp_path, monkeypatch):
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("fcntl.flock", no_locks)
    write(tmp_path / "a", "one")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_file_is_written_whole_and_takes_the_place_of_remains(tmp_path):
    (tmp_path / ".a.interp-new").write_text("half")
    (tmp_path / ".b.interp-new").write_text("of another")
    write_text_whole(tmp_path / "a", "whole")
    assert content(tmp_path) == {"a": b"whole", ".b.interp-new": b"of another"}
