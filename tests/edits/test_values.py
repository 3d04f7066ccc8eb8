"""Values taken from a batch: donors are other prompts, and means are over tokens, not padding."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from analyses.methods.components.gathered import donor_tokens
from interp.edits.values import donor_rows, token_mean
from interp.errors import InvalidInput

seeds = st.integers(0, 99)


@st.composite
def masks(draw) -> torch.Tensor:
    """Of prompts of several lengths, padded anywhere."""
    n, width = draw(st.integers(2, 6)), draw(st.integers(1, 5))
    rows = st.lists(st.booleans(), min_size=width, max_size=width).filter(any)
    return torch.tensor(draw(st.lists(rows, min_size=n, max_size=n)))


@given(n=st.integers(2, 9), seed=seeds)
def test_donor_rows_are_one_cycle_through_all(n, seed):
    donors, row, visited = donor_rows(n, seed), 0, set()
    for _ in range(n):
        visited.add(row)
        row = int(donors[row])
    assert row == 0
    assert len(visited) == n


@given(real=masks(), seed=seeds)
def test_the_donor_of_a_token_is_a_token_of_another_prompt(real, seed):
    row, column = donor_tokens(real, seed)
    assert bool(real[row, column].all())
    assert bool((row != torch.arange(len(real))[:, None]).all())


@given(real=masks(), seed=seeds)
def test_its_position_is_the_same_wherever_another_prompt_has_it(real, seed):
    row, column = donor_tokens(real, seed)
    position, lengths = real.cumsum(-1) - 1, real.sum(-1)
    shared = (lengths[:, None] > torch.arange(real.shape[1])).sum(0) > 1
    for i, p in real.nonzero().tolist():
        if shared[position[i, p]]:
            assert position[row[i, p], column[i, p]] == position[i, p]


@given(n=st.integers(2, 6), seed=seeds)
def test_prompts_of_one_length_take_from_one_prompt_each(n, seed):
    row, column = donor_tokens(torch.ones(n, 4, dtype=torch.bool), seed)
    assert torch.equal(row, donor_rows(n, seed)[:, None].expand(n, 4))
    assert torch.equal(column, torch.arange(4).expand(n, 4))


@given(real=masks(), reference=masks(), seed=seeds)
def test_donors_from_a_reference_are_its_tokens_at_the_same_position(real, reference, seed):
    row, column = donor_tokens(real, seed, reference)
    assert bool(reference[row, column][real].all())
    position, given_at = real.cumsum(-1) - 1, reference.cumsum(-1) - 1
    longest = int(reference.sum(-1).max())
    for i, p in real.nonzero().tolist():
        if position[i, p] < longest:
            assert given_at[row[i, p], column[i, p]] == position[i, p]


@given(n=st.integers(1, 7), m=st.integers(1, 4), seed=seeds)
def test_donors_from_a_reference_are_its_prompts_in_turn(n, m, seed):
    real, reference = torch.ones(n, 3, dtype=torch.bool), torch.ones(m, 3, dtype=torch.bool)
    row, _ = donor_tokens(real, seed, reference)
    counts = row[:, 0].bincount(minlength=m)
    assert counts.max() - counts.min() <= 1


def test_a_single_prompt_has_no_donor():
    with pytest.raises(InvalidInput, match="at least two prompts"):
        donor_tokens(torch.ones(1, 3, dtype=torch.bool), 0)


@given(real=masks())
def test_a_mean_is_over_tokens_alone(real):
    x = torch.randn(*real.shape, 3, generator=torch.Generator().manual_seed(0)).double()
    expected = x[real].mean(0)
    assert (token_mean(x, real)[0, 0] - expected).abs().max() <= 1e-12
    assert (token_mean(x, None)[0, 0] - x.flatten(0, 1).mean(0)).abs().max() <= 1e-12
