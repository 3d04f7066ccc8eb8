"""Numbers of single prompts of a stream go to Parquet files, window by window."""

import sys

import pandas as pd
import pytest
from architectures import build

import interp
from analyses import attention_statistics
from interp.errors import InvalidInput

ROWS = [[(k + i) % 11 for i in range(2 + k % 4)] for k in range(10)]
WINDOW = 4


@pytest.fixture
def small_windows(monkeypatch):
    monkeypatch.setattr(sys.modules[attention_statistics.__module__], "WINDOW", WINDOW)


def in_memory() -> pd.DataFrame:
    """The numbers of the same prompts in a list."""
    longest = max(map(len, ROWS))
    padded = [row + [interp.PAD] * (longest - len(row)) for row in ROWS]
    return attention_statistics(build("gpt2"), padded).to_prompt_frame()


def in_order(frame: pd.DataFrame) -> pd.DataFrame:
    keys = ["prompt", "layer", "head", "statistic", "weighting"]
    return frame.sort_values(keys, ignore_index=True)


@pytest.mark.usefixtures("small_windows")
def test_they_are_those_of_a_list(tmp_path):
    """In files of a window each, numbered over the whole stream; the averages do not change."""
    folder = tmp_path / "numbers"
    result = attention_statistics(build("gpt2"), iter(ROWS), per_prompt=folder)
    files = sorted(folder.iterdir())
    assert [len(pd.read_parquet(file)["prompt"].unique()) for file in files] == [4, 4, 2]
    every = pd.read_parquet(folder)
    pd.testing.assert_frame_equal(in_order(every)[[*in_memory()]], in_order(in_memory()))
    plain = attention_statistics(build("gpt2"), iter(ROWS)).to_frame()
    pd.testing.assert_frame_equal(result.to_frame(), plain)
    with pytest.raises(InvalidInput, match="Give per_prompt="):
        result.to_prompt_frame()


@pytest.mark.usefixtures("small_windows")
def test_a_stopped_stream_leaves_whole_files(tmp_path):
    """Those of the windows before; another run takes a new folder."""
    folder = tmp_path / "numbers"

    def stopped():
        yield from ROWS[:6]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attention_statistics(build("gpt2"), stopped(), per_prompt=folder)
    frames = [pd.read_parquet(file) for file in folder.iterdir()]
    assert [sorted(frame["prompt"].unique()) for frame in frames] == [[0, 1, 2, 3]]
    with pytest.raises(InvalidInput, match="has files already"):
        attention_statistics(build("gpt2"), iter(ROWS), per_prompt=folder)


def test_what_can_not_be_written_is_refused_before_the_first_forward(tmp_path):
    refused = iter(ROWS)
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    for prompts, folder, message in (
        (ROWS[:1], tmp_path / "new", "to_prompt_frame"),
        (refused, file, "can't be used"),
        (refused, tmp_path / "a" / "b", "can't be used"),
    ):
        with pytest.raises(InvalidInput, match=message):
            attention_statistics(build("gpt2"), prompts, per_prompt=folder)
    assert next(refused) == ROWS[0]
