"""Damage files of every kind and read them; print a table, and the failures.

    make fuzz                                      # 5 000 files; writes reliability.md
    python -m tools.fuzz --mutations 500      # fewer, printed only
    python -m tools.fuzz --kind cache --first 2000
    python -m tools.fuzz --kind cache --seed 17   # one file, with its traceback

Exit codes: 0 if every file was read or refused within the bounds, 1 otherwise.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

from benchmarks.table import write_between
from tools.fuzz.campaign import Tally, campaign, to_markdown
from tools.fuzz.kinds import KINDS
from tools.fuzz.worker import damage

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "reliability.md"
MARKERS = ("<!-- figures of tools.fuzz -->", "<!-- end of tools.fuzz -->")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    options = _parser().parse_args(arguments)
    if options.seed is not None:
        _show(options.kind or next(iter(KINDS)), options.seed)
        return 0
    start = time.monotonic()
    kinds = [options.kind] if options.kind else list(KINDS)
    tallies = campaign(options.mutations, options.workers, kinds, options.first)
    table = to_markdown(tallies)
    print(table)
    print(f"\n{time.monotonic() - start:.0f} s")
    if options.docs:
        write_between(DOCUMENT, table, MARKERS)
    return _print_failures(tallies)


def _print_failures(tallies: Sequence[Tally]) -> int:
    wrong = [outcome for tally in tallies for outcome in (*tally.failed, *tally.too_large)]
    for outcome in wrong:
        print(
            f"{outcome.kind!r} --seed {outcome.seed}: {outcome.end} {outcome.what} "
            f"({outcome.peak / 1e6:.0f} MB for {outcome.size / 1e6:.2f} MB)"
        )
    return 1 if wrong else 0


def _show(name: str, seed: int) -> None:
    """Damage and read one file in this process, without catching exceptions."""
    kind = KINDS[name]
    with tempfile.TemporaryDirectory() as folder:
        kind.prepare(Path(folder))
        damage(Random(f"{name} {seed}"), kind, Path(folder) / kind.file)
        kind.read(Path(folder))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz")
    parser.add_argument("--mutations", type=int, default=5000, help="number of files")
    parser.add_argument("--workers", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--kind", choices=KINDS, help="one kind only")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="one file of --kind, with its traceback")
    parser.add_argument("--docs", action="store_true", help=f"write {DOCUMENT.name}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
