"""The attention of a block: TransformerLens's names over the core's weights, callable by itself.

z = softmax(q kᵀ / ``attn_scale`` + bias + mask) v, as ``AbstractAttention`` of TransformerLens 3.9
computes it: padding counts as a column, and a query that sees no key has a pattern of zeros.
"""

from functools import partial
from typing import Any

import torch
from einops import einsum
from torch import Tensor, nn

from interp.compat.caching_hooks import call_hooks
from interp.compat.config import HookedTransformerConfig
from interp.compat.errors import InvalidInput
from interp.compat.factored_matrix import FactoredMatrix
from interp.compat.hook_point import HookPoint
from interp.compat.norms import norm_of
from interp.compat.shared_weights import SharedWeights
from interp.compat.utils.tensors import get_offset_position_ids
from interp.compat.weight_views import bias_heads, input_heads, output_heads, whole
from interp.errors import shorten
from interp.model import ALiBi, ScaledNorm
from interp.model import Attention as CoreAttention


class AbstractAttention(nn.Module):
    """The weights and hook points of one attention."""

    is_causal: bool
    """Whether queries attend to no later key."""
    W_Q: nn.Parameter
    W_O: nn.Parameter
    hook_attn_scores: nn.Module
    hook_pattern: nn.Module
    hook_result: nn.Module
    hook_rot_k: nn.Module
    hook_rot_q: nn.Module
    hook_z: nn.Module

    def __init__(
        self, cfg: HookedTransformerConfig, core: CoreAttention, layer: int, weights: SharedWeights
    ) -> None:
        super().__init__()
        self.cfg, self.layer_id, self.attn_scale = cfg, layer, core.divisor
        self._core, self.is_causal = (core,), cfg.attention_dir == "causal"
        self.attn_type = (
            cfg.attn_types[layer] if cfg.use_local_attn and cfg.attn_types else "global"
        )
        prefix = "" if cfg.n_key_value_heads is None else "_"
        n, kv, d = core.n_heads, core.kv_heads, core.d_head

        def add_heads(name: str, first: int, heads: int) -> None:
            view = partial(input_heads, span=(first, heads), d=d)
            weights.add(self, name, core.weight_qkv, view)

        def add_bias(name: str, bias: nn.Parameter | None, heads: int) -> None:
            if bias is not None:
                weights.add(self, name, bias, partial(bias_heads, n=heads))

        # The order is TransformerLens's, in which random weights are drawn.
        add_heads("W_Q", 0, n)
        weights.add(self, "W_O", core.weight_o, partial(output_heads, n=n))
        add_bias("b_Q", core.b_q, n)
        if core.b_O is not None:
            weights.add(self, "b_O", core.b_O, whole)
        add_heads(f"{prefix}W_K", n, kv)
        add_heads(f"{prefix}W_V", n + kv, kv)
        add_bias(f"{prefix}b_K", core.b_k, kv)
        add_bias(f"{prefix}b_V", core.b_v, kv)
        for name, norm in (("q_norm", core.q_norm), ("k_norm", core.k_norm)):
            if isinstance(norm, ScaledNorm):
                self.add_module(name, norm_of(norm, weights))
        # Buffers of TransformerLens's state dicts, which are not used.
        self.register_buffer("mask", torch.empty((0, 0), dtype=torch.bool))
        self.register_buffer("IGNORE", torch.tensor(-torch.inf))
        names = ["k", "q", "v", "z", "attn_scores", "pattern", "result"]
        names += ["rot_k", "rot_q"] if cfg.positional_embedding_type == "rotary" else []
        # Nothing calls this point, nor does TransformerLens.
        names += ["attn_input"] if cfg.positional_embedding_type == "shortformer" else []
        for name in names:
            self.add_module(f"hook_{name}", HookPoint())

    @property
    def QK(self) -> FactoredMatrix:
        """W_Q W_Kᵀ of every head ``[head d_model d_model]``."""
        return FactoredMatrix(self.W_Q, self.W_K.mT)

    @property
    def OV(self) -> FactoredMatrix:
        """W_V W_O of every head ``[head d_model d_model]``."""
        return FactoredMatrix(self.W_V, self.W_O)

    def __getattr__(self, name: str) -> Any:
        """W_K, W_V and their biases for every query head, if heads share them (copies)."""
        if name in ("W_K", "W_V", "b_K", "b_V") and f"_{name}" in self._parameters:
            stored: Any = super().__getattr__(f"_{name}")
            return stored.repeat_interleave(self.cfg.n_heads // stored.shape[0], dim=0)
        return super().__getattr__(name)

    # ---- the forward ----------------------------------------------------------------------------

    def forward(
        self,
        query_input: Tensor,
        key_input: Tensor,
        value_input: Tensor,
        past_kv_cache_entry: Any = None,
        additive_attention_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_bias: Tensor | None = None,
    ) -> Tensor:
        """What attention adds to the stream ``[batch pos d_model]``.

        Args:
            query_input: the input of the queries after the norm, ``[batch pos d_model]`` or, with
                one for each head, ``[batch pos head d_model]``.
            key_input: the input of the keys, likewise.
            value_input: the input of the values, likewise.
            past_kv_cache_entry: earlier keys and values, to which the new ones are appended.
            additive_attention_mask: is added to the scores, ``[batch 1 1 key]``.
            attention_mask: 0 at padding, ``[batch key]``, including earlier keys.
            position_bias: is added to the scores, ``[1 head query key]`` (T5).

        Raises:
            InvalidInput: there are not as many keys as earlier positions and queries together, in
                causal attention.
        """
        q, k, v = self.calculate_qkv_matrices(query_input, key_input, value_input)
        offset = 0
        if past_kv_cache_entry is not None:
            offset = past_kv_cache_entry.past_keys.shape[1]
            k, v = past_kv_cache_entry.append(k, v)
        if self.cfg.positional_embedding_type == "rotary":
            q = call_hooks(self.hook_rot_q, self.apply_rotary(q, offset, attention_mask))
            k = call_hooks(self.hook_rot_k, self.apply_rotary(k, 0, attention_mask))
        scores = self._biased(self.calculate_attention_scores(q, k), position_bias)
        if self.is_causal:
            scores = self.apply_causal_mask(scores, offset, attention_mask)
        if additive_attention_mask is not None:
            scores = scores + additive_attention_mask
        pattern = call_hooks(self.hook_attn_scores, scores).softmax(-1)
        pattern = call_hooks(self.hook_pattern, pattern.masked_fill(pattern.isnan(), 0.0))
        return self._write(self.calculate_z_scores(v, pattern.to(v.dtype)))

    def calculate_qkv_matrices(
        self, query_input: Tensor, key_input: Tensor, value_input: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values ``[batch pos head d_head]``, before they are rotated."""
        shared = "" if self.cfg.ungroup_grouped_query_attention else "_"
        inputs = {"Q": query_input, "K": key_input, "V": value_input}
        heads: dict[str, Tensor] = {}
        for letter, x in inputs.items():
            stored = f"{shared}W_{letter}" in self._parameters
            weight: Tensor = getattr(self, f"{shared if stored else ''}W_{letter}")
            bias: Tensor = getattr(self, f"{shared if stored else ''}b_{letter}")
            heads[letter] = call_hooks(
                self.get_submodule(f"hook_{letter.lower()}"), _projected(x, weight, bias)
            )
        q, k, v = heads.values()
        return self._normed("q_norm", q), self._normed("k_norm", k), v

    def _normed(self, name: str, x: Tensor) -> Tensor:
        """Queries or keys after their norm, over a head or over all heads together."""
        norm = self._modules.get(name)
        if norm is None:
            return x
        return norm(x.flatten(0, 2) if self.cfg.use_qk_norm else x.flatten(2)).view(x.shape)

    def apply_rotary(
        self, x: Tensor, past_kv_pos_offset: int = 0, attention_mask: Tensor | None = None
    ) -> Tensor:
        """Queries or keys ``[batch pos head d_head]``, rotated by their positions."""
        if attention_mask is None:
            first = past_kv_pos_offset
            positions = torch.arange(first, first + x.shape[1], device=x.device)[None]
        else:
            positions = get_offset_position_ids(past_kv_pos_offset, attention_mask)
        return self._core[0].positions.rotated(x, positions[..., None].to(x.device))

    def calculate_attention_scores(self, q: Tensor, k: Tensor) -> Tensor:
        """Scores ``[batch head query key]``, before any bias and mask."""
        k = k.repeat_interleave(q.shape[2] // k.shape[2], dim=2)
        scores = q.transpose(1, 2) @ k.permute(0, 2, 3, 1) / self.attn_scale
        cap = self.cfg.attn_scores_soft_cap
        return cap * torch.tanh(scores / cap) if cap > 0 else scores

    def _biased(self, scores: Tensor, position_bias: Tensor | None) -> Tensor:
        """Scores with the bias of ALiBi, or with that of T5."""
        positions = self._core[0].masking.positions
        if isinstance(positions, ALiBi):
            n_query, n_key = scores.shape[-2:]
            keys = torch.arange(n_key, device=scores.device)
            distance = (keys - keys[-n_query:, None]).clamp(max=0)
            slopes = positions.slopes().to(scores)[:, None, None]
            scores = scores + slopes * distance
        return scores if position_bias is None else scores + position_bias

    def apply_causal_mask(
        self,
        attn_scores: Tensor,
        past_kv_pos_offset: int = 0,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Scores with −∞ at later keys, at padding and outside of the window.

        Raises:
            InvalidInput: there are not as many keys as earlier positions and queries together.
        """
        n_query, n_key = attn_scores.shape[-2:]
        if n_query + past_kv_pos_offset != n_key:
            raise InvalidInput(
                f"Causal attention over {shorten(attn_scores)} with {past_kv_pos_offset} earlier "
                "positions: the keys must be those of the earlier positions and of the queries."
            )
        keys = torch.arange(n_key, device=attn_scores.device)
        queries = keys[past_kv_pos_offset:, None]
        visible = keys <= queries
        if self.attn_type == "local":
            visible = visible & (keys > queries - (self.cfg.window_size or n_key))
        if attention_mask is not None:
            visible = visible & attention_mask[:, None, None, :].bool().to(keys.device)
        return attn_scores.masked_fill(~visible, -torch.inf)

    def calculate_z_scores(self, v: Tensor, pattern: Tensor) -> Tensor:
        """z ``[batch query head d_head]``."""
        v = v.repeat_interleave(pattern.shape[1] // v.shape[2], dim=2)
        return call_hooks(self.hook_z, (pattern @ v.transpose(1, 2)).transpose(1, 2))

    def _write(self, z: Tensor) -> Tensor:
        """Σ_h z_h W_O + b_O."""
        weight, bias = self.W_O, getattr(self, "b_O", 0.0)
        if not self.cfg.use_attn_result:
            return z.flatten(2) @ weight.flatten(0, 1) + bias
        product = "batch pos head d_head, head d_head d_model -> batch pos head d_model"
        result = call_hooks(self.hook_result, einsum(z, weight, product))
        return result.sum(2) + bias


class Attention(AbstractAttention):
    """Attention in which every query head has its own keys and values."""


class GroupedQueryAttention(AbstractAttention):
    """Attention in which query heads share keys and values."""


def _projected(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Queries, keys or values of a stream, or of a stream for each head."""
    if x.ndim == 3:  # noqa: PLR2004 - batch pos d_model
        product = "batch pos d_model, head d_model d_head -> batch pos head d_head"
    else:
        x = x[:, :, :: x.shape[2] // weight.shape[0]]
        product = "batch pos head d_model, head d_model d_head -> batch pos head d_head"
    return einsum(x, weight, product) + bias
