"""A harvest that is killed, runs out of disk, or is shared by processes gives the same bytes."""

import resource
from contextlib import contextmanager
from functools import partial

import pytest
import torch
from architectures import build, tokens_of

from interp.errors import OutOfResources
from interp.harvests import harvest, pieces, write
from tools.faults.child import Child, kill_at

KILLED = -9
PLACE = ("resid_post", 1)
MODEL = build("gpt2")
TOKENS = tokens_of("gpt2", 9, 6)[0]


def store(folder, rows=4, texts=TOKENS):
    """A harvest of 54 rows in six shards, of three pieces of texts."""
    harvest(MODEL, (row for row in texts), PLACE, folder, shard_rows=10, rows=rows)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Texts in three pieces; processes wait for one another without delay."""
    monkeypatch.setattr(pieces, "POOL", 3)
    monkeypatch.setattr(pieces, "PIECE_TOKENS", 18)
    monkeypatch.setattr(write, "PAUSE", 0.01)
    assert torch.get_num_threads() == 1  # so that this process can be forked


@pytest.fixture
def expected(tmp_path):
    store(tmp_path / "expected")
    return content(tmp_path / "expected")


def content(folder):
    """All files below a folder, hidden ones too."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_harvest_killed_before_any_rename_is_resumed_with_the_same_bytes(tmp_path, expected):
    """Also with another ``rows=``: where the index was written, it holds how texts are batched."""
    codes, step = [KILLED], 0
    while codes[-1] == KILLED:
        step, folder = step + 1, tmp_path / str(step)
        codes.append(Child(partial(store, folder), kill_at(step, ("replace",))).wait().code)
        store(folder, rows=2 if (folder / "index.json").exists() else 4)
        assert content(folder) == expected
    assert codes[-1] == 0
    assert step == 11  # three pieces, an index, six shards, and a run without a kill


@pytest.mark.nightly
def test_a_harvest_killed_at_any_step_is_resumed_with_the_same_bytes(tmp_path):
    """Of six texts: two pieces and four shards. Leftover locks and temporary files are removed."""
    stored = partial(store, texts=TOKENS[:6])
    stored(tmp_path / "whole")
    code, step = KILLED, 0
    while code == KILLED:
        step, folder = step + 1, tmp_path / str(step)
        code = Child(partial(stored, folder), kill_at(step)).wait().code
        stored(folder)
        assert content(folder) == content(tmp_path / "whole")
    assert code == 0
    assert step > 50


def test_other_batches_from_the_beginning_have_another_index(tmp_path, expected):
    store(tmp_path / "other", rows=2)
    assert content(tmp_path / "other")["index.json"] != expected["index.json"]


def test_processes_share_the_shards_without_a_coordinator(tmp_path, expected):
    folder = tmp_path / "shared"
    children = [Child(partial(store, folder)) for _ in range(3)]
    ended = [child.wait() for child in children]
    assert [end.code for end in ended] == [0, 0, 0], [end.stderr for end in ended]
    assert content(folder) == expected


def test_a_process_takes_over_the_shard_of_one_that_was_killed(tmp_path, expected):
    """The first is killed while it holds a lock, the second has been waiting for it."""
    folder = tmp_path / "shared"
    killed = Child(partial(store, folder), kill_at(6, ("replace",)))
    other = Child(partial(store, folder))
    assert killed.wait().code in (0, KILLED)
    assert other.wait().code == 0
    assert content(folder) == expected


@contextmanager
def largest_file(nbytes):
    """No file can be written beyond a size, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("nbytes", [100, 1000, 1580])
def test_a_disk_that_becomes_full_loses_nothing(tmp_path, expected, nbytes):
    folder = tmp_path / "full"
    with largest_file(nbytes), pytest.raises(OutOfResources, match="same call computes the others"):
        store(folder)
    for name, data in content(folder).items():
        assert data == expected[name]
    store(folder)
    assert content(folder) == expected
