"""The kernel of products: the faster one where there is a choice, measured once and kept."""

import json
import sys

import pytest
import torch
from torch.testing import assert_close

import interp
from interp.errors import InvalidInput
from interp.kernels import choice
from interp.kernels.packed import is_available
from interp.model import DEFAULT

NAME = "induction-by-hand"
PACKED = "packed (oneDNN)"
pytestmark = pytest.mark.skipif(not is_available(), reason="this PyTorch has no packed products")


@pytest.fixture
def gains(monkeypatch, tmp_path):
    """Speed-ups that measurements return, last first; every model is large, the cache empty."""
    values = []
    monkeypatch.setattr(choice, "packing_gain", lambda model: values.pop())
    monkeypatch.setattr(choice, "LARGE", 0)
    monkeypatch.setattr(choice, "cache_folder", lambda: tmp_path / "cache" / "interp")
    return values


def chosen():
    model = interp.load(NAME, kernel="auto")
    return model.products, model.kernel_choice


def test_the_faster_kernel_is_used_and_provenance_has_the_reason(gains):
    gains += [1.3]
    model, plain = interp.load(NAME, kernel="auto"), interp.load(NAME)
    table, expected = (
        interp.sweep(each, "abcab", interp.edits.zero("z", layer=1, head=0), interp.metrics.loss())
        for each in (model, plain)
    )
    assert_close(table.values, expected.values, rtol=1e-4, atol=1e-4)
    assert (table.provenance.products, expected.provenance.products) == (PACKED, DEFAULT)
    assert "1.30" in table.provenance.kernel_choice
    assert expected.provenance.kernel_choice is None


def test_a_small_gain_is_no_reason_to_pack(gains):
    gains += [choice.MARGIN - 0.01]
    products, reason = chosen()
    assert products == DEFAULT
    assert "1.09" in reason


def test_a_gain_is_measured_once_for_each_number_of_threads(gains):
    gains += [1.2, 1.5]
    assert chosen() == chosen()
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        assert "1.20" in chosen()[1]
    finally:
        torch.set_num_threads(threads)
    assert "1.50" in chosen()[1]
    assert not gains


@pytest.mark.parametrize("content", ["", "{", "[1.5]", '"a"', "KEY-1.0", 'KEY"1.5"', "KEY1e999"])
def test_a_damaged_file_of_gains_is_replaced(gains, content):
    gains += [1.4, 1.3]
    chosen()
    file = choice.cache_folder() / "kernels.json"
    (key,) = json.loads(file.read_text())
    is_entry = content.startswith("KEY")
    file.write_text(f'{{"{key}": {content[3:]}}}' if is_entry else content)
    assert "1.40" in chosen()[1]
    assert json.loads(file.read_text()) == {key: 1.4}


def test_the_file_of_gains_is_bounded_and_keeps_the_newest(gains):
    gains += [1.4]
    file = choice.cache_folder() / "kernels.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({str(n): 1.0 for n in range(choice.MAX_GAINS)}))
    chosen()
    assert [*json.loads(file.read_text()).values()] == [1.4, *[1.0] * (choice.MAX_GAINS - 1)]


def test_without_a_cache_folder_the_gain_is_measured_again(gains, monkeypatch, tmp_path):
    gains += [1.5, 1.4, 1.3]
    (tmp_path / "cache").write_text("a file where the folder would be")
    assert "1.30" in chosen()[1]

    def homeless():
        raise RuntimeError("no home")

    monkeypatch.setattr(choice, "cache_folder", homeless)
    assert "1.40" in chosen()[1]


def test_without_room_for_a_second_copy_nothing_is_measured(gains, monkeypatch):
    nbytes = sum(weight.nbytes for weight in interp.load(NAME).parameters())
    monkeypatch.setattr(choice, "free_bytes", lambda device: choice.COPIES * nbytes - 1)
    products, reason = chosen()
    assert products == DEFAULT
    assert "free" in reason


def test_nothing_is_measured_where_there_is_no_choice(gains, monkeypatch):
    """In another dtype, for a small model, and without the operation."""
    half = interp.load(NAME, dtype="float64", kernel="auto")
    assert (half.products, half.kernel_choice) == (DEFAULT, None)
    monkeypatch.setattr(choice, "LARGE", 2**26)
    assert chosen() == (DEFAULT, None)
    monkeypatch.setattr(choice, "LARGE", 0)
    monkeypatch.setattr(sys.modules["interp.kernels.packed"], "is_available", lambda: False)
    assert chosen() == (DEFAULT, None)


def test_a_kernel_that_is_named_is_used_without_a_measurement(gains):
    model = interp.load(NAME, kernel="packed")
    assert (model.products, model.kernel_choice) == (PACKED, None)
    assert interp.load(NAME, kernel="default").products == DEFAULT


@pytest.mark.parametrize(("name", "dtype"), [("packed", "float64"), ("fast", None)])
def test_a_kernel_that_is_unknown_or_impossible_is_refused(name, dtype):
    with pytest.raises(InvalidInput, match="float64" if dtype else "default, packed, auto"):
        interp.load(NAME, dtype=dtype, kernel=name)


def test_the_cache_folder_is_that_of_the_user(monkeypatch, tmp_path):
    monkeypatch.setattr(choice.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert choice.cache_folder() == tmp_path / "interp"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert choice.cache_folder() == tmp_path / ".cache" / "interp"
