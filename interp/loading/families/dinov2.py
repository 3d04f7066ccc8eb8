"""DINOv2 (Oquab et al. 2023, arXiv:2304.07193), also with registers (arXiv:2309.16588).

ViT's encoder, where the outputs of attention and MLP are scaled by one factor per channel; the
factors are folded into W_O, W_out and their biases. Registers are learned tokens between CLS and
the patches, without positions. Images have the size of training (518 × 518 in the released models):
positions are not interpolated.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from interp.config import Config, MLPConfig
from interp.errors import ModelLoadError
from interp.loading.families import vit
from interp.loading.foreign_config import ForeignConfig
from interp.loading.weight import (
    Table,
    Weight,
    cat,
    concatenated,
    each_layer,
    from_key,
    gate_and_in,
    linear,
    norm,
    prefixed,
    separate_qkv,
)

DEFAULTS: dict[str, Any] = {
    **vit.DEFAULTS,
    "layer_norm_eps": 1e-6,
    "patch_size": 14,
    "mlp_ratio": 4,
    "use_swiglu_ffn": False,
    "num_register_tokens": 0,
}
WITH_REGISTERS: dict[str, Any] = {**DEFAULTS, "patch_size": 16, "num_register_tokens": 4}
REGISTERS, JOINT = "embeddings.register_tokens", "mlp.weights_in"


def config(fields: ForeignConfig) -> Config:
    """ViT's configuration, with registers among the special tokens."""
    if "classifier.weight" in fields.weight_names:
        raise ModelLoadError(
            f"{fields.family}: the classifier reads CLS and the mean of all patches, which is not "
            "supported. Load the base model: interp.load(hf_model.base_model)."
        )
    height, width = vit.pair(fields, "image_size")
    if height != width:  # transformers interpolates positions of any other image
        raise fields.unsupported("image_size", fields["image_size"], "a square")
    d_mlp = fields.integer("hidden_size") * fields.integer("mlp_ratio")
    plain = vit.config(fields.replace(intermediate_size=d_mlp))
    encoder, n_registers = plain.stacks["encoder"], fields["num_register_tokens"]
    cut = replace(vit.patches(fields), n_special=1 + n_registers)
    if fields.flag("use_swiglu_ffn"):
        d_mlp = -(-int(d_mlp * 2 / 3) // 8) * 8  # rounded up to a multiple of 8
        encoder = replace(encoder, mlp=MLPConfig(d_mlp, "silu", gated=True))
    encoder = replace(encoder, embedding=replace(encoder.embedding, patches=cut))
    return replace(plain, encoder=encoder, n_ctx=cut.n_patches + cut.n_special)


def weights(config: Config, fields: ForeignConfig) -> Table:
    """Like ViT, with other names and scaled outputs."""
    stack = config.stacks["encoder"]
    query, key, value = (f"attention.{name}_proj" for name in ("q", "k", "v"))
    gated = stack.mlp is not None and stack.mlp.gated
    block = {
        **norm("ln1", "norm1"),
        **separate_qkv(query, key, value, biased=stack.attention.bias_q),
        **scaled_output("attn.weight_o", "attn.b_O", "attention.o_proj", "layer_scale1.lambda1"),
        **norm("ln2", "norm2"),
        **(swiglu(fields) if gated else linear("mlp.weight_in", "mlp.b_in", "mlp.fc1")),
        **scaled_output(
            *("mlp.weight_out", "mlp.b_out"),
            *("mlp.down_proj" if gated else "mlp.fc2", "layer_scale2.lambda1"),
        ),
    }
    convolution, positions = "embeddings.patch_embeddings.projection", vit.POSITIONS
    has_registers = REGISTERS in fields.weight_names
    special = [vit.CLS, REGISTERS] if has_registers else [vit.CLS]
    table = {
        "tokens.weight": from_key(f"{convolution}.weight").map(lambda x: x.flatten(1)),
        "tokens.bias": from_key(f"{convolution}.bias"),
        "tokens.special": concatenated(*(from_key(key).map(lambda x: x[0]) for key in special)),
        "entry.W_pos": Weight(
            (positions, REGISTERS) if has_registers else (positions,), _positions
        ),
        **each_layer(stack.n_layers, block, "encoder.layer.{}."),
        **norm("final_norm", "layernorm"),
    }
    return prefixed("encoder.", table)


def scaled_output(weight: str, bias: str, source: str, scale: str) -> Table:
    """A matrix ``[out, in]`` and its bias, each row multiplied by its scale."""

    def scaled(x: Tensor, by: Tensor) -> Tensor:
        return x * by.unflatten(0, (-1, *[1] * (x.ndim - 1)))

    keys = {weight: f"{source}.weight", bias: f"{source}.bias"}
    return {name: Weight((key, scale), scaled) for name, key in keys.items()}


def swiglu(fields: ForeignConfig) -> Table:
    """W_gate and W_in, as two matrices or as the halves of one."""
    if any(f".{JOINT}." in name for name in fields.weight_names):
        return gate_and_in(JOINT)
    return {
        **linear("mlp.weight_gate", "mlp.b_gate", "mlp.gate_proj"),
        **linear("mlp.weight_in", "mlp.b_in", "mlp.up_proj"),
    }


def _positions(positions: Tensor, registers: Tensor | None = None) -> Tensor:
    """W_pos, with zeros for the registers after CLS."""
    if registers is None:
        return positions[0]
    zeros = torch.zeros_like(registers[0])
    return cat([positions[0, :1], zeros, positions[0, 1:]])


FAMILIES = [
    replace(
        vit.FAMILIES[0],
        name=name,
        model_types=(model_type,),
        config=config,
        weights=weights,
        defaults=defaults,
        fields=(),
        unread=(
            *("_out_features", "_out_indices", "apply_layernorm", "drop_path_rate"),
            *("layerscale_value", "out_features", "out_indices", "reshape_hidden_states"),
            *("stage_names", "use_mask_token"),
        ),
        renames=(
            (rf"^{model_type}\.", ""),
            (r"\.attention\.attention\.query\.", ".attention.q_proj."),
            (r"\.attention\.attention\.key\.", ".attention.k_proj."),
            (r"\.attention\.attention\.value\.", ".attention.v_proj."),
            (r"\.attention\.output\.dense\.", ".attention.o_proj."),
            (r"\.mlp\.weights_out\.", ".mlp.down_proj."),
        ),
    )
    for name, model_type, defaults in (
        ("DINOv2", "dinov2", DEFAULTS),
        ("DINOv2 with registers", "dinov2_with_registers", WITH_REGISTERS),
    )
]
