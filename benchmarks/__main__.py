"""Run all benchmarks in one process; print a table, write JSON, compare with the marks.

    make bench                                         # everything, about an hour
    make bench BENCH="--only compat"            # interp.compat against TransformerLens
    make bench BENCH="--only forwards,sweeps"   # forward, stored; heads, patching, paths
    make bench BENCH="--only forward,heads --kernel default --out bench.json"
    make bench BENCH="--device cuda --tf32"
    make bench BENCH="--from bench.json --docs docs/speed.md"  # write the page, measure nothing
    make bench BENCH="--from bench.json --readme README.md --readme docs/index.md"  # short forms
    make bench BENCH="--only harvest,scale --docs docs/speed.md"  # a table of its own

Models have GPT-2-small's shape and the same random weights in every library. For the benchmarks of
a GPU, which do not need TransformerLens, and the tests on it, see ``python -m tools.gpu``.
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
from benchmarks.compat import against_lens
from benchmarks.conductance import conductance
from benchmarks.corpus import corpus
from benchmarks.explorer import explorer
from benchmarks.forwards import agreement, formed, forward
from benchmarks.graphs import graph_memory, graphs
from benchmarks.harvest import harvest
from benchmarks.imports import importing
from benchmarks.loading import loading
from benchmarks.machine import environment, load_average
from benchmarks.models import KERNELS, QUICK, Setting
from benchmarks.patching import patching
from benchmarks.paths import paths
from benchmarks.precision import matmul_precision
from benchmarks.scale import scale
from benchmarks.scaling import scaling
from benchmarks.sweeps import heads
from benchmarks.table import (
    MARKERS,
    Row,
    from_json,
    to_json,
    to_markdown,
    to_short_markdown,
    to_text,
    write_between,
)
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
    "paths": paths,
    "compat": against_lens,
    "conductance": conductance,
    "corpus": corpus,
    "explorer": explorer,
    "graphs": graphs,
    "graph_memory": graph_memory,
    "harvest": harvest,
    "import": importing,
    "loading": loading,
    "scale": scale,
    "scaling": scaling,
}

GROUPS = {"forwards": ("forward", "stored"), "sweeps": ("heads", "patching", "paths")}
CHOICES = (*SECTIONS, *GROUPS)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or read a file of figures; print the table and write the requested files.

    Returns:
        0, even if marks are missed. Invalid arguments exit with 2.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        rows, machine = _read(options) if options.read else _measure(options)
        print(to_text(rows, machine))
        if options.out:
            options.out.write_text(to_json(rows, machine), encoding="utf-8")
        for page in options.docs:
            write_between(page, *_table_of(options.only, rows, machine))
        for page in options.readme:
            write_between(page, to_short_markdown(rows, machine), MARKERS)
    except (Absent, OSError) as error:
        parser.error(str(error))
    return 0


def _table_of(
    sections: Sequence[str], rows: Sequence[Row], machine: dict[str, Any]
) -> tuple[str, tuple[str, str]]:
    """The table for a page, and the comments around it.

    The table of all sections has the rows with marks; one of chosen sections has all of their rows.
    """
    begin, end = MARKERS
    if len(sections) == len(SECTIONS):
        return to_markdown([row for row in rows if row.mark is not None], machine), MARKERS
    chosen = [row for row in rows if row.section in sections]
    begin = begin.replace(" -->", f" --only {','.join(sections)} -->")
    return to_markdown(chosen, machine), (begin, end)


def _read(options: argparse.Namespace) -> tuple[list[Row], dict[str, Any]]:
    return from_json(options.read.read_text(encoding="utf-8"))


def _measure(options: argparse.Namespace) -> tuple[list[Row], dict[str, Any]]:
    setting = _setting(options)
    threads = torch.get_num_threads()
    torch.set_num_threads(setting.threads)
    try:
        with matmul_precision("high" if options.tf32 else "highest"):
            bench, load = Bench(setting), load_average()
            rows: list[Row] = []
            for name in options.only:
                print(f"measuring {name} …", file=sys.stderr, flush=True)
                for row in SECTIONS[name](bench):
                    rows.append(row)
                    print("  " + "  ".join(filter(None, row.cells())), file=sys.stderr, flush=True)
            return rows, {**environment(setting, bench.ours), "load before": load}
    finally:
        torch.set_num_threads(threads)


def _setting(options: argparse.Namespace) -> Setting:
    base = QUICK if options.quick else Setting()
    if options.device == "cuda" and not torch.cuda.is_available():
        raise Absent("--device cuda: torch finds no CUDA device")
    if options.tf32 and options.device != "cuda":
        raise Absent("--tf32 needs --device cuda")
    return replace(
        base,
        rounds=options.rounds or base.rounds,
        long_rounds=options.long_rounds or base.long_rounds,
        kernels=KERNELS if options.kernel == "both" else (options.kernel,),
        device=torch.device(options.device),
        dtype=DTYPES[options.dtype],
        threads=options.threads,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--only", type=_sections, default=list(SECTIONS), help=f"some of {','.join(CHOICES)}")
    add("--quick", action="store_true", help="a tiny model and one round, to try the command")
    add("--rounds", type=_count, help="rounds of timing (default 7)")
    add(
        "--long-rounds",
        type=_count,
        help="rounds of the loops that take a minute per round (default 3)",
    )
    add("--threads", type=_count, default=2, help="CPU threads (default 2)")
    add("--kernel", choices=(*KERNELS, "both"), default="both")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--dtype", choices=tuple(DTYPES), default="float32")
    add("--tf32", action="store_true", help="allow TF32 matrix products on the GPU")
    add("--out", type=Path, help="write the figures to this file as JSON")
    add("--from", dest="read", type=Path, help="read a file written by --out and measure nothing")
    written = {"type": Path, "action": "append", "default": []}
    add("--docs", **written, help="write a table between this file's markers")
    add("--readme", **written, help="write a short table of the comparisons with other libraries")
    return parser


def _sections(text: str) -> list[str]:
    unknown = [name for name in text.split(",") if name not in CHOICES]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not one of {','.join(CHOICES)}")
    names = [part for name in text.split(",") for part in GROUPS.get(name, (name,))]
    return [name for name in SECTIONS if name in names]


def _count(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
