"""tokenizer_config.json changes tokenizer.json as it does for ``transformers``, or is refused."""

import json
import random
from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import transformers
from foreign_folders import Folder
from tables import each
from tokenizers import decoders, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer

import interp
from interp.errors import ModelLoadError
from interp.loading.tokenizer_config import (
    LOWERCASING,
    PREFIXING,
    configure,
    read_tokenizer_config,
)
from interp.text.tokenizer import Tokenizer
from training.bpe import train_bpe

FILE, CONFIG, MAP = "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"
TEXT = "Hello world, the cat and the dog. I'm here: 1234 + 3.14; naïve É é café <x> [x]"
PIECES = [
    *("Hello", " world", " the cat", "  ", "\n", "\t", "é", "É", "e\u0301", "ß", "中文", "日本"),
    *("1234", "3.14", "<s>", "</s>", "[CLS]", "<mask>", "<new>", "<strip>", "don't", "naïve", "😀"),
    *("\u00a0", "\u200b", "▁a", "\r\n", "##x", "A", "b", "…", "ﬁ"),
]


def odd_texts() -> list[str]:
    """Texts of spaces, accents, special tokens and characters of several scripts."""
    generator = random.Random(0)
    sizes = [generator.randint(1, 6) for _ in range(200)]
    return ["".join(generator.choices(PIECES, k=size)) for size in sizes]


def byte_level(*, add_prefix_space: bool = False, nested: bool = False) -> tokenizers.Tokenizer:
    backend = train_bpe([TEXT] * 3, vocab_size=290)
    level = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    split = pre_tokenizers.Digits(individual_digits=True)
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, level]) if nested else level
    return backend


def word_piece(*, lowercase: bool = True, strip_accents: bool | None = None) -> Any:
    normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    characters = sorted({*TEXT, *TEXT.lower(), *"".join(PIECES), *"eEcC"} - set(" \n\t"))
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters, "hello", "naive", "中文"]
    pieces = [*dict.fromkeys([*words, *(f"##{c}" for c in characters)])]
    vocab = {piece: id_ for id_, piece in enumerate(pieces)}
    backend = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer = normalizer, pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    backend.add_special_tokens(words[:5])
    return backend


def sentence_piece(normalizer: object, pre_tokenizer: object) -> tokenizers.Tokenizer:
    """A BPE of Llama's kind: spaces are ▁, unknown characters are bytes."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
    letters = sorted(set(TEXT) - {" "})
    vocab = {piece: id_ for id_, piece in enumerate([*pieces, *letters, "▁t", "▁▁", "▁c", "th"])}
    merges = [("▁", "t"), ("▁", "▁"), ("▁", "c"), ("t", "h")]
    backend = tokenizers.Tokenizer(
        models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    backend.normalizer, backend.pre_tokenizer = normalizer, pre_tokenizer
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    return backend


def llama(*, prepends: bool = True) -> tokenizers.Tokenizer:
    """The normalizer of Llama 2."""
    first = [normalizers.Prepend("▁")] if prepends else []
    return sentence_piece(
        normalizers.Sequence([*first, normalizers.Replace(" ", "▁")]), pre_tokenizer=None
    )


def metaspace(scheme: str = "first") -> tokenizers.Tokenizer:
    return sentence_piece(None, pre_tokenizers.Metaspace("▁", prepend_scheme=scheme, split=False))


def unigram() -> tokenizers.Tokenizer:
    """A T5, without a normalizer."""
    letters = sorted(set(TEXT) - {" "})
    special = ["<pad>", "</s>", "<unk>"]
    vocab = [(p, 0.0) for p in special] + [(p, -2.0) for p in ["▁", *letters, "▁the", "ello"]]
    extra = [f"<extra_id_{n}>" for n in range(99, -1, -1)]
    backend = tokenizers.Tokenizer(models.Unigram([*vocab, *((e, 0.0) for e in extra)], unk_id=2))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace("▁", prepend_scheme="always")]
    )
    backend.add_special_tokens([*special, *extra])
    return backend


Make = Callable[[], tokenizers.Tokenizer]
GPT2 = {"tokenizer_class": "GPT2Tokenizer", **dict.fromkeys(("bos_token", "eos_token"), "<|bos|>")}
GPT2["unk_token"] = "<|bos|>"
ROBERTA = {**GPT2, "tokenizer_class": "RobertaTokenizer", "mask_token": "<mask>"} | dict.fromkeys(
    ("cls_token", "sep_token", "pad_token"), "<|bos|>"
)
GENERIC = {"tokenizer_class": "PreTrainedTokenizerFast"}
BERT = {"tokenizer_class": "BertTokenizer"}
LLAMA = {"tokenizer_class": "LlamaTokenizerFast", "legacy": False}
ALBERT = {"tokenizer_class": "AlbertTokenizer"}
T5 = {"tokenizer_class": "T5Tokenizer"}


def added(**ids: tuple[int, dict[str, bool]]) -> dict[str, Any]:
    """An ``added_tokens_decoder``; a name without its brackets maps to id and flags."""
    plain = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False}
    return {
        "added_tokens_decoder": {
            str(id_): {"content": f"<{name}>", **plain, "special": False, **flags}
            for name, (id_, flags) in ids.items()
        }
    }


BOS = {"0": {"content": "<|bos|>", "special": True, "normalized": False}}
NEW = added(new=(290, {}), strip=(291, {"lstrip": True, "rstrip": True}))
NEW["added_tokens_decoder"] |= BOS

FOLLOWED: Mapping[str, tuple[str, Make, dict[str, Any]]] = {
    "gpt2": ("gpt2", byte_level, GPT2),
    "gpt2-prefix": ("gpt2", byte_level, {**GPT2, "add_prefix_space": True}),
    "gpt2-no-prefix": (
        "gpt2",
        lambda: byte_level(add_prefix_space=True),
        {**GPT2, "add_prefix_space": False},
    ),
    "gpt2-added": ("gpt2", byte_level, {**GPT2, **NEW}),
    "gpt2-bos": ("gpt2", byte_level, {**GPT2, "add_bos_token": True}),
    "roberta-prefix": ("roberta", byte_level, {**ROBERTA, "add_prefix_space": True}),
    "generic-prefix": ("gpt2", byte_level, {**GENERIC, "add_prefix_space": True}),
    "generic-nested": ("gpt2", lambda: byte_level(nested=True), GENERIC),
    "generic-added": ("gpt2", byte_level, {**GENERIC, **NEW}),
    "generic-special": ("gpt2", byte_level, {**GENERIC, "mask_token": "<mask>"}),
    "generic-in-vocabulary": ("gpt2", byte_level, {**GENERIC, "pad_token": "the"}),
    "bert": ("bert", word_piece, BERT),
    "bert-cased": ("bert", word_piece, {**BERT, "do_lower_case": False}),
    "bert-uncased": ("bert", lambda: word_piece(lowercase=False), {**BERT, "do_lower_case": True}),
    "bert-accents": ("bert", word_piece, {**BERT, "strip_accents": False}),
    "bert-stripped": (
        "bert",
        lambda: word_piece(lowercase=False),
        {**BERT, "do_lower_case": False, "strip_accents": True},
    ),
    "bert-null": (
        "bert",
        lambda: word_piece(strip_accents=False),
        {**BERT, "strip_accents": None},
    ),
    "bert-chinese": ("bert", word_piece, {**BERT, "tokenize_chinese_chars": False}),
    "generic-cased": ("bert", word_piece, {**GENERIC, "do_lower_case": False}),
    "llama": ("llama", metaspace, {**LLAMA, "add_prefix_space": True}),
    "llama-never": ("llama", lambda: metaspace("never"), {**LLAMA, "add_prefix_space": False}),
    "llama-byte-level": ("llama", byte_level, {**LLAMA, "add_prefix_space": True}),
    "t5": ("t5", unigram, T5),
}


def write(folder: Path, model_type: str, backend: tokenizers.Tokenizer, settings: object) -> Path:
    backend.save(str(folder / FILE))
    (folder / CONFIG).write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    return folder


def read(folder: Path) -> Tokenizer:
    settings = read_tokenizer_config(folder)
    return Tokenizer.from_file(
        folder / FILE, configure=lambda backend: configure(backend, settings)
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", FOLLOWED)
def test_texts_have_the_ids_of_transformers(case, tmp_path):
    model_type, make, settings = FOLLOWED[case]
    write(tmp_path, model_type, make(), settings)
    tokenizer, theirs = read(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    for text in odd_texts():
        expected = theirs(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.encode(text) == expected, text


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("listed", [False, True])
def test_a_map_of_special_tokens_is_read_unless_the_tokens_are_listed(listed, tmp_path):
    settings = {**GENERIC, "mask_token": "[CLS]", **(NEW if listed else {})}
    write(tmp_path, "gpt2", byte_level(), settings)
    (tmp_path / MAP).write_text(json.dumps({"mask_token": "<mask>", "pad_token": "<x>"}))
    tokenizer, theirs = read(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    for text in [*odd_texts(), TEXT]:
        assert tokenizer.encode(text) == theirs(text, add_special_tokens=False)["input_ids"], text
    assert ("<x>" in tokenizer.display(tokenizer.encode(TEXT))) is not listed
    (tmp_path / MAP).write_text("[")
    if listed:
        read(tmp_path)
    else:
        with pytest.raises(ModelLoadError, match=MAP):
            read(tmp_path)


CHANGING = ["gpt2-prefix", "gpt2-no-prefix", "gpt2-added", "generic-special", "bert-cased"]
CHANGING += ["bert-uncased", "bert-accents", "bert-stripped", "bert-chinese", "generic-added"]


@pytest.mark.parametrize("case", CHANGING)
def test_the_settings_change_many_of_these_texts(case):
    """The converse: without them, the ids differ."""
    _, make, settings = FOLLOWED[case]
    changed = make()
    configure(changed, settings)
    plain, other = Tokenizer(make()), Tokenizer(changed)
    assert sum(plain.encode(text) != other.encode(text) for text in odd_texts()) > 5


def test_a_prefix_space_is_set_inside_a_sequence():
    for wanted in (True, False):
        backend = byte_level(nested=True, add_prefix_space=not wanted)
        configure(backend, {**GPT2, "add_prefix_space": wanted})
        expected = byte_level(nested=True, add_prefix_space=wanted)
        for text in odd_texts():
            assert backend.encode(text).ids == expected.encode(text).ids


@pytest.mark.filterwarnings("ignore")
def test_a_normalizer_of_llama_is_followed_where_transformers_drops_it(tmp_path):
    """A space at the start of a text stays, as in SentencePiece; version 5 loses it."""
    write(tmp_path, "llama", llama(), {**LLAMA, "add_prefix_space": True})
    tokenizer, theirs = read(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    for text in odd_texts():
        expected = theirs(text, add_special_tokens=False)["input_ids"]
        if text[0] not in " ▁" and "<" not in text:
            assert tokenizer.encode(text) == expected
    assert tokenizer.encode(" the") == llama().encode(" the", add_special_tokens=False).ids
    assert tokenizer.encode(" the") != theirs(" the", add_special_tokens=False)["input_ids"]


REFUSED: Mapping[str, tuple[Make, dict[str, Any], str]] = {
    "prepended": (llama, {**LLAMA, "add_prefix_space": False}, "add_prefix_space=False"),
    "not-prepended": (
        lambda: llama(prepends=False),
        {**LLAMA, "add_prefix_space": True},
        "add_prefix_space=True",
    ),
    "metaspace": (metaspace, {**LLAMA, "add_prefix_space": False}, "add_prefix_space=False"),
    "lower": (unigram, {**ALBERT, "do_lower_case": True}, "do_lower_case=True"),
    "strip": (unigram, {**BERT, "strip_accents": True}, "strip_accents=True"),
    "word": (byte_level, {**GPT2, "add_prefix_space": "yes"}, "expected true, false or null"),
    "other-id": (byte_level, added(new=(7, {})), r"'<new>' as 7.*lacks it"),
    "gap": (byte_level, added(new=(500, {})), r"'<new>' as 500.*lacks it"),
    "moved": (
        byte_level,
        {"added_tokens_decoder": {"5": {"content": "<|bos|>"}}},
        r"'<\|bos\|>' as 5.*has it as 0",
    ),
    "list": (byte_level, {"added_tokens_decoder": [1]}, "that is no object"),
    "id": (byte_level, {"added_tokens_decoder": {"x": {"content": "a"}}}, "id 'x'"),
    "long-id": (byte_level, {"added_tokens_decoder": {"9" * 5000: {"content": "a"}}}, "expected a"),
    "content": (byte_level, {"added_tokens_decoder": {"290": {"content": 3}}}, "its content"),
    "flag": (byte_level, added(new=(290, {"lstrip": 3})), "true or false"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_contradiction_or_a_malformed_setting_is_refused_by_name(case):
    make, settings, message = REFUSED[case]
    with pytest.raises(ModelLoadError, match=message):
        configure(make(), settings)


READERS = {"do_lower_case": LOWERCASING, "add_prefix_space": PREFIXING}
CLASSES = [(setting, name) for setting, names in READERS.items() for name in names]


@pytest.mark.parametrize(("setting", "name"), CLASSES)
def test_the_classes_that_read_a_setting_are_those_of_transformers(setting, name):
    assert setting in signature(getattr(transformers, name).__init__).parameters


def test_a_class_that_reads_no_setting_of_case_refuses_none():
    configure(byte_level(), {**GPT2, "do_lower_case": True, "strip_accents": True})


@each("content", ["[", "3", "[]", "\udcff", "[" * 10_000])
def test_a_damaged_file_is_refused(content, tmp_path):
    (tmp_path / CONFIG).write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(ModelLoadError, match=CONFIG):
        read_tokenizer_config(tmp_path)


def test_a_folder_is_loaded_with_its_settings(folder: Folder, tmp_path: Path):
    """They are kept when the model is saved."""
    backend = byte_level()
    weights = folder.weights
    weights["transformer.wte.weight"] = weights["transformer.wte.weight"].repeat(11, 1)
    folder.set_weights(weights)
    folder.set_fields(vocab_size=330)
    backend.save(str(folder.path / FILE))
    (folder.path / CONFIG).write_text(json.dumps({**GPT2, **NEW, "add_prefix_space": True}))
    model = interp.load(folder.path)
    assert model.tokenizer.encode("the<new>")[-1] == 290
    assert model.tokenizer.display([290]) == ["<new>"]
    assert model.tokenizer.decode(model.tokenizer.encode("the")) == " the"
    model.save(tmp_path / "saved")
    again = interp.load(tmp_path / "saved").tokenizer
    for text in odd_texts():
        assert again.encode(text) == model.tokenizer.encode(text)
    (folder.path / CONFIG).write_text("[")
    with pytest.raises(ModelLoadError, match=CONFIG):
        interp.load(folder.path)
    assert interp.load(folder.path, tokenizer=backend).tokenizer is not None
