"""The page Report: what a command wrote, read again; a click on a head; the command's option."""

import base64
import json
import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest
from typer.testing import CliRunner

from analyses import ablate
from apps.cli import app as interp_app
from apps.commands.inputs import Inputs
from apps.defaults import default_prompts
from apps.explorer.opened import open_reports, reports
from apps.explorer.pages.report import on_pick, views
from apps.explorer.view import Head, View
from apps.report import written
from apps.report.written import read_written
from apps.serve import APP
from interp.errors import InvalidInput
from interp.loading import load
from interp.prompts.prompts import read_prompts

MODEL = "rasp-reverse"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an ablation, as the command writes it."""
    folder = tmp_path_factory.mktemp("reports") / "ablation"
    done = CliRunner().invoke(interp_app, ["ablate", "--model", MODEL, "--out", str(folder)])
    assert done.exit_code == 0, done.output
    return folder


@pytest.mark.parametrize("part", ["", "report.html", ".."])
def test_a_report_is_read_from_its_page_its_folder_or_the_folder_above(folder, part):
    (report,) = read_written(folder / part)
    assert (report.name, report.model) == ("ablation", MODEL)
    assert "L2H0" in report.conclusion
    assert report.facts["command"].startswith("interp ablate")
    drawn, table, by_prompt = report.views
    assert len(by_prompt["rows"]) == len(pd.read_csv(folder / "heads_by_prompt.csv"))
    run = json.loads((folder / "run.json").read_text())
    assert table["rows"][0][0] == run["heads_by_size"][0]
    assert len(table["rows"]) == len(pd.read_csv(folder / "heads.csv"))
    assert drawn["kind"] == "matrix"


def test_its_map_has_the_numbers_of_the_analysis(folder):
    model = load(MODEL)
    inputs = Inputs(model, tuple(read_prompts(default_prompts(MODEL))))
    result = ablate(model, inputs.batch, metric=inputs.metric("logit-diff"))
    drawn = read_written(folder)[0].views[0]
    drawn_values = np.frombuffer(base64.b64decode(drawn["values"]["data"]), "<f4")
    expected = result.effect.mean(-1).numpy().ravel()
    np.testing.assert_allclose(drawn_values, expected, rtol=1e-5, atol=1e-6)


def test_what_is_no_report_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="No report in"):
        read_written(tmp_path)
    page = tmp_path / "report.html"
    for text in ("", "<p>other</p>", '<script type="application/json" id="views-a">{</script>'):
        page.write_text(text)
        with pytest.raises(InvalidInput, match="report"):
            read_written(tmp_path)


VIEW = {"kind": "table", "id": "a", "title": "", "columns": [], "rows": []}


def with_views(folder, text):
    """Write a page whose views are a text."""
    page = f'<dl><dt>model</dt><dd>m</dd></dl><script type="application/json" id="views-a">{text}'
    (folder / "report.html").write_text(f"{page}</script>", encoding="utf-8")


def instead(path, make):
    """Replace a file by something else."""
    path.unlink()
    make(path)


HOSTILE = {
    "a device": lambda folder: instead(
        folder / "report.html", lambda page: page.symlink_to("/dev/zero")
    ),
    "a pipe": lambda folder: instead(folder / "report.html", os.mkfifo),
    "a link out of the folder": lambda folder: instead(
        folder / "report.html", lambda page: page.symlink_to(folder.parent / "other.html")
    ),
    "a table that is a link out": lambda folder: (folder / "a.csv").symlink_to("/etc/passwd"),
    "a table that is a pipe": lambda folder: os.mkfifo(folder / "a.csv"),
    "a large page": lambda folder: os.truncate(folder / "report.html", written.MAX_BYTES + 1),
    "many columns": lambda folder: (folder / "a.csv").write_text("," * 200_000),
    "many tables": lambda folder: [(folder / f"{n}.csv").write_text("a") for n in range(101)],
    "no table": lambda folder: (folder / "a.csv").write_bytes(b"\xff\0"),
    "deep JSON": lambda folder: with_views(folder, "[" * 100_000),
    "many digits": lambda folder: with_views(folder, '{"views": [' + "9" * 5000 + "]}"),
    "no object": lambda folder: with_views(folder, "[]"),
    "no list of views": lambda folder: with_views(folder, '{"views": {"a": 1}}'),
    "a view that is a text": lambda folder: with_views(folder, '{"views": ["a"]}'),
    "a kind that is a list": lambda folder: with_views(
        folder, json.dumps({"views": [VIEW | {"kind": []}]})
    ),
    "an unfinished declaration": lambda folder: (folder / "report.html").write_text("<![a"),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("damage", HOSTILE.values(), ids=HOSTILE)
def test_a_report_that_is_no_small_file_of_its_folder_is_refused(tmp_path, damage):
    with_views(tmp_path, json.dumps({"views": [VIEW]}))
    assert len(read_written(tmp_path)) == 1
    (tmp_path.parent / "other.html").write_bytes((tmp_path / "report.html").read_bytes())
    damage(tmp_path)
    with pytest.raises(InvalidInput):
        read_written(tmp_path)


def test_links_inside_the_folder_are_followed(tmp_path):
    (tmp_path / "run").mkdir()
    with_views(tmp_path / "run", json.dumps({"views": [VIEW]}))
    (tmp_path / "latest").symlink_to("run")
    assert [report.model for report in read_written(tmp_path)] == ["m", "m"]


def test_reports_of_one_name_stay_apart(folder):
    open_reports([folder, folder / "report.html"])
    try:
        assert [*reports()] == ["ablation", "ablation (2)"]
    finally:
        open_reports([])


def test_a_click_on_a_head_opens_it_in_the_model_of_the_report(folder):
    open_reports([folder])
    try:
        here = View(page="report", model=MODEL, text="abc")
        cell = {"pick": "head", "row": 1, "column": 2, "name": ""}
        assert on_pick(here, cell) == View(page="heads", model=MODEL, text="abc", head=Head(1, 2))
        row = {"pick": "row", "row": 0, "name": "L2H0"}
        elsewhere = on_pick(View(page="report", model="python-2l"), row)
        assert (elsewhere.page, elsewhere.model, elsewhere.head) == ("heads", MODEL, Head(2, 0))
        assert on_pick(here, {"pick": "row", "row": 0, "name": "MLP"}) == here
        assert [drawing["pick"] for drawing in views(here, load(MODEL), {})] == [
            "head",
            "row",
            "row",
        ]
    finally:
        open_reports([])


def test_a_session_opens_with_the_report_and_one_without_has_no_such_page(folder, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(APP), f"--model={MODEL}", f"--results={folder}"])
    app = AppTest.from_file(str(APP), default_timeout=60).run()
    assert not app.exception
    assert app.session_state["view"].page == "report"
    assert dict(app.query_params) == {}
    assert "L2H0" in app.markdown[0].value
    monkeypatch.setattr(sys, "argv", [str(APP)])
    other = AppTest.from_file(str(APP), default_timeout=60)
    other.query_params["page"] = "report"
    other.run()
    assert "no report is open" in other.warning[0].value.replace("\\", "")
    assert other.session_state["view"].page == "heads"


def test_the_command_refuses_what_is_no_report(command, tmp_path):
    done = command("explore", "--results", tmp_path, "--headless")
    assert done.exit_code != 0
    assert "No report in" in done.output + done.stderr
