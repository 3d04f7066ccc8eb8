"""The terms of a score by pairs of features, as tables, figure and text."""

from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.explain_scores.feature_pairs import FeaturePairs
from analyses.explain_scores.score_terms import FIRST, POSITIONS, REST, ScoreTerms, pair_name
from analyses.results import (
    Bars,
    Drawing,
    counted,
    effect_frame,
    effect_lines,
    interval,
    percent,
    places_of_effects,
    signed,
)
from interp.integers import at_least

BARS = 30
"""The most pairs of a figure."""
FALSE_DISCOVERY_RATE = 0.05


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FeatureScoreTerms(ScoreTerms):
    """A head's score of a key, as the sum of the terms of pairs of features and other writers.

    As :class:`ScoreTerms`, with an axis of pairs in place of two axes of writers: the largest
    pairs, and all others as one sum.

    Attributes:
        effect: the term of each pair that is kept, the largest mean |term| first.
        control: the same terms for a visible key drawn at random; NaN if there is no other.
        pairs: of each pair, the indices of its writers in ``query_writers`` and ``key_writers``.
        rest: the sum of the terms of all other pairs.
        n_rest: the number of other pairs whose term is not zero.
        query_effect: of each writer of queries, the sum of its terms with all writers of keys.
        key_effect: likewise, of each writer of keys.
    """

    effect: Float[Tensor, "pair prompt"]
    control: Float[Tensor, "pair prompt"]
    pairs: Int[Tensor, "pair 2"]
    rest: Float[Tensor, " prompt"]
    n_rest: int
    query_effect: Float[Tensor, "query_writer prompt"]
    key_effect: Float[Tensor, "key_writer prompt"]

    @property
    def error(self) -> float:
        """The largest difference between Σ terms and ``value``, over the prompts, in nats."""
        total = self.effect.sum(0) + self.rest + self.position_bias
        return (total - self.value).abs().max().item()

    def to_frame(self) -> pd.DataFrame:
        """One row per pair that is kept, largest size first, then the sum of all others.

        Columns:
            name, query_writer, key_writer: the pair; biases of positions are one more, and all
                other pairs the last.
            effect, low, high, size, share, n, p, control: as in :meth:`ScoreTerms.to_frame`.
            q, significant: likewise, corrected for the number of all pairs, of which these are the
                largest.
        """
        pairs = [(self.query_writers[a], self.key_writers[b]) for a, b in self.pairs.tolist()]
        effect, control = self.effect, self.control
        if self.position_bias.any():
            pairs.append((POSITIONS, POSITIONS))
            effect = torch.cat([effect, self.position_bias[None]])
            control = torch.cat([control, torch.full_like(control[:1], torch.nan)])
        frame = self._frame_of(pairs, effect, control)
        frame["q"] = (frame["q"] * ((len(frame) + self.n_rest) / len(frame))).clip(upper=1.0)
        frame["significant"] = frame["q"] <= FALSE_DISCOVERY_RATE
        if not self.n_rest:
            return frame
        none = torch.full_like(self.rest[None], torch.nan)
        rest = self._frame_of([(REST, REST)], self.rest[None], none)
        return pd.concat([frame, rest], ignore_index=True)

    def to_writer_frame(self) -> pd.DataFrame:
        """One row per writer and side: the sum of its terms in all pairs, largest size first.

        Columns:
            end, writer, effect, low, high, size, share, n, p, q, significant: as in
                :meth:`ScoreTerms.to_writer_frame`.
        """
        sides = {"query": self.query_writers, "key": self.key_writers}
        cells = {
            "end": [end for end, names in sides.items() for _ in names],
            "writer": [name for names in sides.values() for name in names],
        }
        sums = torch.cat([self.query_effect, self.key_effect])
        return effect_frame(cells, sums, self._noise, metric=self.value)

    def drawing(self) -> Drawing:
        """The mean terms of the largest pairs, and the sum of all other pairs."""
        frame = self.to_frame()
        first = interval(self.effect[:BARS], self._noise)
        others = self.effect[BARS:].sum(0) + self.rest + self.position_bias
        rest = interval(others[None], self._noise)
        has_rest = self.n_rest > 0 or len(self.effect) > BARS or bool(self.position_bias.any())
        columns = (
            torch.cat([part, of_rest]) if has_rest else part
            for part, of_rest in (
                (first.mean, rest.mean),
                (first.low, rest.low),
                (first.high, rest.high),
            )
        )
        labels = [
            pair_name(self.query_writers[a], self.key_writers[b])
            for a, b in self.pairs[:BARS].tolist()
        ]
        return Bars(
            *columns,
            title=f"{self.name} {self._where}: terms of the score {self._compared}".rstrip(),
            labels=[*labels, REST] if has_rest else labels,
            unit="nats",
            places=places_of_effects(frame),
        )

    def summary(self, top: int = 10) -> str:
        """The score, the ``top`` pairs, the sum of all others, and how exactly they sum to it."""
        top = at_least(1, top, "top")
        frame = self.to_frame()
        lines = effect_lines(frame[frame["name"] != REST], "nats", "pairs", top)
        cap = f", before their soft-cap of {self.soft_cap:g}" if self.soft_cap else ""
        exact = (
            f"{counted(len(self.pairs), 'pair')} of {len(self.query_writers)} × "
            f"{len(self.key_writers)} writers, and {self._rest_text()}, sum to it within "
            f"{self.error:.1e} nats{cap}; a × b: written by a at the query, by b at the key"
        )
        return "\n".join([self.headline(), *lines, exact, *self.notes])

    def conclusion(self) -> list[str]:
        """See :meth:`Result.conclusion`."""
        return [self.headline()]

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        frame = self.to_frame()
        frame = frame[(frame["size"] > self._noise) & (frame["name"] != REST)]
        pairs = (
            f"{row['name']} {signed(row['effect'], 2)} ({percent(row['share'])})"
            for row in frame.head(FIRST).to_dict("records")
        )
        return f"{self.score_line}: {', '.join(pairs)}; {self._rest_text()}"

    # ---- lines and tables --------------------------------------------------------------------

    @property
    def _pairs(self) -> Float[Tensor, "pair prompt"]:
        return self.effect

    def _rest_text(self) -> str:
        """The number of pairs that are not kept, and their sum."""
        if not self.n_rest:
            return "no other pairs"
        return f"{counted(self.n_rest, 'other pair')} {signed(self.rest.mean(), 2)} together"

    def _frame_of(
        self,
        pairs: list[tuple[str, str]],
        effect: Float[Tensor, "row prompt"],
        control: Float[Tensor, "row prompt"],
    ) -> pd.DataFrame:
        columns = {
            "name": [pair_name(*pair) for pair in pairs],
            "query_writer": [query for query, _ in pairs],
            "key_writer": [key for _, key in pairs],
            "control": control.double().abs().nanmean(-1).tolist(),
        }
        frame = effect_frame(columns, effect, self._noise, metric=self.value)
        frame["control"] = frame.pop("control")
        return frame


def pair_fields(pairs: FeaturePairs) -> dict[str, object]:
    """The fields of a result that are those of pairs."""
    return {
        "effect": pairs.effect,
        "control": pairs.control,
        "query_writers": tuple(part.name for part in pairs.query),
        "key_writers": tuple(part.name for part in pairs.key),
        "pairs": pairs.pairs,
        "rest": pairs.rest,
        "n_rest": pairs.n_rest,
        "query_effect": pairs.query_effect,
        "key_effect": pairs.key_effect,
    }
