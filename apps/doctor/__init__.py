"""``interp doctor``: is everything here that interp needs, and what can be done where it is not?

Each check is a function of facts that gives a :class:`Finding`, so that it can be tested with the
facts of another machine. Nothing is imported here that may be missing: a check that raises is
reported like the others.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from apps.doctor import compute, places, software
from apps.doctor.finding import Finding, Mark, warning

__all__ = ["Finding", "Mark", "examine", "is_usable", "to_json"]

Check = Callable[[], Iterable[Finding]]


def examine() -> list[Finding]:
    """What every check found, in the order in which it is printed."""
    return list(run_checks(checks()))


def checks() -> dict[str, Check]:
    """The checks by name; those that need torch only if it can be imported."""
    lacking = compute.importable()
    with_torch: dict[str, Check] = {
        "compute": compute.compute,
        "bundled models": lambda: [software.bundled_models()],
        "memory": lambda: [places.memory_here()],
    }
    return {
        "Python": lambda: [software.python()],
        "interp": lambda: [software.own_package()],
        "packages": lambda: software.packages(software.needed()),
        "optional packages": software.optional_packages,
        "import path": lambda: [software.hidden_packages(Path.cwd())],
        **(with_torch if lacking is None else {"torch": lambda: [lacking]}),
        "places": places.places,
    }


def run_checks(of: dict[str, Check]) -> Iterator[Finding]:
    """The findings of some checks; one that raises is a warning."""
    for name, check in of.items():
        try:
            yield from check()
        except Exception as error:  # whatever is wrong here is what is asked for
            advice = "Report this as a bug, with the lines above."
            yield warning(name, f"not checked: {type(error).__name__}: {error}", advice)


def is_usable(findings: Sequence[Finding]) -> bool:
    """Whether nothing was found that makes interp unusable."""
    return all(one.mark is not Mark.FAILURE for one in findings)


def to_json(findings: Sequence[Finding]) -> dict[str, object]:
    """The findings as plain data."""
    return {
        "usable": is_usable(findings),
        "checks": [
            {"check": one.check, "mark": one.mark.value, "found": one.found, "advice": one.advice}
            for one in findings
        ],
    }
