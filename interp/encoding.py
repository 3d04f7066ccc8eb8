"""From texts to token ids: BOS, EOS, the start token of a decoder, padding.

One rule holds wherever a text is accepted; see :meth:`interp.Transformer.to_tokens`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from interp.config import TokensConfig
from interp.errors import InvalidInput, InvalidTokens, shorten
from interp.model.batch import PAD
from interp.text.tokenizer import Tokenizer

SIDES = ("left", "right")


@dataclass(frozen=True)
class TextEncoding:
    """How a model's texts become token ids.

    Attributes:
        tokenizer: it adds no special token.
        tokens: the special tokens of the model, and which of them are added.
        prepend_bos: overrides that of ``tokens``.
    """

    tokenizer: Tokenizer
    tokens: TokensConfig
    prepend_bos: bool | None = None

    def prompt(self, text: str) -> list[int]:
        """The ids of a text for the first stack."""
        ids, eos = self._with_bos(text), self.tokens.eos if self.tokens.append_eos else None
        ends = [] if eos is None else [eos, *self.tokens.after_eos]
        counts = range(len(ends), -1, -1)
        present = next(n for n in counts if ids[len(ids) - n :] == ends[:n])
        return [*ids, *ends[present:]]

    def target(self, text: str) -> list[int]:
        """The ids of a text for the decoder of a pair."""
        ids, start = self._with_bos(text), self.tokens.decoder_start
        return ids if start is None or ids[0] == start else [start, *ids]

    def _with_bos(self, text: str) -> list[int]:
        ids = self.tokenizer.encode(text)
        bos = self.tokens.bos
        rule = self.tokens.prepend_bos if self.prepend_bos is None else self.prepend_bos
        if rule and bos is None:
            raise InvalidInput("prepend_bos=True, but this model has no BOS token.")
        if not ids:
            raise InvalidTokens(f"The prompt {shorten(text)} is empty: it has no token.")
        return [bos, *ids] if rule and bos is not None and ids[0] != bos else ids


def texts_of(texts: object) -> list[str]:
    """One text, or several, as a list.

    Raises:
        InvalidTokens: something among them is no text, or there is none.
    """
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        return [as_text(texts)]
    found = [as_text(text, f" in {shorten(texts)}") for text in texts]
    if not found:
        raise InvalidTokens("No text was given, so there is nothing to run the model on.")
    return found


def as_text(text: object, where: str = "") -> str:
    """The text itself.

    Raises:
        InvalidTokens: it is something else.
    """
    if not isinstance(text, str):
        raise InvalidTokens(f"A text was expected; got {shorten(text)}{where}.")
    return text


def padded(
    rows: Sequence[Sequence[int]], side: str, device: torch.device
) -> Int[Tensor, "batch pos"]:
    """Rows of one length: the shorter ones are filled up with ``PAD`` on a side.

    Raises:
        InvalidInput: there is no such side.
    """
    if side not in SIDES:
        raise InvalidInput(f"padding_side={shorten(side)} is neither left nor right.")
    width = max(len(row) for row in rows)
    fills = [[PAD] * (width - len(row)) for row in rows]
    whole = [
        [*row, *fill] if side == "right" else [*fill, *row]
        for row, fill in zip(rows, fills, strict=True)
    ]
    return torch.tensor(whole, device=device)
