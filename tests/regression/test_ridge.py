"""Ridge regression: exact where a map exists, silent where there is none."""

import pytest
import torch
from architectures import assert_close

import interp
from analyses.methods.ridge import PENALTIES, LinearMap, Ridge, held_out_r2, random_folds
from interp.errors import InvalidInput


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


def solved(x: torch.Tensor, y: torch.Tensor, penalty: float) -> LinearMap:
    """(x̃ᵀx̃ + λ)⁻¹ x̃ᵀỹ, by a solve."""
    mean_x, mean_y = x.mean(0), y.mean(0)
    gram = (x - mean_x).mT @ (x - mean_x) + penalty * torch.eye(x.shape[1]).double()
    W = torch.linalg.solve(gram, (x - mean_x).mT @ (y - mean_y))
    return LinearMap(W, mean_y - mean_x @ W)


def test_a_linear_map_is_found_exactly():
    x, W = normal(40, 6), normal(6, 3, seed=1)
    fit = Ridge(x).fit(x @ W + 2.0)
    assert_close(fit.W, W, 1e-7)
    assert_close(fit(x), x @ W + 2.0, 1e-7)


def test_the_penalty_is_the_one_that_predicts_left_out_rows_best():
    """By brute force: fitted without each row in turn, for every λ; then fitted to all."""
    x, y = normal(15, 4), normal(15, 2, seed=1)
    y = y + x[:, :2]
    square = (x - x.mean(0)).square().sum() / 4  # mean over the four singular values

    def error(penalty: float) -> float:
        others = [torch.arange(15) != row for row in range(15)]
        maps = [solved(x[rows], y[rows], penalty * square) for rows in others]
        return sum(float((f(x[n : n + 1])[0] - y[n]).square().sum()) for n, f in enumerate(maps))

    fit, best = Ridge(x).fit(y), min(PENALTIES[1:], key=error)
    assert_close(fit.W, solved(x, y, best * square).W)
    assert_close(fit.b, solved(x, y, best * square).b)
    another = solved(x, y, 100 * best * square)
    assert (fit.W - another.W).abs().max() > 1e-3


@pytest.mark.parametrize("dims", [4, 50])
def test_where_there_is_no_map_the_mean_is_predicted(dims):
    """Also where rows are fewer than dimensions, and least squares would fit them all."""
    x, y = normal(30, dims), normal(30, 20, seed=1)
    folds = random_folds(30, 5, torch.Generator().manual_seed(0))
    assert held_out_r2(x, y[None], folds).abs().max() < 0.1
    linear = x @ normal(dims, 20, seed=2)
    assert held_out_r2(x, linear[None], folds)[0] > (0.999 if dims == 4 else 0.2)


def test_a_table_without_full_rank_is_fitted_where_least_squares_goes_astray():
    """Of the even positions of ``dates``, in the float32 in which they are stored."""
    table = interp.load("dates").stacks[0].entry.table()
    x, y = table[:-1], table[1:]
    plain = torch.linalg.lstsq(x[::2], y[::2]).solution
    assert (x[1::2] @ plain - y[1::2]).abs().max() > 0.1
    fit = Ridge(x[::2]).fit(y[::2])
    assert (fit(x[1::2].double()) - y[1::2]).abs().max() < 0.01


def test_r2_of_what_does_not_vary_is_nan_and_folds_are_even():
    folds = random_folds(13, 5, torch.Generator().manual_seed(0))
    assert folds.bincount().tolist() == [3, 3, 3, 2, 2]
    assert held_out_r2(normal(13, 2), torch.ones(1, 13, 1), folds).isnan().all()


def test_what_cannot_be_fitted_is_refused():
    with pytest.raises(InvalidInput, match="two rows"):
        Ridge(normal(1, 3))
    with pytest.raises(InvalidInput, match="not finite"):
        Ridge(torch.full((3, 2), torch.nan))
