"""BOS, EOS and the tokenizer of a loaded model.

The tokens that a family's tokenizer adds to a text determine the BOS and EOS settings of the model
(:class:`interp.TokensConfig`), which apply wherever a text is tokenized.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import tokenizers

from interp.config import Config, TokensConfig
from interp.errors import ModelLoadError
from interp.loading.chat_templates import chat_of_tokenizer
from interp.loading.registry import family_of
from interp.text import Tokenizer
from interp.transformer import Transformer


def as_tokenizer(tokenizer: object) -> Tokenizer | None:
    """A ``tokenizer=`` argument as a :class:`Tokenizer`; ``None`` stays ``None``.

    Args:
        tokenizer: a :class:`Tokenizer`, a tokenizer of ``tokenizers``, or a fast tokenizer of
            ``transformers``.

    Raises:
        ModelLoadError: it is something else, such as a slow tokenizer.
    """
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if backend is None or isinstance(backend, Tokenizer):
        return backend
    if isinstance(backend, tokenizers.Tokenizer):
        return Tokenizer(backend, chat=chat_of_tokenizer(tokenizer))
    raise ModelLoadError(
        f"tokenizer= takes an interp.Tokenizer, a tokenizers.Tokenizer or a fast tokenizer of "
        f"transformers; got {type(tokenizer).__name__}."
    )


def set_tokenizer(
    model: Transformer,
    config_json: Mapping[str, Any],
    tokenizer: Tokenizer | None,
    generation: Mapping[str, Any] | None = None,
) -> None:
    """Set the tokenizer and the special tokens of a model with a foreign configuration.

    The token that the tokenizer adds before a text is BOS, and the one that it adds after a text is
    EOS; if that is the EOS of ``config.json``, further tokens may follow it. If the tokenizer adds
    no such token, the id is that of ``config.json`` or the default of the family, and is not added
    to texts. Generation stops at every EOS of either configuration. The mask token is the
    tokenizer's.

    Args:
        model: the model.
        config_json: the content of its ``config.json``.
        tokenizer: its tokenizer, if it has one.
        generation: the content of its ``generation_config.json``.

    Raises:
        ModelLoadError: the tokenizer has more tokens than the model (special ones aside), or adds
            several at one end.
    """
    _check_vocabulary(model, tokenizer)
    fields = config_json
    if "model_type" in config_json:
        family = family_of(config_json)
        fields = {**family.defaults, **family.fields_of_part(config_json)}
    ids = _ids(fields, generation or {}, model.config)
    tokens = replace(model.config.tokens, **ids)
    if tokenizer is not None:
        size = model.config.vocabulary_of(model.stacks[0].name)
        tokens = _with_added_tokens(tokenizer, tokens, size)
    model.config = replace(model.config, tokens=tokens)
    attach_tokenizer(model, tokenizer)


def attach_tokenizer(model: Transformer, tokenizer: Tokenizer | None) -> None:
    """Set ``model.tokenizer``, with the BOS and EOS of the model's configuration.

    Raises:
        ModelLoadError: the tokenizer has more tokens than the model, special ones aside.
    """
    _check_vocabulary(model, tokenizer)
    if tokenizer is not None:
        model.tokenizer = tokenizer.with_special_tokens(
            model.config.tokens.bos, model.config.tokens.eos
        )


def _check_vocabulary(model: Transformer, tokenizer: Tokenizer | None) -> None:
    size = model.config.vocabulary_of(model.stacks[0].name)
    if tokenizer is not None and tokenizer.required_rows > size:
        raise ModelLoadError(
            f"The tokenizer has {tokenizer.vocab_size} tokens, the model {size}; does it belong to "
            "another model?"
        )


def _ids(
    fields: Mapping[str, Any], generation: Mapping[str, Any], config: Config
) -> dict[str, Any]:
    """The special tokens' ids in a configuration, without those outside the vocabulary."""

    def valid(holder: Mapping[str, Any], name: str) -> list[int]:
        value: object = holder.get(f"{name}_token_id")
        ids: list[object] = value if isinstance(value, list) else [value]
        return [id_ for id_ in ids if type(id_) is int and 0 <= id_ < config.d_vocab]

    ends = [*valid(fields, "eos"), *valid(generation, "eos")]
    tokens: dict[str, Any] = {"bos": next(iter(valid(fields, "bos")), None), **_ends(ends)}
    if len(config.stacks) > 1:
        tokens["decoder_start"] = next(iter(valid(fields, "decoder_start")), None)
    return tokens


def _ends(ids: list[int]) -> dict[str, Any]:
    """The first id as EOS, the others as further tokens at which generation stops."""
    first, *others = dict.fromkeys(ids) or (None,)
    return {"eos": first, "stop": tuple(others)}


def _with_added_tokens(tokenizer: Tokenizer, tokens: TokensConfig, size: int) -> TokensConfig:
    """The special tokens, where those that the tokenizer adds to a text take precedence.

    Raises:
        ModelLoadError: the tokenizer adds several at one end, or one that is not below ``size``.
    """
    before, after = tokenizer.added_ids()
    if missing := [id_ for id_ in (*before, *after) if id_ >= size]:
        raise ModelLoadError(
            f"The tokenizer adds the tokens {missing} to every text, but the model has only "
            f"{size} tokens; does it belong to another model?"
        )
    follows = after[1:] if after[:1] == [tokens.eos] else []
    after = after[: len(after) - len(follows)]
    if len(before) > 1 or len(after) > 1:
        raise ModelLoadError(
            f"The tokenizer adds the tokens {before} before a text and {after} after it; at most "
            "one each is supported. Pass a tokenizer= that adds fewer."
        )
    eos = [] if tokens.eos is None else [tokens.eos]
    mask = tokenizer.mask_id()
    return replace(
        tokens,
        bos=before[0] if before else tokens.bos,
        prepend_bos=bool(before),
        append_eos=bool(after),
        after_eos=tuple(follows),
        mask=mask if mask is not None and mask < size else None,
        **_ends([*after, *eos, *tokens.stop]),
    )
