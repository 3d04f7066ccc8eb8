"""Every property of a low-rank matrix equals that of the full matrix."""

from inspect import unwrap

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
        identity = torch.eye(basis.shape[-1], dtype=torch.float64)
        assert_close(basis.mT @ basis, identity.expand_as(basis.mT @ basis), BOUND)


@settings(max_examples=30)
@given(matrix=matrices(square=True))
def test_the_positive_fraction_is_that_of_the_formed_matrix(matrix):
    """Σ λ = trace; Σ |λ| is that of the full matrix, whose other eigenvalues are zero."""
    total = torch.linalg.eigvals(matrix.form()).abs().sum(-1)
    assert_close(matrix.positive_fraction() * total, matrix.trace(), 1e-6)


def test_the_positive_fraction_of_a_projector_is_one_and_of_its_negative_minus_one():
    (basis,) = drawn(0, (6, 3))
    projector = LowRank(basis, torch.linalg.pinv(basis))
    unit = torch.ones((), dtype=torch.float64)
    assert_close(projector.positive_fraction(), unit)
    assert_close(LowRank(-projector.left, projector.right).positive_fraction(), -unit)
    assert LowRank(torch.zeros(4, 2), torch.zeros(2, 4)).positive_fraction() == 0


@settings(max_examples=30)
@given(matrix=matrices(square=True))
def test_eigenvalues_are_those_of_the_formed_matrix(matrix):
    """As sets, zeros aside: Π (t − λ) at a few points t, which no reordering changes."""
    eigenvalues, whole = matrix.eigenvalues(), torch.linalg.eigvals(matrix.form())
    size = max(1.0, float(whole.abs().max()))
    for t in (1.7, -1.3 + 0.4j, 2.1j):
        at = t * size
        # det(t − LR) = t^(m − r) det(t − RL)
        mine = (1 - eigenvalues / at).prod(-1)
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
    """With another low-rank matrix (of the smaller rank), with a matrix on either side."""
    a, b, c, d, x = drawn(seed, (m, r), (r, n), (n, s), (s, k), (3, m))
    left, right = LowRank(a, b), LowRank(c, d)
    product = left @ right
    assert isinstance(product, LowRank)
    assert product.rank == min(r, s)
    assert_close(product.form(), left.form() @ right.form(), BOUND)
    for made, expected in ((left @ c, left.form() @ c), (x @ left, x @ left.form())):
        assert isinstance(made, LowRank)
        assert made.rank == r
        assert_close(made.form(), expected, BOUND)


@given(seed=seeds)
@settings(max_examples=10)
@pytest.mark.parametrize("batch", [(), (2,), (3, 1)])
def test_a_matrix_times_a_vector_is_that_vector_moved(seed, batch):
    a, b, x, y = drawn(seed, (*batch, 5, 2), (2, 4), (4,), (5,))
    assert_close(LowRank(a, b) @ x, a @ b @ x, BOUND)
    assert_close(y @ LowRank(a, b), y @ (a @ b), BOUND)


def test_what_a_head_does_to_a_large_vocabulary_is_never_formed():
    """W_E·S·W_U of 100 000 tokens: 80 GB if formed, 13 MB as factors."""
    vocab, d_model, d_head = 100_000, 8, 4
    W_E, W_V, W_O, W_U = drawn(
        0, (vocab, d_model), (d_model, d_head), (d_head, d_model), (8, vocab)
    )
    moved = W_E @ LowRank(W_V, W_O) @ W_U
    assert moved.shape == (vocab, vocab)
    assert moved.left.numel() + moved.right.numel() == 2 * vocab * d_head
    assert_close(moved.trace(), (W_V @ W_O @ (W_U @ W_E)).trace(), 1e-10)


def test_batches_of_factors_broadcast_as_their_products_do():
    a, b = drawn(0, (3, 1, 4, 2), (5, 2, 4))
    matrix = LowRank(a, b)
    assert matrix.shape == matrix.form().shape == (3, 5, 4, 4)
    assert_close(matrix.norm(), torch.linalg.matrix_norm(matrix.form()), BOUND)
    assert_close(matrix.trace(), matrix.form().diagonal(dim1=-2, dim2=-1).sum(-1), BOUND)
    u, s, vh = matrix.svd()
    assert_close((u * s[..., None, :]) @ vh, matrix.form(), BOUND)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 4, 2), (3, 2, 4)),
        ((3, 1, 4, 2), (5, 2, 4)),
        ((4, 2), (3, 5, 2, 6)),
        ((1, 4, 2), (3, 2, 4)),
    ],
)
def test_indexing_is_that_of_the_formed_matrix(left, right):
    """Also where a factor has fewer batch axes, or axes of size one."""
    matrix = LowRank(*drawn(0, left, right))
    whole = matrix.form()
    several = [(1, -1), (slice(None), 2), (slice(2), slice(1, None))] if whole.ndim > 3 else []
    for index in (0, 2, -1, slice(1, None), slice(2, 3), torch.tensor(1), (1,), *several):
        assert_close(matrix[index].form(), whole[index], BOUND)
    assert len(list(matrix)) == len(whole)
    for part, expected in zip(matrix, whole, strict=True):
        assert_close(part.form(), expected, BOUND)


@pytest.mark.parametrize(
    "index",
    [3, -4, 1.0, "a", None, True, ..., [0, 1], (0, 0), slice(None, None, -1), slice("a", None)],
)
def test_an_index_that_is_not_there_is_refused(index):
    matrix = LowRank(*drawn(0, (3, 4, 2), (3, 2, 4)))
    with pytest.raises(InterpError, match=r"\(3,\) .* can't be indexed"):
        matrix[index]


def test_a_single_matrix_has_no_batch_axis():
    matrix = LowRank(*drawn(0, (4, 2), (2, 4)))
    for use in (lambda: matrix[0], lambda: list(matrix)):
        with pytest.raises(InterpError, match="no batch axis"):
            use()


def test_a_small_norm_beside_large_factors_is_not_lost():
    """Factors that almost cancel: the norm is right to 1e-10 of the factors' size."""
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


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        ((4, 2), (3, 4), r"\(4, 2\).*\(3, 4\).*can't be multiplied"),
        ((3, 4, 2), (2, 2, 4), "batch axes"),
        ((2,), (2, 4), r"\(2,\) and \(2, 4\)"),
        ((4, 2), (2,), r"\(4, 2\) and \(2,\)"),
    ],
)
def test_factors_that_do_not_meet_are_refused(left, right, message):
    matrix = object.__new__(LowRank)
    with pytest.raises(InterpError, match=message):
        # Without the checks of annotations, which only tests have.
        unwrap(LowRank.__init__)(matrix, *drawn(0, left, right))


def test_factors_of_integers_are_refused():
    integers = torch.ones(2, 2, dtype=torch.long)
    with pytest.raises(InterpError, match=r"floating-point; got torch\.int64"):
        unwrap(LowRank.__init__)(object.__new__(LowRank), integers, integers)


def test_factors_of_two_dtypes_or_devices_are_refused():
    a, b = drawn(0, (4, 2), (2, 4))
    matrix = LowRank(a, b)
    for other in (b.float(), b.to("meta")):
        for use in (lambda: LowRank(a, other), lambda: a.mT @ LowRank(other.mT, other)):  # noqa: B023
            with pytest.raises(InterpError, match=r"torch.float.* on (cpu|meta).*\.to\("):
                use()
    for wrong in (b, b[0, :3], b[:, 0], b[0, 0], LowRank(b, a)):
        with pytest.raises(InterpError, match="can't be multiplied"):
            matrix @ wrong
    with pytest.raises(TypeError):
        matrix @ 3


@pytest.mark.parametrize("property_of_squares", [LowRank.eigenvalues, LowRank.trace])
def test_only_square_matrices_have_eigenvalues_and_a_trace(property_of_squares):
    a, b = drawn(0, (4, 2), (2, 5))
    with pytest.raises(InterpError, match=r"square.*\(4, 5\)"):
        property_of_squares(LowRank(a, b))


def test_it_is_shown_by_its_shape_and_rank():
    a, b = drawn(0, (3, 400, 2), (2, 500))
    text = repr(LowRank(a, b))
    assert text == "LowRank([3, 400, 500], rank ≤ 2, float64 on cpu)"
