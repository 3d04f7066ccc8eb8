"""Dates in three formats, each token labelled with its field (year, month, day), and ISO 8601."""

from dataclasses import dataclass
from datetime import date

MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September"),
    *("October", "November", "December"),
)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SUFFIXES = ("st", "nd", "rd", "th")
FORMATS = ("words", "digits", "weekday")

Piece = tuple[str, str]
"""A token and its field: ``year``, ``month``, ``day``, or ``""`` for no field."""


@dataclass(frozen=True)
class WrittenDate:
    """A date written in one format.

    Attributes:
        day: the date.
        pieces: the tokens, each with its field.
    """

    day: date
    pieces: tuple[Piece, ...]

    @classmethod
    def of(cls, day: date, name: str) -> "WrittenDate":
        """The date in one of ``FORMATS``."""
        write = {"words": _words, "digits": _digits, "weekday": _weekday}[name]
        return cls(day, tuple(write(day)))

    @property
    def text(self) -> str:
        """The source text."""
        return "".join(token for token, _ in self.pieces)

    @property
    def fields(self) -> list[str]:
        """The field of each token."""
        return [field for _, field in self.pieces]

    @property
    def iso(self) -> str:
        """The target text, year-month-day."""
        return self.day.isoformat()


def suffix(day: int) -> str:
    """The ordinal suffix of a day of the month."""
    teens = range(10, 20)
    return "th" if day in teens else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")


def _words(day: date) -> list[Piece]:
    """3 March 2021."""
    month = (MONTHS[day.month - 1], "month")
    return [*_each(str(day.day), "day"), _SPACE, month, _SPACE, *_each(str(day.year), "year")]


def _digits(day: date) -> list[Piece]:
    """03/03/21, day first."""
    slash = ("/", "")
    numbers = _each(f"{day.day:02}", "day"), _each(f"{day.month:02}", "month")
    return [*numbers[0], slash, *numbers[1], slash, *_each(f"{day.year % 100:02}", "year")]


def _weekday(day: date) -> list[Piece]:
    """Wednesday, March 3rd 2021."""
    front = [(WEEKDAYS[day.weekday()], ""), (",", ""), _SPACE, (MONTHS[day.month - 1], "month")]
    number = [*_each(str(day.day), "day"), (suffix(day.day), "")]
    return [*front, _SPACE, *number, _SPACE, *_each(str(day.year), "year")]


_SPACE: Piece = (" ", "")


def _each(digits: str, field: str) -> list[Piece]:
    return [(digit, field) for digit in digits]
