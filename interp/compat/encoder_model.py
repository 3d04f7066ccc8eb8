"""The base class of :class:`HookedEncoder` and :class:`HookedEncoderDecoder`.

The forward calls the parts, one after the other; the core has their weights, and checks ids. As in
TransformerLens, an attention mask hides padded tokens from every query and changes no position.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from interp.compat.components import Unembed
from interp.compat.config import HookedTransformerConfig
from interp.compat.encoder_pretrained import EncoderPretrained
from interp.compat.errors import InvalidInput, InvalidTokens
from interp.compat.hook_point import HookPoint
from interp.compat.settings import NEEDS
from interp.compat.shared_weights import SharedWeights
from interp.compat.tokenizer import load_tokenizer
from interp.config import Config
from interp.errors import shorten
from interp.model import Causal, Masking, Unembedding, as_mask
from interp.transformer import Transformer


class EncoderModel(EncoderPretrained):  # pyright: ignore[reportIncompatibleMethodOverride] - as TransformerLens has to()
    """Base class of façades with an encoder."""

    unembed: Unembed

    def __init__(
        self,
        cfg: HookedTransformerConfig | Mapping[str, Any],
        tokenizer: Any = None,
        move_to_device: bool = True,
        **keywords: Any,
    ) -> None:
        super().__init__()
        if keywords:
            raise InvalidInput(f"{type(self).__name__} does not take {shorten(sorted(keywords))}.")
        self.cfg = HookedTransformerConfig.unwrap(cfg)
        if tokenizer is None and self.cfg.tokenizer_name is not None:
            tokenizer = load_tokenizer(self.cfg.tokenizer_name)
        self.tokenizer = tokenizer
        if self.cfg.d_vocab == -1 and tokenizer is not None:
            self.cfg.d_vocab = max(tokenizer.get_vocab().values()) + 1
        if self.cfg.d_vocab_out == -1:
            self.cfg.d_vocab_out = self.cfg.d_vocab
        core = Transformer(self._core_config(self.cfg)).to(self.cfg.dtype)
        if self.cfg.attention_dir == "causal":
            for attention in (block.attn for block in core.blocks):
                attention.masking = Masking(Causal(), attention.masking.positions)
        self._core, self._weights = (core,), SharedWeights()
        self._add_parts(core)
        self.setup()
        if move_to_device:
            self.to(self.cfg.device)

    # ---- to be implemented by subclasses --------------------------------------------------------

    @staticmethod
    def _core_config(cfg: HookedTransformerConfig) -> Config:
        """The configuration of the core."""
        raise NotImplementedError

    def _add_parts(self, core: Transformer) -> None:
        """The parts over the core's weights."""
        raise NotImplementedError

    def _add_unembed(self, core: Transformer) -> None:
        unembed = core.unembed
        if not isinstance(unembed, Unembedding) or unembed.b_U is None:
            raise InvalidInput("This model has no unembedding with a bias.")
        self.unembed = Unembed(unembed.weight, unembed.b_U, self._weights)

    def check_hooks_to_add(
        self,
        hook_point: HookPoint,  # noqa: ARG002
        hook_point_name: str,
        *hook: Any,  # noqa: ARG002
        **how: Any,  # noqa: ARG002
    ) -> None:
        """Refuse a hook at a point that is never called.

        Raises:
            InvalidInput: the setting that the point needs is off, or nothing calls the point.
        """
        name = hook_point_name
        for ending, setting in NEEDS.items():
            if name.endswith(ending) and not getattr(self.cfg, setting):
                raise InvalidInput(f"{name} needs model.cfg.{setting} = True first.")
        if name.endswith("rel_pos_hook"):
            raise InvalidInput(
                f"Nothing calls {name}, nor does TransformerLens; the bias is part of "
                "attn.hook_attn_scores."
            )

    # ---- the forward ----------------------------------------------------------------------------

    def _encode(
        self, input: Any, truncate: bool = True, move_to_device: bool = True
    ) -> dict[str, Tensor]:
        """The tokenizer's encoding of a text or texts.

        Raises:
            InvalidTokens: there is no tokenizer.
        """
        if self.tokenizer is None:
            raise InvalidTokens(
                f"This model has no tokenizer; pass token ids instead of {shorten(input)}."
            )
        encoded = self.tokenizer(
            input,
            return_tensors="pt",
            padding=True,
            truncation=truncate,
            max_length=self.cfg.n_ctx if truncate else None,
        )
        device = self.cfg.device if move_to_device else "cpu"
        inputs = {name: encoded[name].to(device) for name in ("input_ids", "attention_mask")}
        types = encoded.get("token_type_ids")
        is_there = types is not None
        zeros = torch.zeros_like(inputs["input_ids"])
        return inputs | {"token_type_ids": types.to(device) if is_there else zeros}

    def _real_tokens(self, mask: object, ids: Tensor) -> Tensor | None:
        """True where an attention mask has a token; ``None`` if it has one everywhere.

        Raises:
            InvalidTokens: the shape is not that of the ids, or a row has no token.
        """
        if mask is None:
            return None
        real = as_mask(mask, ids).to(ids.device)
        if bool(real.all()):
            return None
        if not bool(real.any(-1).all()):
            raise InvalidTokens(
                "one_zero_attention_mask hides every token of row "
                f"{int(real.any(-1).int().argmin())}; drop that row."
            )
        return real

    def _additive_mask(self, mask: object, ids: Tensor, hidden: float) -> Tensor | None:
        """What is added to the scores ``[batch 1 1 pos]``: ``hidden`` at padding, else 0."""
        real = self._real_tokens(mask, ids)
        if real is None:
            return None
        zeros = torch.zeros(real.shape, dtype=self.cfg.dtype, device=ids.device)
        return zeros.masked_fill(~real, hidden)[:, None, None]
