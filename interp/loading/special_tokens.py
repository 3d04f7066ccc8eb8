"""Which tokens begin and end a text? What the tokenizer itself puts there, and what files say.

A family's own tokenizer shows what it adds to a text: that becomes the one rule about BOS and EOS
(see :class:`interp.TokensConfig`), which holds wherever a text is read.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import tokenizers

from interp.config import Config, TokensConfig
from interp.errors import ModelLoadError
from interp.loading.registry import family_of
from interp.text.tokenizer import Tokenizer
from interp.transformer import Transformer


def given_tokenizer(tokenizer: object) -> Tokenizer | None:
    """Ours, of what a user has: ours, one of ``tokenizers``, or a fast one of ``transformers``.

    Raises:
        ModelLoadError: something else, as a slow tokenizer.
    """
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if backend is None or isinstance(backend, Tokenizer):
        return backend
    if isinstance(backend, tokenizers.Tokenizer):
        return Tokenizer(backend)
    raise ModelLoadError(
        f"tokenizer= takes an interp.Tokenizer, a tokenizers.Tokenizer or a fast tokenizer of "
        f"transformers; got {type(tokenizer).__name__}."
    )


def equip(model: Transformer, fields: Mapping[str, Any], tokenizer: Tokenizer | None) -> None:
    """Give a model that was just made its tokenizer and its special tokens.

    What the tokenizer adds in front of a text is BOS, what it adds behind is EOS; where it adds
    nothing, the ids are those that ``config.json`` names (or means, by what the family's class
    takes), and no text gets them.

    Raises:
        ModelLoadError: the tokenizer has more tokens than the model, or adds several at once.
    """
    _check_fits(model, tokenizer)
    usual = family_of(fields).defaults if "model_type" in fields else {}
    known = {**usual, **fields}
    tokens = replace(model.config.tokens, **_named(known, model.config))
    if tokenizer is not None:
        tokens = _added_by(tokenizer, tokens)
    model.config = replace(model.config, tokens=tokens)
    attach(model, tokenizer)


def attach(model: Transformer, tokenizer: Tokenizer | None) -> None:
    """Let a model read and write text with a tokenizer, which is told its BOS and EOS.

    Raises:
        ModelLoadError: the tokenizer has more tokens than the model.
    """
    _check_fits(model, tokenizer)
    if tokenizer is not None:
        model.tokenizer = tokenizer.with_special_tokens(
            model.config.tokens.bos, model.config.tokens.eos
        )


def _check_fits(model: Transformer, tokenizer: Tokenizer | None) -> None:
    reads = model.config.vocabulary_of(model.stacks[0].name)
    if tokenizer is not None and tokenizer.vocab_size > reads:
        raise ModelLoadError(
            f"The tokenizer has {tokenizer.vocab_size} tokens, the model {reads}; is it another "
            "model's?"
        )


def _named(fields: Mapping[str, Any], config: Config) -> dict[str, int | None]:
    """The ids that a configuration names."""

    def inside(value: object) -> int | None:
        first: object = value[0] if isinstance(value, list) and value else value
        if not isinstance(first, int) or isinstance(first, bool):
            return None
        return first if 0 <= first < config.d_vocab else None

    found = {"bos": inside(fields.get("bos_token_id")), "eos": inside(fields.get("eos_token_id"))}
    if len(config.stacks) > 1:
        found["decoder_start"] = inside(fields.get("decoder_start_token_id"))
    return found


def _added_by(tokenizer: Tokenizer, named: TokensConfig) -> TokensConfig:
    """The tokens that a tokenizer puts around a text by itself."""
    before, after = tokenizer.added_ids()
    if len(before) > 1 or len(after) > 1:
        raise ModelLoadError(
            f"The tokenizer puts the tokens {before} before a text and {after} behind it; this "
            "toolkit knows one each. Give a tokenizer= that adds fewer."
        )
    return replace(
        named,
        bos=before[0] if before else named.bos,
        eos=after[0] if after else named.eos,
        prepend_bos=bool(before),
        append_eos=bool(after),
    )
