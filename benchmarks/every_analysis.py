"""What each command that runs a model costs on a pretrained one: forwards, time, memory, files.

    python -m benchmarks.every_analysis                                  # all rows; the table
    python -m benchmarks.every_analysis --only ablate --only lens        # measures these rows again
    python -m benchmarks.every_analysis --only heads --uncounted         # time without counting
    python -m benchmarks.every_analysis --docs docs/reference/costs.md   # and writes it there

Each command runs with its default options in a process of its own, on 32 of the minimal pairs that
the model's card names, or on 1 MB of English text. A row is appended to ``--out`` as soon as it is
measured, so that an interrupted table is continued. A command that takes longer than
``--limit`` is interrupted, and marked in its row.

A forward is a plain one over all of a command's input, with logits at every position. Forwards are
counted by their multiply-adds in matrix products, so that one that restarts in the middle of the
model, or reads the logits of the last position only, is a part of a forward. A backward pass counts
about as much as a forward. Counting delays commands of many small operations: ``--uncounted``
measures time and memory again without it, and takes the forwards of the row before.
"""

import argparse
import ast
import json
import math
import os
import pydoc_data.topics
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from typing import Any, Literal

import torch
from torch.utils.flop_counter import flop_registry, shape_wrapper

import interp
from apps.cli import main as interp_command
from apps.defaults import default_prompts
from benchmarks.limits import CPU_ATTENTION, FLOPS_OF_ONE
from benchmarks.machine import load_average
from benchmarks.table import write_between
from interp.kernels import DispatchMode, processor
from interp.prompts import read_prompts

MARKERS = ("<!-- costs of every command -->", "<!-- end of costs -->")
ROWS = Path(__file__).with_name("costs.jsonl")
"""The rows of docs/reference/costs.md, so that some can be measured again without the others."""
MODEL = "smollm2-135m"
PAIRS, BYTES = 32, 10**6
"""The size of the inputs, unless another one is asked for."""
SHORTEST, LONGEST = 100, 2000
"""Numbers of characters of a text."""
MOST_SECONDS, MOST_BYTES = 15 * 60, 4e9
"""What a command may take with its default options: processor seconds of two cores, memory."""
CORES = 2
GRACE = 60.0
"""Seconds that an interrupted process has to end."""
CHILD = (sys.executable, "-c", "from benchmarks.every_analysis import child; child()")
PLAIN = (sys.executable, "-c", "import sys; from apps.cli import main; main(sys.argv[1:])")
UNIT = (sys.executable, "-c", "from benchmarks.every_analysis import unit; unit()")
SKIPPED = {"test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages"}
"""Folders of the standard library whose docstrings are not read."""
Source = Literal["pairs", "text", "weights"]


@dataclass(frozen=True)
class Command:
    """A row of the table.

    Attributes:
        words: the words after ``interp``; MODEL, PAIRS and TEXT stand for the model and the files.
        reads: what it reads; ``weights`` for what takes no prompts.
    """

    words: str
    reads: Source = "pairs"

    @property
    def writes(self) -> bool:
        """Whether it writes a folder."""
        return not self.words.startswith(("verify", "prompts"))


COMMANDS = {
    "predict": Command("predict --prompts PAIRS"),
    "continue": Command("continue --prompts PAIRS"),
    "patterns": Command("patterns --prompts PAIRS"),
    "patterns of a text": Command("patterns --prompts TEXT", "text"),
    "roles": Command("roles", "weights"),
    "scores of a head": Command("scores --layer 23 --head 3 --prompts PAIRS"),
    "census": Command("census", "weights"),
    "qk-covariance of a head": Command("qk-covariance --layer 18 --head 6", "weights"),
    "ablate": Command("ablate --prompts PAIRS"),
    "ablate layers": Command("ablate --units layers --prompts PAIRS"),
    "patch": Command("patch --prompts PAIRS"),
    "patch heads": Command("patch --at z --over layer-head --prompts PAIRS"),
    "paths": Command("paths --prompts PAIRS"),
    "attribute": Command("attribute --prompts PAIRS"),
    "nodes": Command("nodes --prompts PAIRS"),
    "prune": Command("prune --prompts PAIRS"),
    "explain": Command("explain --prompts PAIRS"),
    "dla": Command("dla --prompts PAIRS"),
    "trace": Command("trace --prompts PAIRS"),
    "head-effects": Command("head-effects --prompts PAIRS"),
    "lens": Command("lens --prompts PAIRS"),
    "train-lens": Command("train-lens --prompts TEXT", "text"),
    "circuits": Command("circuits", "weights"),
    "circuits of a head, OV": Command("circuits --ov L23H0", "weights"),
    "circuits of a head, QK": Command("circuits --qk L16H0", "weights"),
    "positions": Command("positions", "weights"),
    "probe of pronouns": Command("probe --prompts pronouns"),
    "erase of pronouns": Command("erase --prompts pronouns"),
    "covariance": Command("covariance", "weights"),
    "order": Command("order --prompts PAIRS"),
    "top-texts of a head": Command("top-texts --texts TEXT --of L16H0", "text"),
    "top-texts of a neuron": Command("top-texts --texts TEXT --of L15N100", "text"),
    "heads": Command("heads --texts TEXT", "text"),
    "heads with effects": Command("heads --effects --texts TEXT", "text"),
    "compare": Command("compare --other MODEL --prompts PAIRS"),
    "neurons": Command("neurons --texts TEXT --layer 15 --neuron 100", "text"),
    "steer": Command("steer --prompts PAIRS"),
    "report": Command("report --prompts PAIRS"),
    "report of three": Command(
        "report --section roles --section ablate --section attribute --prompts PAIRS"
    ),
    "verify": Command("verify", "weights"),
    "prompts check": Command("prompts check PAIRS"),
}


@dataclass(frozen=True)
class Cost:
    """What a command took.

    Attributes:
        name: the row.
        model: the model.
        read: the input: ``32 pairs``, ``1 MB of text``, ``weights``.
        forwards: multiply-adds, as a multiple of those of a forward over the input; of a command
            that reads weights only, over the pairs. ``None`` if its process was killed.
        seconds: until its process ended.
        processor_seconds: of all of its threads.
        nbytes: the largest resident set of the process.
        written: bytes of the files that it wrote.
        outcome: ``done``, ``over the limit``, or the error that it printed.
    """

    name: str
    model: str
    read: str
    forwards: float | None
    seconds: float
    processor_seconds: float
    nbytes: int
    written: int
    outcome: str

    def cells(self) -> tuple[str, ...]:
        """The text of its row of the table."""
        forwards = "" if self.forwards is None else _forwards(self.forwards)
        at_least = "> " if self.outcome == "over the limit" else ""
        return (
            self.name,
            self.read,
            f"{at_least}{forwards}" if forwards else "",
            f"{at_least}{self.seconds:.0f} s",
            f"{at_least}{self.processor_seconds:.0f} s",
            f"{self.nbytes / 1e9:.2f} GB",
            f"{self.written / 1e6:.1f} MB",
            self.remark(),
        )

    def remark(self) -> str:
        """What is out of the ordinary."""
        if self.outcome != "done":
            return self.outcome
        over = [
            name
            for name, is_over in {
                "time": self.processor_seconds > CORES * MOST_SECONDS,
                "memory": self.nbytes > MOST_BYTES,
            }.items()
            if is_over
        ]
        return f"too much {' and '.join(over)}" if over else ""


def _forwards(number: float) -> str:
    return f"{number:.2g}" if number < 10 else f"{number:.0f}"  # noqa: PLR2004 - two digits


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.every_analysis")
    parser.add_argument("--model", default=MODEL, help="a name or folder; default: %(default)s")
    parser.add_argument("--only", action="append", choices=COMMANDS, help="measure it again")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="number of pairs; default: 32")
    parser.add_argument("--bytes", type=int, default=BYTES, help="size of the text; default: 1 MB")
    parser.add_argument("--limit", type=float, default=20, help="minutes a row; default: 20")
    parser.add_argument("--out", type=Path, default=ROWS, help="JSON lines")
    parser.add_argument("--uncounted", action="store_true", help="keep the numbers of forwards")
    parser.add_argument("--docs", type=Path, help="a page with the markers of this table")
    options = parser.parse_args(arguments)
    load = load_average()
    with TemporaryDirectory() as temporary:
        inputs = Inputs(options.model, options.pairs, options.bytes, Path(temporary))
        rows = {cost.name: cost for cost in read(options.out) if inputs.are_of(cost)}
        for name in options.only or [name for name in COMMANDS if name not in rows]:
            cost = measured(name, inputs, 60 * options.limit, counts=not options.uncounted)
            if options.uncounted and name in rows:
                cost = replace(cost, forwards=rows[name].forwards)
            append(options.out, cost)
            rows[name] = cost
            print(" | ".join(cost.cells()), flush=True)
    table = to_markdown([rows[name] for name in COMMANDS if name in rows], load)
    print(table)
    if options.docs:
        write_between(options.docs, table, MARKERS)
    return 0


def read(path: Path) -> list[Cost]:
    """The rows of a file, in the order in which they were measured."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [Cost(**json.loads(line)) for line in lines]


def append(path: Path, cost: Cost) -> None:
    """Append a row to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(cost)) + "\n")


def to_markdown(costs: Sequence[Cost], load: str) -> str:
    """The table, with the machine and its load below it."""
    columns = ("command", "input", "forwards", "time", "processor", "memory", "written", "")
    lines = [columns, ("---",) * len(columns), *(cost.cells() for cost in costs)]
    where = f"{processor()}, {os.cpu_count()} threads, torch {torch.__version__}"
    rows = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([*rows, "", f"Measured on {where}, load before {load}."])


@dataclass(frozen=True)
class Inputs:
    """What the commands read.

    Attributes:
        model: the model.
        pairs: number of minimal pairs.
        nbytes: size of the text.
        folder: a folder for files.
    """

    model: str
    pairs: int
    nbytes: int
    folder: Path

    def name(self, source: Source) -> str:
        """A kind of input with its size, as the table names it."""
        names = {"pairs": f"{self.pairs} pairs", "text": f"{self.nbytes / 1e6:g} MB of text"}
        return names.get(source, source)

    def are_of(self, cost: Cost) -> bool:
        """Whether a row was measured on these inputs."""
        read = {self.name(command.reads) for command in COMMANDS.values()}
        return cost.model == self.model and cost.read in read

    def file(self, source: Source) -> Path:
        """The file of pairs or of texts, written when it is first asked for."""
        path = self.folder / ("text.txt" if source == "text" else "pairs.jsonl")
        if not path.exists():
            lines = english(self.nbytes) if source == "text" else self._pairs()
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    def _pairs(self) -> list[str]:
        pairs = read_prompts(default_prompts(self.model, pairs=True))[: self.pairs]
        return [json.dumps(pair.fields()) for pair in pairs]

    def words(self, command: Command) -> list[str]:
        """The words of a command, with the names of these inputs."""
        names: dict[str, Callable[[], object]] = {
            "MODEL": lambda: self.model,
            "PAIRS": lambda: self.file("pairs"),
            "TEXT": lambda: self.file("text"),
        }
        words = [str(names[word]()) if word in names else word for word in command.words.split()]
        return [*words, "--model", self.model]


def measured(name: str, inputs: Inputs, limit: float, *, counts: bool = True) -> Cost:
    """Run a command in a process of its own until it ends, or for ``limit`` seconds."""
    command, folder = COMMANDS[name], inputs.folder
    out, counted, errors = folder / f"out of {name}", folder / "counted", folder / "errors"
    words = inputs.words(command) + (["--out", str(out)] if command.writes else [])
    whole = _forward_of(inputs.model, inputs.file(command.reads)) if counts else 1
    start = [*CHILD, str(counted)] if counts else [*PLAIN]
    counted.unlink(missing_ok=True)
    began = time.perf_counter()
    with Path(os.devnull).open("w") as nowhere, errors.open("w") as stderr:
        process = subprocess.Popen(
            [*start, *words],
            stdout=nowhere,
            stderr=stderr,
        )
        timers = [Timer(limit, process.send_signal, [signal.SIGINT])]
        timers += [Timer(limit + GRACE, process.kill)]
        for timer in timers:
            timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        for timer in timers:
            timer.cancel()
    seconds = time.perf_counter() - began
    outcome = "done"
    if seconds > limit:
        outcome = "over the limit"
    elif process.returncode:
        outcome = (errors.read_text(encoding="utf-8").splitlines() or ["failed"])[-1]
    return Cost(
        name,
        inputs.model,
        inputs.name(command.reads),
        int(counted.read_text()) / whole if counted.exists() else None,
        seconds,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss * 1024,
        sum(file.stat().st_size for file in out.rglob("*") if file.is_file()),
        outcome,
    )


@cache
def _forward_of(model: str, file: Path) -> int:
    """Multiply-adds of a forward over the texts of a file."""
    return int(subprocess.run([*UNIT, model, file], stdout=subprocess.PIPE, check=True).stdout)


def child() -> None:
    """Run ``interp`` with the arguments of this process, and write its multiply-adds to a file."""
    counted, *words = sys.argv[1:]
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # which a job in the background ignores
    with Products() as products:
        try:
            interp_command(words)
        finally:
            Path(counted).write_text(str(products.multiply_adds))


def unit() -> None:
    """Print the multiply-adds of a forward: those of one token, times the number of tokens."""
    name, file = sys.argv[1:]
    model = interp.load(name)
    texts = [prompt.text for prompt in read_prompts(file)]
    with Products() as products:
        interp.run(model, [[0]])
    print(products.multiply_adds * sum(len(model.to_tokens(text)[0]) for text in texts))


class Products(DispatchMode):
    """Counts the multiply-adds of matrix products and attention within the ``with`` block.

    :func:`benchmarks.limits.multiply_adds` counts the same, but delays each operation by more.
    """

    def __init__(self) -> None:
        super().__init__()
        self._flops = 0

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds so far."""
        return self._flops // FLOPS_OF_ONE

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - torch's signature
        """Compute the operation, and count it."""
        result = func(*args, **(kwargs or {}))
        count = FLOPS.get(func._overloadpacket)
        if count is not None:
            self._flops += count(*args, **(kwargs or {}), out_val=result)
        return result


def _linear_flops(x: tuple[int, ...], *_: object, out_shape: tuple[int, ...], **__: object) -> int:
    """FLOPs of a product with a packed weight."""
    return FLOPS_OF_ONE * math.prod(out_shape) * x[-1]


FLOPS: dict[Any, Any] = flop_registry | {
    operation: shape_wrapper(flops)
    for operation, flops in {
        **CPU_ATTENTION,
        torch.ops.mkldnn._linear_pointwise: _linear_flops,
    }.items()
}
"""The function that counts each operation."""


def english(nbytes: int) -> Iterator[str]:
    """A number of bytes of English text, from the documentation that comes with Python.

    First the topics of Python's language reference, then the docstrings of the modules, by path;
    paragraphs of at least :data:`SHORTEST` characters, each on one line.
    """
    size, read = 0, set[str]()
    for text in _documentation():
        for paragraph in text.split("\n\n"):
            line = " ".join(paragraph.split())[:LONGEST]
            if len(line) >= SHORTEST and line not in read:
                read.add(line)
                size += len(line.encode()) + 1
                if size > nbytes:
                    return
                yield line


def _documentation() -> Iterator[str]:
    """The topics of the language reference, then the docstrings of the standard library."""
    yield from pydoc_data.topics.topics.values()
    library = Path(os.__file__).parent
    for path in sorted(library.rglob("*.py")):
        if not SKIPPED & set(path.relative_to(library).parts):
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                    yield ast.get_docstring(node) or ""


if __name__ == "__main__":
    sys.exit(main())
