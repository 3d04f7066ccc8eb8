"""The command of each analysis: what it finds, what it writes, what it refuses."""

import json
import re
import shlex
from functools import cache
from html import unescape

import numpy as np
import pandas as pd
import pytest
from architectures import covering
from declared import Command, declared_as, turn_of
from tables import each

from analyses import TunedLens, ablate, steer
from apps.commands import COMMANDS, readers
from apps.commands.inputs import Inputs
from apps.commands.readers import into_of
from apps.frame_table import table_of_frame
from interp import dictionaries, load, read_prompts, with_dictionaries
from interp.prompts import PROMPT_FOLDER

MODEL = "induction-by-hand"
NAMES = {command.name for command in COMMANDS}
PAIRS = ["--model", "rasp-reverse"]
RUNS: dict[str, Command] = {command.name: command for command in declared_as("command").values()}
"""What each command prints and writes, as its analysis declares it."""


def of_model(words: tuple[str, ...]) -> tuple[str, ...]:
    """The options, with the model unless they name one."""
    return words if "--model" in words else ("--model", MODEL, *words)


def test_every_command_is_declared_by_one_analysis():
    names = [command.name for command in declared_as("command").values()]
    assert sorted(names) == sorted(NAMES), "see command= of declared.Declared"


@pytest.fixture(scope="module")
def finished(command, tmp_path_factory):
    """The folder of a command that has run, and what it printed; each runs once."""

    @cache
    def run(name):
        out = tmp_path_factory.mktemp(name) / "a" / "b"
        return out, command(name, *of_model(RUNS[name].words), "--top", 3, "--out", out)

    return run


@pytest.mark.parametrize("name", covering(RUNS, [name for name in RUNS if turn_of(name) % 4 == 3]))
def test_a_command_writes_tables_that_agree_and_prints_what_it_found(finished, name):
    table = RUNS[name].table
    out, done = finished(name)
    assert done.exit_code == 0, done.output
    printed = " ".join(done.stdout.split())
    assert RUNS[name].excerpt in printed
    files = {f"{table}.csv", f"{table}.parquet", "manifest.json", "report.html", "run.json"}
    by_prompt = {f"{table}_by_prompt.csv", f"{table}_by_prompt.parquet"}
    files.update(RUNS[name].more)
    assert {path.name for path in out.iterdir()} - by_prompt == files
    columns = pd.read_parquet(out / f"{table}.parquet")
    pd.testing.assert_frame_equal(pd.read_csv(out / f"{table}.csv"), columns, check_dtype=False)
    described = json.loads((out / "run.json").read_text())
    assert described["answer"] in printed
    assert described["settings"]["model"] == described["provenance"]["model"]
    assert len(described["provenance"]["weights"]) == 64
    page = (out / "report.html").read_text()
    conclusion = re.search(r'class="conclusion">(.*?)</p>', page, re.DOTALL)
    assert conclusion
    assert unescape(conclusion[1]) == described["answer"]


NIGHTLY = [name for name in RUNS if turn_of(name) % 4]


@pytest.mark.parametrize("name", covering(RUNS, ["lens", "patch"], nightly=NIGHTLY))
def test_the_command_in_run_json_repeats_the_run(command, finished, tmp_path, name):
    (first, _), again = finished(name), tmp_path / "again"
    words = shlex.split(json.loads((first / "run.json").read_text())["command"])
    assert words[:2] == ["interp", name]
    assert command(*words[1:], "--out", again).exit_code == 0
    table = f"{RUNS[name].table}.csv"
    assert (again / table).read_bytes() == (first / table).read_bytes()


@each(
    ("words", "folder"),
    [
        (["lens"], "induction-by-hand-lens"),
        (["lens", "--norm", "final"], "induction-by-hand-lens-final"),
        (["ablate", "--method", "zero"], "induction-by-hand-loss-zero"),
        (["ablate", "--part", "v", "--units", "heads"], "induction-by-hand-loss-mean-v"),
    ],
)
@pytest.mark.slow
@pytest.mark.slow
def test_the_default_folder_has_the_names_that_were_given(
    command, tmp_path, monkeypatch, prompts, words, folder
):
    monkeypatch.chdir(tmp_path)
    done = command(*words, "--model", MODEL, "--prompts", prompts)
    assert done.exit_code == 0, done.output
    assert f"reports/{folder}/report.html" in done.stdout


def test_a_trained_lens_is_applied_and_one_of_another_model_refused(command, tmp_path, prompts):
    done = command("train-lens", "--steps", 2, "--out", tmp_path / "trained")
    assert done.exit_code == 0, done.output
    path = tmp_path / "trained" / "lens.safetensors"
    words = ["--lens", path, "--out", tmp_path / "out"]
    done = command("lens", *words)
    assert done.exit_code == 0, done.output
    assert "Tuned lens on" in done.stdout
    described, page = (
        (tmp_path / "out" / name).read_text() for name in ("run.json", "report.html")
    )
    assert json.loads(described)["settings"]["lens"] == str(path)
    digest = TunedLens.load(path, load("python-2l")).digest
    assert json.loads(described)["provenance"]["lens"] == digest
    assert digest in page
    done = command("lens", "--model", MODEL, "--prompts", prompts, *words)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)


@pytest.fixture
def others(tmp_path):
    """Another prompt file, of longer prompts."""
    path = tmp_path / "others.jsonl"
    path.write_text('{"text": "fghfghfgh"}\n{"text": "kkkkkkkkk"}\n')
    return path


def ablated(command, prompts, out, *words):
    done = command("ablate", "--model", MODEL, "--prompts", prompts, *words, "--out", out)
    assert done.exit_code == 0, done.output
    return pd.read_csv(out / "heads.csv").set_index("name")["effect"]


@pytest.mark.slow
def test_ablate_takes_layers_references_and_means_by_position(command, tmp_path, prompts, others):
    """As ``analyses.ablate`` of the same arguments."""
    model, texts = load(MODEL), [prompt.text for prompt in read_prompts(prompts)]
    reference = [prompt.text for prompt in read_prompts(others)]
    for words, settings in (
        (["--layers", "1"], {"layers": [1]}),
        (["--reference", others], {"reference": reference}),
        (["--reference", others, "--per-position"], {"reference": reference, "per_position": True}),
    ):
        effects = ablated(command, prompts, tmp_path / "-".join(map(str, words[::2]))[1:6], *words)
        expected = ablate(model, texts, **settings).to_frame().set_index("name")["effect"]
        pd.testing.assert_series_equal(effects.sort_index(), expected.sort_index(), rtol=1e-4)
    plain = ablated(command, prompts, tmp_path / "plain")
    assert not np.allclose(plain.sort_index(), effects.sort_index())


def test_patterns_take_classes_of_tokens(command, tmp_path, prompts):
    words = ["--classes", '{"vowels": ["a"], "third": 3}', "--out", tmp_path / "out"]
    done = command("patterns", "--model", MODEL, "--prompts", prompts, *words)
    assert done.exit_code == 0, done.output
    statistics = set(pd.read_csv(tmp_path / "out" / "patterns.csv")["statistic"])
    assert {"vowels", "third", "other"} <= statistics


@pytest.mark.slow
def test_a_table_of_very_many_rows_is_parquet_alone(command, tmp_path, monkeypatch):
    monkeypatch.setattr("apps.commands.outputs.MAX_CSV_ROWS", 8)
    assert command("ablate", *of_model(("--method", "zero")), "--out", tmp_path).exit_code == 0
    heads = pd.read_csv(tmp_path / "heads.csv")
    assert len(heads) == 8
    assert len(pd.read_parquet(tmp_path / "heads_by_prompt.parquet")) > 8
    assert not (tmp_path / "heads_by_prompt.csv").exists()
    monkeypatch.setattr("apps.commands.outputs.MAX_PROMPT_ROWS", 8 * 24 - 1)
    with pytest.warns(UserWarning, match="about 192 rows"):
        command("ablate", *of_model(["--method", "zero"]), "--out", tmp_path)
    assert not (tmp_path / "heads_by_prompt.parquet").exists()


def test_of_very_many_edges_only_those_into_the_logits_are_patched(monkeypatch):
    inputs = Inputs(load("rasp-reverse"), ())
    assert into_of(inputs, None) is None
    monkeypatch.setattr("apps.commands.readers.MANY_EDGES", 301)
    with pytest.warns(UserWarning, match="302 edges"):
        assert into_of(inputs, None) == "logits"
    assert into_of(inputs, "all") is None
    assert into_of(inputs, "L1MLP") == "L1MLP"


@pytest.mark.slow
def test_circuits_are_run_on_pairs_that_were_held_out(command, tmp_path):
    """A share of the prompts, or another file; edges are scored on the rest alone."""
    few = tmp_path / "few.jsonl"
    lines = (PROMPT_FOLDER / "rasp-reverse-pairs.jsonl").read_text().splitlines()
    few.write_text("\n".join(lines[:4]))
    n_pairs = []
    for number, words in enumerate((["--heldout", "0.25"], ["--heldout", few], [])):
        done = command("prune", *PAIRS, *words, "--out", tmp_path / str(number))
        assert done.exit_code == 0, done.output
        n_pairs.append(int(re.search(r"on (\d+) pairs", done.stdout)[1]))
    assert n_pairs == [round(len(lines) / 4), 4, len(lines)]


def test_pairs_of_heads_have_a_table_of_interactions(command, tmp_path, prompts):
    words = ["--units", "pairs", "--model", MODEL, "--prompts", prompts]
    done = command("ablate", *words, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert len(pd.read_csv(tmp_path / "out" / "pairs.csv")) == 8 + 28
    assert len(pd.read_csv(tmp_path / "out" / "interactions.csv")) == 28


@each(
    ("words", "table", "excerpt"),
    [
        (["--ov", "L1H0", "--token", "a", "--token", "Q"], "Q  ", "copying +1.00"),
        (["--qk", "L0H0"], "query", "highest at 1"),
        (["--ov", "cross.L0H2", "--model", "dates"], "attended to", "OV circuit of cross.L0H2"),
        (["--qk", "L1H0", "--first-mlp", "--model", "python-4l"], "keys", "behind the first MLP"),
    ],
)
@pytest.mark.slow
@pytest.mark.slow
def test_the_circuit_of_one_head(command, tmp_path, words, table, excerpt):
    model = [] if "--model" in words else ["--model", MODEL]
    done = command("circuits", *words, *model, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert table in done.stdout
    assert excerpt in " ".join(done.stdout.split())
    tables = {"circuits", "singular_vectors", *(["offsets"] if "--qk" in words else [])}
    assert {path.stem for path in (tmp_path / "out").glob("*.csv")} == tables
    words = shlex.split(json.loads((tmp_path / "out" / "run.json").read_text())["command"])
    again = command(*words[1:], "--out", tmp_path / "again")
    assert again.stdout.split("Report")[0] == done.stdout.split("Report")[0]


@each(
    ("words", "message"),
    [
        (["--ov", "L1H0", "--qk", "L1H0"], "give one of them"),
        (["--token", "a"], "give --ov or --qk as well"),
        (["--ov", "L1MLP"], "no component"),
        (["--ov", "L1ATTN"], "is not a head"),
        (["--qk", "L1H0", "--token", "ab"], "is 2 tokens"),
    ],
)
def test_circuits_that_are_not_there_are_refused(command, tmp_path, words, message):
    done = command("circuits", *words, "--model", MODEL, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_averages_of_many_prompts_are_those_of_a_stream(command, tmp_path, monkeypatch):
    """The same averages, without the numbers of each prompt."""
    texts = [f"{a}{b}{a}{c}" for a in "abcd" for b in "xyz" for c in "pq"]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    words = ["patterns", "--model", MODEL, "--prompts", tmp_path / "texts.txt"]
    for most, folder in ((1000, "list"), (10, "stream")):
        monkeypatch.setattr(readers, "MANY_PROMPTS", most)
        done = command(*words, "--out", tmp_path / folder)
        assert done.exit_code == 0, done.output
    whole, streamed = (pd.read_csv(tmp_path / x / "patterns.csv") for x in ("list", "stream"))
    pd.testing.assert_frame_equal(streamed, whole, rtol=1e-6)
    assert (tmp_path / "list" / "patterns_by_prompt.csv").exists()
    assert not (tmp_path / "stream" / "patterns_by_prompt.csv").exists()


@pytest.mark.parametrize("name", ["ablate", "lens", "patterns"])
def test_an_encoder_decoder_reads_pairs_of_texts(command, tmp_path, name):
    prompts = tmp_path / "dates.jsonl"
    lines = ["20 January 2030", "21/07/21"], ["2030-01-20", "2021-07-21"]
    rows = [json.dumps({"text": a, "target": b}) for a, b in zip(*lines, strict=True)]
    prompts.write_text("\n".join(rows))
    words = ["--model", "dates", "--prompts", prompts]
    done = command(name, *words, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    prompts.write_text('{"text": "20 January 2030"}')
    done = command(name, *words, "--out", tmp_path / "out")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "this prompt has neither" in done.stderr


PAIR = '{"text": "ab", "corrupt": "ac", "target": "c", "distractor": "d"}'


@each(
    ("words", "content", "message"),
    [
        (["dla"], '{"text": "ab"}', "needs a 'target'"),
        (["dla"], '{"text": "ab", "target": "xyz"}', "target: "),
        (["dla", "--by", "luck"], '{"text": "ab", "target": "c"}', "luck"),
        (["ablate", "--metric", "logit-diff"], '{"text": "ab", "target": "c"}', "'distractor'"),
        (["ablate", "--units", "neurons"], '{"text": "ab"}', "no neurons"),
        (["ablate", "--units", "thoughts"], '{"text": "ab"}', "thoughts"),
        (["lens", "--at", "resid_mid_air"], '{"text": "ab"}', "resid_mid_air"),
        (["lens"], '{"text": "ab", "target": "xyz"}', "target: "),
        (["ablate", "--layers", "0;1"], '{"text": "ab"}', "--layers"),
        (["ablate", "--layers", "0,9"], '{"text": "ab"}', "layers=9"),
        (["ablate", "--per-position", "--method", "zero"], '{"text": "ab"}', "per_position"),
        (["ablate", "--reference", "no-such-file"], '{"text": "ab"}', "no-such-file"),
        (["train-lens", "--lr", "-1"], '{"text": "ab"}', "lr="),
        (["train-lens"], '{"text": "ab"}', "1 prompt"),
        (["patterns", "--classes", "digits"], '{"text": "ab"}', "--classes"),
        (["patterns", "--classes", "[1]"], '{"text": "ab"}', "--classes"),
        (["patterns", "--classes", '{"a": "abc"}'], '{"text": "ab"}', "classes['a']"),
        (["nodes", "--positions"], PAIR, "positions=True"),
        (["prune", "--heldout", "1.5"], PAIR, "--heldout"),
        (["prune", "--heldout", "0.5"], PAIR, "single prompt"),
        (["patterns", "--offsets", "0"], '{"text": "ab"}', "--offsets"),
        (["patterns", "--attention", "cross"], '{"text": "ab"}', "attention"),
        (["frequencies"], '{"text": "ab"}', "has no residue task"),
        (["probe"], '{"text": "ab"}', "which is missing"),
        (["probe"], '{"text": "ab", "target": "long"}', "needs two or more classes"),
        (["patterns"], '{"text": "ab"', "not a JSON object"),
        (["paths"], '{"text": "ab", "target": "c", "distractor": "d"}', "needs a 'corrupt'"),
        (["paths"], '{"text": "ab", "corrupt": "cab", "target": "c", "distractor": "d"}', "tokens"),
        (["compare"], '{"text": "ab"}', "--other"),
        (["compare", "--other", "python-2l"], '{"text": "ab"}', "do not have the same rows"),
        (["prune"], '{"text": "ab", "corrupt": "ac"}', "needs a 'target'"),
        (["prune", "--metric", "kl"], '{"text": "ab", "corrupt": "ac"}', "kl"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(command, tmp_path, words, content, message):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(content)
    done = command(*words, "--model", MODEL, "--prompts", prompts, "--out", tmp_path / "out")
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", RUNS)
def test_an_unknown_model_is_refused(command, tmp_path, name):
    done = command(name, "--model", "no-such-model", "--out", tmp_path / "out")
    assert (done.exit_code, done.stderr.count("\n")) == (3, 1)
    assert "no-such-model" in done.stderr


def test_a_model_without_minimal_pairs_asks_for_them(command, tmp_path):
    done = command("paths", "--model", MODEL, "--out", tmp_path / "out")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "has no minimal pairs" in done.stderr
    assert "rasp-reverse-pairs" in done.stderr


def test_numbers_of_a_table_have_three_digits_of_the_largest():
    frame = pd.DataFrame(
        {
            "layer": [0, 1],
            "name": ["L0H1", "L1H0"],
            "effect": [1.2345, float("nan")],
            "low": [-0.5, float("nan")],
            "high": [12.345, float("nan")],
            "size": [0.001234, 0.0],
            "n": [5, 5],
            "p": [0.5, 0.5],
            "q": [0.0001, float("nan")],
            "significant": [True, False],
        }
    )
    columns, rows = table_of_frame(frame)
    assert [title for title, _ in columns] == [
        *("name", "effect", "95 % interval", "size", "q", "significant")
    ]
    assert rows == [
        ("L0H1", "+1.2", "−0.5 to +12.3", "0.0", "< 0.001", "*"),
        ("L1H0", "–", "–", "0.0", "–", ""),
    ]
    assert table_of_frame(frame, 1)[1] == rows[:1]
    untested = frame.assign(low=float("nan"), high=float("nan"), q=float("nan"))
    assert [title for title, _ in table_of_frame(untested)[0]] == ["name", "effect", "size"]


def test_commands_take_features_of_dictionaries(command, tmp_path):
    """Those of the model that is named, which are part of its run; without any they are refused."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"text": "def f(x): return", "target": " x", "distractor": " f"}')
    words = ("--model", "python-4l", "--prompts", prompts, "--by", "feature")
    both = ("--dictionary", "python-4l/mlp-0", "--dictionary", "python-4l/mlp-1")
    of_head = ("--layer", 2, "--head", 1, "--pairs", 5)
    for name, more in (("dla", ()), ("scores", of_head)):
        out = tmp_path / name
        done = command(name, *words, *more, *both, "--out", out)
        assert done.exit_code == 0, done.output
        table = pd.read_parquet(out / f"{name}.parquet")
        names = table["name"].tolist()
        assert any("L1F" in text for text in names)
        assert (out / "run.json").read_text().count("python-4l/mlp-1") == 2
        refused = command(name, *words, *more, "--out", tmp_path / "none")
        assert refused.exit_code != 0
        assert "--dictionary on the command line" in " ".join(refused.output.split())
    assert len(pd.read_parquet(tmp_path / "scores" / "scores.parquet")) == 6


def test_a_feature_of_a_dictionary_steers_the_clean_prompts(command, tmp_path):
    """Its texts are those of the function; a feature and its dictionary need one another."""
    words = (
        "steer",
        "--model",
        "python-4l",
        "--prompts",
        "python-2l-pairs",
        "--out",
        tmp_path / "out",
    )
    few = ("--new-tokens", 2, "--strength", 8)
    feature, dictionary = ("--feature", "L1F17"), ("--dictionary", "python-4l/mlp-1")
    done = command(*words, *few, *feature, *dictionary)
    assert done.exit_code == 0, done.output
    view = with_dictionaries(load("python-4l"), [dictionaries.load_any("python-4l/mlp-1")])
    texts = [prompt.text for prompt in read_prompts("python-2l-pairs")]
    steered = steer(view, texts, feature="L1F17", strengths=[8], new_tokens=2)
    table = pd.read_parquet(tmp_path / "out" / "steer.parquet")
    np.testing.assert_allclose(table["kl"], steered.to_frame()["kl"], rtol=1e-5)
    for more, message in (
        (feature, "--feature L1F17 needs its dictionary"),
        (dictionary, "--dictionary has no effect without --feature"),
        ((*feature, *dictionary, "--layer", 1), "has its own layers"),
        ((*feature, *dictionary, "--at", "mlp_out"), "has its own layers"),
    ):
        refused = command(*words, *few, *more)
        assert refused.exit_code != 0
        assert message in " ".join(refused.output.split())
