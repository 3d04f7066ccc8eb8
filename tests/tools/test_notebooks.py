"""The notebooks run; they assert what they claim."""

import json

import pytest

from tools.notebook_cells import runs
from tools.notebook_pages import NOTEBOOKS, REAL, executed, notebooks_in

pytest.importorskip("IPython", reason="in the extra [notebooks]")

ALL = notebooks_in(NOTEBOOKS)
OF_BUNDLED_MODELS = [path for path in ALL if path.parent.name != REAL]
LONG = ("1-ioi-smollm2",)
"""Notebooks that take more than a minute."""
OF_PRETRAINED_MODELS = [
    pytest.param(path, marks=[pytest.mark.nightly] if path.stem in LONG else [])
    for path in ALL
    if path.parent.name == REAL
]


@pytest.mark.notebook
@pytest.mark.parametrize("path", OF_BUNDLED_MODELS, ids=lambda path: path.stem)
def test_it_runs(path):
    assert runs(path)


@pytest.mark.real
@pytest.mark.parametrize("path", OF_PRETRAINED_MODELS, ids=lambda path: path.stem)
def test_it_runs_on_a_pretrained_model(path):
    assert runs(path)


@pytest.mark.notebook
def test_a_kernel_of_jupyter_runs_the_same():
    """What `make notebook-pages` executes all of them with."""
    cells = executed(NOTEBOOKS / "compat" / "3-head-detector.ipynb")["cells"]
    assert all(cell["execution_count"] for cell in cells if cell["cell_type"] == "code")


@pytest.mark.notebook
@pytest.mark.parametrize(
    ("source", "is_right"),
    [
        ("assert 1 + 1 == 2\nprint(__name__)", True),
        ("assert 1 + 1 == 3", False),
        ("import sys\nsys.exit()", False),
        ("%no_magic", False),
        ("1 +", False),
        ("import plotly.graph_objects as go\ngo.Figure(layout_title_text='t')", True),
    ],
)
def test_a_notebook_with_a_cell_that_raises_does_not_run(tmp_path, source, is_right):
    """Nor do the cells after it."""
    cells = [
        {"cell_type": "markdown", "source": ["not (code"]},
        {"cell_type": "code", "source": source.splitlines(keepends=True)},
        {"cell_type": "code", "source": "open('reached', 'w').close()"},
    ]
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps({"cells": cells}), encoding="utf-8")
    assert runs(path) is is_right
    assert (tmp_path / "reached").exists() is is_right
