"""What does a token look like? From a vocabulary's own spelling to bytes, and to a readable label.

A vocabulary writes its tokens in a spelling of its own: `ĠcafÃ©` (byte-level BPE), `▁caf` and
`<0xC3>` (SentencePiece), `##fé` (WordPiece). Which one is found once, from the tokenizer's own
description, and is from then on a function from a token to the bytes that it stands for:

    token -> bytes -> label      "Ġcaf" -> b" caf" -> "·caf"

Reference: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", §2.2
(byte-level BPE); Kudo & Richardson 2018, "SentencePiece".
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final
from unicodedata import category


@dataclass(frozen=True)
class Spelling:
    """The way a vocabulary writes its tokens: its name, and the bytes that a token stands for."""

    kind: str
    to_bytes: Callable[[str], bytes]


def spelling_of(description: dict[str, Any]) -> Spelling:
    """The spelling of the tokenizer that a `tokenizer.json` describes."""
    model = description["model"]
    # Not the post-processor: its "ByteLevel" only trims offsets, and tells nothing of the tokens.
    parts = set(_types([description[k] for k in ("normalizer", "pre_tokenizer", "decoder")]))
    if "ByteLevel" in parts:
        kind, to_bytes = "byte-level", _byte_level
    elif parts & {"Metaspace", "ByteFallback"} or model["type"] == "Unigram":
        kind, to_bytes = "SentencePiece", _sentencepiece
    else:
        kind, to_bytes = model["type"], str.encode
    # Marks of a place in a word: WordPiece's "##" (no space before), CLIP's "</w>" (space after).
    before = model.get("continuing_subword_prefix") or ""
    after = model.get("end_of_word_suffix") or ""
    if not before + after:
        return Spelling(kind, to_bytes)

    def unmarked(token: str) -> bytes:
        bare = token.removeprefix(before) or token  # the token "##" is two number signs
        word = bare.removesuffix(after)
        return to_bytes(word) + (b" " if word != bare else b"")

    return Spelling(kind, unmarked)


def _types(part: object) -> Iterator[str]:
    """Every component type named anywhere inside a description, sequences included."""
    match part:
        case {"type": str(name), **rest}:
            yield name
            yield from _types(list(rest.values()))
        case list():
            for item in part:  # pyright: ignore[reportUnknownVariableType] -- parsed JSON
                yield from _types(item)  # pyright: ignore[reportUnknownArgumentType]
        case _:
            pass


def unknown_token(model: dict[str, Any]) -> str | None:
    """The token that stands for whatever the vocabulary lacks (its text is lost), if any."""
    if model["type"] == "Unigram" and model.get("unk_id") is not None:
        return model["vocab"][model["unk_id"]][0]
    return model.get("unk_token") or None


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's one printable character per byte: itself if printable Latin-1, else from U+0100 on.

    0xAD, the soft hyphen, counts as unprintable.
    """
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in own]
    return {chr(b): b for b in own} | {chr(0x100 + i): b for i, b in enumerate(others)}


_BYTE_OF: Final = _byte_alphabet()
_BYTE_TOKEN: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_level(token: str) -> bytes:
    if all(char in _BYTE_OF for char in token):
        return bytes(_BYTE_OF[char] for char in token)
    return token.encode()  # as the library's own decoder does


def _sentencepiece(token: str) -> bytes:
    byte = _BYTE_TOKEN.fullmatch(token)
    return bytes.fromhex(byte[1]) if byte else token.replace("▁", " ").encode()


# What a person can see.

_PICTURES: Final = (
    {chr(code): chr(0x2400 + code) for code in range(0x20)}
    | {"\x7f": "␡"}
    | {" ": "·", "\n": "↵", "\t": "⇥"}
)
_BROKEN: Final = re.compile("[\udc80-\udcff]+")


def visible(text: bytes) -> str:
    """`text` in printable characters only, whitespace and stray bytes included; never empty."""

    def hexadecimal(run: re.Match[str]) -> str:
        return f"⟨{run[0].encode('utf-8', 'surrogateescape').hex(' ')}⟩"

    # surrogateescape marks exactly the bytes that are no UTF-8, one surrogate each.
    whole = "".join(_visible_character(char) for char in text.decode("utf-8", "surrogateescape"))
    label = _BROKEN.sub(hexadecimal, whole) or "⟨⟩"
    # An accent needs something to sit on.
    return f"◌{label}" if category(label[0]).startswith("M") else label


def _visible_character(char: str) -> str:
    if char in _PICTURES:
        return _PICTURES[char]
    if char.isprintable() or _BROKEN.match(char):
        return char
    return char.encode("unicode_escape").decode("ascii")
