"""Labels of heads: what a head does for an answer, where three kinds of evidence agree.

    label                      attends to      direct effect            ablation
    moves the target           target          raises the target        lowers the difference
    suppresses the distractor  distractor      lowers the distractor    lowers the difference
    helps, attends elsewhere   another class   raises the difference    lowers the difference
    works against the answer   any class       lowers the difference    raises the difference
    acts indirectly            –               none                     large
    direct only                any class       large                    none

The rules are data (:data:`RULES`), tried in this order. Without a label, ``missing`` says which
evidence there is not, or which contradicts the rest.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isnan

TARGET, DISTRACTOR = "target", "distractor"
MOVES, SUPPRESSES = "moves the target", "suppresses the distractor"
ELSEWHERE, AGAINST = "helps, attends elsewhere", "works against the answer"
INDIRECT, DIRECT_ONLY = "acts indirectly", "direct only"


@dataclass(frozen=True)
class Evidence:
    """The evidence for the label of a head.

    Attributes:
        attends: the class of tokens that the head attends to most above uniform; ``""`` for none.
        to_target: mean direct effect on the target's logit.
        to_distractor: mean direct effect on the distractor's logit.
        direct: sign of the direct effect on the difference; 0 for none.
        ablation: sign of the effect of ablation on the difference; 0 for none, NaN if it was not
            measured.
        is_large_directly: whether the direct effect is large.
        is_large_by_ablation: whether the effect of ablation is.
    """

    attends: str
    to_target: float
    to_distractor: float
    direct: int
    ablation: float
    is_large_directly: bool
    is_large_by_ablation: bool

    @property
    def by_target(self) -> bool:
        """Whether more of the direct effect is on the target's logit than on the distractor's."""
        return abs(self.to_target) >= abs(self.to_distractor)

    @property
    def helps(self) -> bool:
        """Whether the direct effect raises the difference, and ablation lowers it."""
        return self.direct > 0 and self.ablation < 0


@dataclass(frozen=True)
class Rule:
    """A label and the evidence that it needs."""

    label: str
    holds: Callable[[Evidence], bool]


RULES = (
    Rule(
        MOVES,
        lambda e: e.helps and e.attends == TARGET and e.by_target and e.to_target > 0,
    ),
    Rule(
        SUPPRESSES,
        lambda e: e.helps and e.attends == DISTRACTOR and not e.by_target and e.to_distractor < 0,
    ),
    Rule(ELSEWHERE, lambda e: e.helps and e.attends not in ("", TARGET, DISTRACTOR)),
    Rule(AGAINST, lambda e: e.attends != "" and e.direct < 0 < e.ablation),
    Rule(INDIRECT, lambda e: e.direct == 0 and e.is_large_by_ablation and e.ablation != 0),
    Rule(
        DIRECT_ONLY,
        lambda e: e.attends != "" and e.direct != 0 and e.is_large_directly and e.ablation == 0,
    ),
)


def label_of(evidence: Evidence) -> tuple[str, str]:
    """The label of a head, and without one what is missing."""
    label = next((rule.label for rule in RULES if rule.holds(evidence)), "")
    return label, "" if label else _missing(evidence)


def _missing(e: Evidence) -> str:
    """Which evidence a head lacks for a label, or which contradicts the rest."""
    if isnan(e.ablation):
        return "ablation was not measured"
    if not e.direct:
        return "no effect" if not e.ablation else "no direct effect, a small one of ablation"
    if not e.ablation:
        return "no effect of ablation"
    if e.direct * e.ablation > 0:
        direction = "raise" if e.direct > 0 else "lower"
        return f"both the head and its ablation {direction} the difference"
    if not e.attends:
        return "attends to no class"
    written = "the target" if e.by_target else "the distractor"
    return f"attends to the {e.attends}, and writes for {written}"
