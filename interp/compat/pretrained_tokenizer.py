"""The tokenizer of a published model.

It is that of ``transformers``, as in TransformerLens; without ``transformers``, and for models of
this package, it is one of this package, which reads ``tokenizer.json`` only.
"""

import warnings
from pathlib import Path
from typing import Any

from interp.compat.published import Published
from interp.compat.tokenizer import HookedTokenizer
from interp.errors import first_line
from interp.loading import PREFIX, fetch, parse_name
from interp.transformer import Transformer

FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
WITHOUT_BOS = ("Olmo", "Olmo2")
"""Architectures whose tokenizers TransformerLens does not ask to add BOS."""


def tokenizer_of(published: Published, source: Transformer) -> Any:
    """The tokenizer of a model, whose name is that of the model in TransformerLens.

    BOS is added by the tokenizer itself wherever it can, as in TransformerLens, because a tokenizer
    may encode a text after a BOS in another way. There is a warning if ``transformers`` can't
    load the tokenizer.

    Args:
        published: where the model comes from.
        source: the loaded model.

    Returns:
        A tokenizer of ``transformers`` or a :class:`HookedTokenizer`; ``None`` if there is none.
    """
    place = _place(published)
    tokenizer = None if place is None else _of_transformers(published, *place)
    if tokenizer is None and source.tokenizer is not None:
        name = published.name or source.config.name
        return HookedTokenizer(source.tokenizer, source.config.tokens, name)
    return tokenizer


def _place(published: Published) -> tuple[str, str | None] | None:
    """The folder, or the repository and its commit, from which ``transformers`` can load."""
    source, name = published.source, published.name
    if name is None or not published.config_json:
        return None
    if not isinstance(source, str):
        return name, None
    if source.startswith(PREFIX):
        return parse_name(fetch(source)[1])
    return (source, None) if any((Path(source) / file).is_file() for file in FILES) else None


def _of_transformers(published: Published, place: str, revision: str | None) -> Any:
    """The tokenizer of ``transformers``; ``None`` if it can't be loaded."""
    try:
        from transformers import AutoTokenizer  # noqa: PLC0415 - an optional library
    except ImportError:
        return None
    options: dict[str, Any] = {"revision": revision or "main", "trust_remote_code": False}
    try:
        try:
            adds_bos = published.kind not in WITHOUT_BOS
            tokenizer = AutoTokenizer.from_pretrained(place, add_bos_token=adds_bos, **options)
        except ValueError:  # some can't add a BOS
            tokenizer = AutoTokenizer.from_pretrained(place, **options)
    except Exception as error:  # tokenizers' own code may raise any exception
        warnings.warn(
            f"transformers can't load the tokenizer of {place}: {first_line(error)[:200]}",
            stacklevel=4,
        )
        return None
    tokenizer.name_or_path = tokenizer.init_kwargs["name_or_path"] = published.name
    return tokenizer
