"""Which tokens does a head promote when it attends to a token? Its OV circuit, from weights alone.

    logits(source, output) = n_source W_V W_O W_U,   n = norm(x),  x = W_E[source]

n is the token's embedding alone, without a position (optionally with the output of the first MLP
added), after the norm that the head reads through. W_V has that norm's gain folded in, W_O the
gains of later norms, and W_U is centred over the vocabulary. The divisors of later norms are left
out: they scale all entries of the circuit alike, by an amount that depends on the prompt. Entries
are therefore in standard deviations (sd) of all entries of the head's circuit. Beside each entry
stands its mean over all tokens, since a head may promote some outputs whatever it attends to.

Copying is Σλ / Σ|λ| over the eigenvalues of that matrix, from −1 to 1 (Elhage et al. 2021, "A
Mathematical Framework for Transformer Circuits"), with W_U centred over the tokens compared, so
that it is near 0 for permuted outputs. Singular vectors are those of W_V W_O, read through W_E and
W_U (Millidge and Black 2022). The circuit is the direct path from embedding to logits: a
head that copies need not rank each token itself first, and late heads mostly read what other parts
wrote. Whether the head attends to a token is another question: see :func:`analyses.qk`.
"""

from dataclasses import dataclass
from math import sqrt

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.circuits import (
    Side,
    SingularTokens,
    TokenCircuits,
    TokenList,
    TopTokens,
    given_tokens,
    singular_tokens,
    strongest,
    top_tokens,
)
from analyses.methods.finite import check_finite_weights
from analyses.methods.heads import AttentionName
from analyses.results import Drawing, Progress, Result, fixed, plotted, signed
from interp import Transformer
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.integers import as_seed, at_least
from interp.linalg import LowRank

DRAWS = 8
"""Permutations that copying is compared with."""
COMPONENTS = 8
"""Singular vectors that are reported."""
COLUMNS = ("source_token", "output_token")
UNIT = "sd"
"""Standard deviations of all entries of the circuit."""


@dataclass(frozen=True, eq=False, repr=False)
class OVCircuit(Result):
    """What a head promotes by the token that it attends to.

    Attributes:
        name: the head's name.
        promoted: for tokens that are attended to, the outputs that are promoted most.
        promoters: for outputs, the tokens that promote them most when attended to.
        copying: Σλ / Σ|λ|; ``None`` where outputs are not the tokens that are attended to.
        copying_control: the same with permuted outputs.
        singular: the largest singular vectors.
        deviation: standard deviation of all entries, in logits times the divisor of the final norm:
            the unit of ``promoted`` and ``promoters``.
        first_mlp: whether the output of the first MLP is added to embeddings.
        provenance: model and seed that the numbers depend on.
    """

    name: str
    promoted: TopTokens
    promoters: TopTokens
    copying: float | None
    copying_control: Float[Tensor, " draw"]
    singular: SingularTokens
    deviation: float
    first_mlp: bool
    provenance: Provenance

    def to_frame(self) -> pd.DataFrame:
        """One row per token and rank, in both directions.

        Columns:
            direction: ``out``: the outputs that a source promotes; ``in``: the sources that promote
                an output.
            source_token: the token that is attended to.
            output_token: the token whose logit it is.
            rank: from 1.
            logit: minus the mean over outputs, in standard deviations of all entries.
            control: the mean of these logits of the output over all sources.
        """
        source, output = COLUMNS
        out = self.promoted.frame(source, output, "logit")
        into = self.promoters.frame(output, source, "logit")
        frame = pd.concat([out.assign(direction="out"), into.assign(direction="in")])
        columns = ["direction", source, output, "rank", "logit", "control"]
        return frame[columns].reset_index(drop=True)

    def more_frames(self) -> dict[str, pd.DataFrame]:
        """See :meth:`Result.more_frames`."""
        return {"singular_vectors": self.to_singular_frame()}

    def to_singular_frame(self) -> pd.DataFrame:
        """One row per singular vector, end and rank: the tokens read there, and those written.

        Columns:
            component, singular_value: the singular vector, largest value first.
            end: + or -.
            rank: from 1.
            source_token, source_token_reading: a token, and its normalized embedding along the
                vector.
            output_token, output_token_reading: a token, and the logit that the vector writes.
        """
        return self.singular.frame(*COLUMNS)

    def drawing(self, direction: str = "out") -> Drawing:
        """Heatmap of the logits by rank, with tokens in the cells.

        Args:
            direction: ``out``, outputs by source, or ``in``, sources by output.

        Raises:
            InvalidInput: another direction.
        """
        if direction not in ("out", "in"):
            raise InvalidInput(f"direction={shorten(direction)} should be out or in.")
        if direction == "out":
            title = f"{self.name}: outputs that it promotes when it attends to a token"
            return self.promoted.drawing(
                title=title, token="attended to", top="promoted output", unit=UNIT
            )
        title = f"{self.name}: tokens that promote an output when it attends to them"
        return self.promoters.drawing(title=title, token="output", top="attended to", unit=UNIT)

    figure = plotted(drawing)

    def drawings(self) -> dict[str, Drawing]:
        """See :meth:`Result.drawings`."""
        return {direction: self.drawing(direction) for direction in ("out", "in")}

    def summary(self, top: int = 5) -> str:
        """Copying, up to ``top`` tokens with what they promote, the largest singular vectors."""
        top = at_least(1, top, "top")
        return "\n".join(
            [
                self.headline(),
                "attended to → promoted outputs, in sd of all logits that the head can write so",
                *self.promoted.lines(top),
                "singular vectors: tokens read → outputs written",
                *self.singular.lines(),
            ]
        )

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        mlp = ", embeddings behind the first MLP" if self.first_mlp else ""
        return f"OV circuit of {self.name} in {self.provenance.model}{mlp}: {self._copying()}"

    def _copying(self) -> str:
        if self.copying is None:
            return "outputs are not the tokens that it attends to, so there is no copying"
        mean, deviation = self.copying_control.mean(), self.copying_control.std()
        control = f"{signed(float(mean), 2)} ± {fixed(float(deviation), 2)} with permuted outputs"
        return f"copying {signed(self.copying, 2)} ({control})"


@torch.no_grad()
def ov(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    layer: int,
    head: int,
    tokens: TokenList | None = None,
    *,
    top: int = 10,
    attention: AttentionName | None = None,
    first_mlp: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> OVCircuit:
    """Find which tokens a head promotes when it attends to a token, from the weights alone.

    Norms are folded in without their divisors, except for the norm that the head reads through.
    Biases (of the norms, b_V) are left out: what they write is the same whatever the head attends
    to. In models with post-norm, the norms between embedding and head, and between head and logits,
    are applied too. Logits are before any soft-cap.

    Args:
        model: a model of tokens with an unembedding.
        layer: the head's layer; negative values count from the end.
        head: the head's index (with grouped heads, that of the query head); negative values count
            from the end.
        tokens: ids, or texts of one token each, used both as tokens attended to and as outputs. By
            default those with the largest entries in the whole circuit.
        top: number of tokens to report beside each; and number of ``tokens`` by default.
        attention: for an encoder–decoder, ``"decoder"`` or ``"cross"``, whose tokens attended to
            are those of the encoder.
        first_mlp: whether to add the output of the first MLP to embeddings.
        seed: seed for the permutations that copying is compared with.
        progress: called with ``(tokens searched, tokens in total)`` while the largest entries
            of the whole circuit are searched for.

    Raises:
        InvalidInput: no such layer or head, or ``top`` below 1; a model without unembedding, or
            with a masked-language head before it; an encoder's head in an encoder–decoder;
            ``first_mlp`` where none comes before the head.
        InvalidTokens: ``tokens`` are not single tokens of the vocabulary.

    Examples:
        >>> analyses.ov(interp.load("induction-by-hand"), layer=1, head=0)
        OVCircuit(OV circuit of L1H0 in induction-by-hand: copying +1.00 (0.00 ± 0.01 with permuted
        outputs))
    """
    check_finite_weights(model)
    top, seed = at_least(1, top, "top"), as_seed(seed)
    circuits = TokenCircuits.of(model, layer, head, attention, first_mlp=first_mlp)
    W_O = circuits.output()
    sources, outputs = Side.of_stack(model, circuits.key), Side.of_logits(model)
    values, right = circuits.values(sources.ids), circuits.logits(W_O)
    deviation = _deviation(values, right)
    right = right / (deviation or 1.0)
    whole = LowRank(values, right)
    same = sources.size == outputs.size and not outputs.are_classes
    if tokens is None:
        best, promoted = strongest(whole, top, progress)
        rows, columns = sources.some(sources.ids[best]), outputs.some(promoted)
    else:
        ids = given_tokens(tokens, sources, *([outputs] if same else []))
        rows = sources.some(ids)
        columns = outputs.some(ids if same else strongest(whole, top, progress)[1])
    mean = whole.left.mean(0) @ right
    copying, controls = _copying(whole, sources.ids, seed) if same else (None, right.new_zeros(0))
    return OVCircuit(
        circuits.name,
        top_tokens(LowRank(circuits.values(rows.ids), right), rows, outputs, mean[None], top),
        top_tokens(
            LowRank(right.T[columns.ids], whole.left.T),
            columns,
            sources,
            mean[columns.ids, None],
            top,
        ),
        copying,
        controls.cpu(),
        _singular(circuits, W_O, sources, outputs, top),
        deviation,
        first_mlp,
        Provenance.of(model, seed=seed),
    )


def _deviation(left: Float[Tensor, "token d_head"], right: Float[Tensor, "d_head logit"]) -> float:
    """The standard deviation of all entries of ``left @ right``, whose rows have mean 0."""
    left, right = left.double(), right.double()
    squares = ((left.T @ left) * (right @ right.T)).sum()
    return float(squares.clamp(min=0).sqrt()) / sqrt(len(left) * right.shape[1])


def _copying(
    circuit: LowRank, ids: Int[Tensor, " token"], seed: int
) -> tuple[float, Float[Tensor, " draw"]]:
    """Σλ / Σ|λ| of the circuit of some tokens with themselves, and with permuted outputs."""
    generator = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(len(ids), generator=generator).to(ids.device) for _ in range(DRAWS)]
    right = circuit.right[:, ids]
    right = right - right.mean(-1, keepdim=True)  # over the tokens that are compared
    controls = [LowRank(circuit.left, right[:, order]).positive_fraction() for order in orders]
    return float(LowRank(circuit.left, right).positive_fraction()), torch.stack(controls)


def _singular(
    circuits: TokenCircuits,
    W_O: Float[Tensor, "d_head d_model"],
    sources: Side,
    outputs: Side,
    k: int,
) -> SingularTokens:
    """The singular vectors of W_V W_O, read through embedding and unembedding."""
    left, values, right = LowRank(circuits.weights.W_V[circuits.head], W_O).svd()
    read = circuits.read_keys(sources.ids, left[:, :COMPONENTS])
    written = circuits.logits(right[:COMPONENTS]).T
    return singular_tokens(values[:COMPONENTS], (sources, read), (outputs, written), k)
