"""The largest values of a stream, and its distribution, whatever batches it comes in."""

import pytest
import torch
from architectures import assert_close

from analyses.methods.corpus.distribution import Distribution
from analyses.methods.corpus.top_cells import TopCells

CPU = torch.device("cpu")
UNITS, CELLS = 3, 200


def drawn(kind: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(UNITS, CELLS, generator=generator, dtype=torch.float64)
    return {"distinct": x, "with ties": x.round(), "all equal": torch.ones_like(x)}[kind]


def largest_by_sorting(values: torch.Tensor, top: int) -> list[list[int]]:
    return [
        sorted(range(values.shape[1]), key=lambda cell: (-float(row[cell]), cell))[:top]
        for row in values
    ]


@pytest.mark.parametrize("top", [1, 7, 300])
@pytest.mark.parametrize("size", [1, 13, 200])
@pytest.mark.parametrize("kind", ["distinct", "with ties", "all equal"])
def test_the_largest_are_those_of_all_at_once_in_any_batches_and_any_order(kind, size, top):
    values = drawn(kind)
    parts = torch.arange(CELLS).split(size)
    order = torch.randperm(len(parts), generator=torch.Generator().manual_seed(1))
    cells = TopCells(UNITS, top, CPU)
    for part in order.tolist():
        cells.add(values[:, parts[part]], parts[part])
    assert cells.cell.tolist() == largest_by_sorting(values, top)
    assert torch.equal(cells.value, values.gather(-1, cells.cell))


def test_values_that_differ_by_rounding_are_in_the_order_of_their_cells():
    third = torch.tensor([[1 / 3]], dtype=torch.float64)
    for noise, expected in ((1e-15, [0, 1]), (1e-9, [1, 0])):
        cells = TopCells(1, 2, CPU)
        cells.add(torch.cat([third, third + noise], -1), torch.arange(2))
        assert cells.cell.tolist() == [expected]


LEVELS = (0.001, 0.01, 0.25, 0.5, 0.9, 0.99, 1.0)


def distribution(values: torch.Tensor, size: int) -> Distribution:
    counted = Distribution(len(values), CPU)
    for part in values.split(size, dim=-1):
        counted.add(part)
    return counted


@pytest.mark.parametrize(
    "values",
    [
        drawn("distinct"),
        drawn("distinct").exp() * 1e3,
        -drawn("distinct").exp(),
        drawn("with ties"),
    ],
    ids=["both signs", "positive", "negative", "with zeros"],
)
def test_quantiles_are_within_their_bound(values):
    """|x̂ − x| ≤ 2.2 % |x|, x the value of that rank; the last is the largest."""
    quantiles = distribution(values, 200).quantiles(LEVELS)
    ranks = (torch.tensor(LEVELS) * CELLS - 1e-6).ceil().long().clamp(min=1) - 1
    expected = values.sort(-1).values[:, ranks]
    assert ((quantiles - expected).abs() <= 0.0221 * expected.abs()).all()
    assert torch.equal(quantiles[:, -1], values.amax(-1))


def test_a_wider_bucket_would_not_be_within_the_bound():
    values = torch.tensor([[1.0, 1.04, 2.0, 3.0]], dtype=torch.float64)
    quantiles = distribution(values, 4).quantiles((0.25, 0.5))
    assert quantiles[0, 0] == quantiles[0, 1]
    assert ((quantiles - values[:, :2]).abs() > 0.015).all()


@pytest.mark.parametrize("size", [1, 13])
def test_the_distribution_does_not_depend_on_the_batches(size, monkeypatch):
    values = drawn("distinct")
    whole = distribution(values, CELLS)
    monkeypatch.setattr("analyses.methods.corpus.distribution.CHUNK", 2)
    parts = distribution(values, size)
    assert torch.equal(parts.counts, whole.counts)
    assert torch.equal(parts.positive, (values > 0).sum(-1))
    assert_close(parts.mean, values.mean(-1))
    assert (parts.n, whole.n) == (CELLS, CELLS)


def test_values_beyond_the_buckets_are_counted_in_the_last():
    values = torch.tensor([[-1e30, -1e-30, 0.0, 1e-30, 1e30]], dtype=torch.float64)
    counted = distribution(values, 5)
    assert counted.quantiles((0.2, 0.6, 1.0))[0, 1] == 0
    bucket, counts = counted.histogram(0)
    assert counts.tolist() == [1, 3, 1]
    assert_close(bucket[[0, 2]], torch.tensor([-1e6, 1e6], dtype=torch.float64), 0.1)
