"""Datasets of the library `datasets`: objects and folders are read as tables are.

The library comes with the extra ``dev`` alone, so these tests do not stand among those of
interp.prompts, which run without it.
"""

import sys

import datasets
import pytest

from interp.errors import InvalidInput
from interp.prompts.prompts import iter_prompts, read_prompt_file, read_prompts

COLUMNS = {
    "id": [0, 1],
    "text": ["a ", " é\nb"],
    "target": [" x", None],
    "corrupt": [None, "c"],
}
EXPECTED = [{"text": "a ", "target": " x"}, {"text": " é\nb", "corrupt": "c"}]


@pytest.fixture(autouse=True)
def quiet():
    datasets.disable_progress_bars()


def test_objects_streams_and_folders_have_the_same_prompts(tmp_path):
    dataset = datasets.Dataset.from_dict(COLUMNS)
    dataset.save_to_disk(tmp_path / "saved")
    for source in (
        dataset,
        dataset.to_iterable_dataset(),
        dataset.with_format("numpy"),
        tmp_path / "saved",
    ):
        for read in (read_prompts, iter_prompts):
            assert [prompt.fields() for prompt in read(source)] == EXPECTED
    assert [prompt.source for prompt in read_prompts(dataset)] == ["dataset[0]", "dataset[1]"]
    assert read_prompts(tmp_path / "saved")[1].source == f"{tmp_path / 'saved'}[1]"


def test_the_hash_of_a_saved_dataset_is_that_of_its_prompts(tmp_path):
    for n, seed in enumerate((0, 0, 1)):
        rows = datasets.Dataset.from_dict({"text": ["a", f"b{seed}"]})
        rows.save_to_disk(tmp_path / str(n))
    first, same, other = (read_prompt_file(tmp_path / str(n)).sha256 for n in range(3))
    assert first == same != other


def test_a_dataset_with_splits_or_without_the_column_is_refused(tmp_path):
    rows = datasets.Dataset.from_dict({"text": ["a"]})
    several = datasets.DatasetDict(train=rows, test=rows)
    several.save_to_disk(tmp_path / "saved")
    with pytest.raises(InvalidInput, match=r"dataset has the splits train, test; .*\['train'\]"):
        read_prompts(several)
    with pytest.raises(InvalidInput, match=r"give one of them: \S+saved/train"):
        read_prompts(tmp_path / "saved")
    assert [prompt.text for prompt in read_prompts(tmp_path / "saved" / "train")] == ["a"]
    with pytest.raises(InvalidInput, match="dataset has no column 'text', it has 'txt'"):
        read_prompts(rows.rename_column("text", "txt"))
    with pytest.raises(InvalidInput, match="dataset holds no prompts"):
        read_prompts(rows.select([]))


def test_a_folder_that_can_not_be_read_is_refused(tmp_path, monkeypatch):
    with pytest.raises(InvalidInput, match="is a folder without a dataset"):
        read_prompts(tmp_path)
    datasets.Dataset.from_dict({"text": ["a"]}).save_to_disk(tmp_path / "saved")
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "datasets", None)
        with pytest.raises(InvalidInput, match="Run: pip install datasets"):
            read_prompts(tmp_path / "saved")
    (tmp_path / "saved" / "state.json").write_text("{}")
    with pytest.raises(InvalidInput, match="can't be read as a dataset"):
        read_prompts(tmp_path / "saved")
