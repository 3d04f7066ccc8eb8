"""``interp prompts`` on real files: what it prints, what it writes, how it exits."""

import json
import re
from pathlib import Path

import pytest
from tables import each

import analyses
import interp
from interp.prompts.prompts import bundled_prompts

MODEL = "induction-by-hand"
HOW_TO = (Path(__file__).parents[2] / "docs" / "how-to" / "prompts.md").read_text("utf-8")
TEMPLATE = """
text = "{a}{b}{a}"
corrupt = "{a}{c}{a}"
target = "{b}"
distractor = "{c}"
n = 6
[lists]
letter = ["q", "r", "s", "t"]
[slots]
a = "letter"
b = "letter"
c = "letter"
"""


def write(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    return path


def words(text):
    return " ".join(text.split())


def test_the_bundled_sets_are_listed_with_sizes_and_fields(command):
    done = command("prompts", "list")
    assert done.exit_code == 0
    lines = {line.split()[0]: words(line) for line in done.stdout.splitlines()}
    assert set(bundled_prompts()) <= set(lines)
    assert lines["letters"] == "letters 24 text, target, distractor"
    assert lines["dates-pairs"] == "dates-pairs 36 text, corrupt, prefix, target, distractor"


def test_a_set_that_holds_exits_with_0(command):
    done = command("prompts", "check", "letters", "--model", MODEL)
    assert done.exit_code == 0, done.output
    lines = words(done.stdout)
    assert "tokens 9 to 22, median 14; the context is 64" in lines
    assert "targets 24, all single tokens" in lines
    assert "target predicted 24 of 24 (100%)" in lines
    assert f"{MODEL} can read all 24 prompts." in lines


def test_problems_are_listed_by_line_and_exit_with_1(command, tmp_path):
    file = write(tmp_path, "a.csv", "text,target\nabab,a\nabab,cd\naé,b\n")
    done = command("prompts", "check", file, "--model", MODEL)
    assert done.exit_code == 1
    lines = [words(line) for line in done.stdout.splitlines()]
    assert "targets 3, 1 not single tokens" in lines
    assert ":3 target 'cd' splits into 2 tokens: c d" in lines
    assert any(line.startswith(":4 text") for line in lines)
    assert "Prompts with a problem: 2 of 3" in lines[-1]
    limited = command("prompts", "check", file, "--model", MODEL, "--top", 1)
    assert "… and 1 more (--top)" in limited.stdout
    assert ":4" not in limited.stdout


def test_json_is_the_same(command, tmp_path):
    file = write(tmp_path, "a.jsonl", '{"text": "abab", "target": "cd"}\n')
    done = command("prompts", "check", file, "--model", MODEL, "--json")
    assert done.exit_code == 1
    read = json.loads(done.stdout)
    problems = analyses.check_prompts(interp.load(MODEL), interp.read_prompts(file))
    assert read == {"file": str(file), "model": MODEL, **problems.to_dict()}
    assert read["problems"][0]["source"] == f"{file}:1"


def test_fillings_of_a_template_should_be_of_one_length_and_other_prompts_need_not(
    command, tmp_path
):
    file = write(tmp_path, "a.toml", TEMPLATE.replace('"t"]', '"tt"]'))
    done = command("prompts", "check", file, "--model", MODEL)
    assert done.exit_code == 1
    assert re.search(r"\[\d\]\s+length\s+\d+ tokens, the first prompt has", done.stdout)
    assert re.search(r"\([abc=qrst, ]*=tt", words(done.stdout))
    lines = write(tmp_path, "a.txt", "abab\nab\n")
    assert command("prompts", "check", lines, "--model", MODEL).exit_code == 0
    again = command("prompts", "check", lines, "--model", MODEL, "--same-length")
    assert again.exit_code == 1


def test_a_template_is_filled_into_a_file_that_every_command_reads(command, tmp_path):
    template, out = write(tmp_path, "a.toml", TEMPLATE), tmp_path / "a.jsonl"
    done = command("prompts", "fill", template, "--n", 8, "--seed", 1, "--out", out, "-m", MODEL)
    assert done.exit_code == 0, done.output
    expected = [prompt.fields() for prompt in interp.read_template(template).fill(8, 1)]
    assert [json.loads(line) for line in out.read_text().splitlines()] == expected
    printed = command("prompts", "fill", template, "--n", 8, "--seed", 1)
    assert printed.stdout == out.read_text()
    for source in (template, out):
        made = command(
            "patch", "--model", MODEL, "--prompts", source, "--out", tmp_path / source.suffix[1:]
        )
        assert made.exit_code == 0, made.output


def test_a_template_that_does_not_align_writes_nothing(command, tmp_path):
    template = write(tmp_path, "a.toml", TEMPLATE.replace('"t"]', '"tt"]'))
    out = tmp_path / "a.jsonl"
    done = command("prompts", "fill", template, "--out", out, "--model", MODEL)
    assert done.exit_code == 1
    assert "Nothing was written." in words(done.stdout)
    assert not out.exists()
    done = command("patch", "--model", MODEL, "--prompts", template, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert re.search(r"a\.toml\[\d\] \(.*=tt.*\) has \d tokens clean and \d corrupted", done.stderr)


@each(
    ("arguments", "message"),
    [
        (("check", "none.jsonl"), "none.jsonl can't be read: No such file"),
        (("check", "empty.csv"), "empty.csv holds no prompts"),
        (("check", "bad.toml"), "bad.toml:2: unknown key 'txt'. Nearest: text"),
        (("fill", "bad.toml"), "bad.toml:2: unknown key 'txt'. Nearest: text"),
        (("fill", "none.toml"), "none.toml can't be read: No such file"),
        (("fill", "good.toml", "--n", 99), "99 prompts were requested, but it has only 24"),
        (("fill", "good.toml", "--out", "a.csv"), "--out a.csv should end in .jsonl"),
    ],
)
def test_bad_input_is_one_line_on_stderr(command, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "empty.csv", "")
    write(tmp_path, "bad.toml", TEMPLATE.replace("text", "txt"))
    write(tmp_path, "good.toml", TEMPLATE)
    done = command("prompts", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert message in done.stderr


def test_the_code_and_the_commands_of_the_how_to_run(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "how_to"}
    ran = 0
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```", HOW_TO, re.DOTALL | re.MULTILINE):
        if language == "python":
            exec(compile(text, "prompts.md", "exec"), names)
            ran += 1
        for line in text.splitlines() if language == "console" else ():
            if line.startswith("$ interp "):
                done = command(*line.split()[2:])
                assert done.exit_code == 0, done.output
                ran += 1
    assert ran > 4


@pytest.mark.parametrize("name", ["list", "check", "fill"])
def test_each_has_a_help(command, name):
    assert command("prompts", name, "--help").exit_code == 0
