"""A tokenizer of this package with the interface of a tokenizer of ``transformers``.

Bundled models have an :class:`interp.Tokenizer`; notebooks call ``model.tokenizer.decode(...)``,
``.bos_token_id`` and so on. A tokenizer of ``transformers`` passed by the user is used unchanged.
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch

from interp.compat.errors import InvalidInput
from interp.config import TokensConfig
from interp.errors import NoSuchAttribute, shorten
from interp.text import Tokenizer


class Encoding(dict[str, Any]):
    """The output of a tokenizer: ``input_ids`` and ``attention_mask``, as keys or attributes."""

    def __getattr__(self, name: str) -> Any:
        """The value of a key.

        Raises:
            NoSuchAttribute: there is no such key.
        """
        if name not in self:
            raise NoSuchAttribute(f"An encoding has {', '.join(self)}; got {name!r}.")
        return self[name]


class HookedTokenizer:
    """The tokenizer of a bundled model.

    Attributes:
        padding_side: the side on which shorter texts of a batch are padded.
        eos_token_id: the id of EOS; ``None`` if there is none.
        bos_token_id: the id of BOS; that of EOS if there is no BOS.
        pad_token_id: the id of EOS, or else of BOS, or else 0.
    """

    def __init__(self, tokenizer: Tokenizer, tokens: TokensConfig, name: str = "") -> None:
        self.backend, self.name_or_path = tokenizer, name
        self.padding_side: Literal["left", "right"] = "right"
        eos = tokens.eos if tokenizer.eos is None else tokenizer.eos
        bos = tokens.bos if tokenizer.bos is None else tokenizer.bos
        self.eos_token_id = eos
        self.bos_token_id = eos if bos is None else bos
        self.pad_token_id = next((i for i in (eos, bos) if i is not None), 0)

    @property
    def bos_token(self) -> str | None:
        """The text of BOS."""
        return None if self.bos_token_id is None else self.backend.token_text(self.bos_token_id)

    @property
    def eos_token(self) -> str | None:
        """The text of EOS."""
        return None if self.eos_token_id is None else self.backend.token_text(self.eos_token_id)

    @property
    def pad_token(self) -> str:
        """The text of the padding token."""
        return self.backend.token_text(self.pad_token_id)

    @property
    def vocab(self) -> dict[str, int]:
        """Tokens and their ids."""
        return self.backend.backend.get_vocab()

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        return self.backend.vocab_size

    def get_vocab(self) -> dict[str, int]:
        """Tokens and their ids."""
        return self.vocab

    def __len__(self) -> int:
        """Number of ids."""
        return self.vocab_size

    @property
    def all_special_ids(self) -> list[int]:
        """BOS, EOS and padding."""
        special = (self.bos_token_id, self.eos_token_id, self.pad_token_id)
        return list(dict.fromkeys(i for i in special if i is not None))

    def encode(self, text: str, *, return_tensors: str | None = None, **_: object) -> Any:
        """The ids of a text without special tokens; with ``return_tensors``, ``[1 pos]``."""
        ids = self.backend.encode(text)
        return ids if return_tensors is None else torch.tensor([ids], dtype=torch.long)

    def tokenize(self, text: str, **_: object) -> list[str]:
        """The tokens of a text, as spelled in the vocabulary."""
        return self.convert_ids_to_tokens(self.encode(text))

    def convert_ids_to_tokens(self, ids: Any) -> Any:
        """The tokens of one id or several, as spelled in the vocabulary."""
        flat = torch.as_tensor(ids)
        tokens = [self.backend.backend.id_to_token(i) for i in flat.flatten().tolist()]
        return tokens if flat.ndim else tokens[0]

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> Any:
        """The ids of one token or several, as spelled in the vocabulary.

        Raises:
            InvalidInput: the vocabulary has no such token.
        """
        vocab = self.vocab
        several = [tokens] if isinstance(tokens, str) else list(tokens)
        missing = [token for token in several if token not in vocab]
        if missing:
            raise InvalidInput(f"The vocabulary has no token {shorten(missing[0])}.")
        ids = [vocab[token] for token in several]
        return ids[0] if isinstance(tokens, str) else ids

    def decode(self, ids: Any, *, skip_special_tokens: bool = False, **_: object) -> str:
        """The text of one id or several, optionally without BOS, EOS and padding."""
        skipped = self.all_special_ids if skip_special_tokens else ()
        flat = [i for i in torch.as_tensor(ids).flatten().tolist() if i not in skipped]
        return self.backend.decode(flat)

    def batch_decode(self, rows: Any, **keywords: object) -> list[str]:
        """The text of each row."""
        return [self.decode(row, **keywords) for row in rows]  # pyright: ignore[reportArgumentType]

    def __call__(
        self,
        text: str | Sequence[str],
        *,
        return_tensors: str | None = None,
        padding: object = False,
        truncation: object = False,
        max_length: int | None = None,
        **keywords: object,  # noqa: ARG002
    ) -> Encoding:
        """The ids and attention mask of one or several texts, as in ``transformers``.

        Raises:
            InvalidInput: tensors are requested for texts of different lengths without ``padding``.
        """
        texts = [text] if isinstance(text, str) else list(text)
        rows = [self.encode(each) for each in texts]
        if truncation and max_length is not None:
            rows = [row[:max_length] for row in rows]
        longest = max(map(len, rows), default=0)
        real = [[1] * len(row) for row in rows]
        if padding:
            rows = [self.padded(row, longest, self.pad_token_id) for row in rows]
            real = [self.padded(row, longest, 0) for row in real]
        if return_tensors is None:
            is_single = isinstance(text, str)
            return Encoding(
                input_ids=rows[0] if is_single else rows,
                attention_mask=real[0] if is_single else real,
            )
        if any(len(row) != len(rows[0]) for row in rows):
            raise InvalidInput(
                f"Texts of different lengths need padding=True; got {shorten(texts)}."
            )
        ids, mask = (
            torch.tensor(values, dtype=torch.long).reshape(len(values), -1)
            for values in (rows, real)
        )
        return Encoding(input_ids=ids, attention_mask=mask)

    def padded(self, row: list[int], length: int, fill: int) -> list[int]:
        """A row filled to a length, on the padding side."""
        pad = [fill] * (length - len(row))
        return pad + row if self.padding_side == "left" else row + pad


def add_special_tokens(tokenizer: Any) -> None:
    """Add the EOS, padding and BOS tokens that a tokenizer of ``transformers`` lacks."""
    if tokenizer.eos_token is None:
        tokenizer.eos_token = "<|endoftext|>"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.bos_token is None:
        tokenizer.bos_token = tokenizer.eos_token


def load_tokenizer(name: str) -> Any:
    """The tokenizer of ``transformers`` for a folder or a repository of the hub.

    Raises:
        InvalidInput: ``transformers`` is not installed, or can't load the tokenizer.
    """
    instead = "pass tokenizer=, or leave cfg.tokenizer_name out"
    try:
        from transformers import AutoTokenizer  # noqa: PLC0415 - an optional library
    except ImportError as error:
        raise InvalidInput(f"tokenizer_name={name!r} needs transformers; or {instead}.") from error
    try:
        return AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"tokenizer_name={name!r} can't be loaded: {shorten(error)}; {instead}."
        ) from error
