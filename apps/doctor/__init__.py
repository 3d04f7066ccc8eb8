"""``interp doctor``: checks whether an installation has all that interp needs, and gives advice.

Each check is a function from facts about a machine to a :class:`Finding`, so that it can be tested
with the facts of another machine. Packages that may be missing are imported inside the checks; a
check that raises an exception is reported like the others.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from apps.doctor import compute, places, software
from apps.doctor.finding import Finding, Mark, warning

__all__ = ["Finding", "Mark", "examine", "is_usable", "to_json"]

Check = Callable[[], Iterable[Finding]]


def examine() -> list[Finding]:
    """The findings of all checks, in the order in which they are printed."""
    return list(run_checks(checks()))


def checks() -> dict[str, Check]:
    """The checks by name; those that need torch only if it can be imported."""
    torch_failure = compute.import_failure()
    with_torch: dict[str, Check] = {
        "compute": compute.compute,
        "bundled models": lambda: [software.bundled_models()],
        "memory": places.memory_here,
    }
    return {
        "Python": lambda: [software.python()],
        "interp": lambda: [software.own_package()],
        "packages": lambda: software.packages(software.needed()),
        "optional packages": software.optional_packages,
        "import path": lambda: [software.hidden_packages(Path.cwd())],
        **(with_torch if torch_failure is None else {"torch": lambda: [torch_failure]}),
        "places": places.places,
    }


def run_checks(of: dict[str, Check]) -> Iterator[Finding]:
    """The findings of some checks; a check that raises an exception becomes a warning."""
    for name, check in of.items():
        try:
            yield from check()
        except Exception as error:  # any problem of a check is part of the report
            advice = "Report this as a bug, with the lines above."
            yield warning(name, f"the check failed: {type(error).__name__}: {error}", advice)


def is_usable(findings: Sequence[Finding]) -> bool:
    """Whether interp can be used: whether no finding is a failure."""
    return all(finding.mark is not Mark.FAILURE for finding in findings)


def to_json(findings: Sequence[Finding]) -> dict[str, object]:
    """The findings as plain data."""
    return {
        "usable": is_usable(findings),
        "checks": [
            {
                "check": finding.check,
                "mark": finding.mark.value,
                "found": finding.found,
                "advice": finding.advice,
            }
            for finding in findings
        ],
    }
