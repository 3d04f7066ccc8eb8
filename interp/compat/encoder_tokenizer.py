"""The tokenizer of a loaded encoder, with the interface of ``transformers``."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from interp.compat.errors import InvalidInput
from interp.compat.tokenizer import HookedTokenizer
from interp.config import TokensConfig
from interp.errors import shorten
from interp.text import Tokenizer

PADDING = ("[PAD]", "<pad>")
"""The padding tokens of BERT and T5."""


class EncoderTokenizer(HookedTokenizer):
    """A tokenizer that adds the model's special tokens to a text or a pair of texts.

    Attributes:
        mask_token_id: the id of the mask token; ``None`` if there is none.
    """

    def __init__(self, tokenizer: Tokenizer, tokens: TokensConfig, name: str = "") -> None:
        super().__init__(tokenizer, tokens, name)
        self.bos, self.eos = (
            tokens.bos if tokens.prepend_bos else None,
            tokens.eos if tokens.append_eos else None,
        )
        self.mask_token_id = tokens.mask
        padding_ids = [self.vocab[token] for token in PADDING if token in self.vocab]
        self.pad_token_id = padding_ids[0] if padding_ids else self.pad_token_id

    @property
    def mask_token(self) -> str | None:
        """The text of the mask token."""
        return None if self.mask_token_id is None else self.backend.token_text(self.mask_token_id)

    def encode(self, text: str, **keywords: object) -> list[int]:  # noqa: ARG002
        """The ids of a text, with special tokens."""
        return self._join([self.backend.encode(text)], None)[0]

    def __call__(  # pyright: ignore[reportIncompatibleMethodOverride] - with pairs
        self,
        text: str | Sequence[str],
        text_pair: str | None = None,
        *,
        return_tensors: str | None = None,
        padding: object = False,
        truncation: object = False,
        max_length: int | None = None,
        **keywords: object,  # noqa: ARG002
    ) -> dict[str, Any]:
        """Ids, token types and attention mask of one or several texts, or of one pair.

        Raises:
            InvalidInput: tensors are requested for texts of different lengths without ``padding``.
        """
        longest = max_length if truncation else None
        texts = [text] if isinstance(text, str) else list(text)
        pairs = [[first] if text_pair is None else [first, text_pair] for first in texts]
        rows = [self._join([self.backend.encode(part) for part in pair], longest) for pair in pairs]
        width = max((len(ids) for ids, _ in rows), default=0)
        is_ragged = any(len(ids) != width for ids, _ in rows)
        encoding = {
            "input_ids": [ids for ids, _ in rows],
            "token_type_ids": [types for _, types in rows],
            "attention_mask": [[1] * len(ids) for ids, _ in rows],
        }
        if padding:
            fills = {"input_ids": self.pad_token_id, "token_type_ids": 0, "attention_mask": 0}
            encoding = {
                name: [self.padded(row, width, fills[name]) for row in values]
                for name, values in encoding.items()
            }
        if return_tensors is None:
            single = isinstance(text, str)
            return {name: values[0] if single else values for name, values in encoding.items()}
        if is_ragged and not padding:
            raise InvalidInput(
                f"Texts of different lengths need padding=True; got {shorten(texts)}."
            )
        return {name: _tensor(values) for name, values in encoding.items()}

    def _join(self, parts: list[list[int]], longest: int | None) -> tuple[list[int], list[int]]:
        """The ids and types of one row: BOS, then each part followed by EOS.

        A row with more than ``longest`` ids is truncated at the end of its longest part, token by
        token.
        """
        before = [] if self.bos is None else [self.bos]
        after = [] if self.eos is None else [self.eos]
        room = None if longest is None else longest - len(before) - len(parts) * len(after)
        while room is not None and sum(map(len, parts)) > max(room, 0):
            # Of parts of equal length, the last one is truncated.
            max(reversed(parts), key=len).pop()
        ids, types = list(before), [0] * len(before)
        for number, part in enumerate(parts):
            ids += [*part, *after]
            types += [number] * (len(part) + len(after))
        return ids, types


def _tensor(rows: list[list[int]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.long).reshape(len(rows), -1)
