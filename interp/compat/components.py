"""The parts of a :class:`HookedTransformer`: TransformerLens's names over the core's weights.

Each part has parameters (shared with the core) and hook points. A part that is called by itself
computes the same as in a forward, and its hooks run; the forward of the model runs the core
instead.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

from interp.compat.config import HookedTransformerConfig
from interp.compat.experts import MoE
from interp.compat.factored_matrix import FactoredMatrix
from interp.compat.fixed_parts import FixedParts
from interp.compat.hook_point import HookPoint
from interp.compat.norms import Norm
from interp.compat.shared_weights import SharedWeights
from interp.compat.solu_norm import ActivationNorm
from interp.compat.utils.activation_functions import solu
from interp.compat.weight_views import bias_heads, input_heads, output_heads, transposed, whole
from interp.errors import NoSuchAttribute
from interp.model import Attention as CoreAttention
from interp.model import Block as CoreBlock
from interp.model import Experts, ScaledNorm
from interp.model import mlp as core_mlp


class Part(FixedParts):
    """Base class: a part that can't be called by itself."""

    def forward(self, *inputs: Any, **keywords: Any) -> Tensor:  # noqa: ARG002
        """Not supported.

        Raises:
            NoSuchAttribute: always.
        """
        raise NoSuchAttribute(
            f"A {type(self).__name__} of interp.compat can't be called by itself; run the model "
            "with run_with_cache, start_at_layer= or stop_at_layer=."
        )


class Embed(FixedParts):
    """W_E, and optionally a norm of the embedding."""

    def __init__(self, core: nn.Parameter, norm: Any, weights: SharedWeights) -> None:
        super().__init__()
        weights.add(self, "W_E", core, whole)
        if isinstance(norm, ScaledNorm):
            self.ln = Norm(norm, weights)

    def forward(self, tokens: Tensor) -> Tensor:
        """The embeddings of tokens."""
        weight: Any = self.W_E
        rows = weight[tokens]
        norm = getattr(self, "ln", None)
        return rows if norm is None else norm(rows)


class PosEmbed(FixedParts):
    """W_pos; without learned positions, a parameter that is not used, as in TransformerLens."""

    def __init__(
        self, core: nn.Parameter | None, cfg: HookedTransformerConfig, weights: SharedWeights
    ) -> None:
        super().__init__()
        if core is None:
            self.W_pos = nn.Parameter(torch.zeros(cfg.n_ctx, cfg.d_model, dtype=cfg.dtype))
        else:
            weights.add(self, "W_pos", core, whole)

    def forward(self, tokens: Tensor) -> Tensor:
        """The embeddings of the first positions, for each row of tokens."""
        rows: Tensor = self.W_pos[: tokens.shape[-1]]  # pyright: ignore[reportAssignmentType, reportIndexIssue]
        return rows.expand(*tokens.shape, -1).clone()


class Unembed(FixedParts):
    """W_U and b_U."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter, weights: SharedWeights) -> None:
        super().__init__()
        weights.add(self, "W_U", weight, transposed)
        weights.add(self, "b_U", bias, whole)
        self.hook_in, self.hook_out = HookPoint(), HookPoint()

    def forward(self, residual: Tensor) -> Tensor:
        """``residual @ W_U + b_U``."""
        logits = F.linear(self.hook_in(residual), self.W_U.T, self.b_U)  # pyright: ignore[reportArgumentType, reportCallIssue]
        return self.hook_out(logits)


class Attention(Part):
    """The weights and hook points of one attention."""

    def __init__(
        self, cfg: HookedTransformerConfig, core: CoreAttention, layer: int, weights: SharedWeights
    ) -> None:
        super().__init__()
        self.cfg, self.layer_id, self.attn_scale = cfg, layer, core.divisor
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
                self.add_module(name, Norm(norm, weights))
        # Buffers of TransformerLens's state dicts, which are not used.
        self.register_buffer("mask", torch.empty((0, 0), dtype=torch.bool))
        self.register_buffer("IGNORE", torch.tensor(-torch.inf))
        names = ["k", "q", "v", "z", "attn_scores", "pattern", "result"]
        names += ["rot_k", "rot_q"] if cfg.positional_embedding_type == "rotary" else []
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


class MLP(FixedParts):
    """The weights and hook points of one MLP.

    A forward that is assigned to an instance is used by the forward of the model, as long as it is
    assigned.
    """

    replaceable = ("forward",)
    hook_pre: HookPoint
    hook_pre_linear: HookPoint
    hook_post: HookPoint

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
        return solu(x) if self.cfg.is_layer_norm_activation() else self._core[0].act(x)

    def forward(self, x: Tensor) -> Tensor:
        """The output of the MLP, given its input after the norm."""
        (core,) = self._core
        if isinstance(core, core_mlp.GatedMLP):
            gate = core.act(self.hook_pre(core.gate(x)))
            post = self.after_activation(gate * self.hook_pre_linear(core.pre(x)))
        else:
            post = self.after_activation(self.act_fn(self.hook_pre(core.pre(x))))
        return core.write(self.hook_post(post))

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; a new ``forward`` replaces the computation of the core."""
        super().__setattr__(name, value)
        if name == "forward":
            core: Any = self._core[0]

            def hidden(x: Tensor, context: object, tap: object) -> Tensor:  # noqa: ARG001
                return x

            def output(x: Tensor, tap: Any) -> Tensor:
                return tap(core.out, self(x))

            core.hidden, core.output = hidden, output

    def __delattr__(self, name: str) -> None:
        """Delete an attribute; without its own ``forward``, the core computes the MLP again."""
        super().__delattr__(name)
        if name == "forward":
            del self._core[0].hidden, self._core[0].output

    @property
    def has_own_forward(self) -> bool:
        """Whether a forward was assigned to this instance."""
        return "forward" in self.__dict__

    def norm_has_hooks(self) -> bool:
        """Whether the norm after SoLU, or the point before that norm, has hooks."""
        return any(
            p.is_hooked for p in (self.hook_mid, self.ln.hook_scale, self.ln.hook_normalized)
        )

    def after_activation(self, post: Tensor) -> Tensor:
        """Apply what TransformerLens applies between the activation function and ``hook_post``."""
        if self.cfg.is_layer_norm_activation():
            return self.ln(self.hook_mid(post))
        return post + self.b_in if self.cfg.gated_mlp else post


class Block(Part):
    """Base class: the parts of one block."""

    attn: Attention
    mlp: MLP | MoE

    def part(self, name: str) -> nn.Module | None:
        """The part of this name; ``None`` if the block has none."""
        return self._modules.get(name)


class TransformerBlock(Block):
    """The parts of one decoder block."""

    def __init__(
        self, cfg: HookedTransformerConfig, core: CoreBlock, layer: int, weights: SharedWeights
    ) -> None:
        super().__init__()
        self.cfg = cfg

        def add_norm(name: str) -> None:
            norm = getattr(core, name, None)
            if isinstance(norm, ScaledNorm):
                self.add_module(name, Norm(norm, weights))
            elif norm is not None:
                self.add_module(name, nn.Identity())

        for name in ("ln1", "ln1_post", "ln2", "ln2_post"):
            add_norm(name)
        self.attn = Attention(cfg, core.attn, layer, weights)
        if not cfg.attn_only:
            kind = MoE if isinstance(core.mlp, Experts) else MLP
            self.mlp = kind(cfg, core.mlp, weights)  # pyright: ignore[reportArgumentType]
        names = ["attn_in", "q_input", "k_input", "v_input", "mlp_in", "attn_out", "mlp_out"]
        mid = [] if cfg.attn_only or cfg.parallel_attn_mlp else ["resid_mid"]
        for name in (*names, "resid_pre", *mid, "resid_post"):
            self.add_module(f"hook_{name}", HookPoint())
