"""What one check found, and what to do about it."""

from dataclasses import dataclass
from enum import StrEnum


class Mark(StrEnum):
    """Whether something has to be done."""

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
        check: what was checked.
        mark: whether something has to be done.
        found: what was found.
        advice: what to do; empty where there is nothing to do.
    """

    check: str
    mark: Mark
    found: str
    advice: str = ""

    def row(self) -> tuple[str, str, str]:
        """The cells of a table: symbol, check, and what was found above what to do."""
        advice = f"\n→ {self.advice}" if self.advice else ""
        return SYMBOLS[self.mark], self.check, f"{self.found}{advice}"


def as_expected(check: str, found: str) -> Finding:
    """Nothing has to be done."""
    return Finding(check, Mark.OK, found)


def warning(check: str, found: str, advice: str) -> Finding:
    """Something is missing, slow or limited."""
    return Finding(check, Mark.WARNING, found, advice)


def failure(check: str, found: str, advice: str) -> Finding:
    """Something makes interp unusable."""
    return Finding(check, Mark.FAILURE, found, advice)
