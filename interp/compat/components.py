"""The parts of a :class:`HookedTransformer`: TransformerLens's names over the core's weights.

Each part has parameters (shared with the core) and hook points. A part that is called by itself
computes the same as in a forward, and its hooks run. The forward of the model runs the core
instead, or the parts if one of them was replaced (:mod:`interp.compat.structure`).
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

from interp.compat.attention import AbstractAttention, Attention, GroupedQueryAttention
from interp.compat.caching_hooks import call_hooks
from interp.compat.config import HookedTransformerConfig
from interp.compat.core_config import WRITE_NORM
from interp.compat.experts import CanBeUsedAsMLP, MoE
from interp.compat.hook_point import HookPoint
from interp.compat.norms import ActivationNorm, norm_of
from interp.compat.shared_weights import SharedWeights
from interp.compat.utils.activation_functions import solu
from interp.compat.utils.tensors import get_offset_position_ids
from interp.compat.weight_views import transposed, whole
from interp.model import Block as CoreBlock
from interp.model import Experts, ScaledNorm
from interp.model import mlp as core_mlp


class Embed(nn.Module):
    """W_E, and optionally a norm of the embedding."""

    def __init__(self, core: nn.Parameter, norm: Any, weights: SharedWeights) -> None:
        super().__init__()
        weights.add(self, "W_E", core, whole)
        if isinstance(norm, ScaledNorm):
            self.ln = norm_of(norm, weights)

    def forward(self, tokens: Tensor) -> Tensor:
        """The embeddings of tokens."""
        weight: Any = self.W_E
        rows = weight[tokens]
        norm = getattr(self, "ln", None)
        return rows if norm is None else norm(rows)


class PosEmbed(nn.Module):
    """W_pos; without learned positions, a parameter that is not used, as in TransformerLens."""

    W_pos: nn.Parameter

    def __init__(
        self, core: nn.Parameter | None, cfg: HookedTransformerConfig, weights: SharedWeights
    ) -> None:
        super().__init__()
        if core is None:
            self.W_pos = nn.Parameter(torch.zeros(cfg.n_ctx, cfg.d_model, dtype=cfg.dtype))
        else:
            weights.add(self, "W_pos", core, whole)

    def forward(
        self,
        tokens: Tensor,
        past_kv_pos_offset: int = 0,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """The embeddings of the positions of tokens ``[batch pos d_model]``; 0 at padding.

        Args:
            tokens: the new tokens.
            past_kv_pos_offset: the number of earlier positions.
            attention_mask: 0 at padding, ``[batch earlier+pos]``.
        """
        first, n = past_kv_pos_offset, tokens.shape[-1]
        if attention_mask is None:
            return self.W_pos[first : first + n].expand(*tokens.shape, -1).clone()
        rows = self.W_pos[get_offset_position_ids(first, attention_mask)]
        padding = ~attention_mask[:, first : first + n, None].bool()
        return rows.masked_fill(padding, 0.0)


class Unembed(nn.Module):
    """W_U and b_U."""

    W_U: nn.Parameter
    b_U: nn.Parameter  # noqa: N815 - TransformerLens's name
    hook_in: nn.Module
    hook_out: nn.Module

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter, weights: SharedWeights) -> None:
        super().__init__()
        weights.add(self, "W_U", weight, transposed)
        weights.add(self, "b_U", bias, whole)
        self.hook_in, self.hook_out = HookPoint(), HookPoint()

    def forward(self, residual: Tensor) -> Tensor:
        """``residual @ W_U + b_U``, before any soft-cap."""
        x = call_hooks(self.hook_in, residual)
        return call_hooks(self.hook_out, F.linear(x, self.W_U.T, self.b_U))


class MLP(CanBeUsedAsMLP):
    """The weights and hook points of one MLP."""

    W_in: nn.Parameter
    W_out: nn.Parameter
    W_gate: nn.Parameter
    hook_mid: nn.Module
    hook_pre: nn.Module
    hook_pre_linear: nn.Module
    hook_post: nn.Module
    ln: nn.Module

    def __init__(
        self, cfg: HookedTransformerConfig, core: core_mlp.MLP, weights: SharedWeights
    ) -> None:
        super().__init__()
        self.cfg, self.d_mlp = cfg, core.weight_in.shape[0]
        self._core, gated = (core,), isinstance(core, core_mlp.GatedMLP)
        weights.add(self, "W_in", core.weight_in, transposed)
        if not gated and core.b_in is not None:
            weights.add(self, "b_in", core.b_in, whole)
        weights.add(self, "W_out", core.weight_out, transposed)
        if isinstance(core, core_mlp.GatedMLP):
            weights.add(self, "W_gate", core.weight_gate, transposed)
            # It is added after the product of gate and input, where the core has no bias.
            self.b_in = nn.Parameter(torch.zeros(self.d_mlp, dtype=cfg.dtype))
        if core.b_out is not None:
            weights.add(self, "b_out", core.b_out, whole)
        for name in ("pre", *(["pre_linear"] if gated else []), "post"):
            self.add_module(f"hook_{name}", HookPoint())
        if cfg.is_layer_norm_activation():
            self.hook_mid, self.ln = HookPoint(), ActivationNorm(cfg, self.d_mlp)

    def act_fn(self, x: Tensor) -> Tensor:
        """The activation function."""
        return solu(x) if self.cfg.act_fn.startswith("solu") else self._core[0].act(x)

    def forward(self, x: Tensor) -> Tensor:
        """The output of the MLP, given its input after the norm."""
        biases = self._parameters
        if self.cfg.gated_mlp:
            gate = self.act_fn(call_hooks(self.hook_pre, x @ self.W_gate))
            post = gate * call_hooks(self.hook_pre_linear, x @ self.W_in)
        else:
            pre = F.linear(x, self.W_in.T, biases.get("b_in"))
            post = self.act_fn(call_hooks(self.hook_pre, pre))
        post = call_hooks(self.hook_post, self.after_activation(post))
        return F.linear(post, self.W_out.T, biases.get("b_out"))

    def after_activation(self, post: Tensor) -> Tensor:
        """Apply what TransformerLens applies between the activation function and ``hook_post``."""
        if self.cfg.is_layer_norm_activation():
            return self.ln(call_hooks(self.hook_mid, post))
        return post + self.b_in if self.cfg.gated_mlp else post


class GatedMLP(MLP):
    """An MLP with W_gate."""


class Block(nn.Module):
    """Base class: the parts of one block."""

    cfg: HookedTransformerConfig
    attn: AbstractAttention
    mlp: CanBeUsedAsMLP

    def part(self, name: str) -> nn.Module | None:
        """The part of this name; ``None`` if the block has none."""
        return self._modules.get(name)

    def _hooked(self, name: str, x: Tensor) -> Tensor:
        return call_hooks(self.get_submodule(f"hook_{name}"), x)

    def _inputs_of_attention(self, resid_pre: Tensor) -> Iterable[Tensor]:
        """The inputs of queries, keys and values before the norm, each after its own hooks."""
        cfg, shared = self.cfg, resid_pre
        per_head = resid_pre[:, :, None].expand(-1, -1, cfg.n_heads, -1)
        if cfg.use_attn_in:
            shared = self._hooked("attn_in", per_head)
        inputs = dict.fromkeys(("q", "k", "v"), shared)
        if cfg.use_split_qkv_input:
            is_grouped = cfg.n_key_value_heads and not cfg.ungroup_grouped_query_attention
            kv_heads = cfg.n_key_value_heads if is_grouped else None
            for letter in inputs:
                heads = cfg.n_heads if letter == "q" else kv_heads or cfg.n_heads
                repeated = resid_pre[:, :, None].expand(-1, -1, heads, -1)
                inputs[letter] = self._hooked(f"{letter}_input", repeated)
        return inputs.values()

    def _input_of_mlp(self, x: Tensor) -> Tensor:
        """What the MLP reads from the stream, before its norm."""
        return self._hooked("mlp_in", x) if self.cfg.use_hook_mlp_in else x


class TransformerBlock(Block):
    """The parts of one decoder block."""

    ln1: nn.Module
    ln2: nn.Module

    def __init__(
        self, cfg: HookedTransformerConfig, core: CoreBlock, layer: int, weights: SharedWeights
    ) -> None:
        super().__init__()
        self.cfg = cfg

        def add_norm(name: str) -> None:
            norm = getattr(core, name, None)
            if isinstance(norm, ScaledNorm):
                self.add_module(name, norm_of(norm, weights))
            elif norm is not None:
                self.add_module(name, nn.Identity())

        for name in ("ln1", "ln1_post", "ln2", "ln2_post"):
            add_norm(name)
        attention = Attention if cfg.n_key_value_heads is None else GroupedQueryAttention
        self.attn = attention(cfg, core.attn, layer, weights)
        if not cfg.attn_only:
            plain = GatedMLP if cfg.gated_mlp else MLP
            kind = MoE if isinstance(core.mlp, Experts) else plain
            self.mlp = kind(cfg, core.mlp, weights)  # pyright: ignore[reportArgumentType]
        names = ["attn_in", "q_input", "k_input", "v_input", "mlp_in", "attn_out", "mlp_out"]
        mid = [] if cfg.attn_only or cfg.parallel_attn_mlp else ["resid_mid"]
        for name in (*names, "resid_pre", *mid, "resid_post"):
            self.add_module(f"hook_{name}", HookPoint())

    def forward(
        self,
        resid_pre: Tensor,
        shortformer_pos_embed: Tensor | None = None,
        past_kv_cache_entry: Any = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """The stream after the block ``[batch pos d_model]``.

        Args:
            resid_pre: the stream before it.
            shortformer_pos_embed: is added to the inputs of queries and keys, after the norm.
            past_kv_cache_entry: the earlier keys and values of this layer.
            attention_mask: 0 at padding, ``[batch key]``.
        """
        cfg = self.cfg
        resid_pre = self._hooked("resid_pre", resid_pre)
        attn_out = self._attention(
            resid_pre,
            shortformer_pos_embed,
            past_kv_cache_entry=past_kv_cache_entry,
            attention_mask=attention_mask,
        )
        if cfg.attn_only:
            return self._hooked("resid_post", resid_pre + attn_out)
        if cfg.parallel_attn_mlp:
            mlp_out = self.apply_mlp(self.ln2(self._input_of_mlp(resid_pre)))
            return self._hooked("resid_post", resid_pre + attn_out + mlp_out)
        resid_mid = self._hooked("resid_mid", resid_pre + attn_out)
        mlp_in = self._input_of_mlp(resid_mid)
        mlp_out = self.apply_mlp(mlp_in if self._is_post_norm else self.ln2(mlp_in))
        return self._hooked("resid_post", resid_mid + mlp_out)

    @property
    def _is_post_norm(self) -> bool:
        """Whether norms follow sub-layers only."""
        return self.cfg.original_architecture in WRITE_NORM

    def _attention(self, resid_pre: Tensor, positions: Tensor | None, **keywords: Any) -> Tensor:
        """What attention adds to the stream."""
        q, k, v = self._inputs_of_attention(resid_pre)
        if not self._is_post_norm:
            q, k, v = self.ln1(q), self.ln1(k), self.ln1(v)
        if positions is not None:
            positions = positions if q.ndim == positions.ndim else positions[:, :, None]
            q, k = q + positions, k + positions
        out = self.attn(query_input=q, key_input=k, value_input=v, **keywords)
        if self.cfg.use_normalization_before_and_after:
            out = self.get_submodule("ln1_post")(out)
        return self._hooked("attn_out", self.ln1(out) if self._is_post_norm else out)

    def apply_mlp(self, normalized_resid: Tensor) -> Tensor:
        """What the MLP adds to the stream, given its input after the norm."""
        out = self.mlp(normalized_resid)
        if self.cfg.use_normalization_before_and_after:
            out = self.get_submodule("ln2_post")(out)
        return self._hooked("mlp_out", self.ln2(out) if self._is_post_norm else out)
