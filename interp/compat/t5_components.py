"""The parts of a :class:`HookedEncoderDecoder`: TransformerLens's names over the core's weights."""

from typing import Any

import torch
from torch import Tensor, nn

from interp.compat.attention import AbstractAttention
from interp.compat.components import MLP, Block
from interp.compat.config import HookedTransformerConfig
from interp.compat.errors import InvalidInput
from interp.compat.hook_point import HookPoint
from interp.compat.norms import norm_of
from interp.compat.shared_weights import SharedWeights
from interp.compat.weight_views import whole
from interp.errors import NoSuchAttribute
from interp.model import Attention as CoreAttention
from interp.model import Block as CoreBlock
from interp.model import RelativeBias


class BiasTable(nn.Module):
    """``weight [bucket head]``, which all blocks of a stack share."""

    weight: nn.Parameter

    def __init__(self, core: nn.Parameter, weights: SharedWeights) -> None:
        super().__init__()
        weights.add(self, "weight", core, whole)

    def forward(self, buckets: Tensor) -> Tensor:
        """The biases of buckets, for every head."""
        return self.weight[buckets]


class T5Attention(AbstractAttention):
    """The weights and hook points of one attention; the first in a stack has the bias table.

    As in TransformerLens, nothing calls its ``rel_pos_hook``.
    """

    def __init__(
        self,
        cfg: HookedTransformerConfig,
        core: CoreAttention,
        layer: int,
        weights: SharedWeights,
        *,
        is_decoder: bool = False,
    ) -> None:
        super().__init__(cfg, core, layer, weights)
        self.is_decoder = self.is_causal = is_decoder
        positions = core.positions
        self.has_relative_attention_bias = layer == 0 and isinstance(positions, RelativeBias)
        if layer == 0 and isinstance(positions, RelativeBias):
            self._positions = (positions,)
            self.rel_pos_bias = BiasTable(positions.table.weight, weights)
            self.rel_pos_hook = HookPoint()

    def compute_relative_attention_bias(
        self, query_length: int, key_length: int, device: torch.device | str | None = None
    ) -> Tensor:
        """The bias added to the scores of every block, ``[1 head query key]``.

        Raises:
            NoSuchAttribute: this is not the first self-attention of a stack.
        """
        if not self.has_relative_attention_bias:
            raise NoSuchAttribute("Only the first block of a stack has the bias, for all blocks.")
        device = self.rel_pos_bias.weight.device if device is None else device
        queries = torch.arange(query_length, device=device)[:, None]
        distances = torch.arange(key_length, device=device) - queries
        return self.rel_pos_bias(self._positions[0].buckets(distances[None])).movedim(-1, 1)


class T5Block(Block):
    """The parts of one block; a decoder block has cross-attention."""

    def __init__(
        self,
        cfg: HookedTransformerConfig,
        core: CoreBlock,
        layer: int,
        weights: SharedWeights,
        *,
        is_decoder: bool,
    ) -> None:
        super().__init__()
        self.cfg, self.is_decoder = cfg, is_decoder
        self.ln1 = norm_of(core.get_submodule("ln1"), weights)
        self.attn = T5Attention(cfg, core.attn, layer, weights, is_decoder=is_decoder)
        self.ln2 = norm_of(core.get_submodule("ln2"), weights)
        if is_decoder:
            self.cross_attn = T5Attention(cfg, core.cross_attn, layer, weights)
            self.ln3 = norm_of(core.get_submodule("ln3"), weights)
        self.mlp = MLP(cfg, core.mlp, weights)  # pyright: ignore[reportArgumentType]
        names = ["q_input", "k_input", "v_input", "attn_in", "attn_out", "mlp_in", "mlp_out"]
        names += ["cross_attn_in", "cross_attn_out", "resid_mid_cross"] if is_decoder else []
        for name in (*names, "resid_pre", "resid_mid", "resid_post"):
            self.add_module(f"hook_{name}", HookPoint())

    def forward(
        self,
        resid_pre: Tensor,
        additive_attention_mask: Tensor | None = None,
        encoder_additive_attention_mask: Tensor | None = None,
        position_bias: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        past_kv_cache_entry: Any = None,
    ) -> Tensor:
        """The stream after the block ``[batch pos d_model]``.

        Args:
            resid_pre: the stream before it.
            additive_attention_mask: is added to the scores of self-attention.
            encoder_additive_attention_mask: is added to the scores of cross-attention.
            position_bias: is added to the scores of self-attention, ``[1 head query key]``.
            encoder_hidden_states: the output of the encoder, which a decoder block needs.
            past_kv_cache_entry: the earlier keys and values of this layer.

        Raises:
            InvalidInput: the output of the encoder is missing.
        """
        resid_pre = self._hooked("resid_pre", resid_pre)
        q, k, v = (self.ln1(x) for x in self._inputs_of_attention(resid_pre))
        out = self.attn(q, k, v, past_kv_cache_entry, additive_attention_mask, None, position_bias)
        resid_mid = self._hooked("resid_mid", resid_pre + self._hooked("attn_out", out))
        if self.is_decoder:
            if encoder_hidden_states is None:
                raise InvalidInput("A decoder block needs encoder_hidden_states=.")
            read = self._hooked("cross_attn_in", resid_mid) if self.cfg.use_attn_in else resid_mid
            encoded = encoder_hidden_states
            out = self.cross_attn(
                *(self.ln2(read), encoded, encoded),
                additive_attention_mask=encoder_additive_attention_mask,
            )
            out = self._hooked("cross_attn_out", out)
            resid_mid = self._hooked("resid_mid_cross", resid_mid + out)
        mlp_in = self._input_of_mlp(resid_mid)
        out = self.mlp(self.ln3(mlp_in) if self.is_decoder else self.ln2(mlp_in))
        return self._hooked("resid_post", mlp_in + self._hooked("mlp_out", out))
