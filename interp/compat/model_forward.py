"""The forward of a :class:`HookedTransformer`: the core's, with the façade's hooks as its tap."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from interp.compat.caching_hooks import SaveHook, call_hooks
from interp.compat.components import Unembed
from interp.compat.core_module import CoreModule
from interp.compat.errors import InvalidInput, InvalidTokens
from interp.compat.facade_tap import Facade, FacadeTap
from interp.compat.hook_point import HookPoint
from interp.compat.key_value_cache import EntriesKV, TransformerLensKeyValueCache
from interp.compat.norms import Norm
from interp.compat.padding import Padding
from interp.compat.settings import Settings
from interp.compat.utils.language_model import lm_cross_entropy_loss
from interp.compat.utils.tokenizers import get_attention_mask
from interp.errors import shorten
from interp.model import Batch, Context, Span, Unembedding

SHORTFORMER = "shortformer"
RETURN_TYPES = ("logits", "loss", "both", None)


SingleLoss = LossPerToken = Loss = Tensor
"""TransformerLens's names for the types of losses."""


class Output(NamedTuple):
    """The output of a forward with ``return_type="both"``."""

    logits: Tensor
    loss: Tensor


@dataclass(frozen=True, eq=False)
class ForwardInput:
    """The input of a forward, after checks.

    Attributes:
        batch: ids and padding of all columns, including those of a KV cache.
        tokens: the new ids ``[batch pos]``, for the loss; ``None`` if they were not given.
        mask: ``[batch pos]`` for the new columns, 0 at padding; ``None`` if all are real.
        stream: the input of the first block, instead of the embedding.
        kv_cache: keys and values of earlier columns.
        shortformer: the positions that each block adds, with ``stream``, in a shortformer.
    """

    batch: Batch
    tokens: Tensor | None
    mask: Tensor | None = None
    stream: Tensor | None = None
    kv_cache: TransformerLensKeyValueCache | None = None
    shortformer: Tensor | None = None


class ModelForward(Settings, CoreModule):
    """The forward and the loss."""

    unembed: Unembed
    _facade: Facade

    def forward(
        self,
        input: Any,
        return_type: str | None = "logits",
        loss_per_token: bool = False,
        prepend_bos: bool | None = None,
        padding_side: str | None = None,
        start_at_layer: int | None = None,
        tokens: Tensor | None = None,
        shortformer_pos_embed: Tensor | None = None,
        attention_mask: Tensor | None = None,
        stop_at_layer: int | None = None,
        past_kv_cache: TransformerLensKeyValueCache | None = None,
    ) -> Any:
        """Logits, loss, both or nothing.

        Args:
            input: token ids ``[batch pos]`` or ``[pos]``, a text or texts; with
                ``start_at_layer``, the stream ``[batch pos d_model]`` before that layer.
            return_type: ``logits``, ``loss`` (next-token, nats, the mean over all positions,
                padding included unless it is masked), ``both`` or ``None``.
            loss_per_token: whether to return the loss of each prediction ``[batch pos-1]``.
            prepend_bos: overrides ``cfg.default_prepend_bos``, for texts.
            padding_side: overrides that of the tokenizer, for texts.
            start_at_layer: the first block to run; negative values count from the end.
            tokens: the ids, for the loss with ``start_at_layer``.
            shortformer_pos_embed: with ``start_at_layer`` in a shortformer, the positions that
                each block adds to the inputs of queries and keys.
            attention_mask: ``[batch pos]``, 0 at padding. By default padding is masked if the
                tokenizer pads on the left, or with ``past_kv_cache``. With ``start_at_layer`` and
                ``past_kv_cache`` it covers all columns, including those of the cache.
            stop_at_layer: the block before which to stop; the stream is returned.
            past_kv_cache: keys, values and mask of earlier tokens, to which those of the new
                tokens are appended unless it is frozen. Without a tokenizer and
                ``attention_mask``, every new token is real (TransformerLens refuses this case).

        Raises:
            InvalidInput: ``return_type`` is unknown, or an argument is not supported.
            InvalidTokens: ids are outside the vocabulary, or there are more positions than
                ``cfg.n_ctx``.
        """
        if return_type not in RETURN_TYPES:
            raise InvalidInput(
                f"return_type={shorten(return_type)} must be logits, loss, both or None."
            )
        with self._overriding(prepend_bos, padding_side):
            if start_at_layer is None:
                forward_input = self._tokens_input(input, attention_mask, past_kv_cache)
            else:
                forward_input = self._stream_input(input, tokens, attention_mask, past_kv_cache)
                forward_input = replace(forward_input, shortformer=shortformer_pos_embed)
        residual = self._run(forward_input, start_at_layer, stop_at_layer)
        if stop_at_layer is not None or return_type is None:
            return None if stop_at_layer is None else residual
        logits = self._logits(residual)
        if return_type == "logits":
            return logits
        if forward_input.tokens is None:
            raise InvalidInput("The loss with start_at_layer= needs tokens=.")
        loss = self.loss_fn(
            logits, forward_input.tokens, forward_input.mask, per_token=loss_per_token
        )
        return loss if return_type == "loss" else Output(logits, loss)

    @property
    def runs_core(self) -> bool:
        """Whether the forward is that of the core, which is faster than calling the parts.

        The parts are called if one of them was replaced, if the inputs of heads have their own
        hooks (``use_attn_in``, ``use_split_qkv_input``, or a hook on ``ln1`` that does more than
        store: TransformerLens applies this norm to queries, keys and values apart), if the norm
        after SoLU has hooks, and in bidirectional models, mixtures of experts and shortformers.
        """
        cfg, facade = self.cfg, self._facade
        if cfg.use_attn_in or cfg.use_split_qkv_input or cfg.num_experts or not self.is_as_built:
            return False
        hooked = any(_is_edited(norm) for norm in facade.input_norms)
        return not hooked and not any(point.is_hooked for point in facade.activation_points)

    @property
    def is_as_built(self) -> bool:
        """Whether the core computes the same as the parts, if there are no hooks."""
        cfg = self.cfg
        is_causal = cfg.attention_dir == "causal"
        return is_causal and cfg.positional_embedding_type != SHORTFORMER and super().is_as_built

    # ---- its input ----------------------------------------------------------------------------

    def _tokens_input(
        self, prompt: Any, mask: Tensor | None, cache: TransformerLensKeyValueCache | None
    ) -> ForwardInput:
        """The input of a forward from texts or ids, after the hooks of ``hook_tokens``."""
        is_text = isinstance(prompt, str | list)
        tokens = self.to_tokens(prompt) if is_text else torch.as_tensor(prompt)
        tokens = (tokens[None] if tokens.ndim == 1 else tokens).to(self._core[0].device)
        mask = self._mask(tokens, mask, is_cached=cache is not None)
        offset = 0 if cache is None else self._offset(cache, tokens)
        hook_tokens = self._modules.get("hook_tokens")
        if isinstance(hook_tokens, HookPoint):
            tokens = call_hooks(hook_tokens, tokens)
        ids = self._checked(tokens).ids
        if cache is None:
            return ForwardInput(Batch(ids, _as_real(mask)), tokens, mask)
        ids = torch.cat([ids.new_zeros(len(ids), offset), ids], dim=1)
        new = torch.ones_like(tokens) if mask is None else mask
        real = cache.append_attention_mask(new).to(ids.device)
        return ForwardInput(Batch(ids, _as_real(real)), tokens, mask, kv_cache=cache)

    def _mask(self, tokens: Tensor, mask: Tensor | None, *, is_cached: bool) -> Tensor | None:
        """Which of the new tokens are real; ``None`` if padding is not masked."""
        left = getattr(self.tokenizer, "padding_side", "right") == "left"
        if mask is None and self.tokenizer is not None and (left or is_cached):
            bos = self.cfg.default_prepend_bos
            mask = get_attention_mask(self.tokenizer, tokens, prepend_bos=bos)
        if mask is not None and mask.shape != tokens.shape:
            raise InvalidTokens(f"attention_mask is {shorten(mask)}, but tokens {shorten(tokens)}.")
        return None if mask is None else mask.to(tokens.device)

    def masks_padding(self, tokens: Tensor) -> bool:
        """Whether some of these ids are padding that a forward masks."""
        return _as_real(self._mask(tokens, None, is_cached=False)) is not None

    def _offset(self, cache: TransformerLensKeyValueCache, tokens: Tensor) -> int:
        """The number of columns before the new ones."""
        offset, masked = cache.n_columns, cache.previous_attention_mask.shape[1]
        if offset != masked:
            raise InvalidInput(
                f"The cache holds keys of {offset} positions and a mask of {masked}; start with "
                "a new cache."
            )
        if offset + tokens.shape[1] > self.cfg.n_ctx:
            raise InvalidTokens(
                f"{offset} cached and {tokens.shape[1]} new positions exceed "
                f"cfg.n_ctx={self.cfg.n_ctx}."
            )
        return offset

    def _stream_input(
        self,
        stream: Any,
        tokens: Tensor | None,
        mask: Tensor | None,
        cache: TransformerLensKeyValueCache | None,
    ) -> ForwardInput:
        """The input of a forward from the stream before a block."""
        if not isinstance(stream, Tensor) or stream.ndim != 3:  # noqa: PLR2004 - batch pos d_model
            raise InvalidInput(
                f"With start_at_layer= the input is a stream [batch pos d_model]; got "
                f"{shorten(stream)}."
            )
        offset = 0 if cache is None else cache.n_columns
        shape = (stream.shape[0], offset + stream.shape[1])
        if mask is not None and mask.shape != shape:
            raise InvalidTokens(f"attention_mask is {shorten(mask)}, but positions are {shape}.")
        ids = torch.zeros(shape, dtype=torch.long, device=stream.device)
        new = None if mask is None else mask[:, offset:]
        return ForwardInput(Batch(ids, _as_real(mask)), tokens, new, stream, cache)

    # ---- running it ---------------------------------------------------------------------------

    def _run(self, forward_input: ForwardInput, start: int | None, stop: int | None) -> Tensor:
        """The stream after the blocks from ``start`` to ``stop``, or after the final norm."""
        if not self.runs_core:
            return self._run_parts(forward_input, start, stop)
        first, last, _ = slice(start, stop).indices(self.cfg.n_layers)
        span = Span(first, None if stop is None else max(first, last), forward_input.stream)
        context, tap = self._context_and_tap(forward_input)
        return self.core.stacks[0](forward_input.batch, context, tap, span)

    def _run_parts(
        self, forward_input: ForwardInput, start: int | None, stop: int | None
    ) -> Tensor:
        """The same stream, computed by the parts, one of which was replaced."""
        self._weights.check()
        cache, real = forward_input.kv_cache, forward_input.batch.real
        mask = None if real is None else real.long()
        stream, shortformer = forward_input.stream, forward_input.shortformer
        if stream is None:
            stream, shortformer = self._embed_by_parts(forward_input, mask)
        blocks = list(zip(range(self.cfg.n_layers), self.blocks, strict=False))
        for layer, block in blocks[start:stop]:
            stream = block(
                stream,
                past_kv_cache_entry=None if cache is None else cache[layer],
                shortformer_pos_embed=shortformer,
                attention_mask=mask,
            )
        is_last = stop is None and self.cfg.normalization_type is not None
        return self.get_submodule("ln_final")(stream) if is_last else stream

    def get_pos_offset(
        self, past_kv_cache: TransformerLensKeyValueCache | None, batch_size: int
    ) -> int:
        """The number of positions in a KV cache.

        Raises:
            InvalidInput: the cache was made for another number of rows.
        """
        if past_kv_cache is None:
            return 0
        rows = len(past_kv_cache[0].past_keys)
        if rows != batch_size:
            raise InvalidInput(f"The cache was made for {rows} rows, not {batch_size}.")
        return past_kv_cache[0].past_keys.shape[1]

    def get_residual(
        self,
        embed: Tensor,
        pos_offset: int,
        prepend_bos: bool | None = None,  # noqa: ARG002 - not used, as in TransformerLens
        attention_mask: Tensor | None = None,
        tokens: Tensor | None = None,  # noqa: ARG002 - only their shape, which is that of embed
        return_shortformer_pos_embed: bool = True,
        device: Any = None,  # noqa: ARG002 - that of the model
    ) -> Any:
        """The stream before the first block, given the embeddings of tokens.

        Args:
            embed: the embeddings of new tokens ``[batch pos d_model]``.
            pos_offset: the number of earlier positions.
            prepend_bos: ignored.
            attention_mask: 0 at padding, ``[batch earlier+pos]``.
            tokens: ignored.
            return_shortformer_pos_embed: whether to return the positions of a shortformer as well,
                or ``None`` for other models.
            device: ignored.
        """
        stream, shortformer = self._with_positions(embed, pos_offset, attention_mask)
        return (stream, shortformer) if return_shortformer_pos_embed else stream

    def _with_positions(
        self, stream: Tensor, offset: int, mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The stream before the first block, and the positions that blocks add (shortformer)."""
        kind = self.cfg.positional_embedding_type
        if kind not in ("standard", SHORTFORMER):
            return stream, None
        positions = self.get_submodule("pos_embed")(stream[..., 0], offset, mask)
        positions = call_hooks(self.get_submodule("hook_pos_embed"), positions)
        return (stream, positions) if kind == SHORTFORMER else (stream + positions, None)

    def _embed_by_parts(
        self, forward_input: ForwardInput, mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The stream before the first block, and the positions that blocks add (shortformer)."""
        n_new = 0 if forward_input.tokens is None else forward_input.tokens.shape[1]
        offset = forward_input.batch.ids.shape[1] - n_new
        new = forward_input.batch.ids[:, offset:]
        stream = call_hooks(self.get_submodule("hook_embed"), self.get_submodule("embed")(new))
        return self._with_positions(stream, offset, mask)

    def _context_and_tap(self, forward_input: ForwardInput) -> tuple[Context, FacadeTap]:
        """The context of a forward (positions, padding, KV cache), and the tap with the hooks."""
        batch, cache = forward_input.batch, forward_input.kv_cache
        context = Context.of(batch, 0 if cache is None else cache.n_columns)
        tap = FacadeTap(self._facade, has_kv_cache=cache is not None, padding=Padding.of(context))
        if cache is not None:
            layers = {attn: layer for layer, attn in enumerate(self._facade.attentions)}
            entries = EntriesKV(cache, layers, tap, Context.of(batch))
            context = replace(context, kv_cache=entries)
        return context, tap

    def input_to_embed(
        self,
        input: Any,
        prepend_bos: bool | None = None,
        padding_side: str | None = None,
        attention_mask: Tensor | None = None,
        past_kv_cache: TransformerLensKeyValueCache | None = None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """The input of the first block, with all that :meth:`forward` needs to continue.

        Returns:
            The stream, the ids, the positions of a shortformer (else ``None``), and the mask; with
            ``past_kv_cache``, it covers all columns, including those of the cache.
        """
        with self._overriding(prepend_bos, padding_side):
            forward_input = self._tokens_input(input, attention_mask, past_kv_cache)
        mask, real = forward_input.mask, forward_input.batch.real
        if past_kv_cache is not None:
            mask = torch.ones_like(forward_input.batch.ids) if real is None else real.long()
        if self.runs_core:
            context, tap = self._context_and_tap(forward_input)
            stream = self.core.stacks[0].embed(forward_input.batch, context, tap)
            return stream, forward_input.tokens, None, mask
        stream, shortformer = self._embed_by_parts(forward_input, mask)
        return stream, forward_input.tokens, shortformer, mask

    def _logits(self, residual: Tensor) -> Tensor:
        """The logits, with the hooks of ``unembed``."""
        unembed = self._core[0].unembed
        if self.runs_core and isinstance(unembed, Unembedding):
            x = call_hooks(self.unembed.hook_in, residual)
            logits = unembed.linear(x, unembed.weight, unembed.b_U)
            logits = call_hooks(self.unembed.hook_out, logits)
        else:
            logits = self.unembed(residual)
        cap = self.cfg.output_logits_soft_cap
        return cap * torch.tanh(logits / cap) if cap > 0 else logits

    def loss_fn(
        self,
        logits: Tensor,
        tokens: Tensor,
        attention_mask: Tensor | None = None,
        per_token: bool = False,
    ) -> Tensor:
        """Next-token cross-entropy in nats; 0 where either token is masked."""
        return lm_cross_entropy_loss(
            logits, tokens.to(logits.device), attention_mask, per_token=per_token
        )


def _is_edited(norm: Norm) -> bool:
    """Whether a hook of a norm does more than store its input in a forward."""
    points = [p for p in (norm.hook_scale, norm.hook_normalized) if isinstance(p, HookPoint)]
    stores = all(point.only_stores(SaveHook) for point in points)
    return not stores or any(point.bwd_hooks for point in points)


def _as_real(mask: Tensor | None) -> Tensor | None:
    return None if mask is None or bool(mask.bool().all()) else mask.bool()
