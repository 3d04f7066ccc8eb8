"""A tokenizer.json that lengthens texts without bound is refused, or its texts are."""

import json
from functools import partial

import pytest
import tokenizers

import interp
from interp.errors import InvalidTokens, ModelLoadError
from interp.loading import tokenizer_config
from interp.text.growth import NormalizedLength
from interp.text.tokenizer import MAX_CHARACTERS, Tokenizer

HUNDREDFOLD = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 100}
NORMALIZERS = [
    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    {"type": "Replace", "pattern": {"String": "aa"}, "content": "bab"},
    {"type": "Replace", "pattern": {"Regex": "a{2,}|b"}, "content": "ab"},
    {"type": "Replace", "pattern": {"Regex": ""}, "content": "ab"},
    *({"type": kind} for kind in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")),
    {"type": "Prepend", "prepend": "aa"},
    {"type": "ByteLevel"},
    {"type": "Strip", "strip_left": True, "strip_right": True},
]


def description(**parts):
    model = {"type": "BPE", "vocab": {"a": 0}, "merges": []}
    return {"version": "1.0", "added_tokens": [], "model": model, **parts}


def sequence(*normalizers):
    return {"type": "Sequence", "normalizers": list(normalizers)}


def read(tmp_path, **parts):
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(description(**parts)))
    return Tokenizer.from_file(file)


def test_a_text_that_normalizers_lengthen_without_bound_is_refused(tmp_path):
    """Ten thousand million characters, of which the library would end the process."""
    tokenizer = read(tmp_path, normalizer=sequence(sequence(HUNDREDFOLD), *[HUNDREDFOLD] * 4))
    with pytest.raises(
        InvalidTokens, match=f"more than {MAX_CHARACTERS} characters of a text of 1"
    ):
        tokenizer.encode("a")
    assert tokenizer.encode("") == []


@pytest.mark.parametrize("steps", [20, 40])
def test_normal_forms_that_lengthen_each_others_output_are_refused(steps, tmp_path):
    """Each replacement is as long as what it replaces, and its normal form eight times as long."""
    ligature = {"type": "Replace", "pattern": {"String": "\u0644"}, "content": "\ufdfa"}
    tokenizer = read(tmp_path, normalizer=sequence(*[ligature, {"type": "NFKD"}] * steps))
    with pytest.raises(InvalidTokens, match="when it normalizes it"):
        tokenizer.encode("\u0644")


@pytest.mark.parametrize("normalizer", NORMALIZERS, ids=str)
@pytest.mark.parametrize("text", ["", "a", "aaab  aa b", "Éﷺ1 ﬁ e\u0301 İ" * 3])
def test_the_measured_length_is_that_of_the_normalized_text(normalizer, text):
    of_library = tokenizers.Tokenizer.from_str(json.dumps(description(normalizer=normalizer)))
    length = len(of_library.normalizer.normalize_str(text))
    longest = max(length, len(text), 1)
    assert NormalizedLength({"normalizer": normalizer}, 100 * longest).is_bounded(text)
    if length > len(text):
        assert not NormalizedLength({"normalizer": normalizer}, length - 1).is_bounded(text)


@pytest.mark.parametrize(
    "parts",
    [
        {"normalizer": sequence(*[{"type": "NFC"}] * 1001)},
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}] * 4}},
        {"decoder": {"type": "Sequence", "decoders": [HUNDREDFOLD]}},
        {
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [{"Sequence": {"id": "A", "type_id": 0}}] * 2,
            }
        },
        {
            "normalizer": sequence(*[HUNDREDFOLD] * 5),
            "added_tokens": [{"id": 1, "content": "a", "normalized": True}],
        },
    ],
    ids=["number", "pre_tokenizer", "decoder", "post_processor", "added_tokens"],
)
def test_components_that_lengthen_every_text_are_refused(parts, tmp_path):
    with pytest.raises(ModelLoadError, match=r"normalizer|pre_tokenizer|decoder|post_processor"):
        read(tmp_path, **parts)


@pytest.mark.parametrize("name", ["python-2l", "rasp-reverse"])
def test_a_text_that_exceeds_the_context_is_refused_before_it_is_tokenized(name, monkeypatch):
    model = interp.load(name)
    text = "def f(x):\n    return é " * 1000 if name == "python-2l" else "abc" * 1000
    fewest, tokens = model.tokenizer.fewest_tokens(text), len(model.tokenizer.encode(text))
    assert fewest <= tokens
    assert (fewest > model.config.n_ctx) == (name == "python-2l")
    with pytest.raises(InvalidTokens, match="context of"):
        model(text)
    monkeypatch.setattr(model.tokenizer, "backend", None)  # which tokenizes
    with pytest.raises(InvalidTokens, match="has at least" if fewest else "can't be encoded"):
        model(text)


def test_a_lower_bound_of_the_number_of_tokens_is_reached():
    tokenizer = interp.load("python-2l").tokenizer
    longest = max(tokenizer.backend.get_vocab(), key=len)
    text = tokenizer.decode([tokenizer.backend.token_to_id(longest)])
    assert tokenizer.fewest_tokens(text) == len(tokenizer.encode(text)) == 1
    assert tokenizer.fewest_tokens(text + "é") == 2
    assert tokenizer.fewest_tokens("") == 0


def test_an_added_token_that_a_normalizer_lengthens_without_bound_is_refused(tmp_path):
    """Whether tokenizer.json has it or tokenizer_config.json: it is normalized as it is added."""
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(description(normalizer=sequence(*[HUNDREDFOLD] * 5))))
    token = {"content": "ab", "normalized": True, "special": False}
    configure = partial(tokenizer_config.configure, settings={"added_tokens_decoder": {"1": token}})
    with pytest.raises(ModelLoadError, match="normalizer makes over"):
        Tokenizer.from_file(file, configure=configure)
    token["normalized"] = False
    assert Tokenizer.from_file(file, configure=configure).vocab_size == len({"a", "ab"})
