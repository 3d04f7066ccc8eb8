"""The sum of a weight shows that it changed, without a copy of the weight in float64."""

import pytest
import torch
from allocations import allocated

import interp.model.hashing as sums
from interp.model.hashing import weight_sums


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_sums_are_those_in_float64(dtype, monkeypatch):
    """Of weights of any shape, also where parts do not divide them."""
    monkeypatch.setattr(sums, "AT_A_TIME", 10)
    generator = torch.Generator().manual_seed(0)
    shapes = ((), (0, 3), (7,), (23, 3), (3, 40))
    weights = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    expected = [float(weight.double().sum()) for weight in weights]
    assert weight_sums(weights) == pytest.approx(expected, abs=1e-12)


def test_only_a_part_of_a_weight_is_converted_at_a_time(monkeypatch):
    monkeypatch.setattr(sums, "AT_A_TIME", 1000)
    weight = torch.ones(1000, 100)
    peak, _ = allocated(lambda: weight_sums([weight]))
    assert peak < 2 * 8 * 1000
