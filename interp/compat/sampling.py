"""Which token follows, and when a row ends: the settings of ``generate`` in TransformerLens."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from interp.compat.utils.language_model import sample_logits
from interp.errors import InvalidInput


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn from logits ``[batch vocab]``.

    Attributes:
        do_sample: sample, or else take the most probable token.
        top_k: sample from the k most probable tokens.
        top_p: sample from the most probable tokens that together have this probability.
        temperature: divides the logits.
        freq_penalty: subtracted from a token's logit for each time it occurred.
    """

    do_sample: bool = True
    top_k: int | None = None
    top_p: float | None = None
    temperature: float = 1.0
    freq_penalty: float = 0.0

    def draw(self, logits: Tensor, tokens: Tensor) -> Tensor:
        """A token of each row, after the tokens ``[batch pos]``."""
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
    """The tokens that end a row, and the token that follows in it.

    Attributes:
        tokens: their ids; rows have no end if there are none.
        filler: the id of what follows.
    """

    tokens: tuple[int, ...] = ()
    filler: int = 0

    @classmethod
    def of(cls, given: Any, tokenizer: Any) -> "Ends":
        """Of ``eos_token_id=``, an id or several, by default the tokenizer's EOS, if it has one.

        Raises:
            InvalidInput: neither ids nor a tokenizer are there.
        """
        if given is None and tokenizer is None:
            raise InvalidInput("Without a tokenizer, give eos_token_id= or stop_at_eos=False.")
        eos = getattr(tokenizer, "eos_token_id", None)
        given = eos if given is None else given
        if given is None:
            return cls()
        ids = (given,) if isinstance(given, int) else tuple(given)
        several = not isinstance(given, int)
        return cls(ids, int(eos) if several and eos is not None else int(ids[0]))

    def apply(self, new: Tensor, ended: Tensor) -> tuple[Tensor, Tensor]:
        """The tokens of each row and which rows have ended, given which ended before."""
        if not self.tokens:
            return new, ended
        new = new.where(~ended, self.filler)
        return new, ended | torch.isin(new, torch.tensor(self.tokens, device=new.device))
