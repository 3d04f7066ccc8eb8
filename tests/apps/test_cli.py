"""Every command on real files: what it prints, what it leaves behind, how it exits."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from importlib.metadata import version
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pandas as pd
import pytest
import typer
from tables import each

import interp
from analyses.methods import symmetries
from apps.cli import app, main
from apps.commands.group import TOPICS
from apps.failures import terminated
from apps.terminal import print_table, print_warnings_as_lines, progress
from interp.loading import bundled, load

ROOT = Path(__file__).parents[2]

MODEL = "induction-by-hand"
RUN = "apps.commands.analysis_run.run_analysis"
TABLES = ["heads.csv", "heads.parquet", "heads_by_prompt.csv", "heads_by_prompt.parquet"]
FILES = [*TABLES, "manifest.json", "report.html", "run.json"]


def exit_code(*words: object) -> object:
    """Run the command as it starts from a shell; signals are handled as before afterwards."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        main([str(word) for word in words])
    except SystemExit as error:
        return error.code
    finally:
        signal.signal(signal.SIGTERM, handler)
        terminated.clear()


def test_help_answers_without_torch():
    seen = """
import sys
from apps.cli import main
try:
    main(["--help"])
finally:
    print(*({"torch", "pandas", "analyses"} & {*sys.modules}), "imported")
"""
    done = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True)
    assert "  train-lens " in done.stdout
    assert done.stdout.splitlines()[-1].split() == ["imported"]


def test_every_command_is_listed_once_by_topic_with_a_whole_sentence(command):
    """Of plug-ins there are none here, so that no command is left to ``Others``."""
    group = typer.main.get_command(app)
    named = [name for names in TOPICS.values() for name in names]
    assert sorted(named) == sorted(group.list_commands(None))
    printed = "".join(command("--help").stdout.split())
    assert all("".join(topic.split()) in printed for topic in TOPICS)
    assert "Others" not in printed
    for name in named:
        first = str(group.get_command(None, name).help).split("\n\n")[0].split(". ")[0]
        assert name + "".join(first.split()).rstrip(".") in printed


def test_the_command_is_also_a_module():
    words = [sys.executable, "-m", "interp_command", "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    assert "ablate" in done.stdout


def test_models_are_listed(command):
    done = command("models")
    assert done.exit_code == 0
    assert all(name in done.stdout for name in bundled())
    assert "2×4" in done.stdout


@pytest.mark.parametrize("metric", ["loss", "logit-diff"])
@pytest.mark.parametrize("method", ["zero", "mean", "resample"])
def test_ablate_names_exactly_the_two_real_heads(command, tmp_path, metric, method):
    words = ["--model", MODEL, "--metric", metric, "--method", method, "--out", tmp_path]
    done = command("ablate", *words)
    assert done.exit_code == 0, done.output
    assert "2 of 8 effects significant" in " ".join(done.stdout.split())
    described = json.loads((tmp_path / "run.json").read_text())
    assert sorted(name[:2] for name in described["significant_heads"]) == ["L0", "L1"]


@pytest.mark.parametrize("metric", ["loss", "logit-diff"])
@pytest.mark.parametrize("method", ["zero", "mean", "resample"])
def test_ablate_writes_files_that_agree(command, prompts, tmp_path, metric, method):
    out = tmp_path / "a" / "b"
    words = ["--prompts", prompts, "--metric", metric, "--method", method, "--top", 3]
    done = command("ablate", "--model", MODEL, *words, "--out", out)
    assert done.exit_code == 0, done.output
    assert sorted(file.name for file in out.iterdir()) == FILES
    table, columns = pd.read_csv(out / "heads.csv"), pd.read_parquet(out / "heads.parquet")
    pd.testing.assert_frame_equal(table, columns)
    assert len(table) == 8
    described = json.loads((out / "run.json").read_text())
    assert described["settings"]["method"] == method
    assert described["clean"]["unit"] == {"loss": "nats", "logit-diff": "logits"}[metric]
    assert len(described["prompts"]["sha256"]) == 64
    assert described["provenance"]["model"] == MODEL
    assert done.stdout.count("L0H") + done.stdout.count("L1H") >= 3
    page = (out / "report.html").read_text()
    assert ('class="target"' in page) == (metric == "logit-diff")  # the loss reads no target


def test_ablate_replaces_what_an_earlier_run_wrote(command, prompts, tmp_path):
    for method in ("zero", "mean"):
        words = ["--prompts", prompts, "--method", method, "--out", tmp_path / "out"]
        assert command("ablate", "--model", MODEL, *words).exit_code == 0
    assert json.loads((tmp_path / "out" / "run.json").read_text())["settings"]["method"] == "mean"


def test_ablate_writes_to_reports_by_default(command, prompts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command("ablate", "--model", MODEL, "--prompts", prompts).exit_code == 0
    assert sorted(p.name for p in (tmp_path / "reports" / f"{MODEL}-loss-mean").iterdir()) == FILES


@each(
    ("content", "message"),
    [
        (None, "can't be read"),
        (b"", "holds no prompts"),
        (b'{"text": "ab"}\n\xff\xfe\n', "not UTF-8"),
        (b'{"text": "ab"}\n{"text": \n', "bad.jsonl:2: not a JSON object"),
        (b'{"text": "ab"}\n{"txt": "ab"}\n', "bad.jsonl:2: expected an object"),
        (b'{"text": ""}\n', "bad.jsonl:1: the prompt is empty"),
        (b'{"text": "' + b"ab" * 500 + b'"}\n', "over this model's context"),
        (b'{"text": "[bold]a[/bold]"}\n', "can't be encoded in this vocabulary"),
    ],
)
def test_a_prompt_file_that_cannot_be_used(command, tmp_path, content, message):
    file = tmp_path / "bad.jsonl"
    if content is not None:
        file.write_bytes(content)
    done = command("ablate", "--model", MODEL, "--prompts", file, "--out", tmp_path / "out")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


@each(
    ("words", "code", "message"),
    [
        (["ablate", "--model", "no-such-model"], 3, "no-such-model"),
        (["verify", "--model", "no-such-model"], 3, "no-such-model"),
        (["explore", "--model", "../../etc"], 3, "bundled models"),
        (["ablate", "--model", MODEL, "--device", "abacus"], 2, "abacus"),
        (["ablate", "--model", MODEL, "--device", "meta"], 2, "meta"),
        (["ablate", "--model", MODEL, "--metric", "luck"], 2, "luck"),
        (["ablate", "--model", MODEL, "--top", "0"], 2, "--top"),
        (["dance"], 2, "dance"),
    ],
)
def test_words_that_cannot_be_used(command, tmp_path, monkeypatch, words, code, message):
    monkeypatch.chdir(tmp_path)
    done = command(*words)
    assert done.exit_code == code
    assert message in done.stderr
    assert "Traceback" not in done.output
    assert not list(tmp_path.iterdir())


def test_a_damaged_model_cannot_be_loaded(command, tmp_path):
    model = tmp_path / "damaged"
    model.mkdir()
    (model / "config.json").write_text("{}")
    done = command("ablate", "--model", model, "--out", tmp_path / "out")
    assert done.exit_code == 3
    assert "config.json" in done.stderr


def test_a_model_without_prompts_asks_for_them(command, tmp_path):
    from interp.loading import save_folder  # noqa: PLC0415 - one test's need

    save_folder(load(MODEL), tmp_path / "own")
    done = command("ablate", "--model", tmp_path / "own", "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "--prompts" in done.stderr


def test_an_out_folder_that_cannot_be_written_fails_before_the_work(command, tmp_path, monkeypatch):
    monkeypatch.setattr(RUN, lambda *_: pytest.fail("the work was begun"))
    (tmp_path / "file").write_text("kept")
    done = command("ablate", "--model", MODEL, "--out", tmp_path / "file" / "below")
    assert done.exit_code == 4
    assert "can't be written" in done.stderr
    assert (tmp_path / "file").read_text() == "kept"


def test_an_out_folder_of_the_users_fails_before_the_work(command, tmp_path, monkeypatch):
    monkeypatch.setattr(RUN, lambda *_: pytest.fail("the work was begun"))
    (tmp_path / "run.json").write_text("mine")
    done = command("ablate", "--model", MODEL, "--out", tmp_path)
    assert done.exit_code == 2
    assert "holds run.json, which interp did not write" in done.stderr
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_the_hash_is_of_the_prompts_that_were_read(command, tmp_path):
    """Also where they can be read only once."""
    reading, writing = os.pipe()
    os.write(writing, b"abcdab\nxyzxy\n")
    os.close(writing)
    prompts, out = f"/dev/fd/{reading}", tmp_path / "out"
    done = command("ablate", "--model", MODEL, "--prompts", prompts, "--out", out)
    os.close(reading)
    assert done.exit_code == 0, done.output
    described = json.loads((out / "run.json").read_text())["prompts"]
    assert described["sha256"] == hashlib.sha256(b"abcdab\nxyzxy\n").hexdigest()
    assert described["n"] == 2


def test_the_version_is_that_of_the_distribution(command):
    done = command("--version")
    assert (done.exit_code, done.stdout) == (0, f"interp {version('interp')}\n")
    assert interp.__version__ == version("interp")


@each(
    ("error", "code"),
    [
        (KeyboardInterrupt(), 130),
        (MemoryError(), 4),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), 4),
        (OSError(28, "No space left on device", "/disk"), 4),
        (RuntimeError("two\nlines"), 1),
    ],
)
def test_an_error_in_the_midst_leaves_nothing(command, tmp_path, monkeypatch, error, code):
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("apps.commands.outputs.write_report", fail)
    done = command("ablate", "--model", MODEL, "--out", tmp_path / "a" / "b")
    assert done.exit_code == code
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["before", "after"])
def test_debug_shows_the_traceback(command, tmp_path, place):
    words = ["verify", "--model", "no-such-model"]
    done = command("--debug", *words) if place == "before" else command(*words, "--debug")
    assert done.exit_code == 3
    assert "Traceback" in done.stderr
    assert "Traceback" not in command(*words).stderr


def test_a_warning_is_one_line_without_code_and_printed_once(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        print_warnings_as_lines()
        for _ in range(2):
            warnings.warn("fields \x1b[2J are ignored", UserWarning, stacklevel=1)
    assert capsys.readouterr().err == "warning: fields \\x1b[2J are ignored\n"


def test_an_escape_code_in_a_name_does_not_reach_the_terminal(command, tmp_path):
    done = command("verify", "--model", "evil\x1b[2J[red]name")
    assert "\x1b" not in done.stderr
    assert "[red]name" in done.stderr


@pytest.mark.parametrize(
    ("sent", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143)],
)
@pytest.mark.slow
def test_an_interrupted_command_reports_it_and_leaves_nothing(tmp_path, sent, code):
    slow = """
import signal, sys, time, analyses
from apps.cli import app, main
from apps.commands.group import TOPICS
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
def ablate_heads(*args, **kwargs):
    print("begun", flush=True)
    time.sleep(60)
analyses.ablate_heads = ablate_heads
main(sys.argv[1:])
"""
    words = ["ablate", "--model", MODEL, "--out", str(tmp_path / "out")]
    with subprocess.Popen(
        [sys.executable, "-c", slow, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        assert (tmp_path / ".out.interp-new").exists()
        time.sleep(0.5)  # until it sleeps: while garbage is collected, an interrupt is lost
        process.send_signal(sent)
        _, message = process.communicate(timeout=30)
    assert process.returncode == code
    assert message == "error: Interrupted; nothing was written.\n"
    assert not list(tmp_path.iterdir())


@each("words", [["doctor"], ["convert", "rasp-reverse", "out"], ["ablate"]])
def test_an_interruption_while_a_package_is_imported_is_one_line(words, tmp_path):
    """As torch does: a second import of it, after the interrupted one, raises another error."""
    for name, text in {
        "torch": "import sys\nsys.modules['interrupted'] = sys\nraise KeyboardInterrupt",
        "numpy": "raise KeyboardInterrupt",
    }.items():
        (tmp_path / f"{name}.py").write_text(
            "import sys\nif 'interrupted' in sys.modules:\n    raise RuntimeError('twice')\n" + text
        )
    done = subprocess.run(
        [sys.executable, "-c", "import interp_command; interp_command.main()", *words],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stderr == "error: Interrupted; nothing was written.\n"
    assert done.returncode == 130


@each("module", ["apps.cli", "typer"])
def test_an_interruption_before_a_command_begins_is_one_line(module, tmp_path):
    code = f"""
import sys
class Interrupting:
    def find_spec(self, name, *_):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
import interp_command
interp_command.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert (done.returncode, done.stderr) == (130, "error: Interrupted; nothing was written.\n")


def test_what_the_encoding_lacks_is_printed_as_an_escape(monkeypatch):
    printed = BytesIO()
    monkeypatch.setattr("sys.stdout", TextIOWrapper(printed, encoding="ascii", write_through=True))
    assert exit_code("verify", "--model", MODEL) == 0
    assert b"\\u2713" in printed.getvalue()


def test_paths_that_are_not_utf_8(command, prompts, tmp_path):
    folder = Path(os.fsdecode(bytes(tmp_path) + b"/\xff"))
    folder.mkdir()
    source, out = folder / "\udcfe.jsonl", folder / "out"
    prompts.rename(source)
    done = command("ablate", "--model", MODEL, "--prompts", source, "--out", out)
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in out.iterdir()) == FILES
    assert json.loads((out / "run.json").read_text())["prompts"]["file"] == str(source)
    assert r"\udcfe.jsonl" in (out / "report.html").read_text()
    assert command("convert", MODEL, folder / "model").exit_code == 0
    assert sorted(folder.iterdir()) == sorted([source, out, folder / "model"])


def test_no_cell_of_a_table_is_shortened_in_a_narrow_terminal(capsys, monkeypatch):
    rows = [("rasp-duplicates", "12345.67", "helps much"), ("x", "1", "within noise")]
    monkeypatch.setenv("COLUMNS", "24")
    print_table([("model", "left"), ("effect", "right"), ("note", "left")], rows)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "model              effect  note",
        "rasp-duplicates  12345.67  helps",
        "                           much",
        "x                       1  within",
        "                           noise",
    ]


def test_verify_prints_each_identity(command):
    done = command("verify", "--model", MODEL)
    assert done.exit_code == 0, done.output
    assert "✓" in done.stdout
    assert "✗" not in done.stdout


def test_verify_exits_1_when_an_identity_fails(command, monkeypatch):
    false = symmetries.Identity("one is two", 1.0, 0.0)
    monkeypatch.setattr(symmetries, "verify", lambda _: [false])
    done = command("verify", "--model", MODEL)
    assert done.exit_code == 1
    assert "✗" in done.stdout
    assert "one is two" in done.stdout


def test_progress_goes_on_stderr(command, tmp_path, monkeypatch):
    """Where there is no terminal, a line now and then, and none of it on stdout."""
    monkeypatch.setattr("apps.terminal.LOG_INTERVAL", 0.0)
    done = command("ablate", "--model", MODEL, "--out", tmp_path)
    assert "Ablating heads: 8 of 8" in done.stderr
    assert "Ablating heads" not in done.stdout


def test_the_time_left_does_not_count_what_was_done_before(monkeypatch, capsys):
    """A training is resumed at its 2000th step: at two seconds each, ten take twenty."""
    clock = iter([0.0, 100.0, 102.0, 104.0])
    monkeypatch.setattr("apps.terminal.LOG_INTERVAL", 0.0)
    monkeypatch.setattr("apps.terminal.time.monotonic", lambda: next(clock))
    with progress("Training") as tick:
        for step in (2001, 2002, 2003):
            tick(step, 2013, "")
    assert capsys.readouterr().err.splitlines() == [
        "Training: 2001 of 2013",
        "Training: 2002 of 2013, about 22 s left",
        "Training: 2003 of 2013, about 20 s left",
    ]
