"""What the packages import is declared, and what is declared is needed."""

import ast
import sys
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
OUR_PACKAGES = ("interp", "analyses", "apps", "interp_command")
EXTRAS = {"interp": (), "analyses": ("analyses",), "apps": ("analyses", "apps")}
"""The extras that a package may import beside what every installation has."""
OPTIONAL = {"cloudpickle", "datasets", "gguf", "ray", "transformers"}
"""Distributions that only some uses need: imported in functions that say how to install them."""


TYPES = "interp/io/frame.py:9"
"""The import of pandas for a type checker."""


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
            if package not in OUR_PACKAGES and package not in sys.stdlib_module_names:
                yield Import(f"{file}:{node.lineno}", package, is_late, is_caught)
        late = is_late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        caught = is_caught or (isinstance(node, ast.Try) and any(map(handles, node.handlers)))
        todo += [(child, late, caught) for child in ast.iter_child_nodes(node)]


def names_of(node: ast.AST) -> list[str]:
    """What a statement imports, also by ``import_module("name")``."""
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
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
    files += [
        path for package in OUR_PACKAGES[:3] for path in sorted((ROOT / package).rglob("*.py"))
    ]
    return [
        imported
        for path in files
        for imported in imports_of(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))
    ]


def declared(extras: Sequence[str] = ()) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = [project["dependencies"], *(project["optional-dependencies"][name] for name in extras)]
    return {canonicalize_name(Requirement(text).name) for texts in lists for text in texts}


installed = cache(packages_distributions)


def distributions_of(package: str) -> set[str]:
    """The distributions that a package is in; its own name if it is not installed."""
    return {canonicalize_name(name) for name in installed().get(package, [package])}


@pytest.mark.parametrize("package", EXTRAS)
def test_a_package_imports_what_its_extras_declare(package):
    """Anything else is imported late, where its absence is handled; or named for a type checker."""
    allowed = declared(EXTRAS[package])
    undeclared = [
        imported
        for imported in all_imports()
        if imported.place.startswith(f"{package}/")
        and not distributions_of(imported.package) & allowed
        and not (imported.is_late and imported.is_caught)
        and imported.place != TYPES
    ]
    assert undeclared == []
    optional = {name for imported in all_imports() for name in distributions_of(imported.package)}
    assert optional <= declared(EXTRAS["apps"]) | OPTIONAL


def test_everything_that_is_declared_is_imported():
    imported = {name for entry in all_imports() for name in distributions_of(entry.package)}
    assert declared(EXTRAS["apps"]) - {"interp"} <= imported


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
    imports = {
        entry.package: (entry.is_late, entry.is_caught) for entry in imports_of(source, "file.py")
    }
    assert imports == {
        "torch": (False, False),
        "einops": (False, False),
        "early": (False, False),
        "late": (True, False),
        "caught": (True, True),
        "dynamic": (True, False),
        "inside": (False, False),
    }
