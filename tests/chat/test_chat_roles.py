"""Whose each token of a chat is: hand-made truths, laws over random messages, and refusals."""

import copy
import pickle
from itertools import groupby

import pytest
import torch
from chat_models import (
    CHATML,
    GEMMA,
    LLAMA_3,
    MISTRAL,
    TEMPLATES,
    ZEPHYR,
    assistant,
    byte_tokenizer,
    chat_model,
    merging_tokenizer,
    model_with,
    system,
    user,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import each
from tokenizers import AddedToken, normalizers, processors

import interp
from analyses import predictions
from interp.errors import InvalidInput

ECHO = "{% for m in messages %}<{{ m.content }}>{{ m.content }}{% endfor %}"


def pieces(model, made):
    """The text of neighbouring tokens with the same owner, with its role."""
    tokens = zip(made.tokens[0].tolist(), made.roles, made.numbers, strict=True)
    groups = groupby(tokens, lambda token: token[1:])
    return [(role, model.to_string([token[0] for token in group])) for (role, _), group in groups]


CHAT = [system("Be brief. "), user(" a"), assistant("b\n"), user("a")]
TRUTHS = {
    "ChatML": [
        ("template", "<|im_start|>system\n"),
        ("system", "Be brief. "),
        ("template", "<|im_end|>\n<|im_start|>user\n"),
        ("user", " a"),
        ("template", "<|im_end|>\n<|im_start|>assistant\n"),
        ("assistant", "b\n"),
        ("template", "<|im_end|>\n<|im_start|>user\n"),
        ("user", "a"),
        ("template", "<|im_end|>\n<|im_start|>assistant\n"),
    ],
    "Llama 3": [
        ("template", "<s><|start_header_id|>system<|end_header_id|>\n\nToday Date: now\n\n"),
        ("system", "Be brief."),
        ("template", "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n"),
        ("user", "a"),
        ("template", "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"),
        ("assistant", "b"),
        ("template", "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n"),
        ("user", "a"),
        ("template", "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"),
    ],
    "Mistral": [
        ("template", "<s>[INST] "),
        ("user", " a"),
        ("template", "[/INST] "),
        ("assistant", "b"),
        ("template", "</s>[INST] "),
        ("system", "Be brief. "),
        ("template", "\n\n"),
        ("user", "a"),
        ("template", "[/INST]"),
    ],
    "Zephyr": [
        ("template", "<|system|>\n"),
        ("system", "Be brief. "),
        ("template", "</s>\n<|user|>\n"),
        ("user", " a"),
        ("template", "</s>\n<|assistant|>\n"),
        ("assistant", "b\n"),
        ("template", "</s>\n<|user|>\n"),
        ("user", "a"),
        ("template", "</s>\n<|assistant|>\n"),
    ],
}


@each("name", TRUTHS)
def test_roles_are_those_of_a_hand_made_truth(name):
    """Contents are trimmed, moved, and twice the same."""
    model = chat_model(TEMPLATES[name])
    made = model.chat(CHAT, variables={"date_string": "now"})
    assert pieces(model, made) == TRUTHS[name]
    assert made.mixed == ()


def test_the_words_of_the_template_are_not_those_of_a_message():
    """The default system prompt, a header and an answer that begins are the template's."""
    model = chat_model(CHATML)
    made = model.chat("You help.")
    assert pieces(model, made) == [
        ("template", "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\n"),
        ("user", "You help."),
        ("template", "<|im_end|>\n<|im_start|>assistant\n"),
    ]
    written = model.chat([system("You help."), user("user")])
    assert written.text == made.text.replace("user\nYou help.", "user\nuser")
    assert [n for n, text in zip(written.numbers, written.labels, strict=True) if text == "Y"] == [
        0
    ]


def test_special_tokens_in_a_content_are_those_of_its_message():
    model = chat_model(CHATML)
    made = model.chat("x<|im_end|>\n<|im_start|>system\n")
    assert ("user", "x<|im_end|>\n<|im_start|>system\n") in pieces(model, made)


def test_every_repetition_of_a_content_is_the_message_s():
    model = chat_model(ECHO)
    made = model.chat([user("ab"), assistant("ab")])
    assert made.text == "<ab>ab<ab>ab"
    assert made.numbers == (None, 0, 0, None, 0, 0, None, 1, 1, None, 1, 1)


CONTENTS = st.text(alphabet="ab \n\tä\u3000\U000f0000\U000f0001<|", max_size=6)
STRIPS = {CHATML: str, ZEPHYR: str, LLAMA_3: str.strip, GEMMA: str.strip, ECHO: str}


@settings(max_examples=60)
@given(st.sampled_from([*STRIPS]), st.lists(CONTENTS, min_size=1, max_size=5))
def test_the_tokens_of_a_message_spell_its_content(template, contents):
    """Whatever it is, and as it is after trimming; all others are those of empty contents."""
    model = chat_model(template)
    roles = ["user", "assistant"] * 3
    chat = [{"role": role, "content": text} for role, text in zip(roles, contents, strict=False)]
    made = model.chat(chat, variables={"date_string": "now"})
    ids = made.tokens[0].tolist()
    for number, content in enumerate(contents):
        spelled = [id_ for id_, n in zip(ids, made.numbers, strict=True) if n == number]
        times = 2 if template is ECHO else 1
        assert model.to_string(spelled) == STRIPS[template](content) * times
    rest = [id_ for id_, n in zip(ids, made.numbers, strict=True) if n is None]
    empty = model.chat(
        [{**message, "content": ""} for message in chat], variables={"date_string": "now"}
    )
    assert rest == empty.tokens[0].tolist()


@settings(max_examples=40)
@given(CONTENTS, CONTENTS)
def test_roles_follow_the_messages(first, second):
    """The converse: exchanging the contents exchanges whose the tokens are."""
    model = chat_model(CHATML)
    made = model.chat([system(first), user(second)])
    other = model.chat([system(second), user(first)])
    counts = [[chat.numbers.count(number) for number in (0, 1)] for chat in (made, other)]
    assert counts[0] == counts[1][::-1]


UNMARKED = {
    "changed": "{{ messages[0].content | upper }}",
    "taken apart": "{{ messages[0].content[:2] }}, {{ messages[0].content[2:] }}",
    "as JSON": "{{ messages[0].content | tojson(ensure_ascii=True) }}",
    "compared": "{% if messages[0].content == 'Hello' %}!{% endif %}{{ messages[0].content }}",
    "measured": "{{ messages[0].content }}{{ messages[0].content | length }}",
    "without the start": "{{ messages[0].content[1:] }}",
}


@each("name", UNMARKED)
def test_where_contents_are_changed_roles_are_refused_and_never_guessed(name):
    made = chat_model(None).chat("Hello", template=UNMARKED[name])
    assert made.text
    assert f"roles unknown: {made.unmarked[:30]}" in repr(made)
    for read in (lambda: made.roles, lambda: made.mixed, lambda: made.positions("user")):
        with pytest.raises(InvalidInput, match="It is not known whose each token is: the template"):
            read()
    with pytest.raises(InvalidInput, match="can't end with the last message"):
        chat_model(None).chat("Hello", template=UNMARKED[name], continue_final_message=True)


# ---- tokens and characters -----------------------------------------------------------------------


def roles_of(backend, messages, template="{% for m in messages %}{{ m.content }}\n{% endfor %}"):
    model = model_with(backend)
    made = model.chat(messages, template=template)
    return list(zip(made.labels, made.numbers, strict=True)), made.mixed


def test_a_token_with_a_character_of_a_message_is_that_message_s():
    """The newline after the content belongs to the template."""
    backend = merging_tokenizer([("a", "Ċ")])
    assert roles_of(backend, [user("ba")]) == ([("b", 0), ("a↵", 0)], (1,))


def test_a_token_of_two_messages_is_that_of_the_larger_part():
    backend = merging_tokenizer([("a", "b"), ("ab", "c"), ("x", "y")])
    joined = "{% for m in messages %}{{ m.content }}{% endfor %}"
    assert roles_of(backend, [user("a"), user("bc")], joined) == ([("abc", 1)], (0,))
    assert roles_of(backend, [user("x"), user("y")], joined) == ([("xy", 0)], (0,))


def test_parts_of_a_character_are_its_message_s():
    tokens, mixed = roles_of(merging_tokenizer([]), [user("é"), user("€")])
    assert [number for _, number in tokens] == [0, 0, None, 1, 1, 1, None]
    assert mixed == ()


def test_offsets_of_a_tokenizer_that_changes_texts():
    """NFC makes one character of two; the post-processor trims the space of a token."""
    backend = merging_tokenizer([("Ġ", "a")])
    backend.normalizer = normalizers.NFC()
    backend.post_processor = processors.ByteLevel(trim_offsets=True)
    tokens, _ = roles_of(backend, [user("e\u0301  a")], "a{{ messages[0].content }} b")
    assert tokens == [
        ("a", None),
        *[(label, 0) for label in ("⟨c3⟩", "⟨a9⟩", "·", "·a")],
        ("·", None),
        ("b", None),
    ]


def test_an_added_token_that_takes_white_space_is_not_that_of_a_message():
    """As the tokens of headers of Phi 3, which take what follows them."""
    backend = merging_tokenizer([])
    backend.add_special_tokens([AddedToken("<u>", rstrip=True), AddedToken("<e>", lstrip=True)])
    tokens, mixed = roles_of(backend, [user(" a ")], "<u>\n{{ messages[0].content }}<e>b")
    assert tokens == [("<u>", None), ("a", 0), ("<e>", None), ("b", None)]
    assert mixed == ()


def test_tokens_of_sentencepiece_have_the_space_before_them():
    backend = merging_tokenizer([])
    vocab = {"<s>": 0, "</s>": 1, "▁": 2, "a": 3, "b": 4, "[": 5, "▁a": 6, "<unk>": 7}
    backend.model = type(backend.model)(vocab, [("▁", "a")], unk_token="<unk>")
    backend.pre_tokenizer = None
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokens, mixed = roles_of(backend, [user("ab")], "[ {{ messages[0].content }} [")
    assert tokens == [("▁", None), ("[", None), ("▁a", 0), ("b", 0), ("▁", None), ("[", None)]
    assert mixed == (2,)


# ---- a chat as a text ----------------------------------------------------------------------------


def test_a_chat_is_accepted_wherever_a_text_is():
    model = chat_model(CHATML)
    made, other = model.chat("ab"), model.chat([user("c"), assistant("d")])
    assert model(made).equal(model(made.tokens))
    assert interp.run(model, [made, other]).logits.equal(model([made.text, other.text]))
    head = interp.edits.zero("z", layer=0, head=0)
    assert interp.sweep(model, made, [head], metric=interp.metrics.loss()).values.shape == (1, 1)
    assert predictions(model, made).ids.tolist() == made.tokens.tolist()
    edit = interp.edits.zero("z", layer=0, head=0, pos=made.positions("user"))
    assert not interp.run(model, made, edits=[edit]).logits.equal(model(made))


def test_a_chat_keeps_its_roles_in_a_copy_and_can_not_be_changed():
    made = chat_model(CHATML).chat("ab")
    for again in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert (again, again.roles, repr(again)) == (made, made.roles, repr(made))
    made.tokens.zero_()
    assert made.tokens.any()
    with pytest.raises(AttributeError, match="can't be changed"):
        made.roles = ()
    assert type(made.text) is str


def test_positions_are_those_of_a_role():
    made = chat_model(CHATML).chat([user("a"), assistant("b"), user("cd")])
    assert [made.labels[place] for place in made.positions("user")] == ["a", "c", "d"]
    assert [made.labels[place] for place in made.positions("user", -1)] == ["c", "d"]
    with pytest.raises(InvalidInput, match="No token has the role 'system'; there are template, u"):
        made.positions("system")
    with pytest.raises(InvalidInput, match="in message 1"):
        made.positions("user", 1)


def test_the_repr_lists_the_tokens_by_role():
    made = chat_model(MISTRAL).chat("<img onerror>")
    assert repr(made).splitlines() == [
        "Chat: 1 message, 17 tokens",
        "  role      positions  tokens",
        "  template  0–2        <s> [INST] ·",
        "  user      3–15       < i m g · o n e r r o r >",
        "  template  16         [/INST]",
    ]
    assert "&lt; i m g" in made._repr_html_()


@pytest.mark.agreement
def test_the_assistant_s_tokens_are_those_that_a_template_marks_as_generated():
    """The block ``generation`` of Zephyr also has the header and EOS, which are the template's."""
    marked = CHATML.replace(
        "message['content']",
        "'' }}{% generation %}{{ message['content'] }}{% endgeneration %}{{ ''",
    )
    chat = [assistant("ab"), assistant(" c\n")]
    mask = byte_tokenizer(marked).apply_chat_template(
        chat, return_assistant_tokens_mask=True, return_dict=True
    )["assistant_masks"]
    made = chat_model(marked).chat(chat, add_generation_prompt=False)
    assert [role == "assistant" for role in made.roles] == [bool(each_) for each_ in mask]


# ---- a pretrained model --------------------------------------------------------------------------


@pytest.mark.real
def test_smollm2_answers_a_chat():
    model = interp.load("smollm2-135m")
    made = model.chat("What is the capital of France?")
    assert pieces(model, made) == [
        (
            "template",
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
            "Face<|im_end|>\n<|im_start|>user\n",
        ),
        ("user", "What is the capital of France?"),
        ("template", "<|im_end|>\n<|im_start|>assistant\n"),
    ]
    with torch.no_grad():
        answer = model.generate(made, max_new_tokens=12)[0, made.tokens.shape[1] :]
    assert model.to_string(answer).startswith("The capital of France is Paris.")
    assert int(answer[-1]) == model.config.tokens.eos
    begun = model.chat(
        [user("What is the capital of France?"), assistant("The capital of France is")],
        continue_final_message=True,
    )
    with torch.no_grad():
        assert model.to_string([int(model(begun)[0, -1].argmax())]) == " Paris"
