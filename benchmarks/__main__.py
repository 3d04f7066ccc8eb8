"""How fast is it? Everything timed in turn in one process, with marks, as a table and as JSON.

    make bench                                         # all of it: three quarters of an hour
    make bench BENCH="--only forward,heads --kernel default --out bench.json"
    make bench BENCH="--device cuda --tf32"
    make bench BENCH="--from bench.json --readme README.md"    # into the README, no measuring

Models have GPT-2-small's shape and random weights, the same in every library.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.bench import Bench
from benchmarks.caches import memory, patterns, size
from benchmarks.forwards import agreement, formed, forward
from benchmarks.imports import importing
from benchmarks.loading import loading
from benchmarks.machine import busy, told
from benchmarks.models import KERNELS, QUICK, Setting
from benchmarks.patching import patching
from benchmarks.scaling import scaling
from benchmarks.sweeps import heads
from benchmarks.table import Row, from_json, to_json, to_markdown, to_text, write_between_marks
from benchmarks.timing import Absent

SECTIONS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "agreement": agreement,
    "forward": forward,
    "stored": formed,
    "cache": size,
    "memory": memory,
    "patterns": patterns,
    "heads": heads,
    "patching": patching,
    "import": importing,
    "loading": loading,
    "scaling": scaling,
}

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure (or read figures), print the table, write what was asked for.

    Returns:
        0, also if marks are missed: that is a finding, not a failure. Wrong input exits with 2.
    """
    parser = _parser()
    asked = parser.parse_args(arguments)
    try:
        rows, machine = _read(asked) if asked.read else _measure(asked)
        print(to_text(rows, machine))
        if asked.out:
            asked.out.write_text(to_json(rows, machine), encoding="utf-8")
        if asked.readme:
            write_between_marks(asked.readme, to_markdown(rows, machine))
    except (Absent, OSError) as error:
        parser.error(str(error))
    return 0


def _read(asked: argparse.Namespace) -> tuple[list[Row], dict[str, Any]]:
    return from_json(asked.read.read_text(encoding="utf-8"))


def _measure(asked: argparse.Namespace) -> tuple[list[Row], dict[str, Any]]:
    setting = _setting(asked)
    threads, tf32 = torch.get_num_threads(), torch.backends.cuda.matmul.allow_tf32
    torch.set_num_threads(setting.threads)
    torch.backends.cuda.matmul.allow_tf32 = asked.tf32
    try:
        bench, load = Bench(setting), busy()
        rows: list[Row] = []
        for name in asked.only:
            print(f"measuring {name} …", file=sys.stderr, flush=True)
            for row in SECTIONS[name](bench):
                rows.append(row)
                print("  " + "  ".join(filter(None, row.cells())), file=sys.stderr, flush=True)
        return rows, {**told(setting, bench.ours), "load before": load}
    finally:
        torch.set_num_threads(threads)
        torch.backends.cuda.matmul.allow_tf32 = tf32


def _setting(asked: argparse.Namespace) -> Setting:
    base = QUICK if asked.quick else Setting()
    if asked.device == "cuda" and not torch.cuda.is_available():
        raise Absent("--device cuda: torch sees no CUDA device here")
    if asked.tf32 and asked.device != "cuda":
        raise Absent("--tf32 is for --device cuda")
    return replace(
        base,
        rounds=asked.rounds or base.rounds,
        long_rounds=asked.long_rounds or base.long_rounds,
        kernels=KERNELS if asked.kernel == "both" else (asked.kernel,),
        device=torch.device(asked.device),
        dtype=DTYPES[asked.dtype],
        threads=asked.threads,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--only", type=_sections, default=list(SECTIONS), help=f"of {','.join(SECTIONS)}")
    add("--quick", action="store_true", help="a tiny model, one round: only to see that it runs")
    add("--rounds", type=_count, help="how often each is timed (default 7)")
    add(
        "--long-rounds",
        type=_count,
        help="the same for loops that take a minute a round (default 3)",
    )
    add("--threads", type=_count, default=2, help="of the CPU (default 2)")
    add("--kernel", choices=(*KERNELS, "both"), default="both")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--dtype", choices=tuple(DTYPES), default="float32")
    add("--tf32", action="store_true", help="allow TF32 products on the GPU")
    add("--out", type=Path, help="write the figures there as JSON")
    add("--from", dest="read", type=Path, help="read figures written by --out; measure nothing")
    add("--readme", type=Path, help="write the rows with marks between the marks of that file")
    return parser


def _sections(text: str) -> list[str]:
    named = text.split(",")
    unknown = [name for name in named if name not in SECTIONS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {','.join(SECTIONS)}")
    return [name for name in SECTIONS if name in named]


def _count(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} should be a whole number of at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
