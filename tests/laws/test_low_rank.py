"""Every property of a low-rank matrix equals that of the matrix formed."""

import pytest
import torch
from architectures import assert_close, build, distance
from hypothesis import given, settings
from hypothesis import strategies as st

from interp import InterpError, LowRank

BOUND = 1e-12
sizes = st.integers(1, 6)
batches = st.lists(st.integers(1, 3), max_size=2).map(tuple)
seeds = st.integers(0, 2**16)


def drawn(seed: int, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


@st.composite
def matrices(draw, square: bool = False) -> LowRank:
    m, r, n = draw(sizes), draw(sizes), draw(sizes)
    batch = draw(batches)
    return LowRank(*drawn(draw(seeds), (*batch, m, r), (*batch, r, m if square else n)))


@settings(max_examples=30)
@given(matrix=matrices())
def test_the_singular_value_decomposition_is_that_of_the_formed_matrix(matrix):
    """U S Vᵀ is the matrix, U and V orthonormal, S its singular values in order."""
    u, s, vh = matrix.svd()
    whole = matrix.form()
    assert_close((u * s[..., None, :]) @ vh, whole, BOUND)
    expected = torch.linalg.svdvals(whole)
    n = min(s.shape[-1], expected.shape[-1])
    assert_close(s[..., :n], expected[..., :n], BOUND)
    assert bool((s[..., n:].abs() <= BOUND * s[..., :1]).all())
    assert bool((expected[..., n:].abs() <= BOUND * s[..., :1]).all())
    assert bool((s.diff(dim=-1) <= 0).all())
    assert_close(matrix.singular_values(), s, BOUND)
    for basis in (u, vh.mT):
        one = torch.eye(basis.shape[-1], dtype=torch.float64)
        assert_close(basis.mT @ basis, one.expand_as(basis.mT @ basis), BOUND)


@settings(max_examples=30)
@given(matrix=matrices(square=True))
def test_eigenvalues_are_those_of_the_formed_matrix(matrix):
    """As sets, zeros aside: Π (t − λ) at a few points t, which no reordering changes."""
    own, whole = matrix.eigenvalues(), torch.linalg.eigvals(matrix.form())
    size = max(1.0, float(whole.abs().max()))
    for t in (1.7, -1.3 + 0.4j, 2.1j):
        at = t * size
        # det(t − LR) = t^(m − r) det(t − RL)
        mine = (1 - own / at).prod(-1)
        theirs = (1 - whole / at).prod(-1)
        assert float((mine - theirs).abs().max()) < 1e-10


@settings(max_examples=30)
@given(matrix=matrices(square=True))
def test_the_trace_is_the_diagonals_sum_and_that_of_the_eigenvalues(matrix):
    whole = matrix.form()
    assert_close(matrix.trace(), whole.diagonal(dim1=-2, dim2=-1).sum(-1), BOUND)
    assert_close(matrix.eigenvalues().sum(-1).real, matrix.trace(), 1e-10)


@settings(max_examples=30)
@given(matrix=matrices())
def test_the_norm_is_the_frobenius_norm(matrix):
    """√Σ m² = √Σ s²."""
    assert_close(matrix.norm(), torch.linalg.matrix_norm(matrix.form()), BOUND)
    assert_close(matrix.norm(), matrix.singular_values().square().sum(-1).sqrt(), BOUND)


@settings(max_examples=30)
@given(matrix=matrices())
def test_the_transpose_is_the_transpose(matrix):
    assert_close(matrix.T.form(), matrix.form().mT, BOUND)
    assert matrix.T.shape == matrix.form().mT.shape
    assert matrix.shape == matrix.form().shape


@settings(max_examples=30)
@given(m=sizes, r=sizes, n=sizes, s=sizes, k=sizes, seed=seeds)
def test_products_are_products_of_the_formed_matrices(m, r, n, s, k, seed):
    """With another low-rank matrix (of the smaller rank), with a tensor on either side."""
    a, b, c, d, x = drawn(seed, (m, r), (r, n), (n, s), (s, k), (3, m))
    left, right = LowRank(a, b), LowRank(c, d)
    product = left @ right
    assert isinstance(product, LowRank)
    assert product.rank == min(r, s)
    assert_close(product.form(), left.form() @ right.form(), BOUND)
    assert_close(left @ c, left.form() @ c, BOUND)
    assert_close(x @ left, x @ left.form(), BOUND)


@given(seed=seeds)
@settings(max_examples=10)
def test_a_matrix_times_a_vector_is_that_vector_moved(seed):
    a, b, x, y = drawn(seed, (5, 2), (2, 4), (4,), (5,))
    assert_close(LowRank(a, b) @ x, a @ b @ x, BOUND)
    assert_close(y @ LowRank(a, b), y @ a @ b, BOUND)


def test_batches_of_factors_broadcast_as_their_products_do():
    a, b = drawn(0, (3, 1, 4, 2), (5, 2, 4))
    matrix = LowRank(a, b)
    assert matrix.shape == matrix.form().shape == (3, 5, 4, 4)
    assert_close(matrix.norm(), torch.linalg.matrix_norm(matrix.form()), BOUND)
    assert_close(matrix.trace(), matrix.form().diagonal(dim1=-2, dim2=-1).sum(-1), BOUND)
    u, s, vh = matrix.svd()
    assert_close((u * s[..., None, :]) @ vh, matrix.form(), BOUND)


def test_indexing_takes_from_the_first_batch_axis():
    a, b = drawn(0, (3, 4, 2), (3, 2, 4))
    matrix = LowRank(a, b)
    assert_close(matrix[1].form(), matrix.form()[1], BOUND)
    assert_close(matrix[1:].form(), matrix.form()[1:], BOUND)
    with pytest.raises(InterpError, match="no batch axis"):
        matrix[1][0]


def test_a_small_norm_beside_large_factors_is_not_lost():
    """L Lᵀ-cancelling factors: the norm is right to 1e-10 of the factors' own size."""
    a, b = drawn(1, (6, 2), (2, 6))
    a[:, 1], b[1] = a[:, 0] * (1 + 1e-9), -b[0]
    matrix = LowRank(a, b)
    whole = torch.linalg.matrix_norm(matrix.form())
    assert distance(matrix.norm(), whole) < 1e-10


@pytest.mark.parametrize("name", ["seed", "gpt2", "llama", "gptj"])
def test_circuits_of_heads_are_of_the_rank_of_a_head(name):
    attention = build(name).blocks[0].attn
    for head in range(attention.n_heads):
        for circuit in (attention.S(head), attention.Y(head)):
            assert circuit.rank == attention.d_head
            assert circuit.shape == (12, 12)
            rank = int(torch.linalg.matrix_rank(circuit.form().detach()))
            assert rank == attention.d_head


def test_factors_that_do_not_meet_are_refused():
    a, b = drawn(0, (4, 2), (3, 4))
    with pytest.raises(InterpError, match=r"\(4, 2\).*\(3, 4\).*can't be multiplied"):
        LowRank(a, b)


def test_only_square_matrices_have_eigenvalues():
    a, b = drawn(0, (4, 2), (2, 5))
    with pytest.raises(InterpError, match=r"square.*\(4, 5\)"):
        LowRank(a, b).eigenvalues()
