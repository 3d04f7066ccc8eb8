"""Packages import one another by public names, and every change of these is a reviewed line.

``docs/reference/api.txt`` lists each public name with its signature;
``python tests/test_public_names.py`` writes it.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cached_property
from importlib import import_module
from inspect import Parameter, isclass, isfunction, signature
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LISTING = ROOT / "docs" / "reference" / "api.txt"
SEARCHED = ("interp", "analyses", "apps", "training", "tools", "benchmarks")


def packages() -> list[str]:
    """The packages with public names, by their dotted names."""
    inits = [
        init
        for top in ("interp", "analyses", "training")
        for init in sorted((ROOT / top).rglob("__init__.py"))
    ]
    return [
        ".".join(init.relative_to(ROOT).parts[:-1])
        for init in inits
        if "\n__all__ = " in init.read_text(encoding="utf-8")
    ]


PACKAGES = packages()
SHARED = ("interp", "analyses", "analyses.methods")
"""Packages of packages."""
QUESTIONS = [f"analyses.{init.parent.name}" for init in (ROOT / "analyses").glob("*/__init__.py")]
"""Analyses that are folders: their modules are their own."""


def package_of(module: str) -> str | None:
    """The package that a module stands behind; modules of ``interp`` itself are rooms."""
    rooms = [name for name in (*PACKAGES, *QUESTIONS) if name not in SHARED]
    if module.endswith(".__main__"):
        return None
    return min((name for name in rooms if module.startswith(f"{name}.")), key=len, default=None)


def imports(file: Path) -> Iterator[tuple[int, str]]:
    """Line and module of each import."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)


def test_no_module_is_imported_from_behind_its_package():
    behind = [
        f"{file.relative_to(ROOT)}:{line} imports {module}; import from {package}"
        for top in SEARCHED
        for file in sorted((ROOT / top).rglob("*.py"))
        for line, module in imports(file)
        if (package := package_of(module)) is not None
        and not file.is_relative_to(ROOT / package.replace(".", "/"))
    ]
    assert behind == []


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_exist_and_are_sorted_once(package):
    module = import_module(package)
    assert len(set(module.__all__)) == len(module.__all__)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def default_text(value: object) -> str:
    """A default value, without addresses and long reprs."""
    text = re.sub(r" at 0x[0-9a-f]+", "", repr(value))
    return text if len(text) <= 60 else f"{text[:57]}..."


def of_signature(function: object) -> str:
    """Names, kinds and defaults of the parameters; annotations are in the reference."""
    try:
        parameters = signature(function).parameters  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        return ""
    texts, is_keyword = [], False
    for parameter in parameters.values():
        if parameter.kind is Parameter.KEYWORD_ONLY and not is_keyword:
            texts.append("*")
        is_keyword |= parameter.kind in (Parameter.KEYWORD_ONLY, Parameter.VAR_POSITIONAL)
        default = (
            "" if parameter.default is Parameter.empty else f"={default_text(parameter.default)}"
        )
        stars = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}
        texts.append(f"{stars.get(parameter.kind, '')}{parameter.name}{default}")
    return f"({', '.join(texts)})"


def described(name: str, value: object) -> Iterator[str]:
    """One line for a name, and one for each public method of a class."""
    if isclass(value):
        of_fields = f"({', '.join(f.name for f in fields(value))})" if is_dataclass(value) else ""
        yield f"class {name}{of_fields or of_signature(value)}"
        for method, function in sorted(vars(value).items()):
            if method.startswith("_") or (is_dataclass(value) and method in value.__annotations__):
                continue
            if isinstance(function, property | cached_property):
                yield f"    {method}"
            elif isfunction(function):
                yield f"    {method}{of_signature(function)}"
            elif isinstance(function, classmethod | staticmethod):
                yield f"    {method}{of_signature(function.__func__)}"
    elif isfunction(value):
        yield f"def {name}{of_signature(value)}"
    else:
        yield name


def listing() -> str:
    """Every public name of every package, with its signature."""
    lines: list[str] = []
    for package in PACKAGES:
        if package == "training":
            continue
        module = import_module(package)
        lines += [package, "=" * len(package)]
        for name in sorted(module.__all__):
            lines += described(name, getattr(module, name))
        lines.append("")
    return "\n".join(lines)


def test_the_listing_has_every_public_name_with_its_signature():
    """A change of the API is a line of this file."""
    assert LISTING.read_text(encoding="utf-8") == listing(), "run tests/test_public_names.py"


if __name__ == "__main__":
    LISTING.write_text(listing(), encoding="utf-8")
    sys.stdout.write(f"{LISTING}\n")
