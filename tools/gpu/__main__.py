"""Run the GPU-marked tests and the benchmarks on CUDA; write DIR/gpu.json and DIR/gpu.md.

    python -m tools.gpu --out reports/gpu                       # about ten minutes
    python -m tools.gpu --from reports/gpu/gpu.json --docs      # write docs/reference/gpu.md
    python -m tools.gpu --device cpu --quick --out reports/dry  # try the command

It needs torch, einops, jaxtyping, numpy, pandas, transformers, safetensors, tokenizers and pytest.
Exit codes: 0 if everything was measured and every marked test passed (marks may be missed), 1 if a
test failed or was not run, a part raised an error, or time ran out, 2 for invalid arguments, 3 if
there is no CUDA device.
"""

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from benchmarks.bench import Bench
from benchmarks.models import QUICK, Setting, kernel_ran
from benchmarks.precision import FLOAT32, PRECISIONS, Precision, matmul_precision
from benchmarks.table import Row
from benchmarks.timing import Absent
from tools.gpu import parts
from tools.gpu.compiled import compiled
from tools.gpu.diagnosis import profiled, waits
from tools.gpu.facts import ROOT, device_facts, software_facts
from tools.gpu.markdown import DOCUMENT, to_markdown, write_document
from tools.gpu.marked_tests import run_marked_tests
from tools.gpu.measurement import Measurement
from tools.gpu.report import DRY_RUN, Report, read_report

GOOD, NOT_GOOD, NO_CUDA = 0, 1, 3
TESTS = "tests"
SHARE_OF_TESTS = 0.45
ROUNDS, LONG_ROUNDS, WARMUP = 20, 5, 3

Part = Callable[[Bench, Precision], Iterator[Measurement]]


@dataclass(frozen=True)
class Step:
    """A part at a precision."""

    name: str
    part: Part
    precision: Precision


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or read a report; write the requested files; return the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        _check(options)
        if options.read is None and options.device == "cuda" and not torch.cuda.is_available():
            print("There is no CUDA device: torch finds none. Nothing was run.", file=sys.stderr)
            return NO_CUDA
        report = _measure(options) if options.read is None else read_report(options.read)
        print(to_markdown(report))
        if options.docs:
            write_document(report, DOCUMENT)
    except (Absent, OSError) as error:
        parser.error(str(error))
    return GOOD if report.is_good or options.read else NOT_GOOD


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--out", type=Path, help="folder of gpu.json, gpu.md and tests.log")
    add("--from", dest="read", type=Path, help="read this gpu.json and measure nothing")
    add(
        "--docs",
        action="store_true",
        help=f"write the table to {DOCUMENT.name} (CUDA runs only)",
    )
    add("--device", choices=("cuda", "cpu"), default="cuda")
    add("--quick", action="store_true", help=f"tiny models and one round: a {DRY_RUN}")
    add("--only", help=f"some of {','.join(NAMES)}")
    add("--seconds", type=float, default=540, help="start no part after this time (default 540)")
    add("--commit", help="the commit to report where the folder has no git history")
    return parser


def _check(options: argparse.Namespace) -> None:
    """Check the options.

    Raises:
        Absent: options conflict, one is missing, or a name in ``--only`` is unknown.
    """
    if (options.out is None) == (options.read is None):
        raise Absent("give either --out DIR to measure or --from FILE to read a report")
    if options.device == "cpu" and not options.quick:
        raise Absent("--device cpu needs --quick: on a CPU this only tries the command")
    if options.docs and options.quick:
        raise Absent(f"--docs does not go with --quick, a {DRY_RUN}")
    unknown = [name for name in _chosen(options) if name not in NAMES]
    if unknown:
        raise Absent(f"--only {unknown[0]!r} is not one of {','.join(NAMES)}")


def _chosen(options: argparse.Namespace) -> list[str]:
    return options.only.split(",") if options.only else list(NAMES)


# ---- measuring ---------------------------------------------------------------------------------


def _measure(options: argparse.Namespace) -> Report:
    """Run the chosen parts, saving the report after each measurement."""
    options.out.mkdir(parents=True, exist_ok=True)
    device, begun = torch.device(options.device), time.monotonic()
    report = Report(device_facts(device), software_facts(options.commit), options.quick)

    def save() -> None:
        report.seconds = round(time.monotonic() - begun, 1)
        report.save(options.out / "gpu.json")
        (options.out / "gpu.md").write_text(to_markdown(report) + "\n", encoding="utf-8")

    save()
    if TESTS in _chosen(options):
        print("running the GPU-marked tests …", file=sys.stderr, flush=True)
        reason = "" if torch.cuda.is_available() else "there is no CUDA device"
        log, limit = options.out / "tests.log", options.seconds * SHARE_OF_TESTS
        report.tests = run_marked_tests(ROOT, log, limit, reason)
        print(f"  {report.tests.summary()}", file=sys.stderr, flush=True)
        save()
    late = False
    for step, bench in _benches(options, device):
        late = late or time.monotonic() - begun > options.seconds
        for measurement in _not_measured(step) if late else _guarded(step, bench, report):
            report.measurements.append(measurement)
            _print(measurement)
            save()
    report.is_complete = not late
    save()
    return report


def _benches(options: argparse.Namespace, device: torch.device) -> Iterator[tuple[Step, Bench]]:
    """The chosen steps; consecutive steps of one precision share their models."""
    base = QUICK if options.quick else Setting(rounds=ROUNDS, long_rounds=LONG_ROUNDS)
    setting = replace(base, kernels=(parts.KERNEL,), device=device)
    setting = replace(setting, warmup=setting.warmup if options.quick else WARMUP)
    bench: Bench | None = None
    for step in steps(options.out):
        if step.name in _chosen(options):
            if bench is None or bench.setting.dtype != step.precision.dtype:
                bench = None  # its memory is freed before the next models are built
                bench = Bench(replace(setting, dtype=step.precision.dtype))
            yield step, bench


def steps(folder: Path) -> list[Step]:
    """All steps in order: those with marks first, those that explain them last.

    Args:
        folder: the folder in which profiles are written.
    """
    at_all: dict[str, Part] = {
        "agreement": parts.agreement,
        "heads": parts.heads,
        "forward": parts.forward,
    }
    in_float32: dict[str, Part] = {
        "cache": parts.cache,
        "memory": parts.memory,
        "patching": parts.patched,
        "waits": waits,
        "profile": partial(profiled, folder=folder),
        "compiled": compiled,
    }
    return [
        *(Step(name, part, precision) for precision in PRECISIONS for name, part in at_all.items()),
        *(Step(name, part, FLOAT32) for name, part in in_float32.items()),
    ]


NAMES = tuple(dict.fromkeys([TESTS, *(step.name for step in steps(Path()))]))


def _guarded(step: Step, bench: Bench, report: Report) -> Iterator[Measurement]:
    """The measurements of a step; an error becomes a row, so that later steps run."""
    print(f"measuring {step.name} in {step.precision.name} …", file=sys.stderr, flush=True)
    try:
        with matmul_precision(step.precision.matmul):
            if step.precision.name not in report.kernels:
                report.kernels[step.precision.name] = kernel_ran(bench.ours.default)
            yield from step.part(bench, step.precision)
    except Exception as error:  # any error belongs in the report
        report.errors.append(traceback.format_exc(limit=-6))
        yield _not_measured_because(step, f"{type(error).__name__}: {error}".splitlines()[0])


def _not_measured(step: Step) -> Iterator[Measurement]:
    yield _not_measured_because(step, "the time was up")


def _not_measured_because(step: Step, why: str) -> Measurement:
    row = Row(section=step.name, work=step.name, kernel=parts.KERNEL, why=why)
    return Measurement(precision=step.precision.name, row=row)


def _print(measurement: Measurement) -> None:
    cells = [measurement.precision, *measurement.row.cells()]
    print("  " + "  ".join(filter(None, cells)), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
