"""What every result can do: it pickles, copies, and is shown in a line or a small page."""

import base64
import copy
import json
import pickle
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache, partial
from importlib import import_module
from inspect import getattr_static, getmembers_static, signature, unwrap
from pkgutil import iter_modules

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
import torch
from declared import declarations, declared_as
from pictured import check_view
from result_vocabulary import KIND, VOCABULARY
from torch import Tensor

import analyses
from analyses.results import Scale, plotly_figure, size_notes
from analyses.results.payload import encoded, plain
from analyses.results.result import MAX_LINES, Result
from apps.widget.pictures import view_of
from interp.errors import InvalidInput

MADE = {declarations()[name].result: made for name, made in declared_as("made").items()}
"""How each result is made, by the name of its class."""
OF_SOME_ROWS = [
    kind.__name__
    for kind in Result.__subclasses__()
    if kind.__name__ in MADE and set(signature(kind.summary).parameters) != {"self"}
]
"""Those whose summary takes the number of its rows."""


@cache
def made(name: str) -> Result:
    return MADE[name].make()


def test_every_kind_of_result_is_made():
    for module in iter_modules(analyses.__path__):
        import_module(f"analyses.{module.name}")
    kinds = [kind for kind in Result.__subclasses__() if kind.__module__.startswith("analyses.")]
    assert {kind.__name__ for kind in kinds} == set(MADE), "see made= of declared.Declared"


@pytest.mark.parametrize("name", MADE)
def test_a_result_pickles_and_copies(name):
    result = made(name)
    twin = pickle.loads(pickle.dumps(copy.deepcopy(copy.copy(result))))
    assert type(twin) is type(result)
    pd.testing.assert_frame_equal(twin.to_frame(), result.to_frame())
    assert twin.summary() == result.summary()
    assert twin.figure().to_json() == result.figure().to_json()  # in which NaN is NaN


MEANS = {name: made.means for name, made in MADE.items() if isinstance(made.means, tuple)}
"""The column of single prompts, and that of the means, of results that have both."""


def test_results_with_values_of_single_prompts_name_their_columns():
    having = {name for name in MADE if hasattr(made(name), "to_prompt_frame")}
    declaring = {name for name, declared in MADE.items() if declared.means is not None}
    assert having == declaring, "see means= of declared.Made"


@pytest.mark.parametrize("name", MEANS)
def test_means_are_those_of_the_values_of_single_prompts(name):
    """By a key of all columns that both tables have and that are not numbers of a cell."""
    value, mean = MEANS[name]
    each, of_cells = made(name).to_prompt_frame(), made(name).to_frame()
    keys = [column for column in each if column in of_cells and each[column].dtype.kind not in "fb"]
    means = each.groupby(keys, dropna=False)[value].mean()
    expected = of_cells.set_index(keys)[mean]
    assert len(means) == len(expected) > 0
    pd.testing.assert_series_equal(
        means.sort_index(), expected.sort_index(), check_names=False, check_dtype=False, atol=1e-6
    )


def entry_kind(value: object) -> str | None:
    """The kind of the entries of a value of any shape; ``None`` if there are none."""
    if isinstance(value, Tensor):
        value = value.flatten()[:1].tolist()
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, list | tuple):
        (kind,) = {entry_kind(entry) for entry in value} - {None} or {None}
        return kind
    kinds = {bool: "bool", int: "int", float: "float", str: "text", type(None): None}
    return kinds.get(type(value), "object")


def frames_of(result: Result) -> dict[str, pd.DataFrame]:
    """The tables of a result, by the names of their methods."""
    methods = (
        name
        for name, member in getmembers_static(type(result), callable)
        if not name.startswith("_") and signature(unwrap(member)).return_annotation is pd.DataFrame
    )
    return {name: getattr(result, name)() for name in methods}


def named_values(result: Result) -> Iterator[tuple[str, object]]:
    """The fields, properties and columns of a result: all that have a name."""
    for name in dir(type(result)):
        if not name.startswith("_") and isinstance(getattr_static(type(result), name), property):
            yield name, getattr(result, name)
    for field in fields(result):
        yield field.name, getattr(result, field.name)
    for frame in frames_of(result).values():
        for name in frame:
            yield name, frame[name].dropna().tolist()


def test_every_name_has_one_meaning():
    names = [name for group in VOCABULARY.values() for name in group]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", MADE)
def test_fields_and_columns_have_names_of_the_vocabulary(name):
    """The same thing has the same name in every result, and another thing another name."""
    for key, value in named_values(made(name)):
        assert key in KIND, f"{key} is not in result_vocabulary.py"
        assert KIND[key] == "object" or entry_kind(value) in (KIND[key], None), key


@pytest.mark.parametrize("name", MADE)
def test_tables_are_named_alike(name):
    """``to_frame``, and ``to_…_frame`` for others; ranks count from 1."""
    result = made(name)
    frames = frames_of(result)
    assert all(method == "to_frame" or re.fullmatch("to_[a-z]+_frame", method) for method in frames)
    for table in (*frames.values(), *result.more_frames().values()):
        assert "rank" not in table or table["rank"].min() >= 1
    for table in result.more_frames().values():
        assert any(table.equals(frame) for frame in frames.values())


@pytest.mark.parametrize("name", MADE)
def test_a_result_is_shown_by_its_summary(name):
    result = made(name)
    assert isinstance(result.figure(), go.Figure)
    assert repr(result) == f"{name}({result.headline()})"
    assert result.summary().splitlines()[0] == result.headline()
    assert len(repr(result)) < 200
    page = result._repr_html_()
    assert page.startswith("<pre>")
    assert page.endswith("</pre>")
    assert "<" not in page[len("<pre>") : -len("</pre>")]


@pytest.mark.parametrize("name", OF_SOME_ROWS)
def test_a_summary_takes_numbers_of_lines(name):
    """Of the function without the check of its annotations, which only tests have."""
    result = made(name)
    summary = partial(unwrap(type(result).summary), result)
    for number in signature(summary).parameters:
        assert summary(**{number: np.int64(2)}) == summary(**{number: 2})
        for odd in ("a", 1.5, -1, True, None, [2]):
            with pytest.raises(InvalidInput, match=f"^{number}=.* must be an integer of at least"):
                summary(**{number: odd})


@pytest.mark.parametrize("name", MADE)
def test_a_payload_is_json_and_holds_every_number(name):
    result = made(name)
    read = json.loads(json.dumps(result.payload(), allow_nan=True))
    assert read["result"] == name
    for field in fields(result):
        value = getattr(result, field.name)
        if isinstance(value, Tensor):
            payload = read[field.name]
            array = np.frombuffer(base64.b64decode(payload["data"]), payload["dtype"])
            expected = value.numpy().astype(payload["dtype"])
            np.testing.assert_array_equal(array.reshape(payload["shape"]), expected)
            assert payload["dtype"] in ("float32", "int32", "bool")


@pytest.mark.parametrize("name", MADE)
def test_a_view_holds_what_its_figure_shows(name):
    for drawing in made(name).drawings().values():
        check_view(view_of(drawing, name), plotly_figure(drawing))


def test_a_figure_takes_the_settings_of_its_drawing():
    result = made("OVCircuit")
    assert signature(result.figure) == signature(result.drawing).replace(
        return_annotation=go.Figure
    )
    assert result.figure("in") == plotly_figure(result.drawing("in"))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_numbers_of_any_precision_are_written_in_single(dtype):
    payload = encoded(torch.tensor([[1.5, -2.0]], dtype=dtype))
    assert (payload["dtype"], payload["shape"]) == ("float32", [1, 2])
    assert np.frombuffer(base64.b64decode(payload["data"]), "float32").tolist() == [1.5, -2.0]


def test_lists_of_numbers_are_written_like_tensors():
    assert encoded([[1, 2.5], [3, 4]]) == encoded(torch.tensor([[1.0, 2.5], [3.0, 4.0]]))


def test_a_scale_covers_all_finite_values_and_is_never_empty():
    values = [[-3.0, float("nan")], [1.0, float("inf")]]
    assert Scale.around_zero(values) == Scale("diverging", -3.0, 3.0)
    assert Scale.from_zero(torch.tensor(values), least=5.0) == Scale("sequential", 0.0, 5.0)
    assert Scale.around_zero([]) == Scale.around_zero([0.0]) == Scale("diverging", -1.0, 1.0)


def test_what_is_no_data_is_refused():
    with pytest.raises(InvalidInput, match="A object can't be written as plain data"):
        plain(object())


def test_a_long_summary_is_cut():
    class Long(Result):
        to_frame = drawing = headline = None

        def summary(self) -> str:
            return "\n".join(f"<b>{n}</b>" for n in range(MAX_LINES + 3))

    page = Long()._repr_html_()
    assert page.count("\n") == MAX_LINES
    assert "… and 3 more lines" in page
    assert "&lt;b&gt;0&lt;/b&gt;" in page


def test_a_size_is_noted_where_a_later_effect_is_larger():
    """Effects that cancel over prompts; without one, nothing is noted."""
    notes = size_notes([-2.5, 0.9, 1.4, -1.0], [2.5, 1.6, 1.5, 1.2], 2)
    assert notes == ["", "mean size 1.60", "", ""]
    assert size_notes([-2.5, 1.4, 1.4], [2.5, 1.6, 1.5], 2) == ["", "", ""]
