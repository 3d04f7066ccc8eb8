"""The weights of a model of this package as a state dict with TransformerLens's names."""

import torch
from torch import Tensor

from interp.compat.config import HookedTransformerConfig
from interp.model import MLP, Attention, Block, Experts, GatedMLP, Norm, ScaledNorm
from interp.transformer import Transformer

State = dict[str, Tensor]


def state_of(model: Transformer, cfg: HookedTransformerConfig) -> State:
    """The weights of a decoder; missing biases are 0, and W_E includes the embedding's scale."""
    stack = model.stacks[0]
    scale = model.config.stacks[stack.name].embedding.scale
    W_E, W_U = model.W_E.detach(), model.W_U.detach()
    state = {"embed.W_E": W_E if scale is None else W_E * scale}
    state |= norm_state("embed.ln", stack.embed_norm)
    if cfg.positional_embedding_type == "standard":
        state["pos_embed.W_pos"] = model.W_pos.detach()[: cfg.n_ctx]
    elif cfg.positional_embedding_type == "alibi":
        state["pos_embed.W_pos"] = W_U.new_zeros(cfg.n_ctx, cfg.d_model)
    for layer, block in enumerate(list(model.blocks)[: cfg.n_layers]):
        at = f"blocks.{layer}."
        for name in ("ln1", "ln1_post", "ln2", "ln2_post"):
            state |= norm_state(at + name, getattr(block, name, None), cfg)
        state |= attention_state(f"{at}attn.", block.attn, cfg)
        state |= mlp_state(f"{at}mlp.", block, cfg)
    state |= norm_state("ln_final", stack.final_norm, cfg)
    b_U = getattr(model.unembed, "b_U", None)
    state["unembed.W_U"] = W_U
    state["unembed.b_U"] = W_U.new_zeros(W_U.shape[1]) if b_U is None else b_U.detach()
    return {name: weight.detach().clone() for name, weight in state.items()}


def norm_state(name: str, norm: Norm | None, cfg: HookedTransformerConfig | None = None) -> State:
    """Gain and bias; a gain that is stored with an offset (Gemma) includes it.

    With ``cfg``, a LayerNorm without them (OLMo) has a gain of ones and a bias of zeros, as in
    TransformerLens.
    """
    if not isinstance(norm, ScaledNorm):
        return {}
    state: State = {}
    if cfg is not None and cfg.normalization_type == "LN":
        state[f"{name}.w"] = torch.ones(cfg.d_model, dtype=cfg.dtype)
        state[f"{name}.b"] = torch.zeros(cfg.d_model, dtype=cfg.dtype)
    if norm.multiplier is not None:
        state[f"{name}.w"] = norm.multiplier.detach().flatten()
    if norm.bias is not None:
        state[f"{name}.b"] = norm.bias.detach().flatten()
    return state


def attention_state(at: str, attn: Attention, cfg: HookedTransformerConfig) -> State:
    """The weights of attention; missing biases are 0."""
    prefix = "" if cfg.n_key_value_heads is None else "_"
    b_O = attn.b_O
    state = {
        f"{at}W_Q": attn.W_Q,
        f"{at}W_O": attn.W_O,
        f"{at}b_Q": attn.b_Q,
        f"{at}b_O": attn.W_O.new_zeros(cfg.d_model) if b_O is None else b_O,
        f"{at}{prefix}W_K": attn.W_K,
        f"{at}{prefix}W_V": attn.W_V,
        f"{at}{prefix}b_K": attn.b_K,
        f"{at}{prefix}b_V": attn.b_V,
    }
    return state | norm_state(f"{at}q_norm", attn.q_norm) | norm_state(f"{at}k_norm", attn.k_norm)


def mlp_state(at: str, block: Block, cfg: HookedTransformerConfig) -> State:
    """The weights of an MLP; missing biases are 0. Empty if there is no MLP."""
    mlp = getattr(block, "mlp", None)
    if isinstance(mlp, Experts):
        return _experts(at, mlp)
    if not isinstance(mlp, MLP):
        return {}
    W_in, W_out, b_in, b_out = mlp.W_in, mlp.W_out, mlp.b_in, mlp.b_out
    state = {
        f"{at}W_in": W_in,
        f"{at}b_in": W_in.new_zeros(W_in.shape[1]) if b_in is None else b_in,
        f"{at}W_out": W_out,
        f"{at}b_out": W_out.new_zeros(cfg.d_model) if b_out is None else b_out,
    }
    return state | ({f"{at}W_gate": mlp.W_gate} if isinstance(mlp, GatedMLP) else {})


def _experts(at: str, experts: Experts) -> State:
    state: State = {f"{at}W_gate.weight": experts.weight_router}
    stored = {"W_in": experts.weight_in, "W_gate": experts.weight_gate, "W_out": experts.weight_out}
    for name, weights in stored.items():
        for index, weight in enumerate(weights):
            state[f"{at}experts.{index}.{name}.weight"] = weight
    return state
