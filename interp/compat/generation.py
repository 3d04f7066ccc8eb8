"""Continuing texts as TransformerLens does: sampling by default, hooks in every step."""

import warnings
from collections.abc import Generator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from interp.compat.key_value_cache import TransformerLensKeyValueCache
from interp.compat.sampling import Ends, Sampling
from interp.compat.stacked_weights import StackedWeights
from interp.compat.utils.tokenizers import get_attention_mask
from interp.errors import InvalidInput, shorten


class GeneratedTokens(NamedTuple):
    """What ``generate(output_logits=True)`` gives.

    Attributes:
        sequences: ids ``[batch pos]``, the prompt included.
        logits: of each step, ``[batch vocab]``.
    """

    sequences: Tensor
    logits: tuple[Tensor, ...]


class _Prompt(NamedTuple):
    tokens: Tensor
    mask: Tensor
    is_text: bool


class Generation(StackedWeights):
    """The calls that generate."""

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
        use_past_kv_cache: bool = True,
        prepend_bos: bool | None = None,
        padding_side: str | None = None,
        return_type: str | None = "input",
        verbose: bool = True,  # noqa: ARG002 - nothing is printed
        **generation_kwargs: Any,
    ) -> Any:
        """Continue a text, texts or ids.

        With the KV cache each step after the first is a forward over the new token alone, in which
        the hooks of the model run; without it, over all tokens so far. The hooks of ``hook_embed``
        and ``hook_pos_embed`` run over the tokens of that forward (TransformerLens never calls the
        first in ``generate``, and the second over all positions).

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
            use_past_kv_cache: whether keys and values of earlier tokens are kept.
            prepend_bos: for texts.
            padding_side: of a single text, or of ids; several texts are padded on the left.
            return_type: ``input`` (text for text, ids for ids), ``str`` or ``tokens``.
            verbose: accepted.
            **generation_kwargs: ``output_logits=True`` returns :class:`GeneratedTokens`; others
                are ignored with a warning.

        Raises:
            InvalidInput: ``stop_at_eos`` without a tokenizer, or an unknown ``return_type``.
            InvalidTokens: more positions than ``cfg.n_ctx``.
        """
        wants_logits = bool(generation_kwargs.pop("output_logits", False))
        _warn_of(generation_kwargs)
        prompt = self._prompt(input, prepend_bos, padding_side)
        kind = _return_type(return_type, is_text=prompt.is_text)
        ends = Ends.of(eos_token_id, self.tokenizer) if stop_at_eos else Ends()
        sampling = Sampling(do_sample, top_k, top_p, temperature, freq_penalty)
        tokens, logits = prompt.tokens, []
        steps = self._steps(prompt, max_new_tokens, ends, sampling, use_past_kv_cache)
        for new, by in steps:
            tokens, logits = torch.cat([tokens, new], dim=-1), [*logits, by]
        if wants_logits:
            return GeneratedTokens(tokens, tuple(logits))
        if kind == "tokens":
            return tokens
        texts = [self._tokenizer().decode(row, skip_special_tokens=True) for row in tokens]
        return texts[0] if len(texts) == 1 else texts

    def generate_stream(
        self,
        input: Any = "",
        max_new_tokens: int = 10,
        max_tokens_per_yield: int = 25,
        stop_at_eos: bool = True,
        eos_token_id: int | list[int] | None = None,
        do_sample: bool = True,
        top_k: int | None = None,
        top_p: float | None = None,
        temperature: float = 1.0,
        freq_penalty: float = 0.0,
        use_past_kv_cache: bool = True,
        prepend_bos: bool | None = None,
        padding_side: str | None = None,
        return_type: str | None = "input",  # noqa: ARG002 - ids, as in TransformerLens
        verbose: bool = True,  # noqa: ARG002 - nothing is printed
    ) -> Generator[Tensor]:
        """Continue a text or ids, and yield ids ``[batch pos]`` as they come.

        The first ids are those of the prompt with the first new ones; together they are what
        :meth:`generate` returns, whose arguments the others are. ``max_tokens_per_yield`` is how
        many ids of a row are collected before they are yielded, those of the prompt included.
        """
        prompt = self._prompt(input, prepend_bos, padding_side)
        ends = Ends.of(eos_token_id, self.tokenizer) if stop_at_eos else Ends()
        sampling = Sampling(do_sample, top_k, top_p, temperature, freq_penalty)
        waiting = [prompt.tokens]
        for new, _ in self._steps(prompt, max_new_tokens, ends, sampling, use_past_kv_cache):
            waiting.append(new)
            if sum(ids.shape[1] for ids in waiting) >= max_tokens_per_yield:
                yield torch.cat(waiting, dim=-1)
                waiting = []
        if waiting:
            yield torch.cat(waiting, dim=-1)

    def _prompt(self, given: Any, prepend_bos: bool | None, padding_side: str | None) -> _Prompt:
        """Ids of the prompt, and which of them are real."""
        is_text, several = isinstance(given, str | list), isinstance(given, list) and len(given) > 1
        with self._overriding(prepend_bos, "left" if several else padding_side):
            tokens = self.to_tokens(given) if is_text else torch.as_tensor(given)
            if tokens.is_floating_point():
                raise InvalidInput(
                    f"generate takes texts or ids [batch pos]; got {shorten(tokens)}. Embeddings "
                    "enter a model by start_at_layer=0."
                )
            tokens = (tokens[None] if tokens.ndim == 1 else tokens).to(self.cfg.device)
            bos = self.cfg.default_prepend_bos
            mask = get_attention_mask(self.tokenizer, tokens, prepend_bos=bos)
        # A row of nothing but the id of padding is a prompt of that token (BOS, often).
        return _Prompt(tokens, mask.where(mask.any(-1, keepdim=True), 1), is_text)

    def _steps(
        self,
        prompt: _Prompt,
        max_new_tokens: int,
        ends: Ends,
        sampling: Sampling,
        use_past_kv_cache: bool,
    ) -> Generator[tuple[Tensor, Tensor]]:
        """The new token ``[batch 1]`` of each row and its logits ``[batch vocab]``, by step."""
        tokens, mask, cache = prompt.tokens, prompt.mask, None
        if use_past_kv_cache:
            cache = TransformerLensKeyValueCache.init_cache(self.cfg, tokens.device, len(tokens))
        ended = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
        reads, real = tokens, mask
        for _ in range(max_new_tokens):
            with torch.no_grad():
                output = self(reads, attention_mask=real, past_kv_cache=cache)
            logits = output[:, -1]
            new, ended = ends.apply(sampling.draw(logits, tokens), ended)
            yield new[:, None], logits
            if ends.tokens and bool(ended.all()):
                return
            tokens = torch.cat([tokens, new[:, None]], dim=-1)
            one = torch.ones_like(new)[:, None]
            reads, real = new[:, None], one
            if cache is None:
                mask = torch.cat([mask, one], dim=-1)
                reads, real = tokens, mask


def _return_type(given: str | None, *, is_text: bool) -> str:
    kinds = {"input": "str" if is_text else "tokens", "tensor": "tokens"}
    kind = kinds.get(str(given), given)
    if kind not in ("str", "tokens"):
        raise InvalidInput(f"return_type={shorten(given)} must be input, str or tokens.")
    return str(kind)


def _warn_of(keywords: dict[str, Any]) -> None:
    """Warn of keywords of other libraries, which change nothing."""
    ignored = sorted(set(keywords) - {"return_dict_in_generate"})
    if ignored:
        warnings.warn(f"generate ignores {', '.join(ignored)}.", stacklevel=3)
