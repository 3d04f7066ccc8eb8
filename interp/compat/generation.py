"""Text generation as in TransformerLens: sampling by default, hooks in every step."""

import warnings
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from interp.compat.errors import InvalidInput
from interp.compat.key_value_cache import TransformerLensKeyValueCache
from interp.compat.sampling import (
    Ends,
    Sampling,
    decode_rows,
    generation_steps,
    resolve_return_type,
)
from interp.compat.stacked_weights import StackedWeights
from interp.compat.utils.tokenizers import get_attention_mask
from interp.errors import shorten


class GeneratedTokens(NamedTuple):
    """The output of ``generate(output_logits=True)``.

    Attributes:
        sequences: ids ``[batch pos]``, including the prompt.
        logits: the logits of each step, ``[batch vocab]``.
    """

    sequences: Tensor
    logits: tuple[Tensor, ...]


class _Prompt(NamedTuple):
    """The ids of a prompt and which are real; for embeddings, those and no ids."""

    tokens: Tensor
    mask: Tensor
    kind: str
    embeds: Tensor | None = None


class Generation(StackedWeights):
    """The methods that generate."""

    get_residual: Callable[..., Any]
    """The stream before the first block, given embeddings."""

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

        With the KV cache, each step after the first is a forward over only the new token, in which
        the hooks of the model run; without it, over all tokens so far. The hooks of ``hook_embed``
        and ``hook_pos_embed`` run over the tokens of that forward (TransformerLens never calls the
        first in ``generate``, and calls the second over all positions).

        Args:
            input: a text, texts, ids ``[batch pos]``, or the embeddings of tokens without their
                positions ``[batch pos d_model]``.
            max_new_tokens: maximum number of new tokens.
            stop_at_eos: whether a row ends at EOS; it is then filled with EOS.
            eos_token_id: ids of the tokens that end a row; by default the tokenizer's EOS.
            do_sample: whether to sample, or to select the most probable token.
            top_k: sample from the k most probable tokens.
            top_p: sample from the most probable tokens whose probabilities sum to ``top_p``.
            temperature: divides the logits.
            freq_penalty: subtracted from a token's logit for each time it occurred; ignored with
                embeddings.
            use_past_kv_cache: whether to cache keys and values of earlier tokens.
            prepend_bos: overrides ``cfg.default_prepend_bos``, for texts.
            padding_side: the padding side of a single text or of ids; several texts are padded on
                the left.
            return_type: ``input`` (text for text, ids for ids, embeddings for embeddings),
                ``str``, ``tokens`` or ``embeds``. Texts and ids include the prompt unless it was
                embeddings; embeddings always include it.
            verbose: ignored.
            **generation_kwargs: ``output_logits=True`` returns :class:`GeneratedTokens`; others
                are ignored with a warning.

        Raises:
            InvalidInput: ``stop_at_eos`` is set with neither ids nor a tokenizer, or
                ``return_type`` is unknown.
            InvalidTokens: there are more positions than ``cfg.n_ctx``.
        """
        wants_logits = bool(generation_kwargs.pop("output_logits", False))
        _warn_of_ignored(generation_kwargs)
        prompt = self._prompt(input, prepend_bos, padding_side)
        kind = resolve_return_type(return_type, prompt.kind)
        ends = Ends.of(eos_token_id, self.tokenizer) if stop_at_eos else Ends()
        sampling = Sampling(do_sample, top_k, top_p, temperature, freq_penalty)
        tokens, logits = prompt.tokens, []
        steps = self._steps(prompt, max_new_tokens, ends, sampling, use_past_kv_cache)
        for new, its_logits in steps:
            tokens, logits = torch.cat([tokens, new], dim=-1), [*logits, its_logits]
        if wants_logits:
            return GeneratedTokens(tokens, tuple(logits))
        if kind == "embeds":
            return self._embeds(prompt, tokens)
        return decode_rows(self.tokenizer, tokens) if kind == "str" else tokens

    def _embeds(self, prompt: _Prompt, tokens: Tensor) -> Tensor:
        """The embeddings of the prompt and of tokens, without positions."""
        embeds = self.get_submodule("embed")(tokens)
        return embeds if prompt.embeds is None else torch.cat([prompt.embeds, embeds], dim=1)

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
        """Continue a text or ids, and yield ids ``[batch pos]`` as they are generated.

        The first ids are those of the prompt and the first new ones; concatenated, all yielded ids
        are the result of :meth:`generate`. ``max_tokens_per_yield`` is the number of ids per row
        that are collected before they are yielded, including those of the prompt; the other
        arguments are those of :meth:`generate`.
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

    def _prompt(self, prompt: Any, prepend_bos: bool | None, padding_side: str | None) -> _Prompt:
        """The ids of the prompt, and the mask of those that are real."""
        is_text = isinstance(prompt, str | list)
        if not is_text and torch.as_tensor(prompt).ndim == 3:  # noqa: PLR2004 - batch pos d_model
            embeds = torch.as_tensor(prompt).to(self.cfg.device)
            ids = torch.zeros((len(embeds), 0), dtype=torch.long, device=embeds.device)
            return _Prompt(ids, ids, "embeds", embeds)
        several = isinstance(prompt, list) and len(prompt) > 1
        with self._overriding(prepend_bos, "left" if several else padding_side):
            tokens = self.to_tokens(prompt) if is_text else torch.as_tensor(prompt)
            if tokens.is_floating_point():
                raise InvalidInput(
                    "generate takes texts, ids [batch pos] or embeddings [batch pos d_model]; got "
                    f"{shorten(tokens)}."
                )
            tokens = (tokens[None] if tokens.ndim == 1 else tokens).to(self.cfg.device)
            bos = self.cfg.default_prepend_bos
            mask = get_attention_mask(self.tokenizer, tokens, prepend_bos=bos)
        # A row that has only the id of padding is a prompt of that token (often BOS).
        mask = mask.where(mask.any(-1, keepdim=True), 1)
        return _Prompt(tokens, mask, "str" if is_text else "tokens")

    def _steps(
        self,
        prompt: _Prompt,
        max_new_tokens: int,
        ends: Ends,
        sampling: Sampling,
        use_past_kv_cache: bool,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """The new token ``[batch 1]`` of each row and its logits ``[batch vocab]``, by step."""
        first, cache = prompt.tokens, None
        if use_past_kv_cache:
            cache = TransformerLensKeyValueCache.init_cache(self.cfg, first.device, len(first))

        def after_embeds(tokens: Tensor) -> Tensor:
            start = 0 if cache is None else cache.n_columns
            stream, shortformer = self.get_residual(self._embeds(prompt, tokens)[:, start:], start)
            output = self(
                stream,
                start_at_layer=0,
                shortformer_pos_embed=shortformer,
                past_kv_cache=cache,
            )
            return output[:, -1]

        def next_logits(tokens: Tensor) -> Tensor:
            start = 0 if cache is None else cache.n_columns
            real = torch.ones_like(tokens)
            real[:, : first.shape[1]] = prompt.mask
            output = self(tokens[:, start:], attention_mask=real[:, start:], past_kv_cache=cache)
            return output[:, -1]

        if prompt.embeds is not None:
            sampling = replace(sampling, freq_penalty=0.0)
            return generation_steps(after_embeds, first, max_new_tokens, sampling, ends)
        return generation_steps(next_logits, first, max_new_tokens, sampling, ends)


def _warn_of_ignored(keywords: dict[str, Any]) -> None:
    """Warn of keywords of other libraries, which are ignored."""
    ignored = sorted(set(keywords) - {"return_dict_in_generate"})
    if ignored:
        warnings.warn(f"generate ignores {', '.join(ignored)}.", stacklevel=3)
