"""TransformerLens's ``HookedEncoder``, a masked language model such as BERT, on this core.

Parts, names and parameters are those of TransformerLens 3.9 (Devlin et al. 2019). Blocks are
post-norm: ``hook_resid_mid`` and ``hook_resid_post`` are before the norms, and
``hook_normalized_resid_post`` is the stream that the next block reads. A block has no
``hook_attn_in``.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from interp.compat.bert_components import BertBlock, BertEmbed, BertMLMHead, BertNSPHead, BertPooler
from interp.compat.caching_hooks import call_hooks
from interp.compat.encoder_config import bert_core_config
from interp.compat.encoder_hooked_config import bert_hooked_config
from interp.compat.encoder_model import EncoderModel
from interp.compat.encoder_state import bert_state, next_sentence_state
from interp.compat.errors import InvalidInput
from interp.compat.hook_point import HookPoint
from interp.compat.source_state import State
from interp.errors import shorten
from interp.transformer import Transformer


class HookedEncoder(EncoderModel):
    """A masked language model with the API of TransformerLens 3.

    A new model has the random weights of its core; TransformerLens leaves them uninitialized.

    Args:
        cfg: a :class:`HookedTransformerConfig`, or a dictionary of its fields. ``attention_dir``
            is causal unless it is set to ``bidirectional``, as in TransformerLens.
        tokenizer: a tokenizer of ``transformers``; by default that of ``cfg.tokenizer_name``, if it
            is set.
        move_to_device: whether to move the weights to ``cfg.device``.

    Raises:
        InvalidConfig: the core can't express a setting; the message names it.
    """

    single: ClassVar[Mapping[str, str]] = {
        "W_U": "unembed",
        "b_U": "unembed",
        "W_E": "embed.embed",
        "W_pos": "embed.pos_embed",
    }
    _core_config = staticmethod(bert_core_config)
    _hooked_config = staticmethod(bert_hooked_config)

    def _source_state(self, source: Transformer, origin: Any) -> State:
        state = bert_state(source, self.cfg) | next_sentence_state(origin)
        parts = {"pooler": self.pooler, "nsp_head": self.nsp_head}
        missing = {
            f"{part}.{key}": torch.full_like(weight, torch.nan)
            for part, module in parts.items()
            for key, weight in module.named_parameters()
        }
        return missing | state

    def _add_parts(self, core: Transformer) -> None:
        cfg, stack, weights = self.cfg, core.stacks[0], self._weights
        self.embed = BertEmbed(cfg, stack, weights)
        blocks = [BertBlock(cfg, block, at, weights) for at, block in enumerate(core.blocks)]
        self.blocks = nn.ModuleList(blocks)
        self.mlm_head = BertMLMHead(stack.final_norm, weights)
        self._add_unembed(core)
        self.nsp_head, self.pooler = BertNSPHead(cfg), BertPooler(cfg)
        self.hook_full_embed = HookPoint()

    # ---- the forward ----------------------------------------------------------------------------

    def forward(
        self,
        input: Any,
        return_type: str | None = "logits",
        token_type_ids: Tensor | None = None,
        one_zero_attention_mask: Tensor | None = None,
    ) -> Any:
        """Logits ``[batch pos d_vocab]``, predictions of masked tokens, or nothing.

        Args:
            input: token ids ``[batch pos]``, a text or texts.
            return_type: ``logits``, ``predictions`` or ``None`` (the logits are computed but not
                returned). Predictions are a text, or a list if the text has spaces, as in
                TransformerLens.
            token_type_ids: ``[batch pos]``, 0 or 1: which sentence a token is in. By default those
                of the tokenizer, or 0.
            one_zero_attention_mask: ``[batch pos]``, 0 at padding. By default that of the
                tokenizer, or 1.

        Raises:
            InvalidInput: ``return_type`` is unknown, or ``cfg.use_attn_in`` is set.
            InvalidTokens: ids or types are out of range, or a text is given without a tokenizer.
        """
        if return_type not in ("logits", "predictions", None):
            raise InvalidInput(f"return_type={shorten(return_type)} must be logits or predictions.")
        tokens, types, mask = input, token_type_ids, one_zero_attention_mask
        if isinstance(input, str | list):
            tokens, own_types, own_mask = self.to_tokens(input)
            types, mask = own_types if types is None else types, own_mask if mask is None else mask
        logits = self.unembed(self.mlm_head(self.encoder_output(tokens, types, mask)))
        if return_type == "predictions":
            return self._predictions(logits, tokens)
        return logits if return_type == "logits" else None

    def encoder_output(
        self,
        tokens: Tensor,
        token_type_ids: Tensor | None = None,
        one_zero_attention_mask: Tensor | None = None,
    ) -> Tensor:
        """The stream after the last block ``[batch pos d_model]``; arguments as for the forward."""
        if self.cfg.use_attn_in:
            raise InvalidInput(
                "cfg.use_attn_in needs hook_attn_in, which a BERT block does not have; "
                "cfg.use_split_qkv_input gives each head its own input."
            )
        batch = self._checked(tokens, types=token_type_ids)
        additive = self._additive_mask(one_zero_attention_mask, batch.ids, -torch.inf)
        resid = call_hooks(self.hook_full_embed, self.embed(batch.ids, batch.types))
        for block in self.blocks:
            resid = block(resid, additive)
        return resid

    def _predictions(self, logits: Tensor, tokens: Any) -> str | list[str]:
        """The most probable token at each mask token, as text."""
        mask_id = getattr(self.tokenizer, "mask_token_id", None)
        if self.tokenizer is None or mask_id is None:
            raise InvalidInput('return_type="predictions" needs a tokenizer with a mask token.')
        ids = torch.as_tensor(tokens).to(logits.device)
        masked = (ids[None] if ids.ndim == 1 else ids) == mask_id
        text: str = self.tokenizer.decode(logits[masked].argmax(-1))
        if " " not in text:
            return text
        return [f"Prediction {number}: {word}" for number, word in enumerate(text.split(" "))]

    def to_tokens(
        self,
        input: str | list[str],
        move_to_device: bool = True,
        truncate: bool = True,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Token ids, token types and attention mask, each ``[batch pos]``, of a text or several.

        Shorter texts are padded, longer ones truncated to ``n_ctx``.

        Raises:
            InvalidTokens: there is no tokenizer.
        """
        encoded = self._encode(input, truncate, move_to_device)
        return encoded["input_ids"], encoded["token_type_ids"], encoded["attention_mask"]
