"""Fourier spectra: shares of the variance that add up, and one for a planted frequency."""

from math import tau

import pytest
import torch
from architectures import assert_close

from analyses.methods.fourier import frequency_shares, joint_shares


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).double()


def wave(n: int, k: int, phase: float = 0.3) -> torch.Tensor:
    return (tau * k * torch.arange(n).double() / n + phase).cos()


@pytest.mark.parametrize("n", [7, 12])
def test_shares_add_up_and_are_those_of_a_projection(n):
    x = normal(n, 5)
    shares = frequency_shares(x)
    assert_close(shares.sum(-1), torch.ones(5).double())
    for k in range(1, n // 2 + 1):
        basis = torch.stack([wave(n, k, 0.0), wave(n, k, -tau / 4)], -1)
        projection = basis @ torch.linalg.lstsq(basis, x, driver="gelsd").solution
        variance = (x - x.mean(0)).square().sum(0)
        assert_close(shares[:, k - 1], projection.square().sum(0) / variance)


def test_a_wave_has_one_frequency_and_a_shift_keeps_it():
    x = 3 + wave(13, 4)
    for signal in (x, x.roll(5)):
        assert_close(frequency_shares(signal), torch.eye(6).double()[3])
    assert frequency_shares(x[torch.tensor([4, 1, 0, 7, 11, 2, 9, 3, 12, 5, 8, 10, 6])]).max() < 0.9


def test_over_two_axes_products_of_one_frequency_count_and_of_two_do_not():
    """cos(k(a + b)), cos ka + cos kb: frequency k. cos ka cos lb: none."""
    p, k = 11, 3
    a, b = wave(p, k)[:, None], wave(p, k, 1.0)[None]
    single = frequency_shares(torch.stack([a * b, a + b + 0 * a * b, 2 + a + a * b], -1), axes=2)
    assert_close(single, torch.eye(5).double()[k - 1].expand(3, 5))
    mixed = frequency_shares(a * wave(p, 5)[None], axes=2)
    assert_close(mixed, torch.zeros(5).double())


def test_together_each_dimension_counts_by_its_variance():
    x = torch.stack([2 * wave(9, 1), wave(9, 3)], -1)
    assert_close(joint_shares(x), torch.tensor([0.8, 0.0, 0.2, 0.0], dtype=torch.float64))
    assert joint_shares(torch.ones(9, 2)).isnan().all()
    assert frequency_shares(torch.ones(9, 2)).isnan().all()
