"""The contents of a report, as data."""

from collections.abc import Sequence
from dataclasses import dataclass

from analyses.results import Result


@dataclass(frozen=True)
class ReportPrompt:
    """A prompt in a report.

    Attributes:
        tokens: printable labels of its tokens.
        target: printable label of the target, if the analysis reads one.
        distractor: printable label of the distractor, if the analysis reads one.
        corrupt: labels of the corrupted prompt's tokens, if the analysis reads one.
        note: text below the prompt.
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
        result: the result of the analysis.
        prompts: the prompts, in the order of the result.
        facts: entries that are listed with the result's provenance.
        home: the address of the index of the site; ``""`` if the report belongs to none.
    """

    result: Result
    prompts: Sequence[ReportPrompt]
    facts: dict[str, str]
    home: str = ""
