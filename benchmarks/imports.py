"""Time of ``import interp`` after torch is imported; each import is in a new process."""

import subprocess
import sys
from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.peers import version
from benchmarks.table import Row
from benchmarks.timing import Timed

STATEMENTS = {
    "interp": "import interp",
    "transformers": "from transformers import GPT2LMHeadModel",
    "transformer-lens": "import transformer_lens",
    "nnsight": "import nnsight",
}
CODE = "import time, torch; begun = time.perf_counter(); {}; print(time.perf_counter() - begun)"


def importing(bench: Bench) -> Iterator[Row]:
    """``import interp`` against the imports of other libraries."""
    installed = {name for name in STATEMENTS if name == "interp" or version(name) is not None}
    installed = {"interp"} if bench.setting.quick else installed
    absent = {
        name: "--quick leaves it out" if version(name) else f"{name} is not installed"
        for name in STATEMENTS
        if name not in installed
    }
    seconds: dict[str, list[float]] = {name: [] for name in STATEMENTS if name in installed}
    for _ in range(bench.setting.rounds):
        for name, taken in seconds.items():
            taken.append(_in_new_process(STATEMENTS[name]))
    timed = Timed(seconds, absent)
    for other, statement in STATEMENTS.items():
        if other != "interp":
            row = Row(
                section="import",
                work="import interp, beyond torch",
                kernel="",
                against=statement,
            )
            yield bench.row(row, timed, "interp", other)


def _in_new_process(statement: str) -> float:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CODE.format(statement)],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.split()[-1])
