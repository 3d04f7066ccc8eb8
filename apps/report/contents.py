"""What a report is made of."""

from collections.abc import Sequence
from dataclasses import dataclass

from analyses.result import Result


@dataclass(frozen=True)
class ReportPrompt:
    """A prompt in a report.

    Attributes:
        tokens: printable labels of its tokens.
        target: printable label of the target, if the analysis reads one.
        distractor: printable label of the distractor, likewise.
        corrupt: labels of the corrupted prompt's tokens, likewise.
        note: shown below it.
    """

    tokens: tuple[str, ...]
    target: str | None = None
    distractor: str | None = None
    corrupt: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, eq=False)
class Report:
    """The contents of a report.

    Attributes:
        result: of the analysis.
        prompts: in the order of the result.
        facts: entries listed beside the result's provenance.
        home: the address of the index of a site; "" without one.
    """

    result: Result
    prompts: Sequence[ReportPrompt]
    facts: dict[str, str]
    home: str = ""
