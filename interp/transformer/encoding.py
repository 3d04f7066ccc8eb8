"""Converts texts to token ids: BOS, EOS, the start token of a decoder, padding.

The same rule applies wherever a text is accepted; see :meth:`interp.Transformer.to_tokens`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from interp.config import TokensConfig
from interp.errors import InvalidInput, InvalidTokens, shorten
from interp.model import PAD
from interp.text import Tokenizer

SIDES = ("left", "right")


@dataclass(frozen=True)
class TextEncoding:
    """The conversion of texts to a model's token ids.

    Attributes:
        tokenizer: the tokenizer, which adds no special tokens.
        tokens: the special tokens of the model, and which of them are added.
        prepend_bos: overrides ``tokens.prepend_bos``.
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
        """The ids of a text for the decoder of an encoder–decoder."""
        ids, start = self._with_bos(text), self.tokens.decoder_start
        return ids if start is None or ids[0] == start else [start, *ids]

    def _with_bos(self, text: str) -> list[int]:
        ids = self.tokenizer.encode(text)
        bos = self.tokens.bos
        rule = self.tokens.prepend_bos if self.prepend_bos is None else self.prepend_bos
        if rule and bos is None:
            raise InvalidInput("prepend_bos=True, but this model has no BOS token.")
        if not ids:
            bos_alone = "" if bos is None else f" [[{bos}]] is BOS alone."
            raise InvalidTokens(f"The prompt {shorten(text)} is empty: it has no token.{bos_alone}")
        return [bos, *ids] if rule and bos is not None and ids[0] != bos else ids


def texts_of(texts: object) -> list[str]:
    """One or several texts as a list.

    Raises:
        InvalidTokens: an element is not a text, or there are no texts.
    """
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        return [as_text(texts)]
    several = [as_text(text, f" in {shorten(texts)}") for text in texts]
    if not several:
        raise InvalidTokens("No text was given, so there is nothing to run the model on.")
    return several


def as_text(text: object, where: str = "") -> str:
    """``text``, if it is one.

    Raises:
        InvalidTokens: it is not a text.
    """
    if not isinstance(text, str):
        raise InvalidTokens(f"A text was expected; got {shorten(text)}{where}.")
    return text


def padded(
    rows: Sequence[Sequence[int]], side: str, device: torch.device
) -> Int[Tensor, "batch pos"]:
    """Rows padded with ``PAD`` on one side to the length of the longest.

    Raises:
        InvalidInput: ``side`` is neither left nor right.
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
