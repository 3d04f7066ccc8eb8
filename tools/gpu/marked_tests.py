"""Run the GPU-marked tests in another process, and report the outcome of each.

pytest-timeout, hypothesis and beartype are used if they are installed, but not needed. Warnings are
reported, not turned into errors, since a newer CUDA build may have new ones.
"""

import ast
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

MARK = "gpu"
LONGEST = 1500
"""Number of characters of a failure that are kept, from its end."""
REGULAR = (0, 1, 5)
"""Exit codes of pytest: all passed, some failed, none was selected."""
CHECKED_PACKAGES = "--jaxtyping-packages=interp,analyses,beartype.beartype"


@dataclass(frozen=True)
class Failure:
    """The name of a test or a file that failed, and the end of its report."""

    name: str
    text: str


@dataclass(frozen=True)
class TestReport:
    """The outcomes of all marked tests.

    Attributes:
        collected: number of marked tests that were found.
        passed: number of tests that passed.
        failed: the tests that failed.
        skipped: the tests that were skipped, with the reasons.
        not_run: names of the tests that were collected but did not run.
        why_not_run: why they did not run.
        not_collected: files with the mark that could not be imported, or had no marked test.
        seconds: duration of the run.
        annotations_checked: whether shapes were checked at run time (with beartype).
        warnings: number of times that each warning was issued.
        stopped: why the run ended early; empty if it did not.
    """

    __test__ = False  # no test class for pytest

    collected: int = 0
    passed: int = 0
    failed: tuple[Failure, ...] = ()
    skipped: tuple[Failure, ...] = ()
    not_run: tuple[str, ...] = ()
    why_not_run: str = ""
    not_collected: tuple[Failure, ...] = ()
    seconds: float = 0.0
    annotations_checked: bool = False
    warnings: dict[str, int] = field(default_factory=dict)
    stopped: str = ""

    @property
    def all_collected(self) -> bool:
        """Whether every marked test was found, none failed, and pytest ran to completion."""
        broken = self.failed or self.not_collected or self.stopped
        return self.collected > 0 and not broken

    @property
    def all_passed(self) -> bool:
        """Whether every marked test was found and passed."""
        return self.all_collected and self.collected == self.passed

    def summary(self) -> str:
        """One line that accounts for all tests."""
        counts = (
            f"{self.passed} passed",
            f"{len(self.failed)} failed",
            f"{len(self.skipped)} skipped",
            f"{len(self.not_run)} not run" + f" ({self.why_not_run})" * bool(self.not_run),
            f"{len(self.not_collected)} files not collected",
        )
        return f"{self.collected} GPU-marked tests: {', '.join(counts)}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "TestReport":
        """The inverse of :meth:`to_dict`."""
        lists = {
            name: tuple(Failure(**entry) for entry in data[name])
            for name in ("failed", "skipped", "not_collected")
        }
        return cls(**{**data, **lists, "not_run": tuple(data["not_run"])})


def run_marked_tests(root: Path, log: Path, limit: float, why_not_run: str) -> TestReport:
    """Run every marked test in ``root / "tests"``.

    Args:
        root: the folder of the project.
        log: the file in which pytest's output is written.
        limit: time limit in seconds.
        why_not_run: the reason if tests are deselected; empty if none should be.
    """
    files = marked_files(root)
    if not files:
        return TestReport(stopped=f"no file in {root / 'tests'} has the mark")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.jsonl"
        path.touch()
        begun = time.perf_counter()
        stopped = _run(_command(files, path), root, log, limit)
        seconds = time.perf_counter() - begun
        events = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    names = [str(file.relative_to(root)) for file in files]
    report = _report(events, names, stopped)
    left_out = why_not_run or stopped or "pytest left them out"
    return replace(
        report, seconds=seconds, stopped=stopped, why_not_run=left_out if report.not_run else ""
    )


def marked_files(root: Path) -> list[Path]:
    """Test files that use the mark in their code."""
    return [file for file in sorted((root / "tests").rglob("test_*.py")) if _is_marked(file)]


def _is_marked(file: Path) -> bool:
    text = file.read_text(encoding="utf-8")
    if f"mark.{MARK}" not in text:
        return False
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except SyntaxError:
        return True  # pytest reports the error
    uses = [node.value for node in nodes if isinstance(node, ast.Attribute) and node.attr == MARK]
    return any(isinstance(value, ast.Attribute) and value.attr == "mark" for value in uses)


def _checks_annotations() -> bool:
    return importlib.util.find_spec("beartype") is not None


def _command(files: Sequence[Path], events: Path) -> list[str]:
    """The command without the options of pyproject.toml, whose packages may be missing."""
    command = [sys.executable, "-m", "pytest", "-p", "tools.gpu.plugin"]
    command += ["-p", "no:cacheprovider", "-o", "addopts=", "-o", "filterwarnings="]
    command += ["-m", MARK, "-q", "--tb=short", "--continue-on-collection-errors"]
    command += [CHECKED_PACKAGES] * _checks_annotations()
    return [*command, f"--gpu-events={events}", *map(str, files)]


def _run(command: list[str], root: Path, log: Path, limit: float) -> str:
    """Run pytest, and return why it ended early; empty if it did not."""
    paths = [str(Path(__file__).parents[2]), str(root), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with log.open("w", encoding="utf-8") as output:
        try:
            done = subprocess.run(
                command,
                cwd=root,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"stopped after {limit:.0f} s"
    if done.returncode in REGULAR:
        return ""
    return f"pytest ended with code {done.returncode}; see {log.name}"


def _report(events: Iterable[dict[str, Any]], files: Sequence[str], stopped: str) -> TestReport:
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        by_kind.setdefault(event["event"], []).append(event)
    collected = [event["test"] for event in by_kind.get("collected", [])]
    outcomes: dict[str, dict[str, Any]] = {}
    for event in by_kind.get("outcome", []):
        if outcomes.get(event["test"], {}).get("outcome") != "failed":
            outcomes[event["test"]] = event
    broken = [Failure(e["file"], _end(e["text"])) for e in by_kind.get("not collected", [])]
    reported = {test.partition("::")[0] for test in collected}
    reported |= {failure.name for failure in broken}
    if not stopped:
        others = [file for file in files if file not in reported]
        broken += [Failure(file, "no marked test was found in it") for file in others]

    def of(outcome: str) -> tuple[Failure, ...]:
        matching = [event for event in outcomes.values() if event["outcome"] == outcome]
        return tuple(Failure(event["test"], _end(event["text"])) for event in matching)

    return TestReport(
        collected=len(collected),
        passed=len(of("passed")),
        failed=of("failed"),
        skipped=of("skipped"),
        not_run=tuple(test for test in collected if test not in outcomes),
        not_collected=tuple(broken),
        annotations_checked=_checks_annotations(),
        warnings=dict(Counter(_end(event["text"]) for event in by_kind.get("warning", []))),
    )


def _end(text: str) -> str:
    return text if len(text) <= LONGEST else f"… {text[-LONGEST:]}"
