"""How are dates written? In words, in digits, and as ISO 8601 has it.

Each piece of a text knows which part of the date it tells, so that attention to it can be scored.
"""

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
"""A token, and the part of the date that it tells: ``year``, ``month``, ``day`` or nothing."""


@dataclass(frozen=True)
class Written:
    """A date as it is written in one format.

    Attributes:
        day: which date.
        pieces: the tokens, each with the part that it tells.
    """

    day: date
    pieces: tuple[Piece, ...]

    @classmethod
    def of(cls, day: date, name: str) -> "Written":
        """The date in one of ``FORMATS``."""
        make = {"words": _words, "digits": _digits, "weekday": _weekday}[name]
        return cls(day, tuple(make(day)))

    @property
    def text(self) -> str:
        """As it is read."""
        return "".join(token for token, _ in self.pieces)

    @property
    def fields(self) -> list[str]:
        """The part of the date that each token tells."""
        return [field for _, field in self.pieces]

    @property
    def iso(self) -> str:
        """As it is to be written: year-month-day."""
        return self.day.isoformat()


def suffix(day: int) -> str:
    """What makes a number of a month's day an ordinal."""
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
