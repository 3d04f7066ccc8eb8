"""The benchmarks run from end to end and report what they could not measure."""

import json
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO

import pytest
import torch

import interp
from benchmarks import __main__ as command
from benchmarks import conductance, limits, patching, paths, peers
from benchmarks.bench import Bench
from benchmarks.models import QUICK
from benchmarks.table import MARKERS, Mark, Row, from_json, to_json, to_short_markdown
from benchmarks.timing import Absent, Timed, alternate
from interp.metrics import measure

CPU = torch.device("cpu")
BEGIN, END = MARKERS


QUICKLY = ("--quick", "--threads", "1")
SOME = "forward,stored,heads,paths,conductance"
MEASURED = [name for name in command.SECTIONS if name != "scale"]
"""Starting a Ray cluster takes as long as half of the other sections: it is measured nightly."""


@pytest.fixture(scope="module")
def without_peers(tmp_path_factory):
    """The figures of some sections where no peer is installed, and what was printed."""
    out, printed = tmp_path_factory.mktemp("bench") / "bench.json", StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setattr(peers, "version", lambda package: None)
        assert command.main([*QUICKLY, "--only", SOME, "--out", str(out)]) == 0
    return out, printed.getvalue()


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    out = tmp_path_factory.mktemp("bench") / "bench.json"
    threads = torch.get_num_threads()
    assert command.main([*QUICKLY, "--only", ",".join(MEASURED), "--out", str(out)]) == 0
    assert torch.get_num_threads() == threads
    return out


@pytest.fixture(scope="module")
def rows(figures):
    return json.loads(figures.read_text(encoding="utf-8"))["rows"]


@pytest.mark.slow
def test_every_section_gives_rows(rows):
    assert {row["section"] for row in rows} == set(MEASURED)


@pytest.mark.nightly
def test_workers_are_measured(tmp_path):
    out = tmp_path / "bench.json"
    assert command.main([*QUICKLY, "--only", "scale", "--out", str(out)]) == 0
    rows = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert [row["mark"] is not None for row in rows] == [True, True, False, False, False]
    assert all(row["ours"] is not None for row in rows)


def of(rows, section, work="", kernel=None, against=""):
    return [
        row
        for row in rows
        if row["section"] == section
        and work in row["work"]
        and kernel in (None, row["kernel"])
        and against in row["against"]
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["default", "packed"])
@pytest.mark.parametrize(
    ("section", "work", "against", "n"),
    [
        ("forward", "plain forward", "transformers sdpa", 2),
        ("forward", "all recorded", "transformers sdpa", 2),
        ("stored", "all formed and stored", "TransformerLens", 1),
        ("heads", "heads zeroed", "TransformerLens", 1),
        ("heads", "heads zeroed", "transformers, a hook", 1),
        ("heads", "heads zeroed", "at the matrix rate", 1),
        ("patching", "layers × positions replaced", "brute force", 1),
        ("patching", "layers × positions replaced", "TransformerLens", 1),
        ("paths", "edges patched", "TransformerLens", 1),
        ("patterns", "in turn", "forming them", 1),
    ],
)
def test_every_mark_has_its_row_in_both_kernels(rows, section, work, against, n, kernel):
    marked = [row for row in of(rows, section, work, kernel, against) if row["mark"]]
    assert len(marked) == n


@pytest.mark.slow
def test_marks_without_a_clock_have_their_rows(rows):
    assert [row["mark"]["bound"] for row in of(rows, "cache")] == [8, 3.5]
    (counted,) = [row for row in of(rows, "heads") if row["unit"] == "G mul-adds"]
    assert counted["mark"]["bound"] == 3
    assert counted["ratio"] < 1


@pytest.mark.slow
def test_compat_is_marked_against_transformer_lens(rows):
    bounds = [row["mark"]["bound"] for row in of(rows, "compat", against="TransformerLens")]
    assert bounds == [1.1] * 4 + [4] * 4
    assert all("values within" in row["note"] for row in of(rows, "compat", "get_act_patch"))


@pytest.mark.slow
def test_conductance_is_marked_against_backwards_to_the_stream_alone(without_peers):
    rows = json.loads(without_peers[0].read_text(encoding="utf-8"))["rows"]
    to_stream, to_weights = of(rows, "conductance")
    assert to_stream["mark"]["bound"] == 1.3
    assert to_weights["mark"] is None


@pytest.mark.slow
def test_a_scan_of_heads_is_marked_against_the_plain_forward(rows):
    scan, patterns, million = of(rows, "corpus")
    assert scan["mark"]["bound"] == 1.5
    assert scan["against"] == "our plain forward"
    assert "output_attentions" in patterns["against"]
    assert million["mark"]["bound"] == 5


@pytest.mark.slow
def test_each_row_is_measured_or_has_a_reason(rows):
    assert all((row["ours"] is not None) or row["why"] for row in rows)
    assert all((row["theirs"] is not None) or row["why"] for row in rows if row["mark"])


@pytest.mark.slow
def test_a_tiny_model_is_judged_by_no_mark(rows):
    verdicts = {row["verdict"].partition(":")[0] for row in rows if row["mark"]}
    assert verdicts <= {"not judged", "not measured"}


@pytest.mark.slow
def test_peers_compute_the_same(rows):
    gaps = [row["ours"] for row in of(rows, "agreement") if row["ours"] is not None]
    assert gaps
    assert max(gaps) < 1e-5


@pytest.mark.slow
def test_the_environment_is_recorded(figures):
    machine = json.loads(figures.read_text(encoding="utf-8"))["machine"]
    names = {"processor", "threads", "dtype", "torch", "transformers", "default kernel"}
    assert names <= set(machine)
    assert machine["threads"] == 1


@pytest.mark.slow
def test_an_absent_peer_is_reported(without_peers):
    _, printed = without_peers
    for package in ("transformers", "transformer-lens", "nnsight"):
        assert f"not measured: {package} is not installed" in printed


@pytest.mark.slow
def test_what_needs_no_peer_is_measured_without_one(without_peers):
    rows = json.loads(without_peers[0].read_text(encoding="utf-8"))["rows"]
    assert {row["section"] for row in rows} == set(SOME.split(","))
    assert all(row["ours"] is not None for row in rows)
    assert all((row["theirs"] is not None) or row["why"] for row in rows)


def test_figures_go_between_the_marks_of_a_readme(without_peers, tmp_path):
    figures, _ = without_peers
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nformer figures\n{END}\nafter\n", encoding="utf-8")
    command.main(["--from", str(figures), "--docs", str(readme)])
    once = readme.read_text(encoding="utf-8")
    assert once.startswith(f"before\n{BEGIN}\n| work |")
    assert once.endswith(f"{END}\nafter\n")
    assert "former figures" not in once
    command.main(["--from", str(figures), "--docs", str(readme)])
    assert readme.read_text(encoding="utf-8") == once


def test_chosen_sections_go_between_marks_of_their_own(tmp_path):
    """With the rows that have no mark, which the table of all sections leaves out; no others."""
    page, figures = tmp_path / "page.md", tmp_path / "figures.json"
    unmarked = Row(section="scale", work="b", kernel="default")
    marked = replace(unmarked, work="a", mark=Mark(1))
    figures.write_text(to_json([marked, unmarked, replace(marked, work="c", section="heads")], {}))
    chosen = BEGIN.replace("bench", "bench --only harvest,scale")
    page.write_text(f"{BEGIN}\n{END}\n{chosen}\n{END}\n", encoding="utf-8")
    command.main(["--from", str(figures), "--docs", str(page), "--only", "scale,harvest"])
    everything, of_chosen = page.read_text(encoding="utf-8").split(chosen)
    assert everything == f"{BEGIN}\n{END}\n"
    assert "| a |" in of_chosen
    assert "| b |" in of_chosen
    assert "| c |" not in of_chosen
    command.main(["--from", str(figures), "--docs", str(page)])
    everything, _ = page.read_text(encoding="utf-8").split(chosen)
    assert "| a |" in everything
    assert "| b |" not in everything
    assert "| c |" in everything


@pytest.mark.parametrize("name", ["README.md", "docs/index.md", "docs/speed.md"])
def test_a_page_with_figures_has_the_marks(name):
    text = (command.Path(__file__).parents[2] / name).read_text(encoding="utf-8")
    assert text.index(BEGIN) < text.index(END)


def test_the_short_form_has_the_largest_comparison_with_each_library():
    less, rows = Mark(4, times_less=True), []
    for work, kernel, against, ours in (
        ("small", "default", "TransformerLens", 2.0),
        ("large", "default", "TransformerLens", 4.0),
        ("large", "packed", "TransformerLens", 2.5),
        ("large", "default", "transformers", 4.0),
        ("large", "default", "brute force", 4.0),
    ):
        row = Row(section="heads", work=work, kernel=kernel, against=against, ours=ours)
        rows.append(replace(row, theirs=10.0, ratio=ours / 10, mark=less))
    lines = to_short_markdown(rows, {"torch": "2"}).splitlines()
    assert lines[2] == "| large | TransformerLens | 10 s | 4 s (2.5 ×) | 2.5 s (4.0 ×) |"
    assert lines[3] == "| large | transformers | 10 s | 4 s (2.5 ×) |  |"
    assert lines[4:] == ["", "`make bench`: torch 2; times less in parentheses."]


@pytest.mark.parametrize(
    "wrong",
    [
        "--only nothing",
        "--rounds 0",
        "--threads two",
        "--kernel fastest",
        "--dtype float8",
        "--tf32",
        "--from /does/not/exist.json",
        "--from pyproject.toml",
        pytest.param(
            "--device cuda",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is one here"),
        ),
    ],
)
def test_wrong_input_is_refused(wrong, capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main(["--quick", *wrong.split()])
    assert stopped.value.code == 2
    assert "error:" in capsys.readouterr().err


# ---- the pieces ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mark", "good", "bad"),
    [(Mark(1.05), 1.05, 1.06), (Mark(4, times_less=True), 0.25, 0.26)],
)
def test_a_mark_holds_up_to_its_bound(mark, good, bad):
    assert mark.holds(good)
    assert not mark.holds(bad)


def test_a_row_survives_json():
    row = Row(section="s", work="w", kernel="k", ours=1.0, ratio=0.2, mark=Mark(4, times_less=True))
    assert from_json(to_json([row], {"threads": 2})) == ([row], {"threads": 2})
    assert row.verdict == "holds"


def test_works_are_done_in_turn_and_the_absent_one_is_reported():
    done = []

    def absent():
        raise Absent("there is none")

    makers = {name: lambda name=name: lambda: done.append(name) for name in "ab"}
    timed = alternate({**makers, "c": absent}, rounds=2, warmup=1, device=CPU)
    assert "".join(done) == "ababab"
    assert timed.rounds("a") == timed.rounds("b") == 2
    assert timed.median("c") is None
    assert timed.why_not("a", "c") == "there is none"


def test_a_ratio_is_the_median_over_rounds():
    timed = Timed({"ours": [1.0, 2.0, 30.0], "theirs": [2.0, 2.0, 3.0]})
    assert timed.ratio("ours", "theirs") == 1.0
    scaled = timed.scaled({"theirs": 4.0})
    assert (scaled.ratio("ours", "theirs"), scaled.median("ours")) == (0.25, 2.0)


def test_multiply_adds_are_those_of_the_formula():
    """Layers · (12 d² n + 2 n² d) + vocab · d · n, also where attention is fused."""
    shape, n = QUICK.shape, 8
    model = Bench(QUICK).ours.default
    d = shape.d_model
    expected = shape.n_layers * (12 * d * d * n + 2 * n * n * d) + shape.d_vocab * d * n
    assert limits.multiply_adds(lambda: model(QUICK.tokens(1, n))) == expected
    assert limits.Products.count(model, n) == shape.n_layers * 12 * d * d * n


def values_of(makers, *names):
    with torch.no_grad():
        return [makers[name]()() for name in names]


@pytest.mark.parametrize("kind", paths.DRAWN)
def test_edges_of_each_kind_are_drawn_and_none_from_a_bias(kind):
    graph = interp.computation_graph(Bench(QUICK).ours.default)
    edges = paths.drawn(graph, {kind: 3})
    assert len(set(edges)) == 3
    assert all(reader.name.endswith(kind) for _, reader in edges)
    assert all(writer.place is not None for writer, _ in edges)
    assert set(edges) <= set(graph.edges)
    assert edges == paths.drawn(graph, {kind: 3})


@pytest.mark.parametrize("kind", paths.DRAWN)
def test_transformer_lens_patches_the_same_edges(kind):
    pytest.importorskip("transformer_lens")
    bench, tokens = Bench(QUICK), QUICK.tokens(*QUICK.prompts)
    edges = paths.drawn(interp.computation_graph(bench.ours.default), {kind: 4})
    ours, theirs = values_of(paths.makers(bench, tokens, edges, {}), "sweep, default", "lens")
    assert (ours - theirs).abs().max() < 1e-6
    assert (ours - clean_values(bench, tokens)).abs().max() > 1e-3


def test_transformer_lens_patches_the_same_streams():
    pytest.importorskip("transformer_lens")
    bench, tokens = Bench(QUICK), QUICK.tokens(*QUICK.prompts)
    cells = [(0, 3), (1, 0), (1, 7)]
    ours, theirs = values_of(
        patching.makers(bench, tokens, cells, cells, {}), "sweep, default", "lens"
    )
    assert (ours - theirs).abs().max() < 1e-6
    assert (ours - clean_values(bench, tokens)).abs().max() > 1e-3


@torch.no_grad()
def clean_values(bench, tokens):
    model = bench.ours.default
    return measure(patching.difference(), model(tokens), model.batch(tokens))


def test_scored_are_all_edges():
    bench, tokens = Bench(QUICK), QUICK.tokens(*QUICK.prompts)
    model = bench.ours.default
    scores = conductance.scored(model, tokens, patching.other_prompts(bench, tokens))()
    assert scores.shape == (len(interp.computation_graph(model).edges), len(tokens))


@pytest.mark.slow
def test_it_needs_no_page_and_no_plot():
    """What is measured does not include the libraries of the explorer."""
    code = (
        "import sys, benchmarks.__main__; print({'plotly', 'streamlit', 'pandas'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
