"""Chat templates are rendered as by ``transformers``, within limits, or refused with a reason."""

import sys
import time

import jinja2
import pytest
from chat_models import (
    CHATML,
    GEMMA,
    MISTRAL,
    SPECIAL,
    TEMPLATES,
    assistant,
    byte_tokenizer,
    chat_model,
    model_with,
    system,
    user,
)
from jinja2.exceptions import TemplateError
from tables import each

import interp
from interp.chat import MAX_TEMPLATE, environment
from interp.errors import InvalidInput

CHATS = {
    "one": [user("Who wrote Emma?")],
    "system": [system("Be brief."), user("Who?")],
    "turns": [user(" a "), assistant("\n b"), user("a")],
    "ends with an answer": [user("Who?"), assistant("Jane Austen")],
    "empty": [system(""), user(""), assistant(" "), user("é\n\n")],
    "tokens": [user("<|im_end|>\n<|im_start|>assistant\n</s>[/INST]"), assistant("{{ 1 + 1 }}")],
    "out of turn": [user("a"), user("b")],
    "first is the assistant": [assistant("a")],
}


@each("name", TEMPLATES)
@each("chat", CHATS)
@pytest.mark.agreement
def test_text_and_ids_are_those_of_transformers(name, chat):
    """Also where the template refuses the messages."""
    tokenizer, model = byte_tokenizer(TEMPLATES[name]), chat_model(TEMPLATES[name])
    for prompted in (True, False):
        try:
            text = tokenizer.apply_chat_template(
                CHATS[chat], tokenize=False, add_generation_prompt=prompted
            )
        except TemplateError as error:
            with pytest.raises(InvalidInput, match=str(error).rstrip(".")[:30]):
                model.chat(CHATS[chat], add_generation_prompt=prompted)
            continue
        made = model.chat(CHATS[chat], add_generation_prompt=prompted)
        ids = tokenizer.apply_chat_template(
            CHATS[chat], add_generation_prompt=prompted, return_dict=False
        )
        assert made == made.text == text
        assert made.tokens.tolist() == [ids] == model.to_tokens(made).tolist()


@each("name", ["ChatML", "Llama 3", "Mistral"])
@each("content", ["Jane Au", "Jane Au ", " Jane", "a\n"])
@pytest.mark.agreement
def test_a_continued_message_ends_as_in_transformers(name, content):
    chat = [user("Who?"), assistant(content)]
    expected = byte_tokenizer(TEMPLATES[name]).apply_chat_template(
        chat, tokenize=False, continue_final_message=True
    )
    made = chat_model(TEMPLATES[name]).chat(chat, continue_final_message=True)
    assert made.text == expected
    assert made.roles[-1] == "assistant"


@pytest.mark.agreement
def test_variables_reach_the_template():
    text = "{{ eos_token }}{{ n }}{{ tools is none }}{{ x is defined }}{{ messages[0].content }}"
    chat, variables = [user("a")], {"n": [1, {"b": None}], "eos_token": "!"}
    expected = byte_tokenizer(text).apply_chat_template(chat, tokenize=False, **variables)
    assert chat_model(text).chat(chat, variables=variables).text == expected
    assert chat_model(None).chat(chat, template=text, variables=variables).text == expected
    with pytest.raises(InvalidInput, match="variables= should be values of JSON by name"):
        chat_model(text).chat(chat, variables={"n": object()})


def test_a_text_is_the_only_message_of_the_user():
    model = chat_model(CHATML)
    assert model.chat("Hi") == model.chat([user("Hi")])
    assert model.chat("Hi").messages == (("user", "Hi"),)


@each("prepends", [True, False])
def test_bos_is_written_once(prepends):
    """By the template or, as for every text, by the model."""
    for template in (GEMMA, CHATML):
        model = model_with(byte_tokenizer(template), prepend_bos=prepends)
        made = model.chat("a")
        ids = made.tokens[0].tolist()
        assert made.tokens.equal(model.to_tokens(made.text))
        assert ids.count(0) == (template is GEMMA or prepends)
        assert len(made.roles) == len(made.labels) == len(ids)
        assert made.roles[0] == "template"
        assert [made.labels[place] for place in made.positions("user")] == ["a"]


REFUSED = {
    "Messages": [
        ([], "at least one of them"),
        (5, "should be a list of"),
        ({"role": "user", "content": "a"}, "should be a list of"),
        (["a"], r"messages\[0\] should be"),
        ([user("a"), {"role": "user"}], r"messages\[1\] lacks 'content'"),
        ([{"content": "a"}], "lacks 'role'"),
        ([{**user("a"), "tool_calls": []}], "unknown key 'tool_calls'"),
        ([{"role": "user", "content": None}], "content should be a text, got None"),
        ([{"role": "user", "content": [{"type": "text"}]}], "content should be a text"),
        ([{"role": 1, "content": "a"}], "role should be a text"),
        ([{"role": "usr", "content": "a"}], "unknown role 'usr'. Nearest: user"),
        ([{"role": "template", "content": "a"}], "unknown role 'template'"),
        ([{"role": "", "content": "a"}], "unknown role ''"),
    ],
    "Gemma": [
        ([system("a"), user("b")], "System role not supported. The roles that it takes: user, ass"),
        ([user("a"), user("b")], "must alternate"),
    ],
    "Mistral": [([user("a"), assistant("b"), system("c")], "leaves out|must alternate")],
    "Zephyr": [
        (
            [user("a"), {"role": "tool", "content": "5"}],
            r"leaves out messages\[1\], of the role 'tool'. .* takes: system, user, assistant",
        )
    ],
}


@each(
    ("name", "messages", "message"),
    [(name, *row) for name, rows in REFUSED.items() for row in rows],
)
def test_messages_that_can_not_be_used_are_refused(name, messages, message):
    with pytest.raises(InvalidInput, match=message):
        chat_model(TEMPLATES.get(name, CHATML)).chat(messages)


def test_a_role_that_the_template_names_is_known():
    template = "{% for m in messages if m.role == 'critic' %}C{{ m.content }}{% endfor %}"
    assert chat_model(None).chat([{"role": "critic", "content": "x"}], template=template) == "Cx"


def test_a_model_without_tokenizer_or_template_is_refused():
    with pytest.raises(InvalidInput, match="This model has no chat template"):
        chat_model(None).chat("a")
    model = interp.Transformer(chat_model(None).config)
    with pytest.raises(InvalidInput, match="no tokenizer"):
        model.chat("a")


HOSTILE = {
    "loops": "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
    "calls": "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "recursive loop": "{% for i in [1] recursive %}{{ loop([1, 1]) }}{{ loop([1]) }}{% endfor %}",
    "repeated": "{{ 'a' * 10 ** 9 }}",
    "repeated list": "{{ 10 ** 9 * [1] }}",
    "power": "{{ 9 ** 9 ** 9 ** 9 }}",
    "doubled": "{% set n = namespace(x='a') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}"
    "{% endfor %}{{ n.x }}",
    "doubled block": "{% set n = namespace(x='a') %}{% for i in range(99) %}"
    "{% set n.x %}{{ n.x }}{{ n.x }}{% endset %}{% endfor %}",
    "padded": "{{ 'a'.center(10 ** 9) }}",
    "padded by a filter": "{{ 'a' | center(10 ** 9) }}",
    "indented": "{{ 'a' | indent(width=10 ** 9, first=true) }}",
    "long": "{% for i in range(9999) %}{{ 'a'.center(9999) }}{% endfor %}",
    "class": "{{ ''.__class__.__mro__ }}",
    "globals": "{{ raise_exception.__globals__['sys'] }}",
    "namespace": "{% set n = namespace() %}{% set n.__class__ = 1 %}",
    "change": "{{ messages.append(1) }}",
    "include": "{% include '/etc/passwd' %}",
    "import": "{% import 'os' as os %}",
    "deep": "{{ " + "(" * 9999 + " }}",
    "open": "{% for m in messages %}",
    "undefined": "{{ messages[0].content.nothing.more }}",
    "division": "{{ 1 / 0 }}",
    "random text": "{{ lipsum() }}",
}


@each("name", HOSTILE)
def test_hostile_templates_end_soon_with_an_error(name):
    begin = time.monotonic()
    with pytest.raises(InvalidInput, match=r"The chat template (fails|is not a valid)"):
        chat_model(None).chat("a", template=HOSTILE[name])
    assert time.monotonic() - begin < 2


def test_a_long_template_is_refused_and_a_long_chat_is_not():
    with pytest.raises(InvalidInput, match="at most 262144 are read"):
        chat_model(None).chat("a", template="{# #}" * MAX_TEMPLATE)
    made = chat_model(MISTRAL).chat([*[user("a "), assistant("b ")] * 300, user("a")])
    assert (made.numbers.count(0), made.numbers.count(599), len(made.positions("user"))) == (
        2,
        1,
        601,
    )


def test_names_choose_among_templates():
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = {"default": "d{{ messages[0].content }}", "tool_use": CHATML}
    try:
        model = model_with(tokenizer)
    finally:
        tokenizer.chat_template = None
    assert model.chat("a") == model.chat("a", template="default") == "da"
    assert model.chat("a", template="tool_use") == chat_model(CHATML).chat("a")
    with pytest.raises(InvalidInput, match=r"no chat template 'tool'.*Nearest: tool_use"):
        model.chat("a", template="tool")


@pytest.fixture
def without_cache():
    """Jinja is looked for again, before and after."""
    environment._environment.cache_clear()
    environment._compiled.cache_clear()
    yield
    environment._environment.cache_clear()
    environment._compiled.cache_clear()


@pytest.mark.usefixtures("without_cache")
def test_without_jinja_the_error_names_what_to_install(monkeypatch):
    with monkeypatch.context() as missing:
        missing.setitem(sys.modules, "jinja2", None)
        with pytest.raises(InvalidInput, match=r"can't be imported.*pip install 'interp\[chat\]'"):
            chat_model(CHATML).chat("a")
    monkeypatch.setattr(jinja2, "__version__", "3.1.5")
    with pytest.raises(InvalidInput, match=r"jinja2 3\.1\.6 or later.*3\.1\.5 is installed"):
        chat_model(CHATML).chat("a")


def test_the_special_tokens_are_tokens():
    """The tests above would also pass if they were read byte by byte."""
    made = chat_model(CHATML).chat("a")
    assert made.labels.count("<|im_start|>") == 3
    assert len(SPECIAL) == len({*SPECIAL})
