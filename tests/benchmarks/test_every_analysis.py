"""The costs of commands: the text of a row, interrupted tables, limits, counted forwards."""

import json
import sys
from dataclasses import replace

import pytest

import interp
from benchmarks import every_analysis as costs
from benchmarks.every_analysis import Cost, Inputs, Products
from benchmarks.limits import multiply_adds

MODEL = "rasp-reverse"
PYTHON = (sys.executable, "-S", "-c")
LENS, VERIFY = (
    Cost(name, MODEL, read, 2.5, 8.0, 9.0, 10**9, 3 * 10**5, "done")
    for name, read in (("lens", "32 pairs"), ("verify", "weights"))
)


def test_a_row_has_every_number_and_what_is_too_much():
    assert LENS.cells() == ("lens", "32 pairs", "2.5", "8 s", "9 s", "1.00 GB", "0.3 MB", "")
    too_much = Cost("lens", MODEL, "32 pairs", 123.4, 1000, 1801, 5 * 10**9, 0, "done")
    assert too_much.cells()[2:5] == ("123", "1000 s", "1801 s")
    assert too_much.remark() == "too much time and memory"
    stopped = Cost("lens", MODEL, "32 pairs", 7, 60, 50, 10**9, 0, "over the limit")
    assert stopped.cells()[2:5] == ("> 7", "> 60 s", "> 50 s")
    assert stopped.remark() == "over the limit"
    killed = Cost("lens", MODEL, "32 pairs", None, 60, 50, 10**9, 0, "over the limit")
    assert killed.cells()[2] == ""


def test_an_interrupted_table_goes_on_where_it_stopped(tmp_path, monkeypatch, capsys):
    measured, page = [], tmp_path / "page.md"
    page.write_text("\n".join(["before", *costs.MARKERS, "after"]))
    rows = {cost.name: cost for cost in (LENS, VERIFY)}
    monkeypatch.setattr(costs, "COMMANDS", {name: costs.COMMANDS[name] for name in rows})

    def measure(name, inputs, limit, *, counts):
        assert (inputs.model, limit) == (MODEL, 1200)
        if not counts:
            return replace(rows[name], seconds=1.0, forwards=None)
        if len(measured) == 1:
            measured.append("interrupted")
            raise KeyboardInterrupt
        measured.append(name)
        return rows[name]

    monkeypatch.setattr(costs, "measured", measure)
    words = ["--model", MODEL, "--out", str(tmp_path / "costs.jsonl")]
    with pytest.raises(KeyboardInterrupt):
        costs.main(words)
    assert costs.main([*words, "--docs", str(page)]) == 0
    assert measured == ["lens", "interrupted", "verify"]
    before, *table, after = page.read_text().splitlines()
    assert (before, after) == ("before", "after")
    assert [line.split(" | ")[0] for line in table[3:5]] == ["| lens", "| verify"]
    assert costs.main([*words, "--only", "verify"]) == 0
    assert measured[3:] == ["verify"]
    assert costs.main([*words, "--only", "lens", "--uncounted"]) == 0
    uncounted = costs.read(tmp_path / "costs.jsonl")[-1]
    assert uncounted == replace(LENS, seconds=1.0)
    assert costs.main([*words, "--pairs", "4", "--only", "lens"]) == 0
    assert "| verify | weights" in capsys.readouterr().out


ENDS = "Path(sys.argv[1]).write_text('25'); out.mkdir(); (out / 'f').write_text('abc')"
FAILS = "print('a\\nerror: no such model', file=sys.stderr); sys.exit(3)"


@pytest.mark.parametrize(
    ("script", "limit", "measured"),
    [
        (ENDS, 60, ("done", 2.5, 3)),
        (FAILS, 60, ("error: no such model", None, 0)),
        ("time.sleep(60)", 0.3, ("over the limit", None, 0)),
    ],
)
def test_a_process_is_measured_until_it_ends_or_for_as_long_as_the_limit(
    tmp_path, monkeypatch, script, limit, measured
):
    head = "import signal, sys, time\nfrom pathlib import Path\nout = Path(sys.argv[-1])\n"
    head += (
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored in a background job
    )
    monkeypatch.setattr(costs, "CHILD", (*PYTHON, head + script))
    monkeypatch.setattr(costs, "_forward_of", lambda model, file: 10)
    cost = costs.measured("lens", Inputs(MODEL, 3, 100, tmp_path), limit)
    assert (cost.outcome, cost.forwards, cost.written) == measured
    assert (cost.name, cost.read) == ("lens", "3 pairs")
    assert limit * (cost.outcome == "over the limit") <= cost.seconds < 30
    assert cost.nbytes > 10**6


def test_commands_read_the_pairs_and_the_text_that_were_asked_for(tmp_path):
    inputs = Inputs("python-2l", 3, 3000, tmp_path)
    words = inputs.words(costs.COMMANDS["lens"])
    assert words == ["lens", "--prompts", str(tmp_path / "pairs.jsonl"), "--model", "python-2l"]
    pairs = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    assert pairs == [pair.fields() for pair in interp.read_prompts("python-2l-pairs")[:3]]
    assert inputs.words(costs.COMMANDS["train-lens"])[2] == str(tmp_path / "text.txt")
    texts = (tmp_path / "text.txt").read_text().splitlines()
    assert 1000 < sum(map(len, texts)) <= 3000
    assert min(map(len, texts)) >= costs.SHORTEST
    assert texts == [*costs.english(3000)]


@pytest.mark.parametrize("view", [lambda model: model, interp.packed])
def test_multiply_adds_are_those_of_all_matrix_products(view):
    model = interp.load("rasp-reverse")
    with Products() as products:
        interp.run(view(model), "abcde")
    assert products.multiply_adds == multiply_adds(lambda: interp.run(model, "abcde")) > 0


@pytest.mark.slow
def test_the_cost_of_a_command_is_counted_in_forwards(tmp_path):
    cost = costs.measured("predict", Inputs("rasp-reverse", 4, 100, tmp_path), 60)
    assert cost.outcome == "done"
    assert cost.forwards == pytest.approx(1, abs=0.5)
    assert cost.written > 1000
