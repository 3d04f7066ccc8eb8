"""The result of a scan: tables by head, and a scatter plot of any two statistics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.heads import (
    BOS,
    DISTANCE,
    ENTROPY,
    FIRST,
    NORMALIZED,
    VARIANCE,
    WEIGHTINGS,
)
from analyses.results import (
    Drawing,
    Heatmap,
    Result,
    Scatter,
    counted,
    effect_frame,
    fixed,
    grid,
    number,
    plotted,
)
from analyses.scan_heads.effects import TARGETS, ClassEffects
from analyses.scan_heads.measure import WRITE
from analyses.scan_heads.partial import PartialScan
from analyses.scan_heads.sequences import NO_TEXT, Sequences
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.io import as_path, atomic_folder

ACTIVATION = "activation"
"""The largest weight between two tokens of a text, neither of them the first; of HeadVis files."""
NO_MASSES = (ENTROPY, NORMALIZED, DISTANCE, VARIANCE, WRITE, ACTIVATION)
SINKS = (BOS, FIRST)
LEAST = 0.1
"""The amount by which a mass must exceed its control for a head to be named."""
NAMED, OF_EACH = 3, 3
"""The most statistics that the headline names a head for, and the heads of each in the summary."""
EFFECT = "effect"
"""The name of the size of the ablation's effect, as an axis."""
OVER_CONTROL = " − control"
"""Ends the name of the difference of a statistic from its control, as an axis."""


@dataclass(frozen=True, eq=False)
class TopTokens:
    """The tokens (or pairs of query and key tokens) on which most of a head's mass lies.

    Attributes:
        ids: the token, or query and key; −1 for none.
        share: its share of the head's mass off the first token (of pairs, of the mass of each
            query's strongest key), at most ``error`` too small.
        frequency: its share of all tokens (of pairs, the product).
        error: bound on the error of the shares; 0 if they are exact.
    """

    ids: Int[Tensor, "unit rank part"]
    share: Float[Tensor, "unit rank"]
    frequency: Float[Tensor, "unit rank"]
    error: Float[Tensor, " unit"]


@dataclass(frozen=True, eq=False)
class Massive:
    """Massive activations of the stream after a block, by dimension; the largest first.

    Attributes:
        stack: the stack of an encoder–decoder; else empty.
        layer: index of the block.
        dimension: dimension of the stream.
        count: at how many tokens it is massive.
        at_first: at how many of them, the first of their text.
        largest: the largest |x|.
        token: label of the token there.
    """

    stack: tuple[str, ...]
    layer: Int[Tensor, " row"]
    dimension: Int[Tensor, " row"]
    count: Int[Tensor, " row"]
    at_first: Int[Tensor, " row"]
    largest: Float[Tensor, " row"]
    token: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Sinks:
    """The mass on the first token with massive activations, and without.

    Attributes:
        layer: the first block that has any; they are set to zero after it and each later one.
        value: mass of each head on the first token.
        without: the same with massive activations set to zero.
        n: number of texts.
    """

    layer: int
    value: Float[Tensor, " unit"]
    without: Float[Tensor, " unit"]
    n: int


@dataclass(frozen=True, eq=False, repr=False)
class HeadScan(Result):
    """Statistics of all heads over a corpus, with controls; tokens, sequences and effects.

    Tables of an encoder–decoder also have a column ``stack``: ``encoder``, ``decoder``, ``cross``.

    Attributes:
        attentions: of each head, ``encoder``, ``decoder`` or ``cross``; empty with one stack.
        layers: its layer.
        heads: its index in the layer.
        names: its name, as in :func:`interp.computation_graph`.
        statistics: ``entropy`` (nats), ``normalized entropy`` (0 to 1), ``distance`` (tokens),
            ``distance variance`` (tokens squared), masses (0 to 1), and ``write`` (a share).
        mean: mean over texts, with plain and with value-weighted attention; NaN where no text has
            a query that the statistic is defined for.
        low: lower end of its 95 % interval; NaN below five texts.
        high: upper end.
        n: number of texts.
        control: mean of the control.
        lower_ends: the smallest distance of each bucket.
        distances: share of the mass in each bucket: of keys up to the query, and after it. NaN
            across stacks.
        uniform_distances: the control, for equal weights on all visible keys.
        top_queries: the query tokens with most of the mass off the first token.
        top_keys: the key tokens with most of it.
        top_pairs: the pairs of a query and its strongest key with most of the mass.
        token_labels: labels of these tokens, by id.
        sequences: a sample of texts by decile; ``None`` if the scan was cancelled.
        massive: massive activations of the stream.
        sinks: what they do to the mass on the first token; ``None`` if there are none.
        class_effects: effects of mean ablation, by class of the target; ``None`` if not asked for.
        n_texts: number of texts.
        n_tokens: number of tokens of the last stack.
        provenance: model, tokens and settings that the numbers depend on.
        notes: notes on how the numbers were computed.
        partial: the scan from which a call is resumed; ``None`` if it is complete.
    """

    working = ("partial",)

    attentions: tuple[str, ...]
    layers: Int[Tensor, " unit"]
    heads: Int[Tensor, " unit"]
    names: tuple[str, ...]
    statistics: tuple[str, ...]
    mean: Float[Tensor, "weighting unit statistic"]
    low: Float[Tensor, "weighting unit statistic"]
    high: Float[Tensor, "weighting unit statistic"]
    n: Int[Tensor, "weighting unit statistic"]
    control: Float[Tensor, "weighting unit statistic"]
    lower_ends: Int[Tensor, " bucket"]
    distances: Float[Tensor, "unit side bucket"]
    uniform_distances: Float[Tensor, "unit side bucket"]
    top_queries: TopTokens
    top_keys: TopTokens
    top_pairs: TopTokens
    token_labels: Mapping[int, str]
    sequences: Sequences | None
    massive: Massive
    sinks: Sinks | None
    class_effects: ClassEffects | None
    n_texts: int
    n_tokens: int
    provenance: Provenance
    notes: tuple[str, ...] = ()
    partial: PartialScan | None = None

    @property
    def masses(self) -> tuple[str, ...]:
        """The statistics that are masses."""
        return tuple(name for name in self.statistics if name not in NO_MASSES)

    def of(self, statistic: str, weighting: str = "attention") -> Float[Tensor, " unit"]:
        """A statistic of each head, or its difference from the control (``"previous − control"``).

        ``effect`` is the mean |effect| of the head's ablation, in nats.
        """
        if weighting not in WEIGHTINGS:
            choices = " or ".join(WEIGHTINGS)
            raise InvalidInput(f"weighting={shorten(weighting)} should be {choices}.")
        if statistic == EFFECT and self.class_effects is not None:
            return self.class_effects.effect.abs().mean(-1)
        name = statistic.removesuffix(OVER_CONTROL)
        at = WEIGHTINGS.index(weighting), slice(None), self.column(name)
        return self.mean[at] if name == statistic else self.mean[at] - self.control[at]

    def unit_of(self, statistic: str) -> str:
        """The unit of a statistic, or of its difference from the control."""
        units = {ENTROPY: "nats", DISTANCE: "tokens", VARIANCE: "tokens²", EFFECT: "nats"}
        return units.get(statistic.removesuffix(OVER_CONTROL), "0 to 1")

    # ---- tables -----------------------------------------------------------------------------

    def to_frame(self) -> pd.DataFrame:
        """One row per head, statistic and weighting, without those that no text has.

        Columns:
            stack: of an encoder–decoder, ``encoder``, ``decoder`` or ``cross``.
            layer, head, name: the head.
            statistic, weighting: the statistic, of ``attention`` or ``value-weighted`` attention.
            mean, control: means over texts.
            difference: mean − control.
            low, high: 95 % interval of the mean over texts; NaN below five.
            n: number of texts.
            stands_out: for masses, whether the difference exceeds 0.1 and the interval leaves out
                the control.
        """
        cells = grid(weighting=WEIGHTINGS, unit=range(len(self.names)), statistic=self.statistics)
        units = cells.pop("unit")
        mean, control, low, high = (
            x.flatten().numpy() for x in (self.mean, self.control, self.low, self.high)
        )
        frame = pd.DataFrame(
            {
                **self._heads(units),
                "statistic": cells["statistic"],
                "weighting": cells["weighting"],
                "mean": mean,
                "control": control,
                "difference": mean - control,
                "low": low,
                "high": high,
                "n": self.n.flatten().numpy(),
            }
        )
        is_mass = frame["statistic"].isin(self.masses)
        above = (frame["difference"] > LEAST) & (frame["low"] > frame["control"])
        return frame.assign(stands_out=is_mass & above)[frame["n"] > 0].reset_index(drop=True)

    def to_largest_frame(self) -> pd.DataFrame:
        """For each head, the mass furthest above its control, other than that on the first token.

        Columns: those of :meth:`to_frame` without ``weighting``, and ``value-weighted``, the mean
        with those weights.
        """
        frame = self.to_frame()
        frame = frame[frame["statistic"].isin(self.masses)]
        plain, weighted = (frame[frame["weighting"] == name] for name in WEIGHTINGS)
        keys = [*self._heads([]), "statistic"]
        both = plain.drop(columns="weighting").merge(
            weighted[[*keys, "mean"]].rename(columns={"mean": WEIGHTINGS[1]}), "left", on=keys
        )
        of_rest = ~both["statistic"].isin(SINKS) & both["stands_out"]
        order = both.assign(of_rest=of_rest).sort_values(
            ["of_rest", "difference"], ascending=False, kind="stable"
        )
        return order.drop(columns="of_rest").drop_duplicates("name").reset_index(drop=True)

    def to_distance_frame(self) -> pd.DataFrame:
        """One row per head and bucket of distances, with the share of the mass and the control.

        Columns: ``layer``, ``head``, ``name``; ``offset`` (position of the query minus
        that of the key, the one nearest to 0 of the bucket), ``share``, ``control``.
        """
        # Negative offsets first, from the farthest; side 1 has no distance 0.
        order = [(1, n) for n in range(len(self.lower_ends) - 1, 0, -1)]
        order += [(0, n) for n in range(len(self.lower_ends))]
        offsets = [int(self.lower_ends[n]) * (-1 if side else 1) for side, n in order]
        sides, buckets = (torch.tensor(x) for x in zip(*order, strict=True))
        share, control = (x[:, sides, buckets] for x in (self.distances, self.uniform_distances))
        cells = grid(unit=range(len(self.names)), offset=offsets)
        frame = pd.DataFrame(
            {
                **self._heads(cells["unit"]),
                "offset": cells["offset"],
                "share": share.flatten().numpy(),
                "control": control.flatten().numpy(),
            }
        )
        is_seen = frame["share"].notna() & ~(frame["control"] <= 0)  # NaN if it was not measured
        return frame[is_seen].reset_index(drop=True)

    def to_token_frame(self) -> pd.DataFrame:
        """The tokens and pairs on which most of each head's mass lies.

        Columns: ``layer``, ``head``, ``name``; ``kind`` (query, key or pair), ``rank``,
        ``query_token``, ``key_token``, ``share`` of the mass off the first token, ``error`` (by how
        much the share may be too small), ``frequency_share`` among all tokens.
        """
        frames: list[pd.DataFrame] = []
        for kind, top in (
            ("query", self.top_queries),
            ("key", self.top_keys),
            ("pair", self.top_pairs),
        ):
            unit, rank = (top.ids[..., 0] >= 0).nonzero().unbind(-1)
            labels = [
                [self.token_labels[id_] for id_ in ids] for ids in top.ids[unit, rank].tolist()
            ]
            frames.append(
                pd.DataFrame(
                    {
                        **self._heads(unit.tolist()),
                        "kind": kind,
                        "rank": (rank + 1).numpy(),
                        "query_token": [each[0] if kind != "key" else None for each in labels],
                        "key_token": [each[-1] if kind != "query" else None for each in labels],
                        "share": top.share[unit, rank].numpy(),
                        "error": top.error[unit].numpy(),
                        "frequency_share": top.frequency[unit, rank].numpy(),
                    }
                )
            )
        has_rows = [frame for frame in frames if len(frame)]  # others have columns of floats
        return pd.concat(has_rows or frames, ignore_index=True)

    def to_sequence_frame(self) -> pd.DataFrame:
        """The texts of each decile of each statistic and head.

        Columns: ``layer``, ``head``, ``name``, ``statistic``, ``decile`` (10 has the
        largest values), ``text`` and ``source``, ``value`` of the statistic on the text, and
        ``context``, its beginning.
        """
        chosen = self.sequences
        if chosen is None:
            columns = [*self._heads([]), *("statistic", "decile", "text", "source", "value")]
            return pd.DataFrame({name: [] for name in [*columns, "context"]})
        unit, statistic, slot = (chosen.slot != NO_TEXT).nonzero().unbind(-1)
        at = chosen.slot[unit, statistic, slot]
        texts = [
            {
                name: " ".join(labels[:32])
                for name, labels in zip(chosen.query_labels, each, strict=True)
            }
            for each in zip(*chosen.query_labels.values(), strict=True)
        ]
        of_unit = [self.attentions[n] for n in unit.tolist()]
        return pd.DataFrame(
            {
                **self._heads(unit.tolist()),
                "statistic": [self.statistics[n] for n in statistic.tolist()],
                "decile": [chosen.decile[n] for n in slot.tolist()],
                "text": chosen.text[at].numpy(),
                "source": [chosen.source[n] for n in at.tolist()],
                "value": chosen.value[at, unit, statistic].numpy(),
                "context": [texts[n][name] for n, name in zip(at.tolist(), of_unit, strict=True)],
            }
        )

    def to_massive_frame(self) -> pd.DataFrame:
        """One row per block and dimension with massive activations, the largest first.

        Columns: ``layer``, ``dimension``, ``count`` of tokens, ``at_first``, how many of
        them are the first of their text, ``largest`` |x|, and the ``token`` there.
        """
        rows = self.massive
        stacks = {"stack": list(rows.stack)} if any(self.attentions) else {}
        return pd.DataFrame(
            {
                **stacks,
                "layer": rows.layer.numpy(),
                "dimension": rows.dimension.numpy(),
                "count": rows.count.numpy(),
                "at_first": rows.at_first.numpy(),
                "largest": rows.largest.numpy(),
                "token": list(rows.token),
            }
        )

    def to_sink_frame(self) -> pd.DataFrame:
        """The mass of each head on the first token: ``value``, and ``without`` massive activations.

        Columns: ``layer``, ``head``, ``name``, ``value``, ``without``, and the number of
        texts, ``n``.
        """
        units = [] if self.sinks is None else list(range(len(self.names)))
        numbers: dict[str, object] = {"value": [], "without": [], "n": []}
        if self.sinks is not None:
            numbers = {"value": self.sinks.value.numpy(), "without": self.sinks.without.numpy()}
            numbers["n"] = self.sinks.n
        return pd.DataFrame({**self._heads(units), **numbers})

    def to_effect_frame(self, units: Sequence[int] | None = None) -> pd.DataFrame:
        """The effect of each head's mean ablation on the surprisal of targets, by their class.

        Args:
            units: indices of heads; all by default. Corrected p-values are among these.

        Columns: ``layer``, ``head``, ``name``, ``target_class``, and those of effects
        (nats): ``effect``, ``low``, ``high``, ``size``, ``share``, ``n``, ``p``, ``q``,
        ``significant``.
        """
        effects = self.class_effects
        every = [*range(len(self.names))] if units is None else [*units]
        if effects is None:
            return pd.DataFrame({**self._heads([]), "target_class": [], "effect": []})
        frames: list[pd.DataFrame] = []
        for name in ("all", *TARGETS):
            chosen = torch.tensor([name in ("all", target) for target in effects.target])
            if bool(chosen.any()):
                cells = {**self._heads(every), "target_class": [name] * len(every)}
                effect, clean = effects.effect[every][:, chosen], effects.clean[chosen]
                frames.append(effect_frame(cells, effect, metric=clean))
        return pd.concat(frames, ignore_index=True)

    def more_frames(self) -> dict[str, pd.DataFrame]:
        """See :meth:`Result.more_frames`."""
        frames = {
            "distances": self.to_distance_frame(),
            "tokens": self.to_token_frame(),
            "sequences": self.to_sequence_frame(),
            "massive": self.to_massive_frame(),
            "sinks": self.to_sink_frame(),
            "effects": self.to_effect_frame(),
        }
        return {name: frame for name, frame in frames.items() if len(frame)}

    # ---- files ------------------------------------------------------------------------------

    def to_headvis(self, folder: str | Path, dataset: str = "texts") -> None:
        """Write the files that HeadVis shows, atomically, with all statistics as metrics.

        Sequences are drawn from the sample by their largest weight, as HeadVis does; histograms of
        distances and top tokens are of the whole corpus.

        Args:
            folder: a new or empty folder, or one that was written here.
            dataset: a name of the texts.

        Raises:
            InvalidInput: the scan is of an encoder–decoder; or the folder has other files.
            OutOfResources: it can't be written.
        """
        from analyses.scan_heads.headvis import write_headvis  # noqa: PLC0415 - it reads this class

        with atomic_folder(as_path(folder)) as new:
            write_headvis(self, new, dataset)

    @staticmethod
    def from_headvis(folder: str | Path) -> "HeadScan":
        """Read the files of HeadVis, which this or another program wrote.

        Their metrics become statistics, without controls and intervals; the sequences are by
        ``activation``, the largest weight between two tokens, neither of them the first.

        Raises:
            InvalidInput: a file is missing, damaged or of another version.
        """
        from analyses.scan_heads.headvis_reader import read_headvis  # noqa: PLC0415 - likewise

        return read_headvis(folder)

    # ---- figures ----------------------------------------------------------------------------

    def drawing(self, weighting: str = "attention") -> Drawing:
        """Heatmap of the numbers from 0 to 1: heads down, normalized entropy and masses across."""
        columns = [s for s in (NORMALIZED, *self.masses) if not self.of(s).isnan().all()]
        return Heatmap(
            torch.stack([self.of(column, weighting) for column in columns], -1),
            title=f"Where heads attend on {counted(self.n_texts, 'text')} ({weighting})",
            rows=list(self.names),
            columns=columns,
            axes=("head", "statistic"),
            unit="0 to 1",
            top=1.0,
        )

    def scatter_drawing(
        self, x: str = "distance", y: str | None = None, weighting: str = "attention"
    ) -> Drawing:
        """One point a head, with any two statistics (or ``effect``) as axes.

        Args:
            x: the statistic across, as for :meth:`of`.
            y: the statistic down; by default the effect of ablation if it was measured, else the
                entropy.
            weighting: with which weights.
        """
        y = (ENTROPY if self.class_effects is None else EFFECT) if y is None else y
        return Scatter(
            self.of(x, weighting),
            self.of(y, weighting),
            title=f"Heads on {counted(self.n_texts, 'text')}: {y} against {x}",
            labels=list(self.names),
            axes=(x, y),
            units=(self.unit_of(x), self.unit_of(y)),
            groups=[f"{self._stack(n)}L{layer}" for n, layer in enumerate(self.layers.tolist())],
        )

    scatter_figure = plotted(scatter_drawing)

    def drawings(self) -> dict[str, Drawing]:
        """See :meth:`Result.drawings`."""
        return {"figure": self.drawing(), "scatter": self.scatter_drawing()}

    # ---- texts ------------------------------------------------------------------------------

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        best = self._standing_out()
        first = best[~best["statistic"].isin(SINKS)].drop_duplicates("statistic").head(NAMED)
        of = f"of {counted(len(self.names), 'head')}"
        on = f"on {counted(self.n_texts, 'text')}"
        on += f", {self.n_tokens} tokens" if self.n_tokens else ""
        if first.empty:
            return f"{self.provenance.model}: none {of} stands out {on}"
        return f"{self.provenance.model}: {of} {on}, {', '.join(self._texts(first))} stand out most"

    def summary(self) -> str:
        """For each mass, the largest of the heads that stand out; then what else was found."""
        best = self._standing_out()
        lines = [
            f"{statistic:<19} {', '.join(self._texts(_largest(rows), name=False))}"
            + (f", and {len(rows) - OF_EACH} more" if len(rows) > OF_EACH else "")
            for statistic, rows in best.groupby("statistic", sort=False)
        ]
        lines += ["in brackets: the control"] if lines else []
        if (self.n[0].amax() < 5) and len(self.names):  # noqa: PLR2004 - see Moments.ends
            lines.append("fewer than five texts: no intervals, so no head stands out")
        lines += self._massive_lines() + self._effect_lines()
        return "\n".join([self.headline(), *lines, *self.notes])

    def conclusion(self) -> list[str]:
        """See :meth:`Result.conclusion`."""
        return [self.headline(), *self._massive_lines(), *self._effect_lines()]

    def _standing_out(self) -> pd.DataFrame:
        """Masses of plain attention that stand out, those on the first token last; size first."""
        frame = self.to_frame()
        rows = frame[frame["stands_out"] & (frame["weighting"] == WEIGHTINGS[0])]
        rows = rows.assign(rare=~rows["statistic"].isin(SINKS))
        return rows.sort_values(["rare", "difference"], ascending=False, kind="stable")

    def _texts(self, rows: pd.DataFrame, *, name: bool = True) -> list[str]:
        columns = zip(rows["name"], rows["statistic"], rows["mean"], rows["control"], strict=True)
        if name:
            return [
                f"{head} ({statistic} {fixed(mean, 2)}, control {fixed(control, 2)})"
                for head, statistic, mean, control in columns
            ]
        return [
            f"{head} {fixed(mean, 3)} ({fixed(control, 3)})" for head, _, mean, control in columns
        ]

    def _massive_lines(self) -> list[str]:
        rows = self.massive
        if not len(rows.layer):
            return []
        dimensions = list(dict.fromkeys(rows.dimension.tolist()))
        few = ", ".join(map(str, dimensions[:4])) + (", …" if len(dimensions) > 4 else "")  # noqa: PLR2004
        share = float(rows.at_first.sum() / rows.count.sum())
        lines = [
            f"massive activations in dimension {few}: up to {number(rows.largest[0], 3)} after "
            f"block {int(rows.layer[0])}, {fixed(100 * share, 0)} % at the first token"
        ]
        if self.sinks is not None:
            later = self.layers > self.sinks.layer
            if bool(later.any()):
                value, without = (x[later].mean() for x in (self.sinks.value, self.sinks.without))
                lines.append(
                    f"mass on the first token after block {self.sinks.layer}: {fixed(value, 2)}, "
                    f"{fixed(without, 2)} with massive activations set to zero after each "
                    f"({counted(self.sinks.n, 'text')})"
                )
        return lines

    def _effect_lines(self) -> list[str]:
        if self.class_effects is None:
            return []
        size = self.class_effects.effect.abs().mean(-1)
        few = size.argsort(descending=True, stable=True)[:OF_EACH].tolist()
        texts = (f"{self.names[n]} {number(size[n], 3)}" for n in few)
        tokens = counted(len(self.class_effects.target), "token")
        return [
            f"largest |effect| of mean ablation on the surprisal of {tokens}, in nats: "
            f"{', '.join(texts)}"
        ]

    def column(self, statistic: str) -> int:
        """The index of a statistic.

        Raises:
            InvalidInput: it was not measured.
        """
        if statistic not in self.statistics:
            raise InvalidInput(
                f"{shorten(statistic)} was not measured; there are {', '.join(self.statistics)}."
            )
        return self.statistics.index(statistic)

    def _stack(self, unit: int) -> str:
        return f"{self.attentions[unit]}." if self.attentions[unit] else ""

    def _heads(self, units: object) -> dict[str, list[object]]:
        """The columns that name heads."""
        numbers = [int(n) for n in units]  # pyright: ignore[reportGeneralTypeIssues, reportUnknownArgumentType, reportUnknownVariableType]
        stacks: dict[str, list[object]] = {}
        if any(self.attentions):
            stacks["stack"] = [self.attentions[n] for n in numbers]
        return {
            **stacks,
            "layer": [int(self.layers[n]) for n in numbers],
            "head": [int(self.heads[n]) for n in numbers],
            "name": [self.names[n] for n in numbers],
        }


def _largest(rows: pd.DataFrame) -> pd.DataFrame:
    """The heads with the largest means of one statistic, whose controls may differ by head."""
    return rows.sort_values("mean", ascending=False, kind="stable").head(OF_EACH)
