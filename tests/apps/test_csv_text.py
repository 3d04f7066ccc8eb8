"""CSV files hold no formulas, and the same numbers."""

from io import StringIO

import pandas as pd

from apps.csv_text import csv_text


def test_a_text_that_begins_as_a_formula_has_an_apostrophe_and_other_cells_are_unchanged():
    texts = ["=1+1", "+1", "-1", "@a", "\ta", "\ra", " =1", "a=1", "é\n", None]
    numbers = [-1.0, 1e-300, float("nan"), 0.1, *range(6)]
    frame = pd.DataFrame({"token": texts, "effect": numbers, "layer": range(-5, 5)})
    again = pd.read_csv(StringIO(csv_text(frame)), lineterminator="\n")
    assert [*again["token"][:-1]] == [f"'{text}" for text in texts[:6]] + texts[6:9]
    pd.testing.assert_frame_equal(again[["effect", "layer"]], frame[["effect", "layer"]])
    plain = frame.assign(token="a")
    assert csv_text(plain) == plain.to_csv(index=False)
