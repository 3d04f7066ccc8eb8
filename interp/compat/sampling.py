"""The steps of ``generate``: how tokens are drawn, when a row ends, and what is returned."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from interp.compat.errors import InvalidInput, InvalidTokens
from interp.compat.utils.language_model import sample_logits
from interp.errors import shorten


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn from logits ``[batch vocab]``.

    Attributes:
        do_sample: whether to sample, or to select the most probable token.
        top_k: sample from the k most probable tokens.
        top_p: sample from the most probable tokens whose probabilities sum to ``top_p``.
        temperature: divides the logits.
        freq_penalty: subtracted from a token's logit for each time it occurred.
    """

    do_sample: bool = True
    top_k: int | None = None
    top_p: float | None = None
    temperature: float = 1.0
    freq_penalty: float = 0.0

    def draw(self, logits: Tensor, tokens: Tensor) -> Tensor:
        """The next token of each row, after the tokens ``[batch pos]``."""
        if not self.do_sample:
            return logits.argmax(-1)
        return sample_logits(
            logits,
            top_k=self.top_k,
            top_p=self.top_p,
            temperature=self.temperature,
            freq_penalty=self.freq_penalty,
            tokens=tokens,
        )


@dataclass(frozen=True)
class Ends:
    """The tokens that end a row, and the token that fills it afterwards.

    Attributes:
        tokens: ids of the tokens that end a row; if empty, rows do not end.
        filler: the id that fills a row after its end.
    """

    tokens: tuple[int, ...] = ()
    filler: int = 0

    @classmethod
    def of(cls, stops: Any, tokenizer: Any) -> "Ends":
        """From ``eos_token_id=``, one id or several; by default the tokenizer's EOS, if any.

        Raises:
            InvalidInput: there are neither ids nor a tokenizer.
        """
        if stops is None and tokenizer is None:
            raise InvalidInput("Without a tokenizer, pass eos_token_id= or stop_at_eos=False.")
        eos = getattr(tokenizer, "eos_token_id", None)
        stops = eos if stops is None else stops
        if stops is None:
            return cls()
        ids = (stops,) if isinstance(stops, int) else tuple(stops)
        several = not isinstance(stops, int)
        return cls(ids, int(eos) if several and eos is not None else int(ids[0]))

    def apply(self, new: Tensor, ended: Tensor) -> tuple[Tensor, Tensor]:
        """The token of each row, and which rows have ended, given which had ended before."""
        if not self.tokens:
            return new, ended
        new = new.where(~ended, self.filler)
        return new, ended | torch.isin(new, torch.tensor(self.tokens, device=new.device))


def generation_steps(
    next_logits: Callable[[Tensor], Tensor],
    tokens: Tensor,
    max_new_tokens: int,
    sampling: Sampling,
    ends: Ends,
) -> Iterator[tuple[Tensor, Tensor]]:
    """The new token ``[batch 1]`` of each row and its logits ``[batch vocab]``, step by step.

    Args:
        next_logits: a function from all tokens so far ``[batch pos]`` to the logits of the next.
        tokens: the first tokens.
        max_new_tokens: number of steps, unless all rows end before.
        sampling: how tokens are drawn.
        ends: the tokens that end a row.
    """
    ended = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    for _ in range(max_new_tokens):
        with torch.no_grad():
            logits = next_logits(tokens)
        new, ended = ends.apply(sampling.draw(logits, tokens), ended)
        yield new[:, None], logits
        if ends.tokens and bool(ended.all()):
            return
        tokens = torch.cat([tokens, new[:, None]], dim=-1)


def resolve_return_type(return_type: str | None, kind_of_input: str) -> str:
    """``str``, ``tokens`` or ``embeds``, for any ``return_type=`` of ``generate``.

    Raises:
        InvalidInput: ``return_type`` is unknown.
    """
    kinds = {"input": kind_of_input, "tensor": "tokens"}
    kind = kinds.get(str(return_type), return_type)
    if kind not in ("str", "tokens", "embeds"):
        raise InvalidInput(
            f"return_type={shorten(return_type)} must be input, str, tokens or embeds."
        )
    return str(kind)


def decode_rows(tokenizer: Any, tokens: Tensor) -> str | list[str]:
    """The text of each row without special tokens; a single text for a single row.

    Raises:
        InvalidTokens: there is no tokenizer.
    """
    if tokenizer is None:
        raise InvalidTokens('This model has no tokenizer; use return_type="tokens".')
    texts = [tokenizer.decode(row, skip_special_tokens=True) for row in tokens]
    return texts[0] if len(texts) == 1 else texts
