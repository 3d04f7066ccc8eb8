"""Conversion between texts and tokens in a :class:`HookedTransformer`."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from einops import rearrange
from torch import Tensor

from interp.compat.config import HookedTransformerConfig
from interp.compat.errors import InvalidInput, InvalidTokens
from interp.compat.hooked_root_module import HookedRootModule
from interp.compat.tokenizer import HookedTokenizer, add_special_tokens
from interp.compat.utils.tokenizers import get_tokens_with_bos_removed
from interp.errors import shorten


class TextCalls(HookedRootModule):
    """The methods of a model that use its tokenizer.

    Attributes:
        cfg: the configuration; ``default_prepend_bos`` says whether BOS is prepended to texts.
        tokenizer: a tokenizer of ``transformers``, or one with the same interface; ``None`` if
            there is none.
    """

    cfg: HookedTransformerConfig
    tokenizer: Any

    def set_tokenizer(self, tokenizer: Any, default_padding_side: str | None = None) -> None:
        """Use a tokenizer of ``transformers``.

        Missing special tokens are set to EOS, as in TransformerLens.

        Raises:
            InvalidInput: the padding side is neither ``left`` nor ``right``, or ``tokenizer`` is no
                tokenizer.
        """
        if default_padding_side not in ("left", "right", None):
            raise InvalidInput(
                f"default_padding_side={shorten(default_padding_side)} must be left or right."
            )
        if not callable(getattr(tokenizer, "encode", None)):
            raise InvalidInput(f"{shorten(tokenizer)} is not a tokenizer: it can't encode texts.")
        self.tokenizer = tokenizer
        if default_padding_side is not None:
            tokenizer.padding_side = default_padding_side
        self.cfg.tokenizer_prepends_bos = len(tokenizer.encode("")) > 0
        if not isinstance(tokenizer, HookedTokenizer):
            add_special_tokens(tokenizer)
        if self.cfg.d_vocab == -1:
            self.cfg.d_vocab = max(tokenizer.get_vocab().values()) + 1
        if self.cfg.d_vocab_out == -1:
            self.cfg.d_vocab_out = self.cfg.d_vocab

    @contextmanager
    def _overriding(self, prepend_bos: bool | None, padding_side: str | None) -> Generator[None]:
        """A context with the BOS and padding settings of one call."""
        cfg, tokenizer = self.cfg, self.tokenizer
        bos, side = cfg.default_prepend_bos, getattr(tokenizer, "padding_side", None)
        try:
            cfg.default_prepend_bos = bos if prepend_bos is None else prepend_bos
            if tokenizer is not None and padding_side is not None:
                tokenizer.padding_side = padding_side
            yield
        finally:
            cfg.default_prepend_bos = bos
            if tokenizer is not None:
                tokenizer.padding_side = side

    def to_tokens(
        self,
        input: str | list[str],
        prepend_bos: bool | None = None,
        padding_side: str | None = None,
        move_to_device: bool = True,
        truncate: bool = True,
    ) -> Tensor:
        """Token ids ``[batch pos]`` of a text or several.

        BOS is prepended if ``cfg.default_prepend_bos`` is set, even if the text already starts with
        it. Shorter texts are padded with the tokenizer's padding token, longer ones are truncated
        to ``n_ctx``.

        Raises:
            InvalidTokens: there is no tokenizer.
        """
        tokenizer = self._tokenizer()
        with self._overriding(prepend_bos, padding_side):
            prepends = bool(self.cfg.tokenizer_prepends_bos)
            texts: Any = input
            if self.cfg.default_prepend_bos and not prepends:
                bos = tokenizer.bos_token
                several = not isinstance(input, str)
                texts = [bos + text for text in input] if several else bos + input
            length = self.cfg.n_ctx if truncate else None
            tokens = tokenizer(
                texts, return_tensors="pt", padding=True, truncation=truncate, max_length=length
            )["input_ids"]
            if not self.cfg.default_prepend_bos and prepends:
                tokens = get_tokens_with_bos_removed(tokenizer, tokens)
        return tokens.to(self.cfg.device) if move_to_device else tokens

    def to_string(self, tokens: Any) -> str | list[str]:
        """The text of ids ``[pos]``, or of each row of ids ``[batch pos]``.

        Raises:
            InvalidTokens: the ids have more axes, or there is no tokenizer.
        """
        tokenizer, ids = self._tokenizer(), torch.as_tensor(tokens)
        if ids.ndim > 2:  # noqa: PLR2004 - batch pos
            raise InvalidTokens(f"Ids [pos] or [batch pos] were expected; got {shorten(ids)}.")
        decode = tokenizer.batch_decode if ids.ndim == 2 else tokenizer.decode  # noqa: PLR2004
        return decode(ids, clean_up_tokenization_spaces=False)

    def to_str_tokens(
        self,
        input: Any,
        prepend_bos: bool | None = None,
        padding_side: str | None = None,
    ) -> Any:
        """The text of each token of a text, of ids ``[pos]``, or of each item of a list.

        Raises:
            InvalidTokens: the ids have more than one row.
        """
        if isinstance(input, list):
            return [self.to_str_tokens(text, prepend_bos, padding_side) for text in input]
        if isinstance(input, str):
            ids = self.to_tokens(input, prepend_bos, padding_side)[0]
        else:
            ids = torch.as_tensor(input).squeeze()
            ids = ids[None] if ids.ndim == 0 else ids
        if ids.ndim != 1:
            raise InvalidTokens(f"Ids [pos] were expected; got {shorten(input)}.")
        rows = [[int(token)] for token in ids.tolist()]
        return self._tokenizer().batch_decode(rows, clean_up_tokenization_spaces=False)

    def to_single_token(self, string: str) -> int:
        """The id of a text that is a single token.

        Raises:
            InvalidTokens: the text is not a single token.
        """
        ids = self.to_tokens(string, prepend_bos=False).flatten()
        if len(ids) != 1:
            raise InvalidTokens(f"{shorten(string)} is not a single token, but {len(ids)}.")
        return int(ids[0])

    def to_single_str_token(self, int_token: int) -> str:
        """The text of one id."""
        return self.to_str_tokens(torch.tensor([int_token]))[0]

    def get_token_position(
        self,
        single_token: str | int | Tensor,
        input: Any,
        mode: str = "first",
        prepend_bos: bool | None = None,
        padding_side: str | None = None,
    ) -> int:
        """The position of a token in a text or in one row of ids.

        Raises:
            InvalidInput: the token does not occur, there are several rows, or ``mode`` is neither
                first nor last.
        """
        is_text = isinstance(input, str)
        ids = (
            self.to_tokens(input, prepend_bos, padding_side) if is_text else torch.as_tensor(input)
        )
        ids = ids[0] if ids.ndim == 2 and len(ids) == 1 else ids  # noqa: PLR2004
        is_str = isinstance(single_token, str)
        token = self.to_single_token(single_token) if is_str else int(single_token)  # pyright: ignore[reportArgumentType]
        positions = (ids == token).nonzero().flatten().tolist()
        if ids.ndim != 1 or not positions or mode not in ("first", "last"):
            raise InvalidInput(
                f"The token {shorten(single_token)} was searched in one row with mode={mode!r}: "
                f"it occurs at {positions}, and mode must be first or last."
            )
        return positions[0 if mode == "first" else -1]

    def tokens_to_residual_directions(self, tokens: Any) -> Tensor:
        """The columns of W_U for tokens: ``[d_model]`` for one, ``[... d_model]`` for several."""
        W_U: Tensor = self.W_U  # pyright: ignore[reportAssignmentType]
        if isinstance(tokens, Tensor | np.ndarray) and torch.as_tensor(tokens).numel() > 1:
            return rearrange(W_U[:, torch.as_tensor(tokens)], "d_model ... -> ... d_model")
        token = self.to_single_token(tokens) if isinstance(tokens, str) else int(tokens)
        return W_U[:, token]

    def _tokenizer(self) -> Any:
        if self.tokenizer is None:
            raise InvalidTokens("This model has no tokenizer; pass token ids, or set_tokenizer.")
        return self.tokenizer
