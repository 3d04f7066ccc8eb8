"""FactoredMatrix(A, B) is the matrix A @ B in all that can be asked of it."""

import warnings

import pytest
import torch
from torch.testing import assert_close

from interp.compat.factored_matrix import FactoredMatrix
from interp.errors import InvalidInput

TIGHT = {"rtol": 1e-12, "atol": 1e-12}


def drawn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


SHAPES = {
    "thin": ((6, 2), (2, 5)),
    "batched": ((3, 1, 6, 2), (4, 2, 6)),
    "wide inside": ((3, 5), (5, 4)),
}


@pytest.fixture(params=SHAPES)
def matrix(request):
    a, b = SHAPES[request.param]
    return FactoredMatrix(drawn(*a), drawn(*b, seed=1))


def test_shape_and_parts_are_those_of_the_product(matrix):
    product = matrix.AB
    assert matrix.shape == product.shape
    assert matrix.ndim == product.ndim
    assert (matrix.ldim, matrix.rdim) == product.shape[-2:]
    assert matrix.has_leading_dims == (product.ndim > 2)
    assert_close(matrix.T.AB, product.mT, **TIGHT)
    assert_close(matrix.unsqueeze(0).AB, product[None], **TIGHT)
    assert_close(matrix.get_corner(2), product[(slice(2),) * product.ndim], **TIGHT)
    assert_close((matrix * 3.0).AB, 3 * product, **TIGHT)
    assert_close((matrix * torch.tensor([2.0])).AB, 2 * product, **TIGHT)
    assert_close((2 * matrix).AB, 2 * product, **TIGHT)


def test_products_are_those_of_the_product(matrix):
    right, left = drawn(matrix.rdim, 3), drawn(7, matrix.ldim)
    other = FactoredMatrix(drawn(matrix.rdim, 2), drawn(2, 9))
    for product, expected in (
        (matrix @ right, matrix.AB @ right),
        (left @ matrix, left @ matrix.AB),
        (matrix @ other, matrix.AB @ other.AB),
    ):
        assert isinstance(product, FactoredMatrix)
        assert_close(product.AB, expected, **TIGHT)
    assert_close(matrix @ right[:, 0], matrix.AB @ right[:, 0], **TIGHT)
    assert_close(left[0] @ matrix, left[0] @ matrix.AB, **TIGHT)


def test_the_inner_dimension_stays_the_smallest():
    thin = FactoredMatrix(drawn(6, 2), drawn(2, 6))
    assert (thin @ drawn(6, 8)).mdim == 2
    assert (drawn(8, 6) @ thin).mdim == 2
    wide = FactoredMatrix(drawn(3, 5), drawn(5, 3))
    assert (wide @ drawn(3, 8)).mdim == 3


def test_svd_norm_and_eigenvalues_are_those_of_the_product(matrix):
    u, s, v = matrix.svd()
    product = matrix.AB
    assert_close(u @ s.diag_embed() @ v.mT, product, **TIGHT)
    values = torch.linalg.svdvals(product)
    common = min(values.shape[-1], s.shape[-1])
    assert_close(s[..., :common], values[..., :common], **TIGHT)
    assert_close(matrix.norm(), torch.linalg.matrix_norm(product), **TIGHT)
    even = matrix.make_even()
    assert_close(even.AB, product, **TIGHT)
    assert_close(even.A.mT @ even.A, s.diag_embed(), **TIGHT)
    assert_close(u @ matrix.collapse_l(), product, **TIGHT)
    assert_close(matrix.collapse_r() @ v.mT, product, **TIGHT)
    if matrix.ldim == matrix.rdim:
        eigenvalues, expected = matrix.eigenvalues.abs(), torch.linalg.eigvals(product).abs()
        assert_close(
            eigenvalues.sort(descending=True).values,
            expected.sort(descending=True).values[..., : matrix.mdim],
            rtol=1e-6,
            atol=1e-6,
        )
    else:
        with pytest.raises(InvalidInput, match="square"):
            _ = matrix.eigenvalues


def test_indexing_is_that_of_the_product_with_integers_of_rows_and_columns_kept():
    matrix = FactoredMatrix(drawn(3, 4, 6, 2), drawn(3, 4, 2, 5))
    product = matrix.AB
    for index, same in (
        (1, 1),
        ((slice(1), 2), (slice(1), 2)),
        ((None, 1), (None, 1)),
        ((slice(None), slice(None), slice(2, 4)),) * 2,
        ((1, 2, 3), (1, 2, slice(3, 4))),
        ((1, 2, -1), (1, 2, slice(-1, None))),
        ((1, 2, 3, -1), (1, 2, slice(3, 4), slice(-1, None))),
        ((0, 0, slice(1, 3), slice(4)),) * 2,
        (torch.tensor([0, 2]),) * 2,
        ((0, slice(None), slice(0, 2), slice(0, 2)),) * 2,
    ):
        assert_close(matrix[index].AB, product[same], **TIGHT)
    with pytest.raises(InvalidInput, match="too many"):
        _ = matrix[0, 0, 0, 0, 0]
    with pytest.raises(InvalidInput, match="indexed"):
        _ = matrix[5]


def test_v_is_not_transposed_and_vh_is_a_warned_name_of_it(matrix):
    with pytest.warns(DeprecationWarning, match="not its transpose"):
        vh = matrix.Vh
    assert_close(vh, matrix.V)
    assert vh.shape[-2] == matrix.rdim
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert matrix.svd()[0] is matrix.U


def test_gradients_reach_the_factors():
    a, b = drawn(5, 2).requires_grad_(), drawn(2, 4).requires_grad_()
    FactoredMatrix(a, b).norm().backward()
    product = (a @ b).detach()
    assert_close(a.grad, product @ b.detach().mT / product.norm(), **TIGHT)


def test_factors_that_cannot_be_multiplied_are_refused(matrix):
    for make in (
        lambda: FactoredMatrix(drawn(3, 2), drawn(3, 2)),
        lambda: FactoredMatrix(drawn(2), drawn(2, 3)),
        lambda: FactoredMatrix(drawn(2, 3, 2), drawn(4, 2, 3)),
        lambda: matrix @ drawn(matrix.rdim + 1, 2),
        lambda: drawn(2, matrix.ldim + 1) @ matrix,
        lambda: matrix @ drawn(matrix.rdim + 1),
        lambda: matrix * drawn(2),
    ):
        with pytest.raises(InvalidInput):
            make()


@pytest.mark.slow
def test_the_same_as_in_transformer_lens(matrix):
    pytest.importorskip("transformer_lens")
    from transformer_lens import FactoredMatrix as Theirs  # noqa: PLC0415

    theirs = Theirs(matrix.A, matrix.B)
    assert repr(theirs) == repr(matrix)
    for ours, other in (
        (matrix.S, theirs.S),
        (matrix.norm(), theirs.norm()),
        (matrix.U.abs(), theirs.U.abs()),
        (matrix.V.abs(), theirs.V.abs()),
        (matrix.get_corner(), theirs.get_corner()),
        (matrix.make_even().A.abs(), theirs.make_even().A.abs()),
        ((matrix @ drawn(matrix.rdim, 9)).A, (theirs @ drawn(matrix.rdim, 9)).A),
        ((drawn(9, matrix.ldim) @ matrix).B, (drawn(9, matrix.ldim) @ theirs).B),
    ):
        assert_close(ours, other, **TIGHT)


class Named:
    """Not a tensor, but like one: it is multiplied, and knows its shape."""

    def __init__(self, tensor):
        self.tensor = tensor

    ndim = property(lambda self: self.tensor.ndim)
    shape = property(lambda self: self.tensor.shape)

    def size(self, dim):
        return self.tensor.size(dim)

    def unsqueeze(self, dim):
        return Named(self.tensor.unsqueeze(dim))

    def squeeze(self, dim):
        return Named(self.tensor.squeeze(dim))

    def broadcast_to(self, shape):
        return Named(self.tensor.broadcast_to(shape))

    def __matmul__(self, other):
        return Named(self.tensor @ getattr(other, "tensor", other))


@pytest.mark.slow
def test_factors_that_are_like_tensors_are_multiplied_as_theirs():
    lens = pytest.importorskip("transformer_lens")
    generator = torch.Generator().manual_seed(0)
    left, right, more = (torch.randn(3, 3, generator=generator) for _ in range(3))
    for of in (FactoredMatrix, lens.FactoredMatrix):
        product = of(Named(left), Named(right))
        assert torch.equal(product.AB.tensor, left @ right)
        assert torch.equal(product.BA.tensor, right @ left)
        assert torch.allclose((product @ Named(more)).AB.tensor, left @ right @ more)
        assert torch.allclose((product @ Named(more[0])).tensor, left @ right @ more[0])
