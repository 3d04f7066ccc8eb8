"""Tests of a table, as of wordings: one test goes through all rows and reports each that fails."""

from collections.abc import Callable, Iterable
from inspect import Parameter, Signature, signature
from typing import Any

import pytest

Test = Callable[..., None]
SUBTESTS = Parameter("subtests", Parameter.KEYWORD_ONLY, annotation=pytest.Subtests)


def each(names: str | tuple[str, ...], rows: Iterable[Any]) -> Callable[[Test], Test]:
    """As ``pytest.mark.parametrize``, but one test for all rows, which share its fixtures.

    So a row must find nothing that another changed: what a fixture makes is not made anew.
    """
    names, rows = ((names,), [(row,) for row in rows]) if isinstance(names, str) else (names, rows)
    table = [dict(zip(names, row, strict=True)) for row in rows]
    if not table:
        raise ValueError("A table without rows tests nothing.")

    def decorate(test: Test) -> Test:
        def all_rows(*, subtests: pytest.Subtests, **fixtures: Any) -> None:
            arguments = fixtures | ({"subtests": subtests} if "subtests" in parameters else {})
            for row in table:
                with subtests.test(**{name: str(value)[:80] for name, value in row.items()}):
                    test(**row, **arguments)

        parameters = signature(test).parameters
        rest = [parameters[name].replace(kind=Parameter.KEYWORD_ONLY) for name in parameters]
        rest = [parameter for parameter in rest if parameter.name not in (*names, "subtests")]
        all_rows.__signature__ = Signature([SUBTESTS, *rest])
        all_rows.__name__, all_rows.__doc__ = test.__name__, test.__doc__
        all_rows.__module__ = test.__module__
        return all_rows

    return decorate
