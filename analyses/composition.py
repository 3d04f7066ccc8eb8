"""Which heads read what earlier heads write? Composition of all pairs of heads, from weights alone.

    Q:  ‖S₁ Y₂‖ / (‖S₁‖ ‖Y₂‖)      K:  ‖S₁ Y₂ᵀ‖ / (‖S₁‖ ‖Y₂‖)      V:  ‖S₁ S₂‖ / (‖S₁‖ ‖S₂‖)

S = W_V W_O is what a head moves and Y = W_Q W_Kᵀ what it attends by, with norms folded in except
for their divisors; ‖·‖ is the Frobenius norm (Elhage et al. 2021, "A Mathematical Framework for
Transformer Circuits"). An induction head has K-composition with a previous-token head.

The baseline is that of Gaussian matrices: with the output of the first head rotated at random, the
mean square of the ratio is 1/D in D dimensions, and the spread around it follows from the singular
values of both heads. Trained heads share directions that many parts use, so a pair above the
baseline need not work together; and a pair at the baseline may, through one direction of many. The
ratio describes the direct path: what MLPs and heads in between make of the output is left out. With
rotary positions, Y is taken at one offset.
"""

from dataclasses import dataclass

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from analyses.methods.circuits import KINDS, head_pairs, rotates
from analyses.methods.finite import check_finite_weights
from analyses.results import Drawing, Heatmap, Progress, Result, counted, fixed, plotted
from interp import Transformer
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.integers import at_least, within

READ = {"Q": "queries", "K": "keys", "V": "values"}


@dataclass(frozen=True, eq=False, repr=False)
class Composition(Result):
    """The composition of every head with every later one.

    Entries are NaN where the reader does not come after the writer, or where either has zero
    weights.

    Attributes:
        names: names of the heads, in the order of writers and readers.
        composition: the ratio, from 0 to 1, of the kinds Q, K and V.
        control: root mean square of the ratio by chance.
        spread: standard deviation of the ratio by chance.
        offset: query position minus key position of Y; ``None`` without rotary positions.
        provenance: the model that the numbers depend on.
    """

    names: tuple[str, ...]
    composition: Float[Tensor, "kind writer reader"]
    control: Float[Tensor, "kind writer reader"]
    spread: Float[Tensor, "kind writer reader"]
    offset: int | None
    provenance: Provenance

    def to_frame(self) -> pd.DataFrame:
        """One row per kind and pair, the furthest above the baseline first.

        Columns:
            kind: Q, K or V: whether the reader's queries, keys or values are composed.
            writer, reader: names of the heads.
            composition: from 0 to 1.
            control, spread: root mean square and standard deviation by chance.
            excess: composition − control.
        """
        cells = (~self.composition.isnan()).nonzero()
        kind, writer, reader = cells.unbind(-1)
        numbers = {
            name: matrix[kind, writer, reader].numpy()
            for name, matrix in (
                ("composition", self.composition),
                ("control", self.control),
                ("spread", self.spread),
                ("excess", self.composition - self.control),
            )
        }
        named = {"writer": writer, "reader": reader}
        frame = pd.DataFrame(
            {
                "kind": [KINDS[index] for index in kind.tolist()],
                **{name: [self.names[i] for i in heads.tolist()] for name, heads in named.items()},
                **numbers,
            }
        )
        return frame.sort_values("excess", ascending=False, kind="stable", ignore_index=True)

    def drawing(self, kind: str = "K") -> Drawing:
        """Heatmap of composition − baseline of one kind: writers down, readers across.

        Raises:
            InvalidInput: ``kind`` is not Q, K or V.
        """
        if kind not in KINDS:
            raise InvalidInput(f"kind={shorten(kind)} is not one of {', '.join(KINDS)}.")
        excess = (self.composition - self.control)[KINDS.index(kind)]
        there = ~excess.isnan()
        rows, columns = (there.any(axis).nonzero()[:, 0] for axis in (1, 0))
        return Heatmap(
            excess[rows][:, columns],
            title=f"{kind}-composition − baseline: what later heads read by their {READ[kind]}",
            rows=[self.names[row] for row in rows.tolist()],
            columns=[self.names[column] for column in columns.tolist()],
            axes=("writer", "reader"),
            unit="excess",
            diverging=True,
        )

    figure = plotted(drawing)

    def drawings(self) -> dict[str, Drawing]:
        """See :meth:`Result.drawings`."""
        return {kind: self.drawing(kind) for kind in KINDS}

    def summary(self, top: int = 5) -> str:
        """The pair furthest above the baseline, and up to ``top`` pairs of each kind."""
        top = at_least(1, top, "top")
        frame = self.to_frame()
        lines = [self.headline()]
        for kind in KINDS:
            strongest = frame[(frame["kind"] == kind) & (frame["excess"] > 0)].head(top)
            pairs = zip(
                strongest["writer"], strongest["reader"], strongest["composition"], strict=True
            )
            texts = [f"{writer} → {reader} {fixed(value, 3)}" for writer, reader, value in pairs]
            lines.append(f"{kind}  {', '.join(texts) or 'none above the baseline'}")
        rotary = [] if self.offset is None else [f"rotary positions: Y at offset {self.offset}"]
        return "\n".join([*lines, *rotary])

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        return f"{self.provenance.model}: {_top_pair(self.to_frame())}"


def _top_pair(frame: pd.DataFrame) -> str:
    """Describe the pair furthest above the baseline."""
    if frame.empty:
        return "no pair of heads with weights other than 0"
    kind, writer, reader, value, baseline, spread, _ = frame.iloc[0]
    return (
        f"of {counted(len(frame) // len(KINDS), 'pair')} of heads, {writer} → {reader} is furthest "
        f"above the baseline: {kind}-composition {fixed(value, 3)}, "
        f"by chance {fixed(baseline, 3)} ± {fixed(spread, 3)}"
    )


def composition(
    model: Transformer, *, offset: int = 0, progress: Progress | None = None
) -> Composition:
    """Measure how strongly each head reads what earlier heads write, from the weights alone.

    Args:
        model: any model with two layers of attention or more. In a parallel block, the heads of a
            layer read nothing of that layer. With post-norm, the norms between two heads are
            folded in as well. Cross-attention reads the encoder through its keys and values.
        offset: query position minus key position, which Q- and K-composition depend on with rotary
            positions.
        progress: called with ``(layers done, layers)``.

    Returns:
        Composition, baseline and spread of all pairs.

    Raises:
        InvalidInput: a single layer of attention, or an offset outside the context.

    Examples:
        >>> analyses.composition(interp.load("induction-by-hand"))
        Composition(induction-by-hand: of 1 pair of heads, L0H0 → L1H0 is furthest above the
        baseline: K-composition 0.126, by chance 0.062 ± 0.001)
    """
    check_finite_weights(model)
    farthest = max(1, model.n_ctx - 1)
    pairs = head_pairs(model, within(-farthest, farthest, offset, "offset"), progress)
    numbers = (pairs.composition, pairs.baseline, pairs.spread)
    rotary_offset = offset if rotates(model) else None
    return Composition(pairs.heads, *numbers, rotary_offset, Provenance.of(model))
