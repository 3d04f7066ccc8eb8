"""How does the model encode positions, and is a shift of positions a linear map? Scheme by scheme.

    sinusoidal   p_{k+n} = p_k R(n)                   R(n): a rotation by n ω_i of each pair i
    learned      p_{k+n} ≈ p_k R + b                  ridge regression, R² of positions held out
    rotary       q R(n) kᵀ = Σ_i ‖q_i‖² cos(n ω_i)    for a query and a key that are equal
    ALiBi        −slope_h · |n|                       added to the scores
    T5           table[bucket(n), h]                  added to the scores
    BEiT         table[rows, columns, h]              added to the scores, between patches

(Vaswani et al. 2017; Su et al. 2021; Press et al. 2022; Raffel et al. 2020; Bao et al. 2022). An
offset n is the position of the query minus that of the key; between patches, it is taken along one
row and along one column. Positions that are added to the embedding also have a
Fourier spectrum, cosine similarities, and eigenvalues of the shift by 1 (on the unit circle for
rotations). The controls of R² are the same fit to permuted rows, and p_{k+n} ≈ p_k without any map,
which is good wherever positions change slowly. For a bias, the attention to each offset is that of
equal scores; for rotary positions, the kernel is a score for equal lengths of all pairs.

These numbers describe the scheme alone. Which offsets a head attends to depends on its queries and
keys too, and a model may use little of what its positions offer.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
import torch

from analyses.methods.finite import check_finite_weights
from analyses.positions.position_schemes import Scheme, schemes_of_attention
from analyses.positions.position_tables import TableScheme, scheme_of_embedding
from analyses.results import Curve, Curves, Drawing, Heatmap, Result, plotted
from interp import Transformer
from interp.errors import InvalidInput
from interp.execution import Provenance
from interp.integers import as_seed, at_least, within
from interp.model import PositionEmbedding, PositionScheme, Stack

SHOWN = 4
"""Layers that are named one by one."""


@dataclass(frozen=True, eq=False, repr=False)
class Positions(Result):
    """The position schemes of a model.

    Attributes:
        schemes: those added to the embedding of each stack, then those of its attention.
        provenance: model and seed that the numbers depend on.
    """

    schemes: tuple[Scheme, ...]
    provenance: Provenance

    def to_frame(self) -> pd.DataFrame:
        """One row per scheme, quantity, part and offset.

        Columns:
            scheme, where: the scheme, and its stack and layers.
            quantity: ``R²`` and its controls (shares of variance), ``cosine``, ``error of the
                rotation``; ``kernel``; ``bias`` (added to scores), ``attention``, ``bucket``.
            name: the table, a pair of dimensions, or a head (of every layer in ``where``).
            offset: position of the query minus that of the key, or n of the shift k → k + n.
            value: the number.
        """
        rows = [
            (scheme.kind, scheme.where, *row) for scheme in self.schemes for row in scheme.rows()
        ]
        columns = ["scheme", "where", "quantity", "name", "offset", "value"]
        return pd.DataFrame(rows, columns=columns)

    def to_spectrum_frame(self) -> pd.DataFrame:
        """One row per frequency of positions that are added to the embedding.

        Columns: scheme, where, frequency (periods over all positions), share (of the variance) and
        control (for permuted positions, mean over the draws).
        """
        frames = [
            pd.DataFrame(
                {
                    "scheme": table.kind,
                    "where": table.where,
                    "frequency": range(1, len(table.spectrum) + 1),
                    "share": table.spectrum.numpy(),
                    "control": table.spectrum_control.numpy(),
                }
            )
            for table in self.tables
        ]
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

    @property
    def tables(self) -> list[TableScheme]:
        """The schemes that are added to the embedding."""
        return [scheme for scheme in self.schemes if isinstance(scheme, TableScheme)]

    def drawing(self) -> Drawing:
        """Curves by offset, with a panel for each scheme: R², kernel or bias."""
        return Curves(
            {scheme.where: scheme.curves() for scheme in self.schemes},
            title=f"{self.provenance.model}: positions by offset",
            axis="offset n (query position − key position)",
            units=[scheme.unit for scheme in self.schemes],
        )

    def spectrum_drawing(self) -> Drawing:
        """The Fourier spectrum over positions that are added to the embedding."""
        panels = {
            table.where: [
                Curve(table.kind, range(1, len(table.spectrum) + 1), table.spectrum.tolist()),
                Curve(
                    "permuted",
                    range(1, len(table.spectrum) + 1),
                    table.spectrum_control.tolist(),
                    faint=True,
                ),
            ]
            for table in self.tables
        }
        return Curves(
            panels,
            title=f"{self.provenance.model}: Fourier spectrum over positions",
            axis="frequency (periods over all positions)",
            units=["share of variance"] * len(panels),
        )

    spectrum_figure = plotted(spectrum_drawing)

    def similarity_drawing(self, number: int = 0) -> Drawing:
        """Heatmap of the cosine of every two positions that are added to the embedding.

        Args:
            number: index of the table among those of all stacks, from 0.

        Raises:
            InvalidInput: there is no such table.
        """
        if not self.tables:
            raise InvalidInput("This model adds no positions to its embedding.")
        table = self.tables[within(0, len(self.tables) - 1, number, "number")]
        labels = [str(position) for position in range(len(table.similarity))]
        return Heatmap(
            table.similarity,
            title=f"{self.provenance.model}, {table.where}: similarity of positions",
            rows=labels,
            columns=labels,
            axes=("position", "position"),
            unit="cosine",
            diverging=True,
            top=1.0,
        )

    similarity_figure = plotted(similarity_drawing)

    def drawings(self) -> dict[str, Drawing]:
        """See :meth:`Result.drawings`."""
        if not self.tables:
            return super().drawings()
        of_tables = {"spectrum": self.spectrum_drawing(), "similarity": self.similarity_drawing()}
        return {**super().drawings(), **of_tables}

    def summary(self) -> str:
        """The findings for each scheme."""
        return "\n".join([self.headline(), *self._lines()[1:]])

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        return f"{self.provenance.model}: {self._lines()[0]}"

    def _lines(self) -> list[str]:
        return [
            f"{scheme.kind} ({scheme.where}): {line}" if first == 0 else f"  {line}"
            for scheme in self.schemes
            for first, line in enumerate(scheme.lines())
        ]


@torch.no_grad()
def positions(model: Transformer, *, longest: int = 256, seed: int = 0) -> Positions:
    """Describe the position schemes of a model, without a prompt.

    Args:
        model: a model with positions.
        longest: number of positions: 0 … longest − 1, or as many as the context has.
        seed: seed for the positions held out of fits, and for the permutations of their controls.

    Returns:
        The schemes of each stack, of its embedding and its attention; layers with the same scheme
        are grouped. Rotary frequencies that depend on the length of the text are those of a text no
        longer than in training.

    Raises:
        InvalidInput: a model without positions, or ``longest`` below 2.

    Examples:
        >>> analyses.positions(interp.load("python-2l"))
        Positions(python-2l: rotary (decoder, layers 0, 1): 16 pairs, wavelengths 6.28 to 35300
        positions; q·k of an equal query and key is 1 at offset 0 and first below half at offset 16)
    """
    check_finite_weights(model)
    n, seed = min(at_least(2, longest, "longest"), model.config.n_ctx), as_seed(seed)
    schemes = [scheme for stack in model.stacks for scheme in _of_stack(stack, n, seed)]
    if not schemes:
        raise InvalidInput(
            f"{model.config.name or 'This model'} has no positions: neither its embedding nor its "
            "attention reads them."
        )
    return Positions(tuple(schemes), Provenance.of(model, seed=seed))


def _of_stack(stack: Stack, n: int, seed: int) -> Iterator[Scheme]:
    """The schemes of a stack: that of the embedding, then those of attention."""
    if isinstance(stack.entry, PositionEmbedding):
        yield scheme_of_embedding(stack.entry, stack.name, n, seed)
    layers: dict[tuple[PositionScheme, int, int], list[int]] = {}
    attentions = [stack.block(layer).attn for layer in range(len(stack.blocks))]
    for layer, attn in enumerate(attentions):
        layers.setdefault((attn.positions, attn.n_heads, attn.d_head), []).append(layer)
    for group in layers.values():
        where = f"{stack.name}, {_named(group)}"
        yield from schemes_of_attention(attentions[group[0]], where, n)


def _named(layers: list[int]) -> str:
    """Name up to ``SHOWN`` layers, and the last of more."""
    if len(layers) == 1:
        return f"layer {layers[0]}"
    more = f" … {layers[-1]}" if len(layers) > SHOWN else ""
    return f"layers {', '.join(map(str, layers[:SHOWN]))}{more}"
