"""The examples in the docstrings of public functions run, and print what the docstrings have."""

import doctest
import inspect

import pytest
import torch

import analyses
import interp
from interp import dictionaries
from interp.kernels.packed import is_available
from tools.site.pages import agrees

CLASSES = ("Cache", "Config", "LowRank", "Point", "Sweep", "Template", "Transformer")
WITHOUT = {
    "interp.load_towers": "no bundled model has two towers",
    "interp.packing_gain": "it returns the ratio of two times",
    "interp.parallel": "processes of torchrun call it",
    "interp.dictionaries.load_cross_layer": "none of circuit-tracer is bundled",
    "interp.dictionaries.load_set": "no set of circuit-tracer is bundled",
    "interp.dictionaries.load_training": "it reads what a training that was stopped has written",
    "interp.dictionaries.load_cross_layer_training": "likewise",
    "interp.dictionaries.save": "it writes a folder; a how-to page has it",
    "interp.dictionaries.train_rows": "it does in memory what train does",
}
"""Functions without an example, each with the reason."""
MARKS = {
    "analyses.frequencies": pytest.mark.slow,
    "interp.packed": pytest.mark.skipif(not is_available(), reason="no packed products"),
}
NAMES = {"analyses": analyses, "interp": interp, "torch": torch}
"""What an example may use without importing it."""
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PUBLIC = {
    f"{package.__name__}.{name}": getattr(package, name)
    for package in (interp, analyses, dictionaries)
    for name in package.__all__
    if inspect.isfunction(getattr(package, name)) or (package is interp and name in CLASSES)
}


class Checker(doctest.OutputChecker):
    """Numbers may differ by one unit of their last digit, and lines may be broken."""

    def check_output(self, want, got, optionflags):
        lines = " ".join(got.split()), " ".join(want.split())
        return super().check_output(want, got, optionflags) or agrees(*lines)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=MARKS.get(name, ())) for name in PUBLIC if name not in WITHOUT],
)
def test_the_example_prints_what_the_docstring_has(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    docstring = inspect.getdoc(PUBLIC[name])
    _, section, examples = docstring.partition("\n\nExamples:\n")
    assert section, "a docstring ends with a section 'Examples:'"
    example = doctest.DocTestParser().get_doctest(examples, dict(NAMES), name, None, 0)
    assert example.examples[-1].want
    printed = []
    doctest.DocTestRunner(Checker(), optionflags=FLAGS).run(example, out=printed.append)
    assert not printed, "".join(printed)


def test_functions_without_an_example_have_none():
    assert not [name for name in WITHOUT if ">>>" in inspect.getdoc(PUBLIC[name])]


@pytest.mark.parametrize(
    ("got", "same"), [("0.124", True), ("0.125", False), ("0.12", False), ("x 0.123", False)]
)
def test_numbers_are_compared_to_one_unit_of_their_last_digit(got, same):
    assert Checker().check_output("0.123\n", f"{got}\n", FLAGS) == same
