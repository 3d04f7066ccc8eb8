"""Numbers as text: one minus sign and the same digits in summaries, tables and titles."""

from collections.abc import Iterable
from math import floor, isfinite, isnan, log10

MINUS = "\N{MINUS SIGN}"
NONE = "–"
"""Shown for a missing number."""
SMALLEST_Q = 0.001


def number(value: float, digits: int = 4, *, sign: bool = False) -> str:
    """A number with some significant digits, and a plus if asked for; a dash for NaN."""
    if isnan(value):
        return NONE
    return with_minus(f"{value + 0.0:{'+' if sign and value else ''}.{digits}g}")


def fixed(value: float, places: int) -> str:
    """A number with some decimals; zero has no sign, NaN is a dash."""
    if isnan(value):
        return NONE
    text = f"{value:.{places}f}"
    return with_minus(text) if float(text) else text.lstrip("-")


def signed(value: float, places: int) -> str:
    """As :func:`fixed`, with a plus before positive numbers."""
    text = fixed(value, places)
    return text if text == NONE or text[0] == MINUS or not float(text) else f"+{text}"


def percent(share: float) -> str:
    """A share as a whole percentage; a dash for NaN."""
    return NONE if isnan(share) else f"{fixed(100 * share, 0)} %"


def places_of(numbers: Iterable[float]) -> int:
    """The number of decimals that shows three digits of the largest number."""
    largest = max((abs(number) for number in numbers if isfinite(number)), default=0.0)
    return 3 if largest == 0 else min(8, max(1, 2 - floor(log10(largest))))


def interval_text(low: float, high: float, places: int) -> str:
    """An interval with signs and a number of decimals; a dash for NaN."""
    return NONE if isnan(low) else f"{signed(low, places)} to {signed(high, places)}"


def corrected(q: float) -> str:
    """A corrected p-value with three decimals; a dash for NaN."""
    return NONE if isnan(q) else "< 0.001" if q < SMALLEST_Q else f"{q:.3f}"


def counted(n: int, noun: str) -> str:
    """A number of things: ``1 prompt``, ``2 prompts``."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def with_minus(text: str) -> str:
    """The text of a number with a true minus sign."""
    return text.replace("-", MINUS)
