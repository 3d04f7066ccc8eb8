"""The tokenizer of a GGUF file: its vocabulary, merges or scores as a ``tokenizer.json``.

    gpt2     byte-level BPE with stored merges; ``tokenizer.ggml.pre`` names how texts are split
    llama    BPE of SentencePiece with scores, from which the merges follow; bytes as fallback

Texts are split as by llama.cpp (``src/llama-vocab.cpp``) and the ``tokenizer.json`` of each model.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers

from interp.errors import ModelLoadError, first_line, shorten
from interp.loading.chat_templates import chat_of_gguf
from interp.text import Tokenizer

PREFIX = "tokenizer.ggml"
UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4
"""Types of tokens; the others are parts of texts."""
SPACE = "▁"
"""How SentencePiece writes a space."""
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
DIGITS = [
    {"type": "Digits", "individual_digits": True},
    {**BYTE_LEVEL, "use_regex": True},
]
WORDS = [{**BYTE_LEVEL, "use_regex": True}]
CASE = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
END = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
WORD = rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+", rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*"
LLAMA_3 = (
    rf"{CASE}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{END}"
)
QWEN_2 = rf"{CASE}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{END}"
SEED = rf"{CASE}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{END}"
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
TEKKEN = rf"{WORD[0]}|{WORD[1]}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{END}"
GPT_4O = rf"{WORD[0]}{CASE}?|{WORD[1]}{CASE}?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{END}"


def _split(pattern: str) -> list[dict[str, Any]]:
    """Pre-tokenizers that split a text by a regular expression, and then spell its bytes."""
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
    return [{**split, "invert": False}, {**BYTE_LEVEL, "use_regex": False}]


FALCON = [
    {"type": "Punctuation", "behavior": "Contiguous"},
    *WORDS,
    {"type": "Digits", "individual_digits": False},
    *_split("[0-9][0-9][0-9]")[:1],
]
SPLITS: dict[str, list[dict[str, Any]]] = {
    **dict.fromkeys(("default", "gpt-2", "phi-2", "olmo", "mpt", "jais", "trillion"), WORDS),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell"), DIGITS),
    **dict.fromkeys(("exaone", "minerva-7b"), DIGITS),
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral"), _split(LLAMA_3)),
    **dict.fromkeys(("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), _split(LLAMA_3)),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez", "stablelm2"), _split(QWEN_2)),
    "tekken": _split(TEKKEN),
    **dict.fromkeys(("gpt-4o", "llama4"), _split(GPT_4O)),
    "seed-coder": _split(SEED),
    "bloom": _split(BLOOM),
    "falcon": FALCON,
}
"""Pre-tokenizers, by ``tokenizer.ggml.pre``."""


def tokenizer_of(metadata: Mapping[str, Any]) -> Tokenizer | None:
    """The tokenizer that the metadata describes; ``None`` if there is none.

    Raises:
        ModelLoadError: its kind is not supported, or it contradicts itself.
    """
    kind, tokens = metadata.get(f"{PREFIX}.model"), metadata.get(f"{PREFIX}.tokens")
    if kind is None or kind == "no_vocab":
        return None
    if not isinstance(kind, str) or kind not in MODELS:
        raise _unsupported("model", kind, MODELS)
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise ModelLoadError(f"{PREFIX}.tokens should be a list of texts, got {shorten(tokens)}.")
    types = _numbers(metadata, "token_type", len(tokens)) or [1] * len(tokens)
    added = [
        {
            "id": id_,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind_of_token != USER_DEFINED,
        }
        for id_, (token, kind_of_token) in enumerate(zip(tokens, types, strict=True))
        if kind_of_token in (CONTROL, USER_DEFINED) and token
    ]
    description = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        **MODELS[kind](metadata, tokens, types),
        "post_processor": _post_processor(metadata, tokens, adds_bos=kind == "llama"),
    }
    try:
        backend = tokenizers.Tokenizer.from_str(json.dumps(description))
        return Tokenizer(backend, chat=chat_of_gguf(metadata))
    except Exception as error:  # tokenizers raises Exception itself
        raise ModelLoadError(f"its tokenizer can't be rebuilt: {first_line(error)}.") from error


def _byte_level(
    metadata: Mapping[str, Any], tokens: Sequence[str], types: Sequence[int]
) -> dict[str, Any]:
    """Byte-level BPE (Radford et al. 2019)."""
    split, merges = metadata.get(f"{PREFIX}.pre", "default"), metadata.get(f"{PREFIX}.merges")
    if not isinstance(split, str) or split not in SPLITS:
        raise _unsupported("pre", split, SPLITS)
    if not isinstance(merges, list) or not all(isinstance(merge, str) for merge in merges):
        raise ModelLoadError(f"{PREFIX}.merges should be a list of texts, got {shorten(merges)}.")
    alphabet = bytes_as_characters()
    spelled = [
        token
        if kind in (CONTROL, USER_DEFINED) or set(token) <= {*alphabet.values()}
        else "".join(alphabet[byte] for byte in token.encode())
        for token, kind in zip(tokens, types, strict=True)
    ]
    return {
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": SPLITS[split]},
        "decoder": {**BYTE_LEVEL, "use_regex": True},
        "model": _bpe(spelled, [merge.split(" ") for merge in merges]),
    }


def _sentencepiece(
    metadata: Mapping[str, Any], tokens: Sequence[str], types: Sequence[int]
) -> dict[str, Any]:
    """BPE of SentencePiece: of two neighbours, those are merged whose piece has the highest score.

    Gemma's scores do not follow the order of its merges, but its ids do.
    """
    scores = _numbers(metadata, "scores", len(tokens))
    if scores is None:
        raise ModelLoadError(f"{PREFIX}.scores is missing, from which the merges follow.")
    is_gemma = str(metadata.get("general.architecture", "")).startswith("gemma")
    if is_gemma:
        scores = [-id_ for id_ in range(len(tokens))]
    pieces = [token if token.strip() else token.replace(" ", SPACE) for token in tokens]
    begins_with_space = metadata.get(f"{PREFIX}.add_space_prefix", not is_gemma)
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    back = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    decoders: list[dict[str, Any]] = [back, {"type": "ByteFallback"}, {"type": "Fuse"}]
    normalizers: list[dict[str, Any]] = [spaces]
    if begins_with_space:
        normalizers = [{"type": "Prepend", "prepend": SPACE}, spaces]
        decoders = [*decoders, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    unknown = next((n for n, kind in enumerate(types) if kind == UNKNOWN), None)
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            **_bpe(pieces, merges_of(pieces, scores)),
            "unk_token": None if unknown is None else pieces[unknown],
            "fuse_unk": True,
            "byte_fallback": True,
        },
    }


MODELS = {"gpt2": _byte_level, "llama": _sentencepiece}
"""Kinds of tokenizers, by ``tokenizer.ggml.model``."""


def merges_of(pieces: Sequence[str], scores: Sequence[float]) -> list[list[str]]:
    """The merges that give each piece from two others, those with the highest score first."""
    ids = {piece: id_ for id_, piece in enumerate(pieces)}
    merges: list[tuple[float, int, int, list[str]]] = []
    for piece, score in zip(pieces, scores, strict=True):
        pairs = ([piece[:cut], piece[cut:]] for cut in range(1, len(piece)))
        splits = [pair for pair in pairs if pair[0] in ids and pair[1] in ids]
        splits.sort(key=lambda pair: (ids[pair[0]], ids[pair[1]]))
        merges += [(score, len(left), len(right), [left, right]) for left, right in splits]
    merges.sort(key=lambda merge: merge[:3], reverse=True)
    return [pair for *_, pair in merges]


def bytes_as_characters() -> dict[int, str]:
    """The character by which byte-level BPE writes each byte: itself if it is printable."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(256 + n) for n, byte in enumerate(others)
    }


def _bpe(tokens: Sequence[str], merges: list[list[str]]) -> dict[str, Any]:
    vocabulary: dict[str, int] = {}
    for id_, token in enumerate(tokens):
        vocabulary.setdefault(token, id_)
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": vocabulary,
        "merges": merges,
    }


def _post_processor(
    metadata: Mapping[str, Any], tokens: Sequence[str], *, adds_bos: bool
) -> dict[str, Any] | None:
    """The post-processor that adds BOS before or EOS after a text, as the flags ask."""
    ends: dict[str, int] = {}
    for name, default in (("bos", adds_bos), ("eos", False)):
        id_ = metadata.get(f"{PREFIX}.{name}_token_id")
        if metadata.get(f"{PREFIX}.add_{name}_token", default):
            if not isinstance(id_, int) or not 0 <= id_ < len(tokens):
                raise ModelLoadError(
                    f"its tokenizer adds {name.upper()} to texts, but {PREFIX}.{name}_token_id is "
                    f"{shorten(id_)}, of {len(tokens)} tokens."
                )
            ends[name] = id_
    if not ends:
        return None
    special = {
        name: {"SpecialToken": {"id": tokens[id_], "type_id": 0}} for name, id_ in ends.items()
    }
    text = {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [part for part in (special.get("bos"), text, special.get("eos")) if part],
        "pair": [text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            tokens[id_]: {"id": tokens[id_], "ids": [id_], "tokens": [tokens[id_]]}
            for id_ in ends.values()
        },
    }


def _numbers(metadata: Mapping[str, Any], name: str, count: int) -> list[Any] | None:
    """A list with one number per token; ``None`` if it is missing.

    Raises:
        ModelLoadError: it is something else.
    """
    values = metadata.get(f"{PREFIX}.{name}")
    if values is None:
        return None
    if not isinstance(values, list) or len(values) != count or isinstance(values[0], str):
        raise ModelLoadError(
            f"{PREFIX}.{name} should be a list of {count} numbers, got {shorten(values)}."
        )
    return values


def _unsupported(name: str, value: object, supported: Mapping[str, object]) -> ModelLoadError:
    return ModelLoadError(
        f"{PREFIX}.{name}={shorten(value)}: this tokenizer can't be rebuilt; supported are "
        f"{', '.join(sorted(supported))}. Pass the model's own, such as tokenizer="
        "tokenizers.Tokenizer.from_file(...)."
    )
