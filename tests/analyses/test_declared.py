"""Every analysis declares what the tests of all analyses have to know of it."""

import sys
from pathlib import Path

from declared import FOLDER, Declared, declarations

import analyses


def test_every_analysis_is_declared():
    fields = ", ".join(f"{name}=…" for name in Declared.__annotations__ if name != "analysis")
    assert [
        f"end the test file of {name} with DECLARED = Declared(analysis={name}, {fields}): "
        "see tests/declared"
        for name in analyses.available()
        if name not in declarations()
    ] == []


def test_what_is_declared_is_public():
    for name, declared in declarations().items():
        assert analyses.available()[name] is declared.analysis


def test_a_file_with_a_declaration_is_imported_once():
    """By the name that pytest imports it by."""
    declarations()
    names = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and Path(file).parent == FOLDER:
            names.setdefault(file, set()).add(name)
    assert all(modules == {Path(file).stem} for file, modules in names.items())
