"""Numbers as text: one minus sign and the same digits in summaries, tables, titles and hovers."""

from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Context
from math import floor, isfinite, isinf, isnan, log10
from typing import SupportsFloat

MINUS = "\N{MINUS SIGN}"
NONE = "–"
"""Shown for a missing number."""
SMALLEST_Q = 0.001
LEAST_EXPONENT, MOST_EXPONENT = -4, 6
"""Powers of ten that are written without an exponent: from the first, below the second."""


def number(value: SupportsFloat, digits: int = 4, *, sign: bool = False) -> str:
    """A number with some significant digits, and a plus if asked for; a dash for NaN.

    Numbers below 0.0001, and those from a million on, have an exponent. Ties are rounded away from
    zero, as ``readable`` of ``apps/widget/data.js`` does, which is the same function.
    """
    value = float(value)
    if isnan(value):
        return NONE
    plus = "+" if sign and value > 0 else ""
    if isinf(value):
        return f"{plus}∞" if value > 0 else f"{MINUS}∞"
    rounded = Context(prec=digits, rounding=ROUND_HALF_UP).create_decimal(value).normalize()
    exponent = rounded.adjusted()
    if not rounded:
        return "0"
    if LEAST_EXPONENT <= exponent < MOST_EXPONENT:
        text = f"{rounded:f}"
    else:
        text = f"{rounded.scaleb(-exponent):f}e{exponent}"
    return plus + with_minus(text)


def fixed(value: SupportsFloat, places: int) -> str:
    """A number with some decimals; zero has no sign, NaN is a dash."""
    value = float(value)
    if isnan(value):
        return NONE
    text = f"{value:.{places}f}"
    return with_minus(text) if float(text) else text.lstrip("-")


def signed(value: SupportsFloat, places: int) -> str:
    """As :func:`fixed`, with a plus before positive numbers."""
    text = fixed(value, places)
    return text if text == NONE or text[0] == MINUS or not float(text) else f"+{text}"


def percent(share: SupportsFloat, places: int = 0) -> str:
    """A share as a percentage with some decimals; a dash for NaN."""
    share = float(share)
    return NONE if isnan(share) else f"{fixed(100 * share, places)} %"


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
