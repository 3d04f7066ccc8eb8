"""Continuing texts as TransformerLens does: sampling by default, hooks in every step."""

from typing import Any

import torch
from torch import Tensor

from interp.compat.stacked_weights import StackedWeights
from interp.errors import InvalidInput, shorten


class Generation(StackedWeights):
    """The call that generates."""

    def generate(
        self,
        input: Any = "",
        max_new_tokens: int = 10,
        stop_at_eos: bool = True,
        eos_token_id: int | list[int] | None = None,
        do_sample: bool = True,
        top_k: int | None = None,
        top_p: float | None = None,
        temperature: float = 1.0,
        freq_penalty: float = 0.0,
        use_past_kv_cache: bool = True,  # noqa: ARG002 - the tokens are the same
        prepend_bos: bool | None = None,
        padding_side: str | None = None,
        return_type: str | None = "input",
        verbose: bool = True,  # noqa: ARG002 - nothing is printed
    ) -> Any:
        """Continue a text, texts or ids.

        Every step is a forward over all tokens so far, in which the hooks of the model run.

        Args:
            input: a text, texts, or ids ``[batch pos]``.
            max_new_tokens: number of tokens.
            stop_at_eos: whether a row ends at EOS; what follows in it is EOS again.
            eos_token_id: which tokens end a row; by default the tokenizer's EOS.
            do_sample: sample, or else take the most probable token.
            top_k: sample from the k most probable tokens.
            top_p: sample from the most probable tokens that together have this probability.
            temperature: divides the logits.
            freq_penalty: subtracted from a token's logit for each time it occurred.
            use_past_kv_cache: accepted; it does not change the tokens.
            prepend_bos: for texts.
            padding_side: for texts; left by default.
            return_type: ``input`` (text for text, ids for ids), ``str`` or ``tokens``.
            verbose: accepted.

        Raises:
            InvalidInput: ``stop_at_eos`` without a tokenizer, or an unknown ``return_type``.
        """
        is_text = isinstance(input, str | list)
        kind = {"input": "str" if is_text else "tokens", "tensor": "tokens"}.get(
            str(return_type), return_type
        )
        if kind not in ("str", "tokens"):
            raise InvalidInput(f"return_type={shorten(return_type)} must be input, str or tokens.")
        ends = self._ends(eos_token_id) if stop_at_eos else []
        side = "left" if padding_side is None else padding_side
        with torch.no_grad(), self._overriding(prepend_bos, side):
            tokens = self.to_tokens(input) if is_text else torch.as_tensor(input)
            tokens = (tokens[None] if tokens.ndim == 1 else tokens).to(self.cfg.device)
            ended = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
            for _ in range(max_new_tokens):
                logits = self(tokens[:, -self.cfg.n_ctx :])[:, -1]
                if do_sample:
                    new = _sampled(logits, tokens, top_k, top_p, temperature, freq_penalty)
                else:
                    new = logits.argmax(-1)
                if ends:
                    new = new.where(~ended, ends[0])
                    ended = ended | torch.isin(new, torch.tensor(ends, device=new.device))
                tokens = torch.cat([tokens, new[:, None]], dim=-1)
                if ends and bool(ended.all()):
                    break
        if kind == "tokens":
            return tokens
        texts = [self._tokenizer().decode(row, skip_special_tokens=True) for row in tokens]
        return texts[0] if len(texts) == 1 else texts

    def _ends(self, given: int | list[int] | None) -> list[int]:
        """The ids that end a row: none, if the tokenizer has no EOS.

        Raises:
            InvalidInput: there is no tokenizer to know them.
        """
        if given is None and self.tokenizer is None:
            raise InvalidInput("Without a tokenizer, give eos_token_id= or stop_at_eos=False.")
        if given is None:
            given = getattr(self.tokenizer, "eos_token_id", None)
        if given is None:
            return []
        return [given] if isinstance(given, int) else list(given)


def _sampled(
    logits: Tensor,
    tokens: Tensor,
    top_k: int | None,
    top_p: float | None,
    temperature: float,
    freq_penalty: float,
) -> Tensor:
    """A token of each row."""
    if temperature == 0.0:
        return logits.argmax(-1)
    logits = logits / temperature
    if freq_penalty > 0:
        counts = torch.zeros_like(logits).scatter_add(
            -1, tokens, torch.ones_like(tokens, dtype=logits.dtype)
        )
        logits = logits - freq_penalty * counts
    if top_k is not None:
        least = logits.topk(top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    elif top_p is not None:
        logits = _nucleus(logits, top_p)
    return torch.multinomial(logits.softmax(-1), 1)[:, 0]


def _nucleus(logits: Tensor, top_p: float) -> Tensor:
    """Only the most probable tokens that together have probability ``top_p``; at least one."""
    ordered, order = logits.sort(descending=True, dim=-1)
    beyond = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1) > top_p
    return logits.masked_fill(beyond.gather(-1, order.argsort(-1)), -torch.inf)
