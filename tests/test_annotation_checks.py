"""While tests run, every annotation of the packages holds: what breaks one raises."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import jaxtyping
import pytest
import torch
from annotation_checks import CALLS_CHECKED, INNER_CALLS_CHECKED, calls, checked
from architectures import build
from beartype import beartype
from jaxtyping import Float
from tables import each
from torch import Tensor

from interp import AttentionConfig, LowRank, Place, Point
from interp.metrics import measure

check = checked(typechecker=beartype)


@check
def product(x: Float[Tensor, "n m"], y: Float[Tensor, "m k"]) -> Float[Tensor, "n k"]:
    return (x @ y) if x.shape[0] > 1 else (x @ y)[0]


def test_what_agrees_passes():
    assert product(torch.ones(2, 3), torch.ones(3, 4)).shape == (2, 4)


@each(
    "call",
    [
        lambda: product(torch.ones(2, 3), torch.ones(4, 3)),  # axes of one name differ
        lambda: product(torch.ones(2, 3), torch.ones(3)),  # a missing axis
        lambda: product(torch.ones(2, 3), torch.ones(3, 4).long()),  # another type of numbers
        lambda: product(torch.ones(1, 3), torch.ones(3, 4)),  # the result
        lambda: LowRank(torch.ones(3), torch.ones(3, 4)),  # a field with axes
        lambda: Place(Point.Z, layer="0"),  # and one without
        lambda: AttentionConfig("3", 4),
        lambda: build("gpt2").blocks[0].attn.S("0"),  # a method
        lambda: build("gpt2").blocks[0].attn.result(torch.ones(2, 3)),
        lambda: measure(lambda logits: logits[:, -1, 0], [0.0], None),  # a function of a package
    ],
)
def test_what_does_not_raises(call):
    calls.clear()
    with pytest.raises(jaxtyping.TypeCheckError):
        call()


def is_checked() -> bool:
    """Whether the next call of ``product`` is."""
    try:
        return product(torch.ones(1, 3), torch.ones(3, 4)).shape != (4,)
    except jaxtyping.TypeCheckError:
        return True


def test_calls_of_each_test_are_checked_at_growing_distances():
    assert [number for number in range(1, 66) if is_checked()] == [1, 4, 16, 64]
    assert {1, 4, 16, 64} < CALLS_CHECKED


@pytest.mark.parametrize("test", ["one", "another"])
def test_of_another_test_the_first_is_checked_again(test):
    assert is_checked()
    assert not is_checked()


def made() -> object:
    """A function within a function: the same code each time, decorated anew."""

    @check
    def same(x: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        return x

    return same


def test_the_first_calls_of_a_function_within_a_function_are_checked():
    wrong = torch.ones(2, 2)
    for _ in range(INNER_CALLS_CHECKED):
        with pytest.raises(jaxtyping.TypeCheckError):
            made()(wrong)
    assert made()(wrong) is wrong


def test_where_beartype_is_missing_tests_run_unchecked(monkeypatch):
    """As on a machine with a GPU and few packages."""
    monkeypatch.setitem(sys.modules, "beartype", None)
    monkeypatch.delitem(sys.modules, "annotation_checks")
    monkeypatch.setattr(jaxtyping, "jaxtyped", "its own")
    spec = spec_from_file_location("conftest_again", Path(__file__).parent / "conftest.py")
    spec.loader.exec_module(module_from_spec(spec))
    assert jaxtyping.jaxtyped == "its own"
