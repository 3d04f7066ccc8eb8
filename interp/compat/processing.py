"""Processing of weights for interpretation, on state dicts with TransformerLens's names.

Gain and bias of a norm are folded into the matrices that read its output, the mean over d_model is
removed from weights that write to the stream, the mean over the vocabulary is removed from W_U, and
b_V is folded into b_O. Only centring W_U changes the logits, by the same number at all tokens of a
position (TransformerLens 3.9, ``weight_processing.py``).
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from interp.compat.config import HookedTransformerConfig
from interp.compat.core_config import WRITE_NORM
from interp.compat.errors import InvalidInput
from interp.compat.factored_matrix import FactoredMatrix

StateDict = dict[str, Tensor]


def fold_norms(state: StateDict, cfg: HookedTransformerConfig, *, centre: bool = True) -> StateDict:
    """Fold gains and biases of the norms before sub-layers and the unembedding.

    With LayerNorms and ``centre``, matrices that read them are also centred over d_model: products
    with a centred stream stay. Norms after a sub-layer are kept.
    """
    state, centre = dict(state), centre and cfg.normalization_type in ("LN", "LNPre")
    prefix = "" if cfg.n_key_value_heads is None else "_"
    for layer in range(0 if cfg.original_architecture in WRITE_NORM else cfg.n_layers):
        at = f"blocks.{layer}."
        reads = {f"{at}attn.W_Q": f"{at}attn.b_Q"}
        reads |= {f"{at}attn.{prefix}W_{x}": f"{at}attn.{prefix}b_{x}" for x in "KV"}
        _fold(state, f"{at}ln1", reads, centre=centre)
        if cfg.num_experts:
            _fold_experts(state, at)
        elif not cfg.attn_only:
            gate = f"{at}mlp.W_gate"
            if cfg.gated_mlp:  # TransformerLens does not centre it
                gain = state.get(f"{at}ln2.w")
                _check_no_bias(state, f"{at}ln2", "W_gate has no bias")
                state[gate] = state[gate] if gain is None else state[gate] * gain[:, None]
            _fold(state, f"{at}ln2", {f"{at}mlp.W_in": f"{at}mlp.b_in"}, centre=centre)
            if cfg.is_layer_norm_activation():
                _fold(state, f"{at}mlp.ln", {f"{at}mlp.W_out": f"{at}mlp.b_out"}, centre=centre)
    _fold(state, "ln_final", {"unembed.W_U": "unembed.b_U"}, centre=centre)
    return state


def _fold(state: StateDict, norm: str, reads: Mapping[str, str | None], *, centre: bool) -> None:
    """Fold one norm into weights ``[... d_model out]`` and their biases ``[... out]``."""
    gain, bias = state.pop(f"{norm}.w", None), state.pop(f"{norm}.b", None)
    for name, bias_name in reads.items():
        weight = state[name]
        if bias is not None and bias_name is not None:
            state[bias_name] = state[bias_name] + (weight * bias[:, None]).sum(-2)
        weight = weight if gain is None else weight * gain[:, None]
        state[name] = weight - weight.mean(-2, keepdim=True) if centre else weight


def _fold_experts(state: StateDict, at: str) -> None:
    """Fold ln2 into the router and the experts, whose weights are ``[out d_model]``."""
    _check_no_bias(state, f"{at}ln2", "experts have no biases")
    gain, _ = state.pop(f"{at}ln2.w", None), state.pop(f"{at}ln2.b", None)
    ends = ("W_in.weight", "W_gate.weight")
    for name in [name for name in state if name.startswith(f"{at}mlp.") and name.endswith(ends)]:
        state[name] = state[name] if gain is None else state[name] * gain


def _check_no_bias(state: StateDict, norm: str, why: str) -> None:
    """Refuse to fold a norm with a bias into weights without one."""
    bias = state.get(f"{norm}.b")
    if bias is not None and bool(bias.any()):
        raise InvalidInput(f"{norm}.b is not zero, and {why} to fold it into; use fold_ln=False.")


def centre_writing(state: StateDict, cfg: HookedTransformerConfig) -> StateDict:
    """Centre embeddings, W_O, b_O, W_out and b_out over d_model."""
    state = dict(state)
    names = [] if cfg.original_architecture in WRITE_NORM else ["embed.W_E"]
    if names and cfg.positional_embedding_type == "standard":
        names.append("pos_embed.W_pos")
    for layer in range(cfg.n_layers):
        names += [f"blocks.{layer}.{part}" for part in ("attn.W_O", "attn.b_O")]
        names += [f"blocks.{layer}.{part}" for part in ("mlp.W_out", "mlp.b_out")]
    for name in names:
        if name in state:
            state[name] = state[name] - state[name].mean(-1, keepdim=True)
    for name in [name for name in state if ".experts." in name and name.endswith("W_out.weight")]:
        state[name] = state[name] - state[name].mean(0, keepdim=True)
    return state


def centre_unembed(state: StateDict) -> StateDict:
    """Centre W_U and b_U over the vocabulary."""
    names = ("unembed.W_U", "unembed.b_U")
    return state | {name: state[name] - state[name].mean(-1, keepdim=True) for name in names}


def fold_value_biases(state: StateDict, cfg: HookedTransformerConfig) -> StateDict:
    """Fold b_V into b_O, which is exact because the rows of a pattern sum to 1."""
    state = dict(state)
    name = "b_V" if cfg.n_key_value_heads is None else "_b_V"
    for layer in range(cfg.n_layers):
        at = f"blocks.{layer}.attn."
        b_V, W_O = state[at + name], state[at + "W_O"]
        each = b_V.repeat_interleave(W_O.shape[0] // b_V.shape[0], dim=0)
        state[at + "b_O"] = state[at + "b_O"] + (each[:, :, None] * W_O).sum((0, 1))
        state[at + name] = torch.zeros_like(b_V)
    return state


def even_factors(state: StateDict, cfg: HookedTransformerConfig) -> StateDict:
    """Refactor W_Q W_Kᵀ and W_V W_O of each head by singular value decompositions.

    W_V W_O = (U S) Vᵀ, so that W_V has orthogonal columns and W_O orthonormal rows; and
    W_Q W_Kᵀ = (U √S) (V √S)ᵀ, with the biases as a further row of W_Q and W_K, so that the columns
    of W_Q and W_K have equal norms. Scores, patterns and results do not change; b_V is folded into
    b_O first.

    Raises:
        InvalidInput: queries and keys are rotated or normalized, so that scores are not a bilinear
            form of the stream, or heads share keys.
    """
    shared = cfg.n_key_value_heads is not None
    if cfg.positional_embedding_type == "rotary" or cfg.use_qk_norm or shared:
        raise InvalidInput(
            "refactor_factored_attn_matrices= needs queries and keys that are neither rotated, "
            "normalized nor shared between heads; leave it False for this model."
        )
    state = fold_value_biases(state, cfg)
    for layer in range(cfg.n_layers):
        at = f"blocks.{layer}.attn."
        query, key = (
            torch.cat([state[f"{at}W_{x}"], state[f"{at}b_{x}"][:, None]], dim=1) for x in "QK"
        )
        even = FactoredMatrix(query, key.mT).make_even()
        for letter, joint in (("Q", even.A), ("K", even.B.mT)):
            state[f"{at}W_{letter}"], state[f"{at}b_{letter}"] = joint[:, :-1], joint[:, -1]
        U, S, V = FactoredMatrix(state[f"{at}W_V"], state[f"{at}W_O"]).svd()
        state[f"{at}W_V"], state[f"{at}W_O"] = U * S[:, None], V.mT
    return state


def processed_state(
    state: StateDict,
    cfg: HookedTransformerConfig,
    *,
    fold_ln: bool,
    center_writing_weights: bool,
    center_unembed: bool,
    fold_biases: bool,
    refactor: bool = False,
) -> StateDict:
    """Apply the requested steps, as far as TransformerLens applies them and in its order."""
    # Without gains there is nothing to fold, and TransformerLens does not centre either.
    if fold_ln and any(name.endswith((".ln1.w", ".ln2.w", "ln_final.w")) for name in state):
        state = fold_norms(state, cfg)
    centred = cfg.normalization_type in ("LN", "LNPre") and not cfg.final_rms
    if center_writing_weights and centred:
        state = centre_writing(state, cfg)
    if center_unembed:
        state = centre_unembed(state)
    if fold_biases:
        state = fold_value_biases(state, cfg)
    return even_factors(state, cfg) if refactor else state
