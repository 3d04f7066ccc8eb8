"""The bytes that a token represents, and a printable label for them.

Vocabularies encode their tokens in different formats: `ĠcafÃ©` (byte-level BPE), `▁caf` and
`<0xC3>` (SentencePiece), `##fé` (WordPiece). The format is read once from the tokenizer's
`tokenizer.json`; it maps a token to its bytes:

    token -> bytes -> label      "Ġcaf" -> b" caf" -> "·caf"

Reference: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", §2.2
(byte-level BPE); Kudo & Richardson 2018, "SentencePiece".
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final
from unicodedata import category

from interp.text.growth import components


@dataclass(frozen=True)
class TokenFormat:
    """How a vocabulary encodes its tokens.

    Attributes:
        kind: "byte-level", "SentencePiece" or the type of the model, e.g. "WordPiece".
        to_bytes: maps a token to the bytes that it represents.
    """

    kind: str
    to_bytes: Callable[[str], bytes]


def token_format(description: dict[str, Any]) -> TokenFormat:
    """The token format of the tokenizer that a `tokenizer.json` describes."""
    model = description["model"]
    # Not the post-processor: its "ByteLevel" only trims offsets and says nothing about the tokens.
    components = set(
        _types([description.get(k) for k in ("normalizer", "pre_tokenizer", "decoder")])
    )
    if "ByteLevel" in components:
        kind, to_bytes = "byte-level", _byte_level
    elif components & {"Metaspace", "ByteFallback"} or model["type"] == "Unigram":
        kind, to_bytes = "SentencePiece", _sentencepiece
    else:
        kind, to_bytes = model["type"], str.encode
    # Word-position markers: WordPiece's "##" (no space before), CLIP's "</w>" (space after).
    prefix = model.get("continuing_subword_prefix") or ""
    suffix = model.get("end_of_word_suffix") or ""
    if not prefix + suffix:
        return TokenFormat(kind, to_bytes)

    def without_markers(token: str) -> bytes:
        bare = token.removeprefix(prefix) or token  # the token "##" is two number signs
        word = bare.removesuffix(suffix)
        return to_bytes(word) + (b" " if word != bare else b"")

    return TokenFormat(kind, without_markers)


def bytes_kept(description: dict[str, Any]) -> bytes:
    """The bytes, each of which is in a token wherever it occurs in a text.

    So it is for byte-level BPE and the bytes that have a token, if nothing before it drops
    characters; for other tokenizers there is no such byte.
    """
    model, parts = description["model"], components(description["pre_tokenizer"])
    is_byte_level = any(part.get("type") == "ByteLevel" for part in parts)
    drops = (
        description["normalizer"] is not None
        or any(part.get("behavior") == "Removed" for part in parts)
        or not {part.get("type") for part in parts} <= {"ByteLevel", "Digits", "Split"}
        or any(token.get("lstrip") or token.get("rstrip") for token in description["added_tokens"])
    )
    if model["type"] != "BPE" or drops or not is_byte_level:
        return b""
    return bytes(byte for text, byte in _BYTE_OF.items() if text in model["vocab"])


def _types(part: object) -> Iterator[str]:
    """All component types in a description, including those inside sequences."""
    match part:
        case {"type": str(name), **rest}:
            yield name
            yield from _types(list(rest.values()))
        case list():
            for item in part:  # pyright: ignore[reportUnknownVariableType] -- parsed JSON
                yield from _types(item)  # pyright: ignore[reportUnknownArgumentType]
        case _:
            pass


def tokens_by_id(model: dict[str, Any]) -> dict[int, str]:
    """The tokens of the model that a `tokenizer.json` describes, without added ones."""
    vocab = model["vocab"]
    if isinstance(vocab, dict):
        return {id_: token for token, id_ in vocab.items()}
    return {id_: token for id_, (token, _) in enumerate(vocab)}


def unknown_token(model: dict[str, Any]) -> str | None:
    """The token for text that the vocabulary cannot encode (the text is lost), if there is one."""
    if model["type"] == "Unigram" and model.get("unk_id") is not None:
        return model["vocab"][model["unk_id"]][0]
    return model.get("unk_token") or None


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable character for each byte: printable Latin-1 as is, others from U+0100 on.

    0xAD, the soft hyphen, counts as unprintable.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}


_BYTE_OF: Final = _byte_alphabet()
_BYTE_TOKEN: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_level(token: str) -> bytes:
    if all(char in _BYTE_OF for char in token):
        return bytes(_BYTE_OF[char] for char in token)
    return token.encode()  # as the decoder of the tokenizers library does


def _sentencepiece(token: str) -> bytes:
    byte = _BYTE_TOKEN.fullmatch(token)
    return bytes.fromhex(byte[1]) if byte else token.replace("▁", " ").encode()


# Printable labels.

_SYMBOLS: Final = {" ": "·", "\n": "↵", "\t": "⇥"}
_INVALID: Final = re.compile("[\udc80-\udcff]+")


def visible(text: bytes) -> str:
    """`text` in printable characters, with visible whitespace and invalid UTF-8; never empty."""

    def hexadecimal(run: re.Match[str]) -> str:
        return f"⟨{run[0].encode('utf-8', 'surrogateescape').hex(' ')}⟩"

    # surrogateescape maps each byte that is invalid UTF-8 to one surrogate.
    whole = "".join(_visible_character(char) for char in text.decode("utf-8", "surrogateescape"))
    label = _INVALID.sub(hexadecimal, whole) or "⟨⟩"
    # A combining mark alone is shown on a dotted circle.
    return f"◌{label}" if category(label[0]).startswith("M") else label


def _visible_character(char: str) -> str:
    if char in _SYMBOLS:
        return _SYMBOLS[char]
    if char.isprintable() or _INVALID.match(char):
        return char
    return f"⟨U+{ord(char):04X}⟩"
