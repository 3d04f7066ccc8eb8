"""The position schemes of a model, each with its numbers by offset, curves and description.

Each kind of scheme has a class, which is chosen once, from the parts of the model; see
:mod:`analyses.positions`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from math import log, pi
from typing import Any

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from analyses.figures import Curve
from interp.model.attention.attention import Attention
from interp.model.embeddings import PositionEmbedding, SinusoidalPositions
from interp.model.positions.alibi import ALiBi
from interp.model.positions.relative_bias import RelativeBias
from interp.model.positions.rotary import Rotary
from interp.spectra.by_offset import bias_by_offset, rotary_kernel
from interp.spectra.fourier import joint_shares
from interp.spectra.shift import fit_shifts, shift_eigenvalues

OFFSETS = (1, 2, 4, 8, 16)
"""Shifts that a map is fitted to."""
DRAWS = 5
"""Permutations of the control."""
LEAST = 0.5
"""R² from which a shift is called linear."""
Rows = Iterator[tuple[str, str, int, float]]
"""Quantity, part, offset, value."""


@dataclass(frozen=True, eq=False)
class Scheme(ABC):
    """One way in which a model encodes positions.

    Attributes:
        kind: the scheme's name in the configuration.
        where: its stack and layers.
    """

    kind: str
    where: str

    @abstractmethod
    def rows(self) -> Rows:
        """The numbers by offset."""

    @abstractmethod
    def curves(self) -> list[Curve]:
        """The numbers by offset, as curves of a figure."""

    @abstractmethod
    def lines(self) -> list[str]:
        """The findings as text, the most important first."""

    @property
    def unit(self) -> str:
        """The unit of the curves."""
        return "score"


@dataclass(frozen=True, eq=False)
class TableScheme(Scheme):
    """Positions that are added to the embedding: learned, or sines and cosines.

    Attributes:
        offsets: shifts that a map was fitted to; none where there are too few positions, or where
            all positions are alike.
        r2: R² on positions held out.
        control: the same for permuted rows, in each draw.
        unchanged: R² of p_k as a prediction of p_{k+n}.
        spectrum: share of the variance over positions at frequency 1, 2, … (periods over all of
            them).
        spectrum_control: the same for permuted positions, mean over the draws.
        similarity: cosine of every two positions; NaN for a position whose vector is zero.
        moduli: moduli of the eigenvalues of the shift by 1: of the fitted map, if there are
            offsets, or of the rotation.
        angles: angles of these eigenvalues, in radians.
    """

    offsets: tuple[int, ...]
    r2: Float[Tensor, " offset"]
    control: Float[Tensor, "offset draw"]
    unchanged: Float[Tensor, " offset"]
    spectrum: Float[Tensor, " frequency"]
    spectrum_control: Float[Tensor, " frequency"]
    similarity: Float[Tensor, "pos pos"]
    moduli: Float[Tensor, " eigenvalue"]
    angles: Float[Tensor, " eigenvalue"]

    def rows(self) -> Rows:
        """R² and its controls, and the mean cosine of positions at that distance."""
        for row, n in enumerate(self.offsets):
            yield "R²", "table", n, self.r2[row].item()
            yield "R², permuted", "table", n, self.control[row].mean().item()
            yield "R², unchanged", "table", n, self.unchanged[row].item()
        for n, cosine in enumerate(self._cosines):
            yield "cosine", "table", n, cosine

    def curves(self) -> list[Curve]:
        """R², R² for permuted rows, and the cosine."""
        return [
            Curve(f"R², {self.where}", self.offsets, self.r2.tolist()),
            Curve(f"cosine, {self.where}", range(len(self._cosines)), self._cosines),
            Curve("R², permuted", self.offsets, self.control.mean(-1).tolist(), faint=True),
        ]

    def lines(self) -> list[str]:
        """R² of the first offset, its controls, and the frequency with most of the variance."""
        if not bool(self.spectrum.isfinite().all()):
            return ["all positions are alike"]
        top = int(self.spectrum.argmax())
        periods = (
            f"most variance at frequency {top + 1}: {self.spectrum[top]:.1%} "
            f"(permuted: {self.spectrum_control[top]:.1%})"
        )
        if not self.offsets:
            return [f"{len(self.similarity)} positions, too few to fit a shift", periods]
        return [self._shift_line(), *self._eigenvalue_lines(), periods]

    @property
    def unit(self) -> str:
        """The unit of the curves."""
        return "R², cosine"

    @property
    def _cosines(self) -> list[float]:
        """The mean over all positions at each distance."""
        return [self.similarity.diagonal(n).nanmean().item() for n in range(len(self.similarity))]

    def _shift_line(self) -> str:
        verdict = "a linear map" if self.r2[0] > LEAST else "no linear map"
        return (
            f"the shift by {self.offsets[0]} is {verdict}: R² {self.r2[0]:.2f} held out "
            f"(permuted {self.control[0].mean():.2f}, unchanged {self.unchanged[0]:.2f})"
        )

    def _eigenvalue_lines(self) -> list[str]:
        if self.r2[0] <= LEAST:
            return []
        large = self.moduli[self.moduli > LEAST]
        return [
            f"{len(large)} eigenvalues of the fitted map are over {LEAST}, the largest "
            f"{large.max():.3f}"
        ]


@dataclass(frozen=True, eq=False)
class SinusoidalScheme(TableScheme):
    """Sines and cosines, whose shifts are rotations.

    Attributes:
        errors: max |p_{k+n} − p_k R(n)| over all k, for each offset, in the model's own table.
    """

    errors: Float[Tensor, " offset"]

    def rows(self) -> Rows:
        """The numbers of a table, and the error of the rotation."""
        yield from super().rows()
        for n, error in zip(self.offsets, self.errors.tolist(), strict=True):
            yield "error of the rotation", "table", n, error

    def _shift_line(self) -> str:
        return f"a shift is a rotation, to {self.errors.max():.1g}; {super()._shift_line()}"

    def _eigenvalue_lines(self) -> list[str]:
        return [
            f"{len(self.moduli)} eigenvalues of the rotation by 1 are on the unit circle, to "
            f"{(self.moduli - 1).abs().max():.1g}"
        ]


@dataclass(frozen=True, eq=False)
class RotaryScheme(Scheme):
    """Rotated queries and keys.

    Attributes:
        rates: radians per position of each pair of dimensions.
        kernel: contribution of each pair to q·k at offsets 0, 1, …, for unit length in that pair.
        mean: q·k of an equal query and key of unit length, with equal length in each dimension;
            dimensions that are not rotated contribute the same at every offset.
    """

    rates: Float[Tensor, " pair"]
    kernel: Float[Tensor, "pair offset"]
    mean: Float[Tensor, " offset"]

    def rows(self) -> Rows:
        """The kernel of each pair and of all."""
        for n, value in enumerate(self.mean.tolist()):
            yield "kernel", "all", n, value
        for pair, own in enumerate(self.kernel.tolist()):
            for n, value in enumerate(own):
                yield "kernel", f"pair {pair}", n, value

    def curves(self) -> list[Curve]:
        """The kernel of all pairs, of the fastest and of the slowest."""
        offsets = range(len(self.mean))
        return [
            Curve(f"all pairs, {self.where}", offsets, self.mean.tolist()),
            *(
                Curve(f"pair {pair}", offsets, self.kernel[pair].tolist(), faint=True)
                for pair in (0, len(self.rates) - 1)
            ),
        ]

    def lines(self) -> list[str]:
        """The wavelengths, and how far the kernel decreases."""
        longest, shortest = (2 * pi / self.rates[index].item() for index in (-1, 0))
        half = (self.mean < self.mean[0] / 2).nonzero()
        falls = f"first below half at offset {int(half[0])}" if len(half) else "nowhere below half"
        return [
            f"{len(self.rates)} pairs, wavelengths {shortest:.3g} to {longest:.3g} positions; q·k "
            f"of an equal query and key is {self.mean[0]:.3g} at offset 0 and {falls}"
        ]


@dataclass(frozen=True, eq=False)
class BiasScheme(Scheme):
    """A bias that is added to the scores.

    Attributes:
        offsets: offset of each column; negative for keys after the query.
        bias: bias of each head.
        attention: attention of each head from a query whose scores before the bias are equal at all
            these offsets.
    """

    offsets: tuple[int, ...]
    bias: Float[Tensor, "head offset"]
    attention: Float[Tensor, "head offset"]

    def rows(self) -> Rows:
        """Bias and attention of each head."""
        for name, table in (("bias", self.bias), ("attention", self.attention)):
            for head, own in enumerate(table.tolist()):
                for n, value in zip(self.offsets, own, strict=True):
                    yield name, f"H{head}", n, value

    def curves(self) -> list[Curve]:
        """The bias of each head."""
        return [
            Curve(f"H{head}, {self.where}", self.offsets, own)
            for head, own in enumerate(self.bias.tolist())
        ]

    def lines(self) -> list[str]:
        """The mean distance that each head attends to."""
        distance = torch.tensor(self.offsets).abs().to(self.attention)
        means = (self.attention @ distance).tolist()
        shown = ", ".join(f"H{head} {own:.3g}" for head, own in enumerate(means))
        return [
            f"mean distance attended to, of equal scores: {shown} (without bias "
            f"{distance.mean():.3g})"
        ]


@dataclass(frozen=True, eq=False)
class LinearBiasScheme(BiasScheme):
    """ALiBi.

    Attributes:
        slopes: slope of each head.
    """

    slopes: Float[Tensor, " head"]

    def lines(self) -> list[str]:
        """The slopes, and the distances at which an attention weight is halved."""
        low, high = self.slopes.min().item(), self.slopes.max().item()
        return [
            f"slopes {high:.3g} to {low:.3g}: a weight is halved every {log(2) / high:.3g} to "
            f"{log(2) / low:.3g} positions",
            *super().lines(),
        ]


@dataclass(frozen=True, eq=False)
class BucketScheme(BiasScheme):
    """T5's biases: one for each bucket of offsets.

    Attributes:
        buckets: bucket of each offset.
    """

    buckets: tuple[int, ...]

    def rows(self) -> Rows:
        """The numbers of a bias, and the bucket of each offset."""
        yield from super().rows()
        for n, bucket in zip(self.offsets, self.buckets, strict=True):
            yield "bucket", "all heads", n, float(bucket)

    def lines(self) -> list[str]:
        """How many buckets there are."""
        return [f"{len(set(self.buckets))} buckets of offsets", *super().lines()]


# ---- from the parts of a model -----------------------------------------------------------------


def scheme_of_embedding(entry: PositionEmbedding, where: str, n: int, seed: int) -> TableScheme:
    """The scheme of the first ``n`` positions that are added to the embedding."""
    table = entry.table()[:n].detach().cpu().double()
    if not isinstance(entry, SinusoidalPositions):
        return TableScheme("learned", **_of_table(table, shift_eigenvalues(table), where, seed))
    found = _of_table(table, torch.linalg.eigvals(entry.shift(1)), where, seed)
    errors = [(table[k:] - table[:-k] @ entry.shift(k)).abs().max() for k in found["offsets"]]
    return SinusoidalScheme("sinusoidal", **found, errors=torch.tensor(errors).double())


def scheme_of_attention(attn: Attention, where: str, n: int) -> Scheme | None:
    """The scheme of an attention's positions up to offset n − 1; ``None`` if it has none."""
    scheme = attn.positions
    if isinstance(scheme, Rotary):
        rates, kernel, mean = rotary_kernel(scheme, attn.d_head, n)
        return RotaryScheme("rotary", where, rates, kernel, mean)
    if not scheme.has_bias:
        return None
    key_less_query, bias = bias_by_offset(attn, n)
    numbers = tuple((-key_less_query).tolist()), bias, bias.softmax(-1)
    if isinstance(scheme, RelativeBias):
        buckets = scheme.buckets(key_less_query[None, None])[0, 0]
        return BucketScheme("buckets", where, *numbers, tuple(buckets.tolist()))
    if isinstance(scheme, ALiBi):
        return LinearBiasScheme("alibi", where, *numbers, scheme.slopes())
    return BiasScheme("bias", where, *numbers)


def _of_table(
    table: Float[Tensor, "pos d_model"],
    eigenvalues: Complex[Tensor, " eigenvalue"],
    where: str,
    seed: int,
) -> dict[str, Any]:
    """The fields of any table."""
    varies = bool((table != table[0]).any())
    fit = fit_shifts(table, OFFSETS if varies else (), draws=DRAWS, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    permuted = [
        joint_shares(table[torch.randperm(len(table), generator=generator)]) for _ in range(DRAWS)
    ]
    unit = table / table.norm(dim=-1, keepdim=True)
    return {
        "where": where,
        "offsets": fit.offsets,
        "r2": fit.r2,
        "control": fit.control,
        "unchanged": fit.unchanged,
        "spectrum": joint_shares(table),
        "spectrum_control": torch.stack(permuted).mean(0),
        "similarity": unit @ unit.mT,
        "moduli": eigenvalues.abs(),
        "angles": eigenvalues.angle(),
    }
