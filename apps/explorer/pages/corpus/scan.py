"""The scan of the page Corpus: its questions, what it costs, and when it starts by itself."""

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import interp
from analyses import HeadScan, ScanEstimate, estimate_scan_heads, scan_heads
from analyses.methods.components import components_of
from apps.explorer.forward_cost import LONG
from apps.explorer.page import JOBS, Ask
from apps.explorer.pages.corpus.texts import texts_of
from apps.explorer.questions import Question, question
from apps.explorer.view import View
from interp.execution import size_of

ESTIMATE, SCAN, EFFECTS = "estimate", "scan", "ablation effects"
"""Names of questions."""
SHORT = 60.0
"""Seconds up to which a scan starts by itself."""
TYPICAL, MOST_ROWS = 8, 64
"""Tokens by which forwards are sized, so that one takes about two seconds, and its most texts."""
TARGETS, CONTEXT = 48, 48
"""The most tokens on which ablations are measured, and of the context of each."""


@dataclass(frozen=True)
class Cost:
    """What the next question takes.

    Attributes:
        seconds: its time; of ablations, an upper bound.
        nbytes: the most bytes that are kept.
    """

    seconds: float
    nbytes: int


@dataclass(frozen=True)
class Scan:
    """The questions of a view, and which of them is next.

    Attributes:
        estimate: the estimate of the scan.
        plain: the scan without effects.
        effects: the scan with effects; ``None`` if they were not asked for.
        n_heads: number of heads.
        n_texts: number of texts.
        requested: whether the visitor has asked for this very scan.
    """

    estimate: Question
    plain: Question
    effects: Question | None
    n_heads: int
    n_texts: int
    requested: bool

    @classmethod
    def of(cls, view: View, model: interp.Transformer) -> "Scan":
        """The questions of a view.

        Raises:
            InvalidInput: its texts can't be read.
        """
        texts = texts_of(view, model)

        def asked(function: Any, **settings: object) -> Question:  # noqa: ANN401 - an analysis
            how = {"offsets": view.offsets, "rows": rows_of(model), **settings}
            return question(function, view.model, texts, **how)

        measures_effects = view.effects and has_effects(model)
        return cls(
            asked(estimate_scan_heads),
            asked(scan_heads),
            asked(scan_heads, effects=True) if measures_effects else None,
            len(components_of(model).heads),
            len(texts[0] if isinstance(texts, tuple) else texts),
            view.scanned == request_of(view),
        )

    @property
    def next(self) -> tuple[str, Question] | None:
        """The name and the question of what is not computed yet; the plain scan comes first."""
        named = {SCAN: self.plain, EFFECTS: self.effects}
        return next(
            ((name, each) for name, each in named.items() if each and not _result_of(each)), None
        )

    @property
    def cost(self) -> Cost | None:
        """What the next question takes; ``None`` if it is not estimated, or nothing is left."""
        estimate, following = _result_of(self.estimate), self.next
        if not isinstance(estimate, ScanEstimate) or following is None:
            return None
        more = self.effects_seconds if following[0] == EFFECTS else 0
        return Cost(estimate.seconds + (more or 0), estimate.nbytes)

    @property
    def effects_seconds(self) -> float | None:
        """The most seconds that the ablations take; ``None`` if nothing is estimated."""
        estimate = _result_of(self.estimate)
        if not isinstance(estimate, ScanEstimate):
            return None
        return self.n_heads * TARGETS * CONTEXT / estimate.tokens_per_second

    @property
    def problem(self) -> str:
        """Why the next question would not fit the memory; empty if it does."""
        budget = JOBS.store.max_bytes
        if self.cost is None or self.cost.nbytes <= budget:
            return ""
        return (
            f"This scan would keep up to {size_of(self.cost.nbytes)}, and the explorer may keep "
            f"{size_of(budget)}. Choose fewer offsets, or start interp explore with more --memory."
        )

    @property
    def starts(self) -> bool:
        """Whether the next question runs: it was requested, or takes little time."""
        cost = self.cost
        return self.requested or (cost is not None and cost.seconds <= SHORT)

    @property
    def has_failed(self) -> bool:
        """Whether the next question was asked and failed."""
        following = self.next
        return following is not None and JOBS.is_settled(following[1])

    def asks(self) -> list[Ask]:
        """The questions that are answered or whose turn it is."""
        following = self.next
        done = {SCAN: self.plain, EFFECTS: self.effects}
        asked = [
            Ask(name, each, long=True) for name, each in done.items() if each and _result_of(each)
        ]
        if following is None:
            return asked
        if self.cost is None:
            return [*asked, Ask(ESTIMATE, self.estimate, long=True)]
        if self.problem:
            return [*asked, Ask(following[0], self.problem)]
        return [*asked, Ask(*following, long=True)] if self.starts else asked


def so_far(scan: Scan) -> HeadScan | None:
    """What is known: with effects, without, or of the texts so far."""
    results = [
        *(_result_of(each) for each in (scan.effects, scan.plain) if each is not None),
        JOBS.store.get(("partial", scan.plain)),
    ]
    return next((result for result in results if isinstance(result, HeadScan)), None)


def rows_of(model: interp.Transformer) -> int:
    """Texts per forward: few of a large model, so that cancelling it takes no longer."""
    weights = sum(weight.numel() for weight in model.parameters())
    return int(min(max(LONG / weights / TYPICAL, 1), MOST_ROWS))


def has_effects(model: interp.Transformer) -> bool:
    """Whether the effects of ablations are measured on this model: it predicts next tokens."""
    return len(model.stacks) == 1 and model.config.is_causal


def request_of(view: View) -> str:
    """A name of the scan that a view asks for, which differs if its settings do."""
    settings = (view.model, view.corpus, view.pasted, view.most, view.offsets, view.effects)
    return sha256(repr(settings).encode()).hexdigest()[:12]


def _result_of(asked: Question) -> Any:  # noqa: ANN401 - a result, or an estimate
    return JOBS.store.get(asked)
