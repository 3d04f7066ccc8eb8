"""A tokenizer gives back what it was given, and a label that a person can read."""

import json
from collections.abc import Callable

import pytest
import tokenizers
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from interp.errors import InvalidTokens, ModelLoadError
from interp.text.tokenizer import MAX_CHARACTERS, Tokenizer
from training.bpe import BOS, train_bpe

TEXTS = ["def f(self):\n    return self.x\n", "the cat and the dog: 1 + 1 = 2\n", "€uro €uro €uro"]
BYTE_LEVEL = Tokenizer(train_bpe(TEXTS, vocab_size=280), bos=0)

any_text = st.text(st.characters(exclude_categories=["Cs"]))


def word_piece() -> tokenizers.Tokenizer:
    pieces = ["[UNK]", "[CLS]", "play", "##ing", "##", "the"]
    vocab = {piece: id_ for id_, piece in enumerate(pieces)}
    backend = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.decoder = decoders.WordPiece(prefix="##")
    backend.add_special_tokens(["[UNK]", "[CLS]"])
    return backend


def sentence_piece() -> tokenizers.Tokenizer:
    """The make of Llama's: spaces become ▁ in the normalizer, unknown characters bytes."""
    pieces = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁a", "b"]
    backend = tokenizers.Tokenizer(
        models.Unigram([(piece, -1.0) for piece in pieces], unk_id=0, byte_fallback=True)
    )
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_special_tokens(["<unk>", "<s>"])
    return backend


def whole_words() -> tokenizers.Tokenizer:
    vocab = {"<unk>": 0, "cat": 1, "Ġ": 2, "##s": 3}
    backend = tokenizers.Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return backend


def clip() -> tokenizers.Tokenizer:
    vocab = {"cat</w>": 0, "s</w>": 1, "cat": 2}
    backend = tokenizers.Tokenizer(models.BPE(vocab, [], end_of_word_suffix="</w>"))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return backend


SENTENCE_PIECE = Tokenizer(sentence_piece())

# Round trips.


@given(any_text)
def test_decode_inverts_encode(text: str):
    assert BYTE_LEVEL.decode(BYTE_LEVEL.encode(text)) == text


@given(any_text)
def test_bytes_of_the_tokens_are_the_bytes_of_the_text(text: str):
    pieces = [BYTE_LEVEL.token_bytes(id_) for id_ in BYTE_LEVEL.encode(text)]
    assert b"".join(piece for piece in pieces if piece is not None) == text.encode()


def test_every_byte_is_a_token():
    spelt = [BYTE_LEVEL.token_bytes(id_) for id_ in range(1, 257)]
    assert {*spelt} == {bytes([byte]) for byte in range(256)}


# ▁ is its own space, and "<s>" in a text its own special token.
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁<"), min_size=1))
def test_sentencepiece_bytes_are_the_text_after_one_space(text: str):
    pieces = [SENTENCE_PIECE.token_bytes(id_) for id_ in SENTENCE_PIECE.encode(text)]
    assert b"".join(piece for piece in pieces if piece is not None) == f" {text}".encode()


def test_file_round_trip(tmp_path):
    path = tmp_path / "tokenizer.json"
    BYTE_LEVEL.save(path)
    again = Tokenizer.from_file(path, bos=0)
    assert again.encode(TEXTS[0]) == BYTE_LEVEL.encode(TEXTS[0])
    assert (again.bos, again.eos, again.vocab_size) == (0, None, 280)
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.json"]


def test_failed_save_leaves_no_file(tmp_path):
    target = tmp_path / "tokenizer.json"
    target.mkdir()
    with pytest.raises(OSError, match=r"tokenizer\.json"):
        BYTE_LEVEL.save(target)
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.json"]


# Labels.


@given(any_text)
def test_one_visible_label_per_token(text: str):
    ids = BYTE_LEVEL.encode(text)
    labels = BYTE_LEVEL.display([*ids, -1])
    assert len(labels) == len(ids) + 1
    assert all(labels)
    assert all(label.isprintable() and " " not in label for label in labels)


@pytest.mark.parametrize("make", [word_piece, sentence_piece, whole_words, clip])
def test_every_token_of_every_kind_has_a_visible_label(make: Callable[[], tokenizers.Tokenizer]):
    tokenizer = Tokenizer(make())
    labels = tokenizer.display(range(-1, tokenizer.vocab_size))
    assert all(label and label.isprintable() and " " not in label for label in labels)


def test_whitespace_and_control_characters_are_visible():
    def displayed(text: str) -> str:
        return "".join(BYTE_LEVEL.display(BYTE_LEVEL.encode(text)))

    assert displayed(" a\tb\n\r\x00\x7f") == "·a⇥b↵⟨U+000D⟩⟨U+0000⟩⟨U+007F⟩"
    assert displayed(BOS) == BOS


def test_split_characters_show_their_bytes():
    labels = BYTE_LEVEL.display(BYTE_LEVEL.encode("😀"))
    assert labels == ["⟨f0⟩", "⟨9f⟩", "⟨98⟩", "⟨80⟩"]


def test_part_of_a_character_beside_a_whole_one():
    vocab = {"Ġ": 0, "â": 1, "Ĥ": 2, "Ġâ": 3, "ĠâĤ": 4, "Â": 5, "ł": 6, "Âł": 7, "Ì": 8, "ģ": 9}
    merges = [("Ġ", "â"), ("Ġâ", "Ĥ"), ("Â", "ł")]
    vocab["Ìģ"] = 10
    backend = tokenizers.Tokenizer(models.BPE(vocab, [*merges, ("Ì", "ģ")]))
    backend.decoder = decoders.ByteLevel()
    partial, no_break_space, accent = 4, 7, 10
    assert Tokenizer(backend).display([partial, no_break_space, accent]) == [
        "·⟨e2 82⟩",
        "⟨U+00A0⟩",
        "◌\N{COMBINING ACUTE ACCENT}",
    ]


def test_word_piece_labels():
    tokenizer = Tokenizer(word_piece())
    ids = tokenizer.encode("[CLS]playing the zebra")
    assert tokenizer.display(ids) == ["[CLS]", "play", "ing", "the", "[UNK]"]
    assert tokenizer.token_bytes(0) is None
    assert tokenizer.token_bytes(4) == b"##"


def test_sentence_piece_labels():
    ids = SENTENCE_PIECE.encode("a b€")
    assert SENTENCE_PIECE.display(ids) == ["·a", "·", "b", "⟨e2⟩", "⟨82⟩", "⟨ac⟩"]
    assert SENTENCE_PIECE.decode(ids) == "a b€"


def test_whole_words_are_taken_as_they_are():
    assert Tokenizer(whole_words()).display(range(4)) == ["<unk>", "cat", "Ġ", "##s"]


def test_end_of_word_is_a_space():
    assert Tokenizer(clip()).display(range(3)) == ["cat·", "s·", "cat"]


def test_a_byte_level_post_processor_does_not_determine_token_bytes():
    backend = whole_words()
    backend.post_processor = processors.ByteLevel(trim_offsets=True)
    assert Tokenizer(backend).display([2]) == ["Ġ"]


def test_padding_is_shown_but_has_no_text():
    assert BYTE_LEVEL.display([-1]) == ["∅"]
    assert BYTE_LEVEL.token_bytes(-1) is None
    assert BYTE_LEVEL.decode([-1, *BYTE_LEVEL.encode("cat"), -1]) == "cat"


def test_ids_may_be_a_row_of_a_tensor():
    row = torch.tensor([*BYTE_LEVEL.encode("the cat"), -1])
    assert BYTE_LEVEL.decode(row) == "the cat"
    assert BYTE_LEVEL.display(row) == BYTE_LEVEL.display(row.tolist())


# State of the backend.


def test_truncation_and_padding_of_the_backend_have_no_effect():
    backend = train_bpe(TEXTS, vocab_size=280)
    backend.enable_truncation(2)
    backend.enable_padding(length=50)
    assert Tokenizer(backend).encode(TEXTS[0]) == BYTE_LEVEL.encode(TEXTS[0])


def test_the_backend_is_left_as_it_was():
    backend = train_bpe(TEXTS, vocab_size=280)
    backend.enable_truncation(2)
    Tokenizer(backend)
    assert len(backend.encode(TEXTS[0]).ids) == 2


def test_no_special_token_is_added():
    backend = train_bpe(TEXTS, vocab_size=280)
    backend.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, 0)]
    )
    assert 0 not in Tokenizer(backend, bos=0).encode("the cat")


def test_added_tokens_count_and_are_literal():
    backend = train_bpe(TEXTS, vocab_size=280)
    backend.add_tokens([AddedToken("Ġ é", normalized=False)])
    tokenizer = Tokenizer(backend)
    assert tokenizer.vocab_size == 281
    assert tokenizer.single_token("Ġ é") == 280
    assert tokenizer.token_bytes(280) == "Ġ é".encode()
    assert tokenizer.display([280]) == ["Ġ·é"]


# Refusals.


def test_single_token():
    assert BYTE_LEVEL.display([BYTE_LEVEL.single_token("cat")]) == ["cat"]


def test_several_tokens_are_refused_by_name():
    with pytest.raises(InvalidTokens, match=r"'cat 😀' is 6 tokens: 'cat' '·' '⟨f0⟩' '⟨9f⟩'"):
        BYTE_LEVEL.single_token("cat 😀")


def test_no_token_is_refused():
    with pytest.raises(InvalidTokens, match="'' is 0 tokens; expected exactly one"):
        BYTE_LEVEL.single_token("")


def test_the_unknown_token_is_no_single_token():
    tokenizer = Tokenizer(word_piece())
    with pytest.raises(InvalidTokens, match=r"'zebra' .* becomes '\[UNK\]'"):
        tokenizer.single_token("zebra")
    assert tokenizer.single_token("[UNK]") == 0


@pytest.mark.parametrize("id_", [280, 2**40])
def test_unknown_ids_are_refused(id_: int):
    message = rf"{id_} is not in the vocabulary, which has 280 tokens"
    with pytest.raises(InvalidTokens, match=message):
        BYTE_LEVEL.decode([1, id_])
    with pytest.raises(InvalidTokens, match=message):
        BYTE_LEVEL.display([1, id_])
    with pytest.raises(InvalidTokens, match=message):
        BYTE_LEVEL.token_bytes(id_)
    with pytest.raises(InvalidTokens, match=message):
        Tokenizer(train_bpe(TEXTS, vocab_size=280), eos=id_)


def test_half_a_surrogate_pair_is_refused():
    with pytest.raises(InvalidTokens, match=r"'\\ud83d' at 2"):
        BYTE_LEVEL.encode("ab\ud83d")


def test_missing_and_damaged_files_are_refused(tmp_path):
    with pytest.raises(ModelLoadError, match=r"absent\.json is not a file"):
        Tokenizer.from_file(tmp_path / "absent.json")
    damaged = tmp_path / "damaged.json"
    damaged.write_text('{"version": "1.0", "model"')
    with pytest.raises(ModelLoadError, match=r"damaged\.json does not describe a tokenizer"):
        Tokenizer.from_file(damaged)


# Files from anywhere.


def changed(tmp_path, change):
    """The path of a tokenizer.json whose content ``change`` changed."""
    content = json.loads(BYTE_LEVEL.backend.to_str())
    change(content)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    return tmp_path / "tokenizer.json"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("id_", [2**20, 2**31, 2**32 - 1, 2**63])
def test_an_id_that_no_vocabulary_needs_is_refused(id_, tmp_path):
    """The library takes memory for each id up to the largest."""
    with pytest.raises(ModelLoadError, match=f"token id {id_}"):
        Tokenizer.from_file(changed(tmp_path, lambda c: c["model"]["vocab"].update(zz=id_)))
    with pytest.raises(ModelLoadError, match=f"token id {id_}"):
        Tokenizer.from_file(changed(tmp_path, lambda c: c["added_tokens"][0].update(id=id_)))


@pytest.mark.parametrize("make", [word_piece, sentence_piece, whole_words, clip])
def test_every_kind_is_read_from_its_file(make, tmp_path):
    tokenizer = Tokenizer(make())
    tokenizer.save(tmp_path / "tokenizer.json")
    again = Tokenizer.from_file(tmp_path / "tokenizer.json")
    assert again.backend.to_str() == tokenizer.backend.to_str()


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["model"].update(continuing_subword_prefix="\0"),  # aborts in the library
        lambda c: c["model"].update(continuing_subword_prefix="##########"),
        lambda c: c["model"].update(merges=[["a"]]),
        lambda c: c["model"].update(vocab=[["a", 1]]),
        lambda c: c.update(model=3),
        lambda c: c.update(added_tokens=[3]),
        lambda c: c["model"]["vocab"].update(a=-1),
    ],
)
def test_a_description_that_the_library_refuses_or_dies_of_is_an_error(change, tmp_path):
    with pytest.raises(ModelLoadError, match="does not describe a tokenizer"):
        Tokenizer.from_file(changed(tmp_path, change))


def test_a_text_of_any_length_is_refused_before_it_is_tokenized(monkeypatch):
    monkeypatch.setattr(BYTE_LEVEL, "backend", None)
    with pytest.raises(InvalidTokens, match="too long to be tokenized"):
        BYTE_LEVEL.encode("x" * (MAX_CHARACTERS + 1))
