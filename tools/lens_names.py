"""Write the table of TransformerLens's public names, and the page that says what each is here.

``python -m tools.lens_names`` reads the source of the installed TransformerLens, without running
it. A public name is one that a module defines or imports and that does not begin with ``_``.
"""

import ast
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path

from interp import compat

NAME, VERSION = "transformer_lens", "3.9.0"
Imported = dict[str, str | None]
"""Names, and the ``module:name`` or the module from which each is imported; ``None`` if defined."""
ROOT = Path(__file__).parents[1]
NAMES = ROOT / "interp" / "compat" / "names_of_3_9.txt"
PAGE = ROOT / "docs" / "reference" / "transformerlens-names.md"
HEAD = """# Names of TransformerLens

<!-- Written by `python -m tools.lens_names`. -->

Every public name of TransformerLens {version}, by the module that defines it, and what it is after
[`interp.compat.install()`](../how-to/transformerlens-notebooks.md): of {total} names in {modules}
modules, {same} are supported, with the values of TransformerLens (tests compare them) and errors
that are also of its classes; {refused} are refused. A refused name can be imported, subclassed and
used in annotations and `isinstance`; any other use raises an error that says what to use instead.
Names that a module only imports, from another module of TransformerLens or from another library,
can be imported from it too ({imported} such names).

| module | supported | refused | use instead |
| --- | --- | --- | --- |
"""


WHOLE = ("benchmarks", "conversion_utils", "lit", "model_bridge", "pretrained", "tools")
"""Packages of which no module is supported; each is one row of the page."""


def source_files(root: Path) -> dict[str, Path]:
    """The file of each module of a package."""
    files: dict[str, Path] = {}
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root.parent).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return files


def names_of(file: Path, module: str) -> Imported:
    """The public names at the top level of a file, and where those are from that it imports."""
    is_package = file.name == "__init__.py"
    names: Imported = {}
    for statement in _top_level(ast.parse(file.read_text(encoding="utf-8")).body):
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names[statement.name] = None
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = getattr(statement, "targets", [getattr(statement, "target", None)])
            assigned = [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
            names = dict.fromkeys(assigned) | names  # ``except ImportError: name = None``
        elif isinstance(statement, ast.Import):
            for alias in statement.names:
                first = alias.name.partition(".")[0]
                names[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(statement, ast.ImportFrom):
            base = _absolute(statement, module, is_package=is_package)
            for alias in statement.names:
                names[alias.asname or alias.name] = f"{base}:{alias.name}"
    return {name: origin for name, origin in names.items() if not name.startswith("_")}


def _top_level(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run when a module is imported, without those for type checkers."""
    for statement in body:
        if isinstance(statement, ast.If | ast.Try):
            if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
                continue
            yield from _top_level(statement.body)
            for handler in getattr(statement, "handlers", []):
                yield from _top_level(handler.body)
            yield from _top_level(statement.orelse)
        else:
            yield statement


def _absolute(statement: ast.ImportFrom, module: str, *, is_package: bool) -> str:
    """The full name of the module that a statement imports from."""
    if not statement.level:
        return statement.module or ""
    parts = module.split(".")
    package = parts[: len(parts) - statement.level + is_package]
    return ".".join([*package, *([statement.module] if statement.module else [])])


def all_names() -> dict[str, Imported]:
    """The public names of each module of the installed TransformerLens."""
    spec = PathFinder.find_spec(NAME)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{NAME} is not installed; the extra `dev` names its version.")
    files = source_files(Path(spec.origin).parent)
    names = {module: names_of(file, module) for module, file in files.items()}
    for module, imported in names.items():
        for origin in [o for name, o in imported.items() if name == "*" and o]:
            names[module] = {
                **{name: origin.replace("*", name) for name in names[origin.partition(":")[0]]},
                **{name: other for name, other in imported.items() if name != "*"},
            }
    return names


def table(names: dict[str, Imported]) -> str:
    """One line for each module: its name and its public names, with ``=origin`` if imported.

    The name of TransformerLens itself is left out, and the name in an origin if it is the same.
    """
    lines = [
        " ".join([_short(module) or ".", *(_entry(n, o) for n, o in sorted(imported.items()))])
        for module, imported in sorted(names.items())
    ]
    return "\n".join(lines) + "\n"


def _short(name: str) -> str:
    return name.removeprefix(NAME)


def _entry(name: str, origin: str | None) -> str:
    if origin is None:
        return name
    module, colon, original = origin.partition(":")
    return f"{name}={_short(module)}{colon}{'' if original == name else original}"


def page(names: dict[str, Imported]) -> str:
    """The page: which names are supported, and what to use instead of the others.

    To be called after ``interp.compat.install()``.
    """
    counts = {"total": 0, "same": 0, "refused": 0, "imported": 0}
    rows: dict[str, tuple[list[str], list[str], list[str]]] = {}
    for module, imported in sorted(names.items()):
        defined = sorted(name for name, origin in imported.items() if origin is None)
        values = {name: getattr(import_module(module), name) for name in defined}
        instead = {n: v.instead for n, v in values.items() if type(v).__name__ == "Refused"}
        same, refused = [name for name in defined if name not in instead], list(instead)
        counts["imported"] += len(imported) - len(defined)
        counts["total"] += len(defined)
        counts["same"] += len(same)
        counts["refused"] += len(refused)
        first = ".".join(module.split(".")[:2])
        row = rows.setdefault(f"{first}.*" if first.endswith(WHOLE) else module, ([], [], []))
        for cell, values_of_cell in zip(row, (same, refused, instead.values()), strict=True):
            cell.extend(values_of_cell)
    lines = [
        f"| `{module}` | {_codes(same)} | {_codes(refused)} | {'; '.join(dict.fromkeys(instead))} |"
        for module, (same, refused, instead) in rows.items()
        if same or refused
    ]
    head = HEAD.format(version=VERSION, modules=len(names), **counts)
    return head + "\n".join(lines) + "\n"


def _codes(names: Iterable[str]) -> str:
    return " ".join(f"`{name}`" for name in dict.fromkeys(names))


def main() -> None:
    """Write both files."""
    names = all_names()
    NAMES.write_text(table(names), encoding="utf-8")
    compat.install()
    PAGE.write_text(page(names), encoding="utf-8")


if __name__ == "__main__":
    main()
