"""How much longer a tokenizer makes a text before it splits it into tokens, and its ids' text.

A `tokenizer.json` lists replacements, which are applied one after another: five of them that
replace ``a`` by a hundred ``a`` make 10¹⁰ characters of one, and the library ends the process when
it runs out of memory. Therefore the length of a normalized text is measured, component by
component, before the library normalizes it; a tokenizer whose other components lengthen a text is
refused when it is read.
"""

import json
from base64 import b64decode
from collections.abc import Iterator
from math import prod
from typing import Any, Final

import tokenizers

MAX_COMPONENTS: Final = 1000
"""Maximum number of components of a normalizer, a pre-tokenizer or a decoder."""
MAX_GROWTH: Final = 64
"""Maximum factor by which components other than a normalizer may lengthen a text."""
UNICODE_GROWTH: Final = 18
"""The longest compatibility decomposition, of U+FDFA, has 18 characters."""
LONGEST: Final = {"NFC": 3, "NFD": 4, "Lowercase": 3, "Strip": 1, "StripAccents": 1}
"""The number of characters that some normalizers write for one, at most."""
LENGTHEN: Final = ("Replace", "ByteLevel", "Metaspace")
"""The pre-tokenizers and decoders that may lengthen a text."""


def components(part: object) -> list[dict[str, Any]]:
    """The components of a normalizer, pre-tokenizer, post-processor or decoder, in their order.

    Malformed ones are left out; the library refuses them.
    """
    pending, leaves = [part], list[dict[str, Any]]()
    while pending:
        component = pending.pop()
        if not isinstance(component, dict):
            continue
        of_sequence = [value for value in component.values() if isinstance(value, list)]
        if component.get("type") == "Sequence":
            pending += reversed([item for values in of_sequence for item in values])
        else:
            leaves.append(component)
    return leaves


def check_growth(description: dict[str, Any]) -> None:
    """Check the components of a `tokenizer.json`, except how far its normalizer lengthens a text.

    Raises:
        ValueError: there are very many components; a pre-tokenizer or decoder lengthens a text by
            more than a factor of :data:`MAX_GROWTH`; a post-processor repeats the text.
    """
    for name in ("normalizer", "pre_tokenizer", "decoder", "post_processor"):
        number = len(components(description.get(name)))
        if number > MAX_COMPONENTS:
            raise ValueError(f"its {name} has {number} components; at most {MAX_COMPONENTS}")
    for name in ("pre_tokenizer", "decoder"):
        others = [
            component
            for component in components(description.get(name))
            if component.get("type") in LENGTHEN
        ]
        if prod(map(_growth, others)) > MAX_GROWTH:
            raise ValueError(f"its {name} makes a text more than {MAX_GROWTH} times as long")
    for component in components(description.get("post_processor")):
        single = component.get("single")
        pieces = single if isinstance(single, list) else []
        if sum(isinstance(piece, dict) and "Sequence" in piece for piece in pieces) > 1:
            raise ValueError("its post_processor repeats the text")


def _growth(component: dict[str, Any]) -> int:
    """The largest factor by which a component lengthens a text, in characters."""
    match component.get("type"):
        case "Replace":
            pattern, content = _replacement(component)
            # A regular expression may match nothing, before each character and at the end.
            return max(1, -(-len(content) // len(pattern))) if pattern else 1 + 2 * len(content)
        case "ByteLevel":  # a character has up to 4 bytes, and each becomes a character
            return 4
        case "Metaspace" | "Prepend":  # a character before each piece
            return 1 + len(str(component.get("prepend", " ")))
        case "Precompiled":
            return max(UNICODE_GROWTH, _longest_mapped(component.get("precompiled_charsmap")))
        case kind:
            return LONGEST.get(str(kind), UNICODE_GROWTH)


def _replacement(component: dict[str, Any]) -> tuple[str, str]:
    """The text that is replaced, which is empty for a regular expression, and its replacement."""
    pattern, content = component.get("pattern"), component.get("content")
    text = pattern.get("String") if isinstance(pattern, dict) else None
    return (text if isinstance(text, str) else ""), (content if isinstance(content, str) else "")


def _longest_mapped(charsmap: object) -> int:
    """The length of the longest text to which a map of characters (SentencePiece's) maps one."""
    try:
        data = b64decode(charsmap if isinstance(charsmap, str) else "")
    except ValueError:
        return 0
    texts = data[4 + int.from_bytes(data[:4], "little") :]  # after the trie and its size
    return max(map(len, texts.split(b"\0")))


class NormalizedLength:
    """Measures whether a text is too long after normalization.

    Args:
        description: the content of a `tokenizer.json`.
        most: maximum number of characters.
    """

    def __init__(self, description: dict[str, Any], most: int) -> None:
        self._components = components(description.get("normalizer"))
        self._growth = prod(map(_growth, self._components))
        self._most = most

    def is_bounded(self, text: str) -> bool:
        """Whether the text has at most ``most`` characters after each component."""
        if max(1, len(text)) * self._growth <= self._most:
            return True
        for component in self._components:
            if (longer := self._normalized(component, text)) is None or len(longer) > self._most:
                return False
            text = longer
        return True

    def _normalized(self, component: dict[str, Any], text: str) -> str | None:
        """The text after one component; ``None`` if it is too long."""
        factor = _growth(component)
        if component.get("type") == "Prepend":
            return str(component.get("prepend", "")) + text
        if component.get("type") != "Replace":
            return self._in_parts(component, text, factor)
        pattern, content = _replacement(component)
        if pattern:
            length = len(text) + text.count(pattern) * (len(content) - len(pattern))
            return text.replace(pattern, content) if length <= self._most else None
        # A regular expression may match depending on the whole text, so it is not split.
        too_long = len(content) > 1 and max(1, len(text)) * factor > self._most
        return None if too_long else "".join(_apply(component, [text]))

    def _in_parts(self, component: dict[str, Any], text: str, factor: int) -> str | None:
        width = self._most // factor
        if not width:
            return None
        parts, length = list[str](), 0
        for part in _apply(component, (text[n : n + width] for n in range(0, len(text), width))):
            parts.append(part)
            length += len(part)
            if length > self._most:
                return None
        return "".join(parts)


def _apply(component: dict[str, Any], texts: Iterator[str] | list[str]) -> Iterator[str]:
    """Texts, normalized by one component."""
    description = {"normalizer": component, "model": {"type": "BPE", "vocab": {}, "merges": []}}
    normalizer = tokenizers.Tokenizer.from_str(json.dumps(description)).normalizer
    for text in texts:
        yield normalizer.normalize_str(text)
