"""The outcome of one check, and what to do about it."""

from dataclasses import dataclass
from enum import StrEnum


class Mark(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    """Something is missing, slow or limited; the rest works."""
    FAILURE = "failure"
    """interp can't be used."""


SYMBOLS = {Mark.OK: "✓", Mark.WARNING: "!", Mark.FAILURE: "✗"}


@dataclass(frozen=True)
class Finding:
    """The outcome of a check.

    Attributes:
        check: the name of the check.
        mark: the severity.
        found: what the check found.
        advice: what to do; empty if nothing has to be done.
    """

    check: str
    mark: Mark
    found: str
    advice: str = ""

    def row(self) -> tuple[str, str, str]:
        """The cells of its row in a table: symbol, name of the check, finding and advice."""
        advice = f"\n→ {self.advice}" if self.advice else ""
        return SYMBOLS[self.mark], self.check, f"{self.found}{advice}"


def as_expected(check: str, state: str) -> Finding:
    """A finding with which nothing has to be done."""
    return Finding(check, Mark.OK, state)


def warning(check: str, state: str, advice: str) -> Finding:
    """A finding of something that is missing, slow or limited."""
    return Finding(check, Mark.WARNING, state, advice)


def failure(check: str, state: str, advice: str) -> Finding:
    """A finding of something that makes interp unusable."""
    return Finding(check, Mark.FAILURE, state, advice)
