"""What every result can do: it pickles, copies, and is shown in a line or a small page."""

import copy
import pickle

import pandas as pd
import plotly.graph_objects as go
import pytest

import analyses
import interp
from analyses import ablate_heads, attention_pattern, training_history
from analyses.result import MAX_LINES, Result


def made(name: str) -> Result:
    model = interp.load("induction-by-hand")
    return {
        "HeadAblation": lambda: ablate_heads(model, ["abcab", "xyxy", "qrsq"], method="zero"),
        "AttentionPattern": lambda: attention_pattern(model, "abcab", 1, 0),
        "TrainingHistory": lambda: training_history("python-2l", interp.history("python-2l")),
    }[name]()


RESULTS = [
    name
    for name in analyses.__all__
    if isinstance(getattr(analyses, name), type) and issubclass(getattr(analyses, name), Result)
]


def test_every_analysis_returns_one():
    functions = [name for name in analyses.__all__ if not isinstance(getattr(analyses, name), type)]
    returned = {getattr(analyses, name).__annotations__["return"].__name__ for name in functions}
    assert returned == set(RESULTS)


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_pickles_and_copies(name):
    result = made(name)
    for twin in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result), copy.copy(result)):
        assert type(twin) is type(result)
        pd.testing.assert_frame_equal(twin.to_frame(), result.to_frame())
        assert twin.summary() == result.summary()
        assert twin.figure() == result.figure()


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_shown_by_its_summary(name):
    result = made(name)
    assert isinstance(result.figure(), go.Figure)
    assert repr(result) == f"{name}({result.summary().splitlines()[0]})"
    assert len(repr(result)) < 200
    page = result._repr_html_()
    assert page.startswith("<pre>")
    assert page.endswith("</pre>")
    assert "<" not in page[len("<pre>") : -len("</pre>")]


def test_a_long_summary_is_cut():
    class Long(Result):
        to_frame = figure = None

        def summary(self) -> str:
            return "\n".join(f"<b>{n}</b>" for n in range(MAX_LINES + 3))

    page = Long()._repr_html_()
    assert page.count("\n") == MAX_LINES
    assert "… and 3 more lines" in page
    assert "&lt;b&gt;0&lt;/b&gt;" in page
