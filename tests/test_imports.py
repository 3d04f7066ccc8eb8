"""What the packages import is declared, and what is declared is needed."""

import ast
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
OWN = ("interp", "analyses", "apps", "interp_command")
OPTIONAL = {"datasets", "transformers"}
"""Distributions that only some uses need: imported in functions that say how to install them."""
FOR_OTHERS = {"pyarrow"}
"""Declared for other packages: pandas writes Parquet with it."""


class Import(NamedTuple):
    """An import of another package.

    ``is_late``: it stands in a function. ``is_caught``: in a ``try`` that handles ImportError.
    """

    place: str
    package: str
    is_late: bool
    is_caught: bool


def imports_of(source: str, file: str) -> Iterator[Import]:
    """The imports of packages that are neither ours nor of Python."""
    todo: list[tuple[ast.AST, bool, bool]] = [(ast.parse(source), False, False)]
    while todo:
        node, is_late, is_caught = todo.pop()
        for name in names_of(node):
            package = name.partition(".")[0]
            if package not in OWN and package not in sys.stdlib_module_names:
                yield Import(f"{file}:{node.lineno}", package, is_late, is_caught)
        late = is_late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        caught = is_caught or (isinstance(node, ast.Try) and any(map(handles, node.handlers)))
        todo += [(child, late, caught) for child in ast.iter_child_nodes(node)]


def names_of(node: ast.AST) -> list[str]:
    """What a statement imports, also by ``import_module("name")``."""
    match node:
        case ast.Import():
            return [one.name for one in node.names]
        case ast.ImportFrom(module=str() as module):
            return [module]
        case ast.Call(
            func=ast.Name(id="import_module"), args=[ast.Constant(value=str() as name), *_]
        ):
            return [name]
        case _:
            return []


def handles(handler: ast.ExceptHandler) -> bool:
    """Whether it handles ImportError."""
    caught = "" if handler.type is None else ast.unparse(handler.type)
    return any(name in caught for name in ("ImportError", "ModuleNotFoundError"))


@cache
def all_imports() -> list[Import]:
    files = [ROOT / "interp_command.py"]
    files += [path for own in OWN[:3] for path in sorted((ROOT / own).rglob("*.py"))]
    return [
        one
        for path in files
        for one in imports_of(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))
    ]


def declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {canonicalize_name(Requirement(one).name) for one in project["dependencies"]}


installed = cache(packages_distributions)


def distributions_of(package: str) -> set[str]:
    """The distributions that a package is in; its own name if it is not installed."""
    return {canonicalize_name(one) for one in installed().get(package, [package])}


def test_everything_that_is_imported_is_declared_or_optional():
    allowed = declared() | OPTIONAL
    found = {one.package for one in all_imports()}
    undeclared = {package for package in found if not distributions_of(package) & allowed}
    places = [one.place for one in all_imports() if one.package in undeclared]
    assert not undeclared, f"not in pyproject.toml: {undeclared}, in {places}"


def test_optional_packages_are_imported_late_and_their_absence_is_handled():
    for one in all_imports():
        if distributions_of(one.package) <= OPTIONAL:
            assert one.is_late and one.is_caught, one  # noqa: PT018 - both or the message


def test_everything_that_is_declared_is_imported():
    imported = {one for found in all_imports() for one in distributions_of(found.package)}
    assert declared() - imported <= FOR_OTHERS


def test_imports_are_found_wherever_they_stand():
    source = """
import os, torch.nn as nn
from einops import einsum
from interp import x
if True:
    import early
def f():
    from late.part import y
    try:
        import caught
    except ImportError as error:
        raise ValueError from error
    try:
        import_module("dynamic")
    except OSError:
        pass
class A:
    from inside import z
"""
    found = {one.package: (one.is_late, one.is_caught) for one in imports_of(source, "file.py")}
    assert found == {
        "torch": (False, False),
        "einops": (False, False),
        "early": (False, False),
        "late": (True, False),
        "caught": (True, True),
        "dynamic": (True, False),
        "inside": (False, False),
    }
