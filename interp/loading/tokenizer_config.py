"""Settings of ``tokenizer_config.json`` that change what ``tokenizer.json`` does with a text.

``transformers`` builds a tokenizer from both files, and where they differ, the settings take
precedence. They are applied here in the same way:

    add_prefix_space                                        the pre-tokenizer ByteLevel
    do_lower_case strip_accents tokenize_chinese_chars      the normalizer BertNormalizer
    added_tokens_decoder, bos_token and other special tokens    added tokens

Without ``added_tokens_decoder``, the special tokens of ``special_tokens_map.json`` come first.

A setting that contradicts a component that it can't be applied to is refused by name. Everything
else is as ``tokenizer.json`` says: normalizers and pre-tokenizers that version 5 of
``transformers`` replaces by those of the tokenizer's class (as for Llama and T5) are kept, and
``add_bos_token`` and ``add_eos_token`` have no effect beside a ``tokenizer.json``.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, normalizers, pre_tokenizers

from interp.errors import ModelLoadError, reason, shorten
from interp.io import UNREADABLE, as_object, read_json
from interp.text import MAX_CHARACTERS, NormalizedLength

TOKENIZER_CONFIG, SPECIAL_TOKENS = "tokenizer_config.json", "special_tokens_map.json"
MAX_BYTES = 2**24
PREFIXING = (
    "AlbertTokenizer",
    "BarthezTokenizer",
    "BigBirdTokenizer",
    "CamembertTokenizer",
    "CodeLlamaTokenizer",
    "DebertaV2Tokenizer",
    "LlamaTokenizer",
    "RemBertTokenizer",
    "XGLMTokenizer",
    "XLMRobertaTokenizer",
)
"""Classes that put a space before a text if ``add_prefix_space`` is true, with the character ▁."""
STRIP_ACCENTS = "strip_accents"
GENERIC = ("PreTrainedTokenizer", "TokenizersBackend")
"""Classes that read none of the settings of normalizers and pre-tokenizers."""
LOWERCASING = (
    "AlbertTokenizer",
    "BertTokenizer",
    "DebertaV2Tokenizer",
    "DistilBertTokenizer",
    "MPNetTokenizer",
    "RemBertTokenizer",
    "XLNetTokenizer",
)
"""Classes that lower the case if ``do_lower_case`` is true, whatever their normalizer is."""
BERT_SETTINGS = {
    "do_lower_case": "lowercase",
    STRIP_ACCENTS: STRIP_ACCENTS,
    "tokenize_chinese_chars": "handle_chinese_chars",
}
"""Settings, and the names that they have in a BertNormalizer."""
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
SPECIAL = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))


def read_tokenizer_config(folder: Path) -> dict[str, Any]:
    """The content of ``tokenizer_config.json``; empty if there is none.

    Special tokens of ``special_tokens_map.json``, which older versions of ``transformers`` wrote,
    take precedence, unless the tokens are listed with their ids.

    Raises:
        ModelLoadError: a file can't be read, or is not a JSON object.
    """
    settings = _object(folder / TOKENIZER_CONFIG)
    if "added_tokens_decoder" in settings:
        return settings
    special = _object(folder / SPECIAL_TOKENS)
    return settings | {name: value for name, value in special.items() if name in SPECIAL}


def _object(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        return as_object(read_json(path, MAX_BYTES), "the file")
    except UNREADABLE as error:
        raise ModelLoadError(f"{path} does not configure a tokenizer: {reason(error)}.") from error


def configure(backend: tokenizers.Tokenizer, settings: Mapping[str, Any]) -> None:
    """Apply the settings to a tokenizer, which is changed.

    Args:
        backend: the tokenizer of a ``tokenizer.json``.
        settings: the content of its ``tokenizer_config.json``.

    Raises:
        ModelLoadError: a setting is malformed, or contradicts a component of the tokenizer that it
            can't be applied to.
    """
    kind = settings.get("tokenizer_class")
    kind = kind.removesuffix("Fast") if isinstance(kind, str) else ""
    if kind not in GENERIC:
        _set_prefix_space(backend, kind, _flag(settings, "add_prefix_space"))
        _set_normalizer(backend, kind, settings)
    _add_tokens(backend, settings)


# ---- normalizer and pre-tokenizer ----------------------------------------------------------------


def _set_prefix_space(backend: tokenizers.Tokenizer, kind: str, wanted: bool | None) -> None:  # noqa: FBT001 - a setting
    if wanted is None:
        return
    levels = [part for part in _parts(backend.pre_tokenizer) if part["type"] == "ByteLevel"]
    if levels and kind != "LlamaTokenizer":  # a byte-level file of this class is read as it is
        _set_byte_level(backend, wanted)
        return
    normalizer = list(_parts(backend.normalizer))
    spaces = [part for part in _parts(backend.pre_tokenizer) if part["type"] == "Metaspace"]
    adds = any(part["type"] == "Prepend" for part in normalizer)
    adds |= any(part.get("prepend_scheme", "always") != "never" for part in spaces)
    reads = kind in PREFIXING and not levels
    if reads and adds != wanted:
        raise _contradiction("add_prefix_space", wanted, f"{'adds' if adds else 'adds no'} space")


def _set_byte_level(backend: tokenizers.Tokenizer, wanted: bool) -> None:  # noqa: FBT001 - a setting
    part: Any = backend.pre_tokenizer
    if isinstance(part, pre_tokenizers.ByteLevel):
        part.add_prefix_space = wanted
        backend.pre_tokenizer = part
        return
    for inner in part:
        if isinstance(inner, pre_tokenizers.ByteLevel):
            inner.add_prefix_space = wanted


def _set_normalizer(backend: tokenizers.Tokenizer, kind: str, settings: Mapping[str, Any]) -> None:
    wanted = {
        field: _flag(settings, name) for name, field in BERT_SETTINGS.items() if name in settings
    }
    # null is a value of strip_accents (as do_lower_case), and the absence of the others.
    wanted = {n: value for n, value in wanted.items() if value is not None or n == STRIP_ACCENTS}
    normalizer: Any = backend.normalizer
    if isinstance(normalizer, normalizers.BertNormalizer):
        for field, value in wanted.items():
            setattr(normalizer, field, value)
        backend.normalizer = normalizer
    elif kind in LOWERCASING:
        kinds = {part["type"] for part in _parts(normalizer)}
        for name, part in (("do_lower_case", "Lowercase"), (STRIP_ACCENTS, "StripAccents")):
            value = wanted.get(BERT_SETTINGS[name])
            if value is not None and value != (part in kinds):
                what = f"{'has' if part in kinds else 'lacks'} the normalizer {part}"
                raise _contradiction(name, value, what)


def _contradiction(name: str, value: object, what: str) -> ModelLoadError:
    return ModelLoadError(
        f"{TOKENIZER_CONFIG} has {name}={value}, but tokenizer.json {what}. Remove {name} to "
        "follow tokenizer.json, or pass tokenizer=."
    )


def _parts(component: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - of the tokenizers library
    """The descriptions of a component and of those inside sequences."""
    if component is None:
        return
    todo: list[Any] = [json.loads(component.__getstate__())]
    while todo:
        part = todo.pop()
        yield part
        todo += part.get("normalizers", []) + part.get("pretokenizers", [])


def _flag(settings: Mapping[str, Any], name: str) -> bool | None:
    value = settings.get(name)
    if value is not None and not isinstance(value, bool):
        raise ModelLoadError(
            f"{TOKENIZER_CONFIG} has {name}={shorten(value)}; expected true, false or null."
        )
    return value


# ---- added tokens --------------------------------------------------------------------------------


def _add_tokens(backend: tokenizers.Tokenizer, settings: Mapping[str, Any]) -> None:
    listed = settings.get("added_tokens_decoder") or {}
    if not isinstance(listed, Mapping):
        raise ModelLoadError(f"{TOKENIZER_CONFIG} has an added_tokens_decoder that is no object.")
    tokens = {_id(key): _token(key, value) for key, value in listed.items()}
    for id_, token in sorted(tokens.items()):
        stored = backend.token_to_id(token.content)
        if stored is None and id_ == backend.get_vocab_size():
            stored = id_
        if stored != id_:
            where = "lacks it" if stored is None else f"has it as {stored}"
            raise ModelLoadError(
                f"{TOKENIZER_CONFIG} has the added token {shorten(token.content)} as {id_}, but "
                f"tokenizer.json {where} (and {backend.get_vocab_size()} tokens)."
            )
        _add(backend, token)
    added = {token.content for token in backend.get_added_tokens_decoder().values()}
    for name in SPECIAL:
        value = settings.get(name)
        content = value.get("content") if isinstance(value, Mapping) else value
        if isinstance(content, str) and content and content not in added:
            _add(backend, AddedToken(content, special=True, normalized=False))


def _add(backend: tokenizers.Tokenizer, token: AddedToken) -> None:
    description = {"normalizer": next(_parts(backend.normalizer), None)}
    if token.normalized and not NormalizedLength(description, MAX_CHARACTERS).is_bounded(
        token.content
    ):
        raise ModelLoadError(
            f"{TOKENIZER_CONFIG} has the added token {shorten(token.content)}, of which the "
            f"normalizer makes over {MAX_CHARACTERS} characters."
        )
    (backend.add_special_tokens if token.special else backend.add_tokens)([token])


def _id(key: str) -> int:
    if not key.isdecimal() or len(key) > len(str(MAX_BYTES)):
        raise ModelLoadError(
            f"{TOKENIZER_CONFIG} has an added token with the id {shorten(key)}; expected a number."
        )
    return int(key)


def _token(key: str, value: object) -> AddedToken:
    match value:
        case {"content": str(content), **flags} if content:
            chosen = {name: flags[name] for name in FLAGS if name in flags}
            if all(isinstance(flag, bool) for flag in chosen.values()):
                return AddedToken(content, **chosen)
        case _:
            pass
    raise ModelLoadError(
        f"{TOKENIZER_CONFIG} has the added token {key}: {shorten(value)}; expected its content and "
        "true or false for its flags."
    )
