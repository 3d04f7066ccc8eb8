"""TransformerLens's ``HookedEncoderDecoder``, a model such as T5, on the core of this package.

Parts, names and parameters are those of TransformerLens 3.9 (Raffel et al. 2020). ``hook_embed`` is
the embedding of the encoder's tokens; that of the decoder's tokens has no hook point. Unlike
TransformerLens's, the loader supports gated MLPs and an untied unembedding (T5 1.1).
"""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from interp.compat.caching_hooks import call_hooks
from interp.compat.components import Embed
from interp.compat.encoder_config import t5_core_config
from interp.compat.encoder_hooked_config import t5_hooked_config
from interp.compat.encoder_model import EncoderModel
from interp.compat.encoder_state import t5_state
from interp.compat.errors import InvalidInput, InvalidTokens
from interp.compat.hook_point import HookPoint
from interp.compat.norms import norm_of
from interp.compat.sampling import (
    Ends,
    Sampling,
    decode_rows,
    generation_steps,
    resolve_return_type,
)
from interp.compat.source_state import State
from interp.compat.t5_components import T5Attention, T5Block
from interp.errors import shorten
from interp.model import Stack, Unembedding
from interp.transformer import Transformer


class HookedEncoderDecoder(EncoderModel):
    """An encoder–decoder with the API of TransformerLens 3.

    A new model has the random weights of its core; TransformerLens leaves them uninitialized.

    Args:
        cfg: a :class:`HookedTransformerConfig`, or a dictionary of its fields. ``n_layers`` is the
            number of layers of each stack.
        tokenizer: a tokenizer of ``transformers``; by default that of ``cfg.tokenizer_name``, if it
            is set.
        move_to_device: whether to move the weights to ``cfg.device``.

    Raises:
        InvalidConfig: the core can't express a setting; the message names it.
    """

    single: ClassVar[Mapping[str, str]] = {"W_U": "unembed", "b_U": "unembed", "W_E": "embed"}
    _core_config = staticmethod(t5_core_config)
    _hooked_config = staticmethod(t5_hooked_config)

    def _source_state(self, source: Transformer, origin: Any) -> State:  # noqa: ARG002
        return t5_state(source, self.cfg)

    def _add_parts(self, core: Transformer) -> None:
        weights = self._weights
        first, second = core.stacks
        if first.weight_e is None:
            raise InvalidInput("A HookedEncoderDecoder reads tokens.")
        self.embed = Embed(first.weight_e, None, weights)
        self.encoder = self._blocks(first, is_decoder=False)
        self.encoder_final_ln = norm_of(first.final_norm, weights)
        self.decoder = self._blocks(second, is_decoder=True)
        self.decoder_final_ln = norm_of(second.final_norm, weights)
        self._add_unembed(core)
        self.hook_embed = HookPoint()

    def _blocks(self, stack: Stack, *, is_decoder: bool) -> nn.ModuleList:
        return nn.ModuleList(
            T5Block(self.cfg, stack.block(layer), layer, self._weights, is_decoder=is_decoder)
            for layer in range(len(stack.blocks))
        )

    # ---- the forward ----------------------------------------------------------------------------

    def forward(
        self,
        input: Any,
        decoder_input: Tensor | None = None,
        return_type: str | None = "logits",
        one_zero_attention_mask: Tensor | None = None,
    ) -> Tensor | None:
        """Logits ``[batch decoder_pos d_vocab]``, or nothing.

        Args:
            input: the encoder's token ids ``[batch pos]``, a text or texts.
            decoder_input: the decoder's token ids ``[batch decoder_pos]``; for texts, by default
                the start token.
            return_type: ``logits`` or ``None`` (the logits are computed but not returned).
            one_zero_attention_mask: ``[batch pos]``, 0 at padding of the encoder. By default that
                of the tokenizer, or 1.

        Raises:
            InvalidInput: ``return_type`` is unknown.
            InvalidTokens: ids are outside the vocabulary, ids are given without ``decoder_input``,
                or a text without a tokenizer.
        """
        if return_type not in ("logits", None):
            raise InvalidInput(f"return_type={shorten(return_type)} must be logits or None.")
        source, mask = self._encode_source(input, one_zero_attention_mask)
        if decoder_input is None and isinstance(input, str | list):
            decoder_input = self._start_tokens(len(source))
        if decoder_input is None:
            raise InvalidTokens("Token ids of the encoder need decoder_input= [batch decoder_pos].")
        unembed = self.core.unembed
        stream = self._stream(source, decoder_input, mask)
        logits = self.unembed(unembed.read(stream) if isinstance(unembed, Unembedding) else stream)
        return None if return_type is None else logits

    def _encode_source(self, source: Any, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The encoder's ids and attention mask, from ids or texts."""
        if not isinstance(source, str | list):
            ids = torch.as_tensor(source)
            return ids[None] if ids.ndim == 1 else ids, mask
        ids, attention_mask = self.to_tokens(source)
        return ids, attention_mask if mask is None else mask

    def _stream(self, source: Any, target: Tensor, mask: Tensor | None) -> Tensor:
        """The decoder's stream after its final norm."""
        ids, target_ids = self._checked(source, stack="encoder").ids, self._checked(target).ids
        if len(ids) != len(target_ids):
            raise InvalidTokens(
                f"input has {len(ids)} rows and decoder_input {len(target_ids)}; they must be "
                "equal."
            )
        additive = self._additive_mask(mask, ids, torch.finfo(self.cfg.dtype).min)
        x, bias = call_hooks(self.hook_embed, self.embed(ids)), _bias_of(self.encoder, ids)
        for block in self.encoder:
            x = block(x, additive_attention_mask=additive, position_bias=bias)
        encoded, x = self.encoder_final_ln(x), self.embed(target_ids)
        bias = _bias_of(self.decoder, target_ids)
        for block in self.decoder:
            x = block(
                x,
                position_bias=bias,
                encoder_hidden_states=encoded,
                encoder_additive_attention_mask=additive,
            )
        return self.decoder_final_ln(x)

    def _start_tokens(self, rows: int) -> Tensor:
        """The decoder's first token: the padding token, as in TransformerLens."""
        start = getattr(self.tokenizer, "pad_token_id", None)
        start = self.cfg.decoder_start_token_id if start is None else start
        if start is None:
            raise InvalidInput(
                "The decoder's start token is unknown: the tokenizer has no padding token; set "
                "model.cfg.decoder_start_token_id."
            )
        return torch.full((rows, 1), start, device=self.cfg.device)

    def to_tokens(
        self,
        input: str | list[str],
        move_to_device: bool = True,
        truncate: bool = True,
    ) -> tuple[Tensor, Tensor]:
        """Token ids and attention mask, each ``[batch pos]``, of a text or several.

        Shorter texts are padded, longer ones truncated to ``n_ctx``.

        Raises:
            InvalidTokens: there is no tokenizer.
        """
        encoded = self._encode(input, truncate, move_to_device)
        return encoded["input_ids"], encoded["attention_mask"]

    def generate(
        self,
        input: Any = "",
        one_zero_attention_mask: Tensor | None = None,
        max_new_tokens: int = 10,
        stop_at_eos: bool = True,
        eos_token_id: int | list[int] | None = None,
        do_sample: bool = True,
        top_k: int | None = None,
        top_p: float | None = None,
        temperature: float = 1.0,
        freq_penalty: float = 0.0,
        return_type: str | None = "input",
        verbose: bool = True,  # noqa: ARG002 - nothing is printed
    ) -> Any:
        """Generate the decoder's tokens, including its start token.

        Every step is a forward of both stacks, in which the hooks of the model run.

        Args:
            input: a text, texts, or the encoder's token ids ``[batch pos]``.
            one_zero_attention_mask: ``[batch pos]``, 0 at padding of the encoder.
            max_new_tokens: maximum number of new tokens.
            stop_at_eos: whether a row ends at EOS; it is then filled with EOS.
            eos_token_id: ids of the tokens that end a row; by default the tokenizer's EOS.
            do_sample: whether to sample, or to select the most probable token.
            top_k: sample from the k most probable tokens.
            top_p: sample from the most probable tokens whose probabilities sum to ``top_p``.
            temperature: divides the logits.
            freq_penalty: subtracted from a token's logit for each time it occurred.
            return_type: ``input`` (text for text, ids for ids), ``str``, or ``tensor`` for ids.
            verbose: ignored.

        Raises:
            InvalidInput: ``stop_at_eos`` is set with neither ids nor a tokenizer, or
                ``return_type`` is unknown.
            InvalidTokens: a text is given or requested without a tokenizer.
        """
        kind = resolve_return_type(
            return_type, "str" if isinstance(input, str | list) else "tokens"
        )
        sampling = Sampling(do_sample, top_k, top_p, temperature, freq_penalty)
        ends = Ends.of(eos_token_id, self.tokenizer) if stop_at_eos else Ends()
        source, mask = self._encode_source(input, one_zero_attention_mask)

        def next_logits(tokens: Tensor) -> Tensor:
            return self(source, tokens, one_zero_attention_mask=mask)[:, -1]

        start = self._start_tokens(len(source))
        steps = generation_steps(next_logits, start, max_new_tokens, sampling, ends)
        tokens = torch.cat([start, *(new for new, _ in steps)], dim=-1)
        return decode_rows(self.tokenizer, tokens) if kind == "str" else tokens

    # ---- weights --------------------------------------------------------------------------------

    def _every_block(self) -> Iterable[nn.Module]:
        return chain(self.encoder, self.decoder)

    def all_head_labels(self) -> list[str]:
        """``EL0H0``, … of the encoder's heads, then ``DL0H0``, … of the decoder's."""
        labels = super().all_head_labels()
        return [f"{stack}{label}" for stack in "ED" for label in labels]


def _bias_of(stack: Iterable[nn.Module], ids: Tensor) -> Tensor:
    """The bias of a stack, which its first block has."""
    attention: T5Attention = next(iter(stack)).attn  # pyright: ignore[reportAssignmentType]
    return attention.compute_relative_attention_bias(ids.shape[1], ids.shape[1])
