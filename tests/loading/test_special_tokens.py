"""The tokens that a tokenizer adds to a text become the rule about BOS and EOS."""

import json

import pytest
import tokenizers
import torch
from foreign_folders import gpt2, random_tokens
from tables import each
from tokenizers import models, pre_tokenizers, processors
from transformers import GenerationConfig, GPT2Tokenizer, PreTrainedTokenizerFast

import interp
from interp.errors import InvalidTokens, ModelLoadError
from interp.loading import save_folder

WORDS = ["<s>", "</s>", "<unk>", "<x>", "a", "cat", "sat"]
BOS, EOS, UNK, X, A, CAT, SAT = range(7)
TEMPLATES = {
    "none": None,
    "bos": "<s> $A",
    "eos": "$A </s>",
    "both": "<s> $A </s>",
    "same": "<s> $A <s>",
}
ADDS = {
    "none": ((), ()),
    "bos": ((BOS,), ()),
    "eos": ((), (EOS,)),
    "both": ((BOS,), (EOS,)),
    "same": ((BOS,), (BOS,)),
}
KINDS = pytest.mark.parametrize("kind", TEMPLATES)


def words(kind: str | None = None, *, template: str | None = None) -> tokenizers.Tokenizer:
    """A word-level tokenizer."""
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(["<s>", "</s>", "<unk>", "<x>"])
    single = TEMPLATES[kind] if kind else template
    if single:
        specials = [(word, vocabulary[word]) for word in ("<s>", "</s>", "<x>")]
        backend.post_processor = processors.TemplateProcessing(
            single=single, special_tokens=specials
        )
    return backend


@pytest.fixture
def loaded(folder):
    """Loads the folder's model with a tokenizer and fields of ``config.json``."""

    def load(backend: tokenizers.Tokenizer, **fields: object) -> interp.Transformer:
        backend.save(str(folder.path / "tokenizer.json"))
        folder.set_fields(**fields)
        return interp.load(folder.path)

    return load


# Tokens that a tokenizer adds.


@KINDS
def test_the_tokens_that_a_tokenizer_adds_become_the_rule(kind, loaded):
    tokens = loaded(words(kind)).config.tokens
    before, after = ADDS[kind]
    assert (tokens.prepend_bos, tokens.append_eos) == (bool(before), bool(after))
    if before:
        assert tokens.bos == before[0]
    if after:
        assert tokens.eos == after[0]


@KINDS
def test_the_tokens_are_added_to_a_text_exactly_once(kind, loaded):
    model, backend = loaded(words(kind)), words(kind)
    before, after = ADDS[kind]
    for text in ("cat", "a cat sat"):
        ids = model.to_tokens(text)[0].tolist()
        assert ids == backend.encode(text).ids
        assert ids == [*before, *backend.encode(text, add_special_tokens=False).ids, *after]
    row = model.to_tokens(["cat", "a cat sat"])
    assert row[0].tolist() == [*before, CAT, *after, interp.PAD, interp.PAD]


@KINDS
def test_nothing_is_added_to_a_text_that_contains_them(kind, loaded):
    model = loaded(words(kind))
    before, after = ADDS[kind]
    spelt = " ".join([*(WORDS[id_] for id_ in before), "a cat", *(WORDS[id_] for id_ in after)])
    assert model.to_tokens(spelt)[0].tolist() == [*before, A, CAT, *after]
    assert model.to_tokens(spelt).tolist() == model.to_tokens("a cat").tolist()


def test_special_tokens_in_a_text_stay_without_a_rule(loaded):
    model = loaded(words("none"))
    assert model.to_tokens("<s> cat </s>")[0].tolist() == [BOS, CAT, EOS]


def test_ids_are_used_unchanged(loaded):
    model = loaded(words("both"))
    ids = torch.tensor([[CAT, SAT]])
    assert interp.run(model, ids).batch.ids.tolist() == ids.tolist()
    assert interp.run(model, ["cat sat"]).batch.ids.tolist() == [[BOS, CAT, SAT, EOS]]


def test_the_rule_can_be_overridden_for_one_text(loaded):
    model = loaded(words("bos"))
    assert model.to_tokens("cat", prepend_bos=False)[0].tolist() == [CAT]
    assert loaded(words("none")).to_tokens("cat", prepend_bos=True)[0].tolist() == [BOS, CAT]


def test_an_empty_text_is_refused_and_bos_alone_is_given_as_ids(loaded):
    model = loaded(words("bos"))
    with pytest.raises(InvalidTokens, match=r"'' is empty: .* \[\[0\]\] is BOS alone"):
        model.to_tokens(["cat", ""])
    assert interp.run(model, [[BOS]]).require_logits().shape[:2] == (1, 1)


@each("template", ["<s> <x> $A", "$A <x> </s>", "<x> <s> $A </s>", "<s> $A <x> </s>"])
def test_a_tokenizer_that_adds_several_tokens_at_one_end_is_refused(template, loaded):
    with pytest.raises(ModelLoadError, match="one each is supported"):
        loaded(words(template=template))


def test_tokens_that_a_tokenizer_adds_after_eos_are_added_after_it(loaded):
    """As mBART adds the language of a text."""
    model = loaded(words(template="$A </s> <x>"))
    assert model.config.tokens.eos == EOS
    assert model.config.tokens.after_eos == (X,)
    assert model.to_tokens("a cat")[0].tolist() == [A, CAT, EOS, X]
    assert model.to_tokens("a cat </s> <x>")[0].tolist() == [A, CAT, EOS, X]
    assert model.to_tokens("a cat </s>")[0].tolist() == [A, CAT, EOS, X]


def test_a_tokenizer_that_adds_several_can_be_replaced(folder):
    words(template="<s> <x> $A").save(str(folder.path / "tokenizer.json"))
    model = interp.load(folder.path, tokenizer=words("bos"))
    assert model.to_tokens("cat")[0].tolist() == [BOS, CAT]


def only_digits(post: object) -> tokenizers.Tokenizer:
    """A tokenizer of digits alone, without an unknown token."""
    vocabulary = {"<s>": 0, "</s>": 1, "1": 2, "2": 3}
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, []))
    backend.post_processor = post
    return backend


def whole_numbers(post: object) -> tokenizers.Tokenizer:
    vocabulary = {"<s>": 0, "</s>": 1, "1": 2, "2": 3}
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.post_processor = post
    return backend


@pytest.mark.parametrize("make", [only_digits, whole_numbers])
@pytest.mark.parametrize(
    ("single", "before", "after"),
    [("<s> $A", [0], []), ("$A </s>", [], [1]), ("<s> $A </s>", [0], [1]), ("$A", [], [])],
)
def test_added_tokens_are_found_for_a_tokenizer_without_letters(make, single, before, after):
    specials = [("<s>", 0), ("</s>", 1)]
    post = processors.TemplateProcessing(single=single, special_tokens=specials)
    assert interp.Tokenizer(make(post)).added_ids() == (before, after)


@pytest.mark.parametrize(
    "post",
    [
        processors.BertProcessing(("</s>", EOS), ("<s>", BOS)),
        processors.RobertaProcessing(("</s>", EOS), ("<s>", BOS), add_prefix_space=False),
        processors.Sequence(
            [
                processors.ByteLevel(),
                processors.TemplateProcessing(
                    single="<s> $A </s>", special_tokens=[("<s>", BOS), ("</s>", EOS)]
                ),
            ]
        ),
    ],
    ids=["bert", "roberta", "sequence"],
)
def test_every_kind_of_post_processor_gives_the_same_rule(post, loaded):
    backend = words("none")
    backend.post_processor = post
    model = loaded(backend)
    assert (model.config.tokens.prepend_bos, model.config.tokens.append_eos) == (True, True)
    assert model.to_tokens("a cat")[0].tolist() == [BOS, A, CAT, EOS]


@pytest.mark.parametrize("name", ["[MASK]", "<mask>", None])
def test_the_mask_token_is_the_tokenizers(name, loaded):
    backend = words("none")
    if name is not None:
        backend.add_special_tokens([name])
    assert loaded(backend).config.tokens.mask == (None if name is None else len(WORDS))


# Ids of the configuration.


def test_ids_of_the_configuration_are_set_and_not_added(loaded):
    model = loaded(words("none"), bos_token_id=X, eos_token_id=[EOS, X])
    tokens = model.config.tokens
    assert (tokens.bos, tokens.eos, tokens.stop) == (X, EOS, (X,))
    assert (tokens.prepend_bos, tokens.append_eos) == (False, False)
    assert (model.tokenizer.bos, model.tokenizer.eos) == (X, EOS)
    assert model.to_tokens("cat")[0].tolist() == [CAT]


def test_the_tokenizer_takes_precedence_over_the_configuration(loaded):
    tokens = loaded(words("both"), bos_token_id=X, eos_token_id=A).config.tokens
    assert (tokens.bos, tokens.eos, tokens.stop) == (BOS, EOS, (A,))


# Tokens at which generation stops.


@each(
    ("fields", "generation", "ends"),
    [
        ({"eos_token_id": [4, 5, 4]}, None, [4, 5]),
        ({"eos_token_id": [4, 5]}, {"eos_token_id": 6}, [4, 5, 6]),
        ({"eos_token_id": 4}, {"eos_token_id": [6, 4, 7]}, [4, 6, 7]),
        ({"eos_token_id": None}, {"eos_token_id": [6, 7]}, [6, 7]),
        ({"eos_token_id": 4}, {"eos_token_id": None}, [4]),
        ({"eos_token_id": 4}, {}, [4]),
        ({"eos_token_id": [10**9, 4, True, "5"]}, {"eos_token_id": [-1, [3]]}, [4]),
        ({"eos_token_id": []}, {"eos_token_id": {}}, []),
    ],
)
def test_every_end_token_of_both_configurations_ends_a_text(fields, generation, ends, folder):
    folder.set_fields(**fields)
    (folder.path / "generation_config.json").unlink(missing_ok=True)
    if generation is not None:
        (folder.path / "generation_config.json").write_text(json.dumps(generation))
    tokens = interp.load(folder.path).config.tokens
    assert [token for token in (tokens.eos, *tokens.stop) if token is not None] == ends


def test_the_end_tokens_of_a_live_model_are_read():
    theirs = gpt2(eos_token_id=[4, 5])
    theirs.generation_config = GenerationConfig(eos_token_id=[5, 6])
    model = interp.load(theirs)
    assert (model.config.tokens.eos, model.config.tokens.stop) == (4, (5, 6))


def test_a_text_ends_where_theirs_does():
    theirs, ids = gpt2(eos_token_id=[4, 5]), random_tokens(rows=8)
    for ends in ([4, 5], [4, 5, *range(8, 20)], list(range(4, 30))):
        theirs.generation_config = GenerationConfig(eos_token_id=ends, pad_token_id=0)
        expected = theirs.generate(ids, do_sample=False, max_new_tokens=9)
        generated = interp.load(theirs).generate(ids, max_new_tokens=9)
        assert generated.where(generated != interp.PAD, 0).tolist() == expected.tolist()


@each("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"eos_token_id": NaN}'])
def test_a_damaged_generation_configuration_is_refused_by_name(content, folder):
    (folder.path / "generation_config.json").write_bytes(content)
    with pytest.raises(ModelLoadError, match=r"generation_config\.json does not"):
        interp.load(folder.path)


@each("value", [None, -1, 30, 10**9, "3", 1.0, True, [], {}])
def test_an_invalid_id_becomes_none(value, folder):
    folder.set_fields(bos_token_id=value, eos_token_id=4)
    tokens = interp.load(folder.path).config.tokens
    assert (tokens.bos, tokens.eos) == (None, 4)


# tokenizer= instead of the folder's.


@pytest.mark.parametrize(
    "make_tokenizer",
    [
        words,
        lambda kind: interp.Tokenizer(words(kind)),
        lambda kind: PreTrainedTokenizerFast(tokenizer_object=words(kind)),
    ],
    ids=["tokenizers", "interp", "transformers"],
)
@pytest.mark.parametrize("live", [True, False], ids=["live", "folder"])
@KINDS
def test_a_tokenizer_of_any_supported_type_can_be_given(kind, live, make_tokenizer, folder):
    words(template="$A <x>").save(str(folder.path / "tokenizer.json"))
    model = interp.load(gpt2() if live else folder.path, tokenizer=make_tokenizer(kind))
    assert isinstance(model.tokenizer, interp.Tokenizer)
    assert model.to_tokens("a cat")[0].tolist() == words(kind).encode("a cat").ids
    assert model.to_string(torch.tensor([CAT, SAT])) == "cat sat"


@pytest.mark.parametrize(
    "tokenizer",
    [3, "gpt2", words, {"a": 1}, GPT2Tokenizer],
    ids=["number", "name", "function", "dictionary", "class"],
)
def test_an_object_that_is_not_a_tokenizer_is_refused(tokenizer, folder):
    for source in (folder.path, gpt2(), "induction-by-hand"):
        with pytest.raises(ModelLoadError, match="tokenizer= takes"):
            interp.load(source, tokenizer=tokenizer)


def test_a_saved_folder_keeps_its_rule_with_any_tokenizer(tmp_path, folder):
    model = interp.load(folder.path, tokenizer=words("bos"))
    save_folder(model, tmp_path / "saved")
    assert interp.load(tmp_path / "saved").to_tokens("cat")[0].tolist() == [BOS, CAT]
    again = interp.load(tmp_path / "saved", tokenizer=words("none"))
    assert again.config.tokens == model.config.tokens
    assert again.to_tokens("cat")[0].tolist() == [BOS, CAT]


def test_the_tokenizer_that_was_given_is_not_changed():
    backend = words("both")
    backend.enable_padding(length=9)
    before = backend.to_str()
    model = interp.load(gpt2(), tokenizer=backend)
    assert backend.to_str() == before
    assert model.to_tokens("cat").shape == (1, 3)


# Damaged tokenizers, and those of other models.


def test_a_tokenizer_larger_than_the_vocabulary_is_refused(folder):
    backend = words("both")
    backend.add_tokens([f"more{n}" for n in range(23)])
    assert interp.load(gpt2(), tokenizer=backend).tokenizer.vocab_size == 30
    backend.add_tokens(["one-too-many"])
    backend.save(str(folder.path / "tokenizer.json"))
    for call in (
        lambda: interp.load(folder.path),
        lambda: interp.load(gpt2(), tokenizer=backend),
    ):
        with pytest.raises(ModelLoadError, match="The tokenizer has 31 tokens, the model 30"):
            call()


def test_special_tokens_may_have_no_embedding(folder):
    """As ``<image_soft_token>`` of Gemma 3 1B: only a text that holds one is refused."""
    backend = words("bos")
    backend.add_special_tokens([f"<more{n}>" for n in range(30)] + ["[MASK]"])
    backend.save(str(folder.path / "tokenizer.json"))
    for model in (interp.load(folder.path), interp.load(gpt2(), tokenizer=backend)):
        assert model.config.d_vocab == 30
        assert model.config.tokens.mask is None
        assert model("a cat").shape[-1] == 30
        assert model.tokenizer.encode("<more29>") == [36]
        with pytest.raises(InvalidTokens, match=r"Token id 36 .* is outside the vocabulary"):
            model("a cat <more29>")


@each("add", ["add_tokens", "add_special_tokens"])
def test_a_tokenizer_whose_bos_is_outside_the_vocabulary_is_refused(add):
    backend = words("none")
    getattr(backend, add)([f"more{n}" for n in range(40)])
    backend.post_processor = processors.TemplateProcessing(
        single="more39 $A", special_tokens=[("more39", 46)]
    )
    with pytest.raises(ModelLoadError, match="does it belong to another model"):
        interp.load(gpt2(), tokenizer=backend)


@each(
    "content",
    [b"", b"{", b"[]", b"{}", b"\xff\xfe", b'{"model": {"type": "WordLevel"}}'],
)
def test_a_damaged_tokenizer_is_refused_with_its_path(content, folder):
    path = folder.path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(ModelLoadError, match=r"tokenizer\.json does not describe a tokenizer"):
        interp.load(folder.path)
    assert interp.load(folder.path, tokenizer=words()).tokenizer is not None


def test_a_truncated_tokenizer_is_refused(folder):
    words("both").save(str(folder.path / "tokenizer.json"))
    path = folder.path / "tokenizer.json"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ModelLoadError, match=r"tokenizer\.json does not describe a tokenizer"):
        interp.load(folder.path)


def test_a_tokenizer_that_is_a_folder_is_refused(folder):
    (folder.path / "tokenizer.json").mkdir()
    with pytest.raises(ModelLoadError, match=r"tokenizer\.json is not a file"):
        interp.load(folder.path)
