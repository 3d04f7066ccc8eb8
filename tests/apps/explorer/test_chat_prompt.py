"""The prompt as a chat message: a switch, in links, on every page that reads the prompt."""

import shutil
from dataclasses import replace

import pytest
from streamlit.testing.v1 import AppTest

from apps.explorer.default_views import default_view, with_prompt
from apps.explorer.links import completed
from apps.explorer.offered import model_of, offer, source_of
from apps.explorer.pages.heads import HEADS
from apps.explorer.pages.patch import PATCH
from apps.explorer.pages.prompt import PROMPT, on_pick
from apps.explorer.pages.view_inputs import inputs_of, prompt_problem
from apps.explorer.pages.weights import asks as weights_asks
from apps.explorer.prediction import prediction_question
from apps.explorer.sidebar import FIELDS, submitted
from apps.explorer.validate import n_tokens, within_context
from apps.explorer.view import View, from_address
from apps.serve import APP
from interp.loading import MODEL_FOLDER
from interp.prompts import Prompt

TEMPLATE = "{% for m in messages %}# {{ m.content }}\n{% endfor %}x ="
LABEL = "As a chat message"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model with a chat template, offered as ``chats``; that of ``broken`` is damaged."""
    folders = [tmp_path_factory.mktemp("models") / name for name in ("chats", "broken")]
    for folder, template in zip(folders, (TEMPLATE, "{% if %}"), strict=True):
        shutil.copytree(MODEL_FOLDER / "python-2l", folder, ignore=shutil.ignore_patterns("steps"))
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    offer([str(folder) for folder in folders])
    yield model_of("chats")
    offer([])


VIEW = View("prompt", "chats", text="y = 1", corrupt="y = 2", target=" 1", metric="loss", chat=True)


def test_texts_are_sent_through_the_template(model):
    inputs = inputs_of(VIEW, model)
    assert (inputs.texts, inputs.prompts[0].corrupt) == (["# y = 1\nx ="], "# y = 2\nx =")
    assert inputs.texts == [model.chat("y = 1").text]
    assert prediction_question(VIEW, model) == prediction_question(
        replace(VIEW, text="# y = 1\nx =", chat=False), model
    )
    assert n_tokens(VIEW, model, "decoder") == model.chat("y = 1").tokens.shape[1]
    weights = replace(VIEW, weights="head", page="weights")
    assert [ask.question for ask in weights_asks(weights, model)] == [
        ask.question
        for ask in weights_asks(replace(weights, text="# y = 1\nx =", chat=False), model)
    ]
    plain = replace(VIEW, chat=False)
    assert inputs_of(plain, model).texts == ["y = 1"]


def test_each_token_of_a_chat_has_its_role(model):
    """In the strips of the pages Prompt, Heads and Patch; without a chat no token does."""
    drawn = {
        page.name: [
            (each["tokens"], each.get("roles") or each.get("token_roles"))
            for each in page.views(view, model, results_of(page, view, model))
            if "tokens" in each
        ]
        for page in (PROMPT, HEADS, PATCH)
        for view in [replace(VIEW, page=page.name, corrupt="z = 1")]
    }
    assert [len(strips) for strips in drawn.values()] == [1, 1, 1]
    for ((tokens, roles),) in drawn.values():
        assert len(tokens) == len(roles)
        of_user = [token for token, role in zip(tokens, roles, strict=True) if role == "user"]
        assert "".join(of_user).replace("·", " ").strip() == "y = 1"
        assert {*roles} == {"user", "template"}
    plain = replace(VIEW, chat=False)
    (strip, *_) = PROMPT.views(plain, model, results_of(PROMPT, plain, model))
    assert strip["roles"] is None


def results_of(page, view, model):
    """The answers to the quick questions of a page."""
    asked = [ask for ask in page.asks(view, model) if not (ask.long or ask.name == "pair")]
    return {ask.name: ask.question.run(model) for ask in asked}


def test_a_long_text_is_cut_so_that_the_message_fits(model):
    view, notes = within_context(replace(VIEW, text="y = 1\n" * 400), model)
    assert len(notes) == 1
    assert n_tokens(view, model, "decoder") <= model.config.n_ctx
    assert n_tokens(replace(view, text=f"0 {view.text}"), model, "decoder") > model.config.n_ctx - 4


def test_a_token_of_a_chat_is_asked_about_in_the_text_that_the_template_makes(model):
    """The switch is then off, since the text is no message."""
    view = replace(VIEW, asked=("continuation",), temperature=0.0, new_tokens=3)
    new = model.generate(model.chat("y = 1").text, max_new_tokens=3)[0, -3:]
    pick = {"view": "sample_0", "pick": "written", "row": 1, "name": model.label(int(new[1]))}
    asked = on_pick(view, pick)
    assert (asked.chat, asked.text) == (False, f"# y = 1\nx ={model.to_string(new[:1])}")
    assert model.to_single_token(asked.target) == new[1]


def test_a_link_records_the_switch(model):
    assert VIEW.to_address()["chat"] == "True"
    assert from_address(VIEW.to_address()) == (VIEW, ())
    assert "chat" not in replace(VIEW, chat=False).to_address()
    opened, notes = completed(VIEW, "chats")
    assert (opened.chat, notes) == (True, ())
    assert model.tokenizer is not None


def test_the_switch_stays_for_another_text_and_ends_with_an_example():
    """The examples of a model are texts that it continues, no messages."""
    fields = {name: getattr(VIEW, name) for name in FIELDS}
    assert submitted(VIEW, {**fields, "text": "z"}).chat
    assert not with_prompt(VIEW, Prompt("z", target=" 1")).chat


@pytest.mark.usefixtures("model")
def test_without_a_usable_template_the_page_has_the_reason():
    opened, notes = completed(replace(default_view("python-2l"), chat=True), "python-2l")
    assert not opened.chat
    assert notes == ("chat=True: python-2l has no chat template; the prompt is read as it is.",)
    broken = replace(VIEW, model="broken")
    assert "not a valid template of Jinja" in prompt_problem(broken, model_of("broken"))
    assert not prompt_problem(replace(broken, chat=False), model_of("broken"))


@pytest.mark.usefixtures("model")
def test_the_switch_is_beside_the_prompt_of_a_model_with_a_template(monkeypatch):
    monkeypatch.setattr("sys.argv", ["explorer", "--model", source_of("chats")])
    app = AppTest.from_file(str(APP), default_timeout=60)
    for name, value in {"model": "chats", "page": "weights", "text": "y = 1", "query": "2"}.items():
        app.query_params[name] = value
    app.run()
    (switch,) = [toggle for toggle in app.toggle if toggle.label == LABEL]
    assert not switch.value
    switch.set_value(True).run()
    view = app.session_state["view"]
    assert not app.exception
    assert (view.chat, view.text, view.query, app.text_area(key="form_text").value) == (
        *(True, "y = 1", None),
        "y = 1",
    )
    assert app.query_params["chat"] in ("True", ["True"])
    app.selectbox(key="choose_model").set_value("python-2l").run()
    assert not app.exception
    assert not [toggle for toggle in app.toggle if toggle.label == LABEL]
    assert not app.session_state["view"].chat
