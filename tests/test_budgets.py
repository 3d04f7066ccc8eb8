"""Budgets: the size of each room, how much code a run executes, names that say nothing.

``budgets.toml`` holds a ceiling for each figure. Raising one is a reviewed line with its reason.
``python tests/test_budgets.py`` prints today's figures, to lower the ceilings to.
"""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUDGETS = tomllib.loads((ROOT / "tests" / "budgets.toml").read_text())
DIVIDED = ("interp", "analyses", "analyses/methods", "apps")
"""Packages whose sub-packages have budgets of their own."""

PACKAGES = tuple(
    folder
    for folder in sorted(ROOT.iterdir())
    if folder.name != "tests" and (folder / "__init__.py").is_file()
)

EXECUTED = """
import json, sys
from pathlib import Path
import interp
from interp import edits

root = Path(interp.__file__).parent
model = interp.load("python-2l")
tokens = model.to_tokens(["def f(x):\\n    return x", "class A:\\n    pass"])
head = edits.zero("z", layer=1, head=4)
works = {
    "forward": lambda: model(tokens),
    "run of an edit": lambda: interp.run(model, tokens, record="pattern", edits=[head]),
    "run that records everything": lambda: interp.run(model, tokens, record="all"),
    "sweep of two heads": lambda: interp.sweep(
        model,
        tokens,
        [edits.zero("z", layer=0, head=0), head],
        metric=interp.metrics.loss(),
    ),
}
executed = {}
for name, work in works.items():
    files = set()

    def called(frame, event, _):
        if event == "call":
            files.add(frame.f_code.co_filename)

    work()
    sys.setprofile(called)
    work()
    sys.setprofile(None)
    paths = [Path(file) for file in files if file.startswith(str(root))]
    executed[name] = {
        "modules": len(paths),
        "lines": sum(len(path.read_text().splitlines()) for path in paths),
    }
print(json.dumps(executed))
"""


def sizes(files: list[Path]) -> dict[str, int]:
    lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
    return {"files": len(files), "lines": lines}


def room_of(file: Path) -> str:
    """The package that a file belongs to; an analysis of one file is a part of ``analyses``."""
    package, *folders = file.relative_to(ROOT).parts[:-1]
    while folders and package in DIVIDED:
        package = f"{package}/{folders.pop(0)}"
    return package


def rooms() -> dict[str, dict[str, int]]:
    """The number of Python files and of their lines, per room."""
    files_of: dict[str, list[Path]] = {}
    for package in PACKAGES:
        for file in sorted(package.rglob("*.py")):
            files_of.setdefault(room_of(file), []).append(file)
    return {room: sizes(files) for room, files in files_of.items()}


ROOMS = rooms()


def executed_code() -> dict[str, dict[str, int]]:
    """The modules of interp in which a function is called, once all is warm, and their lines."""
    words = [sys.executable, "-c", EXECUTED]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def executed():
    return executed_code()


def test_every_room_has_a_budget():
    assert set(BUDGETS["rooms"]) == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_within_its_budget(room):
    for figure, ceiling in BUDGETS["rooms"][room].items():
        assert ROOMS[room][figure] <= ceiling, (
            f"{room} has {ROOMS[room][figure]} {figure}, its budget is {ceiling}"
        )


def test_the_core_is_small():
    """What others build on: interp without loading, bundled models and the façade."""
    guests = BUDGETS["core"]["without"]
    core = [figures for room, figures in ROOMS.items() if room.partition("/")[0] == "interp"]
    outside = sum(ROOMS[room]["lines"] for room in guests)
    lines = sum(figures["lines"] for figures in core) - outside
    assert lines <= BUDGETS["core"]["lines"]


def test_packages_have_few_layers():
    """One contract orders all packages of ``interp``; a new one finds its place in a few layers."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if each.get("containers") == ["interp"])
    assert len(layers) <= BUDGETS["core"]["layers"]


@pytest.mark.parametrize("work", BUDGETS["executed"])
def test_little_code_is_executed(work, executed):
    assert set(executed) == set(BUDGETS["executed"])
    for figure, ceiling in BUDGETS["executed"][work].items():
        assert executed[work][figure] <= ceiling, (
            f"{work}: {executed[work][figure]} {figure}, the budget is {ceiling}"
        )


def bound_names(file: Path) -> Iterator[str]:
    """The name of each variable and parameter, as often as it is bound."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def empty_names() -> dict[str, int]:
    """How often variables are called what says nothing about them, in all of the code."""
    counts = Counter(
        name
        for package in (*PACKAGES, ROOT / "tests")
        for file in package.rglob("*.py")
        for name in bound_names(file)
    )
    return {name: counts[name] for name in BUDGETS["names"]}


def words_of_tests() -> dict[str, int]:
    """How often tests speak of programs as if they were persons."""
    files = [file for file in (ROOT / "tests").rglob("*.py") if file != Path(__file__)]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    return {word: len(re.findall(rf"(?<![a-z]){word}(?![a-z])", text)) for word in BUDGETS["words"]}


def test_variables_are_named_after_what_they_hold():
    counts, ceilings = empty_names(), BUDGETS["names"]
    assert {name: count for name, count in counts.items() if count > ceilings[name]} == {}


def test_tests_say_what_a_program_does():
    counts, ceilings = words_of_tests(), BUDGETS["words"]
    assert {word: count for word, count in counts.items() if count > ceilings[word]} == {}


if __name__ == "__main__":
    for name, figures in {**ROOMS, **executed_code()}.items():
        fields = ", ".join(f"{figure} = {number}" for figure, number in figures.items())
        sys.stdout.write(f'"{name}" = {{ {fields} }}\n')
    for name, count in {**empty_names(), **words_of_tests()}.items():
        sys.stdout.write(f"{name} = {count}\n")
