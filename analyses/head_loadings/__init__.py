"""Which heads carry an edge? What a part wrote at one position, by the heads that bring it later.

    edge = w·δ = w·u (at the same position) + Σ_h w_h·(A_h N(δ) W_V W_O)

u is what the source wrote at one position, δ what it and the heads that read it add to the stream
of the reader, and w the direction of what is read: of a logit, of a head's score, or of a neuron.
w_h is w at the output of head h, through the residual stream alone. Each head's loading is what it
hands over to the reader: the last head on the way; what it took directly from the source, without
an earlier head, stands beside it. The bypass is the residual stream. They sum to the edge (Kamath
et al. 2025, "Tracing Attention Computation Through Feature Interactions").

Frozen at the values of the run: all patterns, the divisors of all norms, the outputs of all MLPs
but the source, and the other end of a score. The edge is therefore what the reader would lose
without the source, if all of these stayed as they are; heads that look elsewhere then, and MLPs
that read what is carried, are not part of it.
"""

from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.head_loadings.carried import Carried, FrozenStack, SourcePart
from analyses.head_loadings.reader import Reader
from analyses.methods.attribution import StreamWalk
from analyses.methods.finite import check_finite_weights, check_total
from analyses.results import (
    Bars,
    Drawing,
    Result,
    Tokens,
    counted,
    effect_frame,
    effect_lines,
    interval,
    percent,
    places_of_effects,
    rounding,
    signed,
    token_ids,
)
from interp import Transformer, run
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.integers import at_least
from interp.metrics import as_position, columns_read
from interp.model import Batch
from interp.prompts import read_batches

BYPASS = "bypass"
Loadings = dict[str, Float[Tensor, " prompt"]]
SHOWN = 30
"""The most bars of the figure."""
FIRST = 3
"""Carriers in the first line of a summary."""
ROWS = 4
"""Prompts run at a time, at most."""


@dataclass(frozen=True, eq=False, repr=False)
class HeadLoadings(Result):
    """What a part wrote at one position, as read at another, by the heads that carry it.

    Attributes:
        value: the edge, in logits, nats of a score, or the unit of a neuron's input.
        effect: the loading of each carrier; they sum to the edge.
        direct: what each head took from the source itself, without an earlier head.
        names: the heads on the way, then ``bypass``, the residual stream.
        writer: the source.
        reader: the reader.
        unit: unit of the numbers.
        provenance: model and tokens that the numbers depend on.
    """

    value: Float[Tensor, " prompt"]
    effect: Float[Tensor, "carrier prompt"]
    direct: Float[Tensor, "carrier prompt"]
    names: tuple[str, ...]
    writer: str
    reader: str
    unit: str
    provenance: Provenance

    @property
    def error(self) -> float:
        """The largest difference between Σ loadings and ``value``, over the prompts."""
        return (self.effect.sum(0) - self.value).abs().max().item()

    def to_frame(self) -> pd.DataFrame:
        """One row per carrier, largest size first.

        Columns:
            name: the head, or ``bypass``.
            effect, low, high, size, share, n, p, q, significant: the mean loading over prompts, as
                in ``ablate_heads``; share is that of the edge.
            direct: the mean of what it took from the source without an earlier head.
        """
        cells = {"name": self.names, "direct": self.direct.double().mean(-1).tolist()}
        frame = effect_frame(cells, self.effect, self._noise, metric=self.value)
        frame["direct"] = frame.pop("direct")
        return frame

    def drawing(self) -> Drawing:
        """The loadings of the largest carriers."""
        estimate = interval(self.effect)
        largest = sorted(estimate.size.argsort(descending=True, stable=True)[:SHOWN].tolist())
        return Bars(
            estimate.mean[largest],
            estimate.low[largest],
            estimate.high[largest],
            title=f"What carries {self._edge}, mean over prompts",
            labels=[self.names[carrier] for carrier in largest],
            unit=self.unit,
            places=places_of_effects(self.to_frame()),
            name="loading",
            marks={"directly from the source": self.direct.double().mean(-1)[largest]},
        )

    def summary(self, top: int = 10) -> str:
        """The edge, its ``top`` carriers, and how exactly all of them sum to it."""
        top = at_least(1, top, "top")
        lines = effect_lines(self.to_frame(), self.unit, "carriers", top)
        exact = (
            f"{counted(len(self.names), 'carrier')} sum to it within {self.error:.1e} {self.unit}; "
            "patterns, divisors of norms and outputs of MLPs are those of the run"
        )
        return "\n".join([self.headline(), *lines, exact])

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        frame = self.to_frame()
        largest = ", ".join(
            f"{row['name']} {signed(row['effect'], 2)} ({percent(row['share'])})"
            for row in frame[frame["size"] > self._noise].head(FIRST).to_dict("records")
        )
        prompts = counted(len(self.value), "prompt")
        edge = f"{signed(self.value.mean(), 2)} {self.unit}"
        return f"{self._edge} {edge} on {prompts}: {largest or 'nothing carries it'}"

    @property
    def _edge(self) -> str:
        return f"{self.writer} → {self.reader}"

    @property
    def _noise(self) -> float:
        return rounding(self.value, self.provenance.dtype)


@torch.no_grad()
def head_loadings(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    prompts: Any,  # noqa: ANN401 - what model.check reads
    source: str,
    reader: str,
    *,
    source_pos: int,
    pos: int | None = None,
    other: int | None = None,
    target: Tokens | None = None,
    distractor: Tokens | None = None,
) -> HeadLoadings:
    """Split what a part wrote at one position, as read at another, by the heads that carry it.

    Args:
        model: the model; of an encoder–decoder, source and reader are of the decoder.
        prompts: texts, token ids, images or a batch; ``(source, target)`` for an encoder–decoder.
        source: a head, an MLP or an embedding, e.g. ``L0H1``, ``L0MLP``, ``embed``.
        reader: ``logits``; the queries or the keys of a head, ``L1H0.q`` or ``L1H0.k``, which read
            one end of its score; or a neuron, ``L1N5``, of which its input is read.
        source_pos: the position at which the source writes, among the tokens of each prompt;
            negative ones count from the end.
        pos: the position at which it is read; ``None`` for the last.
        other: for queries, the position of the key; for keys, that of the query.
        target: for ``logits``, a token (its id or text), or one per prompt.
        distractor: likewise; its logit is subtracted.

    Returns:
        The loading of each head between source and reader, and of the bypass; they sum to the edge.

    Raises:
        UnknownPlace: no part or reader has this name.
        InvalidInput: the reader comes before the source; a prompt has no such position; the cell of
            a score is masked; ``target`` or ``other`` is missing, or does not fit the reader; an
            attention on the way clips its values; or the logits are not linear in the stream.
        InvalidTokens: a target's text is not one token.

    Examples:
        >>> model = interp.load("induction-by-hand")
        >>> analyses.head_loadings(model, "abcab", "embed", "L1H0.k", source_pos=1, pos=2, other=4)
        HeadLoadings(embed → L1H0.k +100.00 nats on 1 prompt: L0H0 +100.00 (100 %))
    """
    check_finite_weights(model)
    batches = read_batches(model, prompts)
    end = Reader.of(model, reader, other=other is not None, target=target is not None)
    if distractor is not None and target is None:
        raise InvalidInput("distractor= is subtracted from the logit of target=; give both.")
    part = SourcePart.of(end.stack, source)
    positions = {"source_pos": source_pos, "pos": pos}
    columns = [_columns(batches[-1], at, name) for name, at in positions.items()]
    others = None if other is None else _columns(batches[-1], other, "other")
    ids = [
        token_ids(model, tokens, len(columns[0]), name)
        for name, tokens in (("target", target), ("distractor", distractor))
        if tokens is not None
    ]
    loadings, direct, values = list[Loadings](), list[Loadings](), list[Tensor]()
    for rows in torch.arange(len(columns[0]), device=columns[0].device).split(ROWS):
        some = [batch.rows(rows) for batch in batches]
        cache = run(model, *some, record=end.places).cache
        stream = FrozenStack(end.stack, cache)
        read = end.directions(
            cache,
            some,
            columns[1][rows],
            None if others is None else others[rows],
            [each[rows] for each in ids],
        )
        carried = stream.carry(stream.source(part, columns[0][rows]), end.until, columns[1][rows])
        values.append((carried.whole * read).sum(-1))
        check_total(
            values[-1],
            cache,
            "The edge is NaN or infinite",
            name="the sum",
            look_for="weights that are too large",
        )
        walk = end.walk(cache, columns[1][rows], read)
        for number, each in enumerate((loadings, direct)):
            each.append(_loadings(walk, carried, number))
        bypass = (carried.alone * read).sum(-1)
        loadings[-1][BYPASS] = direct[-1][BYPASS] = bypass
    names = tuple(loadings[0])
    return HeadLoadings(
        value=torch.cat(values).cpu(),
        effect=torch.stack([torch.cat([part[name] for part in loadings]) for name in names]).cpu(),
        direct=torch.stack([torch.cat([part[name] for part in direct]) for name in names]).cpu(),
        names=names,
        writer=source,
        reader=reader,
        unit=end.unit,
        provenance=Provenance.of(model, *batches),
    )


def _columns(batch: Batch, position: int | None, name: str) -> Int[Tensor, " batch"]:
    """The column of a position in each prompt.

    Raises:
        InvalidInput: it is no position, or a prompt is shorter.
    """
    try:
        return columns_read(batch, as_position(position))
    except InvalidInput as error:
        raise InvalidInput(f"{name}={shorten(position)}: {error}") from error


def _loadings(walk: StreamWalk, carried: Carried, number: int) -> Loadings:
    """The loading of each head, along the directions at its output.

    Args:
        walk: the directions.
        carried: the outputs of the heads.
        number: 0 for what they make of all that is carried to them, 1 for that of the source alone.
    """
    loadings: Loadings = {}
    for written in reversed(walk.written):
        if written.step in carried.heads:
            outputs = carried.heads[written.step][number]
            name = walk.name(written.layer, written.step.f)
            along = (outputs * written.directions).sum(-1)
            loadings |= {f"{name}H{head}": along[:, head] for head in range(along.shape[1])}
    return loadings
