"""Prompts for chat models: messages in place of texts, wherever prompt files are read."""

import json

import datasets
import pytest
from chat_models import CHATML, assistant, chat_model, user
from tables import each
from typer.testing import CliRunner

import interp
from analyses import check_prompts, top_texts
from apps.cli import app
from apps.commands.inputs import Inputs
from interp.errors import InvalidInput
from interp.prompts import read_prompt_file, sha256_of_prompts

LINES = [
    {"messages": [user("ab")], "corrupt_messages": [user("cb")], "target": "x", "distractor": "y"},
    {"messages": [user("ab"), assistant("c d")], "target": "e"},
    {"messages": [user("ab"), assistant("c d")], "corrupt": "text"},
    {"text": "plain", "target": "t"},
]


def write(folder, lines):
    path = folder / "chats.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


def test_messages_become_texts_by_the_template_of_the_model(tmp_path):
    """With the beginning of an answer, or up to where an answer of the file ends."""
    model, path = chat_model(CHATML), write(tmp_path, LINES)
    pair, begun, mixed, plain = interp.read_prompts(path, model.chat)
    assert (pair.text, pair.corrupt) == (model.chat("ab"), model.chat("cb"))
    assert (pair.target, pair.distractor, pair.source) == ("x", "y", f"{path}:1")
    assert begun.text.endswith("<|im_start|>assistant\nc d")
    assert (mixed.text, mixed.corrupt) == (begun.text, "text")
    assert plain.fields() == LINES[3]
    assert read_prompt_file(path, model.chat).sha256 == sha256_of_prompts(path)


REFUSED = [
    ({"messages": [user("a")], "text": "a"}, "give text or messages, not both"),
    ({"messages": [user("a")], "corrupt": "b", "corrupt_messages": [user("b")]}, "give corrupt or"),
    ({"messages": [{"role": "usr", "content": "a"}]}, r"messages\[0\]: unknown role 'usr'"),
    ({"messages": []}, "at least one of them"),
    ({"corrupt_messages": [user("a")]}, 'expected an object with a "text" .or "messages"'),
    ({"message": [user("a")], "text": "a"}, "unknown field 'message'; known: text.*messages"),
    ({"messages": [user("a")], "corrupt_messages": [user("a")]}, "other than the prompt"),
]


@each(("line", "message"), REFUSED)
def test_lines_that_are_no_prompts_are_refused_by_number(line, message, tmp_path):
    path = write(tmp_path, [LINES[3], line])
    with pytest.raises(InvalidInput, match=rf"chats\.jsonl:2: .*{message}"):
        interp.read_prompts(path, chat_model(CHATML).chat)


def test_messages_need_a_model(tmp_path):
    path = write(tmp_path, LINES)
    with pytest.raises(InvalidInput, match="rendered with the chat template of a model; pass chat"):
        interp.read_prompts(path)
    with pytest.raises(InvalidInput, match=":1: This model has no chat template"):
        interp.read_prompts(path, chat_model(None).chat)


def test_a_dataset_may_have_messages():
    """Its rows have all keys, also those that other rows use; a text takes precedence."""
    rows = [{"messages": [{**user("ab"), "name": None}], "id": 1, "target": "x"}]
    model = chat_model(CHATML)
    (prompt,) = interp.read_prompts(datasets.Dataset.from_list(rows), model.chat)
    assert (prompt.text, prompt.target) == (model.chat("ab"), "x")
    both = datasets.Dataset.from_list([{**rows[0], "text": "plain"}])
    assert interp.read_prompts(both)[0].text == "plain"


def test_a_corpus_may_have_messages(tmp_path):
    """Other fields, which a corpus may have, are ignored."""
    model, path = chat_model(CHATML), write(tmp_path, [{**LINES[1], "id": 5}])
    result = top_texts(model, path, of="L0H0")
    text = model.chat(LINES[1]["messages"], continue_final_message=True)
    expected = top_texts(model, [text], of="L0H0").to_frame().drop(columns="source")
    assert result.to_frame().drop(columns="source").equals(expected)


def test_commands_read_chats(tmp_path):
    """A folder of a model keeps the template; the check and an analysis use it."""
    model, path = chat_model(CHATML), write(tmp_path, LINES[:1])
    model.save(tmp_path / "model")
    arguments = [str(path), "--model", str(tmp_path / "model"), "--json"]
    checked = CliRunner().invoke(app, ["prompts", "check", *arguments])
    report = json.loads(checked.output)
    assert (checked.exit_code, report["holds"], report["given"]["corrupt"]) == (0, True, 1)
    n_tokens = model.chat("ab").tokens.shape[1]
    assert report["lengths"] == [[n_tokens, 1]]
    assert check_prompts(model, interp.read_prompts(path, model.chat)).holds
    assert Inputs(model, ()).of_file(str(path)).texts == [model.chat("ab")]
    out = tmp_path / "run"
    run = ["predict", "--prompts", str(path), "--model", str(tmp_path / "model"), "--out", str(out)]
    assert CliRunner().invoke(app, run).exit_code == 0
    repeated = CliRunner().invoke(app, ["repeat", str(out)])
    assert (repeated.exit_code, "bit for bit" in repeated.output) == (0, True)
