"""Files of the explorer's results hold the numbers of the page."""

import json
from io import StringIO

import pandas as pd

from analyses import ablate
from apps.explorer.downloads import file_name, files_of
from apps.explorer.questions import question
from interp.loading import load

MODEL = "induction-by-hand"
ASKED = question(ablate, MODEL, ["abcab", "xyzxy"], method="zero")


def test_each_file_holds_the_result():
    result = ASKED.run(load(MODEL))
    made = {ending: make() for ending, make in files_of(ASKED, result).items()}
    table, expected = pd.read_csv(StringIO(made["csv"])), result.to_frame()
    assert table["name"].tolist() == expected["name"].tolist()
    assert (table["effect"] - expected["effect"]).abs().max() < 1e-12
    data = json.loads(made["json"])
    assert data["code"] == ASKED.code()
    assert data["provenance"]["weights"] == result.provenance.weights
    assert data["ablated"] == result.payload()["ablated"]
    assert "<!doctype html>" in made["html"]
    assert result.provenance.weights in made["html"]


def test_a_file_is_named_by_analysis_and_model():
    assert file_name(ASKED, "csv") == "ablate-induction-by-hand.csv"
    assert file_name(question(ablate, "../a b/c@7", ["a"]), "json") == "ablate-..-a-b-c@7.json"
