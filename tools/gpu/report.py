"""The report of one run of the command, written to ``gpu.json`` after every measurement."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.timing import Absent
from tools.gpu.marked_tests import TestReport
from tools.gpu.measurement import Measurement

DRY_RUN = "dry run on a tiny model: not a measurement of a GPU"
CUDA_RUN = "measured on CUDA"


@dataclass
class Report:
    """The device, tests and measurements of a run.

    Attributes:
        device: the result of :func:`~tools.gpu.facts.device_facts`.
        software: the result of :func:`~tools.gpu.facts.software_facts`.
        quick: whether the models were tiny.
        tests: the outcomes of the GPU-marked tests; ``None`` until they have run.
        measurements: the rows so far.
        kernels: the operations of torch that a forward used at each precision.
        errors: tracebacks of parts that raised errors.
        seconds: time since the start.
        is_complete: whether the run finished with all its parts.
    """

    device: dict[str, Any]
    software: dict[str, Any]
    quick: bool
    tests: TestReport | None = None
    measurements: list[Measurement] = field(default_factory=list)
    kernels: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0
    is_complete: bool = False

    @property
    def is_cuda_run(self) -> bool:
        """Whether a GPU was measured with models of full size."""
        return self.device.get("type") == "cuda" and not self.quick

    @property
    def is_good(self) -> bool:
        """Whether the run is complete, no part raised an error, and every marked test passed.

        Without CUDA, no marked test can run; it is then sufficient that all were collected.
        """
        if self.errors or not self.is_complete:
            return False
        if self.tests is None:
            return True
        on_cuda = self.device.get("type") == "cuda"
        return self.tests.all_passed if on_cuda else self.tests.all_collected

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "kind": CUDA_RUN if self.is_cuda_run else DRY_RUN,
            "complete": self.is_complete,
            "quick": self.quick,
            "seconds": self.seconds,
            "device": self.device,
            "software": self.software,
            "kernels": self.kernels,
            "tests": None if self.tests is None else self.tests.to_dict(),
            "rows": [measurement.to_dict() for measurement in self.measurements],
            "errors": self.errors,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Report":
        """The inverse of :meth:`to_dict`."""
        tests = data["tests"]
        return cls(
            device=data["device"],
            software=data["software"],
            quick=data["quick"],
            tests=None if tests is None else TestReport.from_dict(tests),
            measurements=[Measurement.from_dict(row) for row in data["rows"]],
            kernels=data["kernels"],
            errors=data["errors"],
            seconds=data["seconds"],
            is_complete=data["complete"],
        )

    def save(self, path: Path) -> None:
        """Write the report atomically: a killed run leaves the previous file intact."""
        partial = path.with_suffix(".part")
        text = json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
        partial.write_text(text + "\n", encoding="utf-8")
        partial.replace(path)


def read_report(path: Path) -> Report:
    """Read a file written by :meth:`Report.save`.

    Raises:
        Absent: the file was not written by it.
    """
    try:
        return Report.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, KeyError) as error:
        raise Absent(f"{path} is not a gpu.json of this command: {error!r}") from error


def tally(measurements: Sequence[Measurement]) -> str:
    """How many marks hold, are missed or were not judged, and whether values agree."""
    marked = [m.row.verdict for m in measurements if m.row.mark is not None]
    holding, missed = marked.count("holds"), marked.count("misses")
    compared = [m.agrees for m in measurements if m.agrees is not None]
    return (
        f"{len(marked)} marks: {holding} hold, {missed} missed, {len(marked) - holding - missed} "
        f"not judged. {len(compared)} comparisons of values: {compared.count(True)} agree, "
        f"{compared.count(False)} do not"
    )
