"""While tests run, every annotation of the packages holds: what breaks one raises."""

import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import jaxtyping
import pytest
import torch
from annotation_checks import GROWTH, INNER_CALLS_CHECKED, begin_test, checked
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


@check
def name_of(point: Point) -> str:
    return point.name if point is Point.Z else point


@check
def pairs(points: list[Point]) -> Iterator[tuple[Point, Point]]:
    yield from zip(points, points, strict=True)


class Scale:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    @check
    def times(self, other: "Scale", x: "Float[Tensor, ' n']") -> "Scale":
        return Scale(self.factor * other.factor * x.shape[0]) if x.shape[0] > 1 else x


def test_what_agrees_passes():
    assert name_of(Point.Z) == "Z"
    assert list(pairs([Point.Z])) == [(Point.Z, Point.Z)]
    assert Scale(2.0).times(Scale(3.0), torch.ones(2)).factor == 12
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
        lambda: name_of("z"),
        lambda: name_of(Point.Q),  # the result of a function without axes
        lambda: pairs(Point.Z),  # a generator
        lambda: Scale(2.0).times(3.0, torch.ones(2)),  # a class that is named before it is there
        lambda: Scale(2.0).times(Scale(3.0), torch.ones(2, 2)),
        lambda: Scale(2.0).times(Scale(3.0), torch.ones(1)),
    ],
)
def test_what_does_not_raises(call):
    begin_test()
    with pytest.raises(jaxtyping.TypeCheckError):
        call()


def is_checked() -> bool:
    """Whether the next call of ``product`` is."""
    try:
        return product(torch.ones(1, 3), torch.ones(3, 4)).shape != (4,)
    except jaxtyping.TypeCheckError:
        return True


def test_calls_of_each_test_are_checked_at_growing_distances():
    expected = [1, GROWTH, GROWTH**2]
    assert [number for number in range(1, GROWTH**2 + 2) if is_checked()] == expected


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
