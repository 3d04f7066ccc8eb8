"""Chat templates of folders, GGUF files and tokenizers, which are kept where a model is saved."""

import json

import pytest
import torch
from chat_models import (
    CHATML,
    GEMMA,
    LLAMA_3,
    assistant,
    byte_tokenizer,
    chat_model,
    model_with,
    user,
)
from safetensors.torch import load_file
from tables import each
from tokenizers import Tokenizer

import interp
from interp.chat import ChatTemplates
from interp.errors import InvalidInput
from interp.loading import packaged_file
from interp.loading.chat_templates import chat_of_folder, chat_of_gguf
from interp.loading.gguf.header import read_gguf_header
from interp.loading.gguf.tokenizer import bytes_as_characters, tokenizer_of
from interp.loading.special_tokens import as_tokenizer

CONFIG = "tokenizer_config.json"
TOKENS = {"bos_token": "<s>", "eos_token": {"content": "</s>", "special": True}, "pad_token": None}
CHAT = [user("a"), assistant("b"), user("c")]


@pytest.fixture
def folder(tmp_path):
    """A saved model without templates."""
    chat_model(None).save(tmp_path / "model")
    return tmp_path / "model"


def configure(folder, **settings):
    (folder / CONFIG).write_text(json.dumps({**TOKENS, **settings}), encoding="utf-8")


def jinja(folder, name, text):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")


FORMS = {
    "a text": lambda folder: configure(folder, chat_template=GEMMA),
    "named ones": lambda folder: configure(
        folder,
        chat_template=[
            {"name": "tool_use", "template": CHATML},
            {"name": "default", "template": GEMMA},
        ],
    ),
    "a file": lambda folder: (configure(folder), jinja(folder, "chat_template.jinja", GEMMA)),
    "a file beside a text": lambda folder: (
        configure(folder, chat_template="old"),
        jinja(folder, "chat_template.jinja", GEMMA),
    ),
    "further files": lambda folder: (
        configure(folder),
        jinja(folder, "chat_template.jinja", GEMMA),
        jinja(folder, "additional_chat_templates/tool_use.jinja", CHATML),
    ),
}


@each("form", FORMS)
def test_templates_of_a_folder_are_read_and_saved_again(form, tmp_path):
    """Also after the model was saved, with its names and its special tokens."""
    folder = tmp_path / form
    chat_model(None).save(folder)
    with pytest.raises(InvalidInput, match="This model has no chat template"):
        interp.load(folder).chat(CHAT)
    FORMS[form](folder)
    model, expected = interp.load(folder), chat_model(GEMMA).chat(CHAT)
    again = folder.with_name(f"{form} again")
    model.save(again)
    saved = interp.load(again)
    assert {path.name for path in again.iterdir()} >= {"chat_templates.json", "tokenizer.json"}
    for read in (model, saved, model.processed(center_unembed=False)):
        assert read.chat(CHAT).tokens.equal(expected.tokens)
        assert read.chat(CHAT).roles == expected.roles
    names = [*model.tokenizer.chat.templates]
    assert [*saved.tokenizer.chat.templates] == names
    if "tool_use" in names:
        assert saved.chat("a", template="tool_use") == chat_model(CHATML).chat("a")


def test_a_saved_model_without_templates_has_no_file_of_them(folder):
    assert not (folder / "chat_templates.json").exists()
    weights = load_file(folder / "model.safetensors")
    assert all(torch.isfinite(weight).all() for weight in weights.values())


DAMAGED = {
    "number": (lambda folder: configure(folder, chat_template=5), "expected a text"),
    "empty list": (lambda folder: configure(folder, chat_template=[]), "expected a text"),
    "no name": (lambda folder: configure(folder, chat_template=[{"template": "a"}]), "an object w"),
    "no text": (
        lambda folder: configure(folder, chat_template=[{"name": "a", "template": 5}]),
        "'a' should be a text, got 5",
    ),
    "too long": (lambda folder: configure(folder, chat_template="a" * 300_000), "at most 262144"),
    "not UTF-8": (
        lambda folder: (folder / "chat_template.jinja").write_bytes(b"\xff"),
        r"chat_template\.jinja can't be read",
    ),
    "a folder": (lambda folder: (folder / "chat_template.jinja").mkdir(), "can't be read"),
    "not JSON": (
        lambda folder: (folder / "chat_templates.json").write_text("{"),
        r"chat_templates\.json can't be read",
    ),
    "not an object": (
        lambda folder: (folder / "chat_templates.json").write_text('{"templates": {"a": []}}'),
        "'a' should be a text",
    ),
    "not Jinja": (lambda folder: configure(folder, chat_template="{% if %}"), "not a valid templ"),
}


@each("name", DAMAGED)
def test_a_damaged_template_keeps_no_model_from_loading(name, tmp_path):
    damage, message = DAMAGED[name]
    folder = tmp_path / name
    chat_model(None).save(folder)
    damage(folder)
    model = interp.load(folder)
    assert model("ab").isfinite().all()
    with pytest.raises(InvalidInput, match=message):
        model.chat("a")
    assert model.chat("a", template=CHATML) == chat_model(None).chat("a", template=CHATML)
    model.save(tmp_path / f"{name} again")


def test_many_and_odd_files_are_bounded(folder):
    jinja(folder, "chat_template.jinja", CHATML)
    for number in range(150):
        jinja(folder, f"additional_chat_templates/{number}.jinja", "a")
    chat = chat_of_folder(folder, {})
    assert chat is not None
    assert "more than 100" in chat.problem


def test_templates_of_a_tokenizer_of_transformers_are_kept():
    """Those of other tokenizers are none."""
    tokenizer = byte_tokenizer(LLAMA_3)
    read = as_tokenizer(tokenizer)
    assert read is not None
    assert read.chat == ChatTemplates(
        {"default": LLAMA_3}, {"bos_token": "<s>", "eos_token": "</s>"}
    )
    assert read.with_special_tokens(1, 0).chat == read.chat
    plain = as_tokenizer(Tokenizer.from_str(tokenizer.backend_tokenizer.to_str()))
    assert plain is not None
    assert plain.chat is None


def metadata(**entries):
    """The metadata of a GGUF file whose tokens are bytes."""
    tokens = ["<s>", "</s>", *bytes_as_characters().values()]
    ggml = {
        "model": "gpt2",
        "tokens": tokens,
        "token_type": [3, 3, *[1] * (len(tokens) - 2)],
        "merges": [],
        "bos_token_id": 0,
        "eos_token_id": 1,
        "padding_token_id": 10**6,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in ggml.items()} | entries


def test_templates_of_a_gguf_file_are_kept():
    entries = {
        "tokenizer.chat_template": "{{ bos_token }}{{ pad_token }}{{ messages[0].content }}",
        "tokenizer.chat_template.tool_use": CHATML,
        "tokenizer.chat_templates": ["tool_use"],
    }
    tokenizer = tokenizer_of(metadata(**entries))
    assert tokenizer is not None
    assert tokenizer.chat is not None
    assert tokenizer.chat.special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}
    assert [*tokenizer.chat.templates] == ["default", "tool_use"]
    assert chat_of_gguf(metadata()) is None
    odd = chat_of_gguf(metadata(**{"tokenizer.chat_template": 5}))
    assert odd is not None
    assert "its metadata has a chat template that can't be used" in odd.problem


@pytest.mark.real
def test_the_packaged_model_has_its_template_and_keeps_it(tmp_path):
    """Of its weights nothing is read."""
    path = packaged_file("smollm2-135m")
    assert path is not None
    model = model_with(tokenizer_of(read_gguf_header(path).metadata))
    made = model.chat("Hi")
    assert made.text.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert [made.labels[place] for place in made.positions("user")] == ["Hi"]
    model.save(tmp_path / "model")
    again = interp.load(tmp_path / "model").chat("Hi")
    assert (again, again.roles) == (made, made.roles)
