"""A report as Markdown, and its place in docs/reference/gpu.md."""

from pathlib import Path

from benchmarks.table import Mark, amount, write_between
from benchmarks.timing import Absent
from tools.gpu.facts import ROOT
from tools.gpu.marked_tests import Failure, TestReport
from tools.gpu.measurement import Measurement
from tools.gpu.report import DRY_RUN, Report, tally

DOCUMENT = ROOT / "docs" / "reference" / "gpu.md"
MARKERS = ("<!-- figures of tools.gpu -->", "<!-- end of figures -->")
NOT_RUN = "It has not been run on a GPU yet."
COLUMNS = ("work", "precision", "against", "ours", "theirs", "ratio", "mark", "rounds")
COLUMNS += ("largest difference", "")
GIB = 2**30


def to_markdown(report: Report) -> str:
    """The device, tests and table of a report as Markdown."""
    parts = [_origin(report)]
    if not report.is_complete:
        parts.append("**The run stopped before its end: rows are missing.**")
    if report.tests is not None:
        parts.append(_tests(report.tests))
    if report.measurements:
        parts += [_table(report.measurements), f"{tally(report.measurements)}."]
    if report.kernels:
        parts.append(f"Operations of a forward: {_kernels(report)}.")
    parts += [f"Raised an error: `{error.splitlines()[-1]}`" for error in report.errors]
    return "\n\n".join(parts)


def write_document(report: Report, path: Path) -> None:
    """Write a report between the markers of docs/reference/gpu.md.

    Raises:
        Absent: the report is not of a full-size run on CUDA, or the file has no markers.
    """
    if not report.is_cuda_run:
        raise Absent(f"this is a {DRY_RUN}; {path.name} holds only what was measured on CUDA")
    write_between(path, to_markdown(report), MARKERS)


def _origin(report: Report) -> str:
    """A sentence that describes the device and the software."""
    device, software = report.device, report.software
    packages = ", ".join(f"{name} {software[name] or 'unknown'}" for name in ("torch", "commit"))
    if not report.is_cuda_run:
        return f"**{DRY_RUN[0].upper()}{DRY_RUN[1:]}.** On {device['name']}, {packages}."
    return (
        f"Measured on one **{device['name']}** ({device['memory bytes'] / GIB:.0f} GiB, compute "
        f"capability {device['compute capability']}), driver {device['driver'] or 'unknown'}, "
        f"CUDA {device['cuda']}, {packages}, transformers {software['transformers']}, "
        f"{software['date'][:10]}, in {report.seconds:.0f} s."
    )


def _kernels(report: Report) -> str:
    """The operations of torch that compute a forward, for each precision."""
    return "; ".join(f"{name}: {used}" for name, used in report.kernels.items())


def _tests(tests: TestReport) -> str:
    lines = [f"{tests.summary()}."]
    if tests.stopped:
        lines.append(f"The tests ended early: {tests.stopped}.")
    for word, failures in (
        ("failed", tests.failed),
        ("skipped", tests.skipped),
        ("not collected", tests.not_collected),
    ):
        lines += [f"- {word}: `{failure.name}`: {_last_line(failure)}" for failure in failures]
    return "\n".join([lines[0], "", *lines[1:]]) if lines[1:] else lines[0]


def _last_line(failure: Failure) -> str:
    """The error of a failure, which pytest writes after ``E``; otherwise its last line."""
    lines = [line.strip() for line in failure.text.splitlines() if line.strip()]
    errors = [line[1:].strip() for line in lines if line.startswith("E ")]
    return _cell((errors or lines or ["no text"])[0 if errors else -1])


def _table(measurements: list[Measurement]) -> str:
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}"]
    lines += [f"| {' | '.join(map(_cell, _cells(m)))} |" for m in measurements]
    return "\n".join(lines)


def _cells(measurement: Measurement) -> list[str]:
    row = measurement.row
    difference = measurement.difference
    return [
        row.work,
        measurement.precision,
        row.against,
        amount(row.ours, row.unit),
        amount(row.theirs, row.unit),
        "" if row.ratio is None else (row.mark or Mark(0)).format(row.ratio),
        "" if row.mark is None else str(row.mark),
        str(row.rounds or ""),
        "" if difference is None else f"{difference:.1e} (≤ {measurement.tolerance:g})",
        "; ".join(filter(None, (measurement.verdict, row.note))),
    ]


def _cell(text: str) -> str:
    """The text on one line, with the characters that end a cell or begin HTML replaced."""
    return " ".join(text.split()).replace("|", "∣").replace("<", "‹")
