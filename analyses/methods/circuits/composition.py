"""Composition of all pairs of heads: how much of a head's output a later head reads.

    Q:  ‖S₁ Y₂‖ / (‖S₁‖ ‖Y₂‖)      K:  ‖S₁ Y₂ᵀ‖ / (‖S₁‖ ‖Y₂‖)      V:  ‖S₁ S₂‖ / (‖S₁‖ ‖S₂‖)

with Frobenius norms, S = W_V W_O and Y = W_Q W_Kᵀ (Elhage et al. 2021, "A Mathematical Framework
for Transformer Circuits"). Norms are folded in without their divisors
(:mod:`analyses.methods.circuits.folded_heads`), including norms between two steps (post-norm). No
d_model × d_model matrix is formed: ‖S₁ Y₂‖ is the norm of an r × r matrix, as
‖V O Q Kᵀ‖ = ‖R_V O Q R_Kᵀ‖ with the triangular factors of V and K.

By chance: if the output of the first head were rotated at random within the D dimensions that norms
preserve, the mean of the squared ratio would be exactly 1/D, for any matrices, and its variance
2 (α − 1/D) (β − 1/D) / ((D − 1) (D + 2)), where α = ‖M Mᵀ‖² / ‖M‖⁴ for the first matrix and β is
the same for the second. The distribution of Gaussian matrices is invariant under rotations, so they
also have this baseline.
"""

from dataclasses import dataclass, replace

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor
from torch.linalg import matrix_norm

from analyses.methods.circuits.folded_heads import (
    FoldedHeads,
    centred,
    dimensions_read,
    norm_of,
    written_through,
)
from interp.errors import InvalidInput
from interp.io import Progress, ProgressLike, as_progress
from interp.linalg import LowRank
from interp.model import Attention, BlockNorm, Network, Norm, Step

KINDS = ("Q", "K", "V")
"""The input of the second head that reads the first: its queries, keys or values."""
Cells = Float[Tensor, "kind writer reader"]


@dataclass(frozen=True, eq=False)
class HeadPairs:
    """The composition of all pairs of heads.

    Entries are NaN if the second head does not read the output of the first (because it is in the
    same layer or an earlier one), or if either has zero weights.

    Attributes:
        heads: names of the heads, ``L0H1``; in an encoder–decoder ``encoder.L0H1``, ``cross.L0H1``.
        composition: composition of each pair, from 0 to 1.
        baseline: 1/√D, the root mean square by chance.
        spread: the standard deviation by chance, to first order.
    """

    heads: tuple[str, ...]
    composition: Cells
    baseline: Cells
    spread: Cells


@torch.no_grad()
def head_pairs(model: Network, offset: int = 0, progress: ProgressLike = None) -> HeadPairs:
    """The composition of all pairs of heads of a model.

    Args:
        model: the model.
        offset: query position minus key position, on which Y depends with rotary positions.
        progress: called with the number of layers done, and of all layers.

    Raises:
        InvalidInput: no head comes after another.
    """
    walk = _Walk(model, offset, as_progress(progress, "layers"))
    if not walk.results:
        raise InvalidInput(
            "This model has a single layer of attention, so no head reads the output of another "
            "and there is no composition."
        )
    n = len(walk.names)
    numbers = torch.full((3, len(KINDS), n, n), torch.nan, dtype=torch.float64)
    for kind, writers, readers, values in walk.results:
        numbers[:, KINDS.index(kind), writers, readers] = values.cpu().double()
    return HeadPairs(tuple(walk.names), *numbers)


@dataclass(frozen=True, eq=False)
class _Written:
    """The outputs of the heads of a layer.

    Attributes:
        heads: indices of the heads in the whole model.
        factor: for each head, an r × d_model matrix M with Mᵀ M = Sᵀ S.
    """

    heads: slice
    factor: Float[Tensor, "head r d_model"]

    def through(self, norm: BlockNorm | None) -> "_Written":
        """The same outputs after a norm of the stream."""
        return replace(self, factor=written_through(norm_of(norm), self.factor))


class _Walk:
    """A pass over the layers of a model, with the outputs of all heads so far.

    Attributes:
        names: names of the heads.
        results: composition, baseline and spread for the heads of two layers, with the kind and the
            indices of the writers and of the readers.
    """

    def __init__(self, model: Network, offset: int, progress: Progress | None) -> None:
        self.offset, self.paired = offset, len(model.stacks) > 1
        self.names: list[str] = []
        self.results: list[tuple[str, slice, slice, Float[Tensor, "number writer reader"]]] = []
        self.encoder_norm, self.encoder = Norm(), list[_Written]()
        done, n_layers = 0, sum(len(stack.blocks) for stack in model.stacks)
        for stack in model.stacks:
            written: list[_Written] = []
            for layer in range(len(stack.blocks)):
                for step in stack.block(layer).steps:
                    new = self._read(step, f"{stack.name}.L{layer}", written)
                    old = [term.through(step.norms.base) for term in written]
                    written = [term.through(step.norms.sum) for term in (*old, *new)]
                done += 1
                if progress is not None:
                    progress(done, n_layers)
            self.encoder_norm, self.encoder = stack.final_norm, written

    def _read(self, step: Step, name: str, written: list[_Written]) -> list[_Written]:
        """Add the composition of a step's heads with all earlier ones; returns their outputs.

        Steps without attention have no heads. In a parallel block, heads read the stream before
        any part of the block has written to it.
        """
        attn = step.f
        if not isinstance(attn, Attention):
            return []
        decoder, other = (step.input_norm, written), (self.encoder_norm, self.encoder)
        source = other if attn.is_cross else decoder
        heads = FoldedHeads.of(attn, step, source[0])
        indices = self._named(attn, name)
        Y = heads.Y(self.offset)
        S = LowRank(heads.W_V, centred(step.input_norm, heads.W_O))
        read = {"Q": (Y, decoder), "K": (Y.T, source), "V": (S, source)}
        for kind, (matrix, (norm, writers)) in read.items():
            second = matrix.left @ triangular(matrix.right.mT).mT
            for first in writers:
                dimensions = dimensions_read(norm, second.shape[1])
                values = _compositions(centred(norm, first.factor), second, dimensions)
                self.results.append((kind, first.heads, indices, values))
        return [_Written(indices, triangular(S.left) @ S.right)]

    def _named(self, attn: Attention, name: str) -> slice:
        """Name the heads of an attention; returns their indices."""
        stack, layer = name.split(".")
        prefix = f"{'cross' if attn.is_cross else stack}." if self.paired else ""
        first = len(self.names)
        self.names += [f"{prefix}{layer}H{head}" for head in range(attn.n_heads)]
        return slice(first, len(self.names))


def _compositions(
    first: Float[Tensor, "writer r d_model"],
    second: Float[Tensor, "reader d_model s"],
    dimensions: int,
) -> Float[Tensor, "number writer reader"]:
    """Composition, baseline and spread of every pair of heads of two layers."""
    product = einsum(first, second, "w r d, h d s -> w h r s")
    sizes = matrix_norm(first)[:, None] * matrix_norm(second)
    if not bool(sizes.isfinite().all()):
        raise InvalidInput(
            f"Products of the weights of heads are not finite in {sizes.dtype}. Look for weights "
            'that are too large, or load the model with dtype="float64".'
        )
    composition = matrix_norm(product) / sizes.where(sizes > 0, torch.nan)
    chance = torch.ones_like(composition) / dimensions
    excess = [_concentration(matrix) - 1 / dimensions for matrix in (first, second.mT)]
    variance = 2 * excess[0][:, None] * excess[1] / ((dimensions - 1) * (dimensions + 2))
    # The variance is that of c², with c the composition; to first order, dc = d(c²) / (2c).
    spread = variance.clamp(min=0).sqrt() / (2 * chance.sqrt())
    missing = composition.isnan()
    return torch.stack(
        [table.masked_fill(missing, torch.nan) for table in (composition, chance.sqrt(), spread)]
    )


def _concentration(x: Float[Tensor, "head r d_model"]) -> Float[Tensor, " head"]:
    """‖M Mᵀ‖² / ‖M‖⁴: 1/r for a matrix with r equal singular values, so 1 for rank 1."""
    return (matrix_norm(x @ x.mT) / matrix_norm(x).square()).square()


def triangular(x: Float[Tensor, "*batch m n"]) -> Float[Tensor, "*batch r n"]:
    """R of x = Q R, for which ‖R M‖ = ‖x M‖ for every M."""
    return torch.linalg.qr(x, mode="r")[1]
