"""DINOv2: base models, with and without registers, with plain and gated MLPs."""

from agreement.comparing import Family, Layers, Stack, called, inputs_of, off
from agreement.families.vit import SIZES
from agreement.small import small
from transformers import (
    Dinov2Config,
    Dinov2Model,
    Dinov2WithRegistersConfig,
    Dinov2WithRegistersModel,
)

OWN_SIZES = {name: size for name, size in SIZES.items() if name != "intermediate_size"}
OWN_SIZES |= {"mlp_ratio": 2}
dinov2 = small(Dinov2Config, OWN_SIZES)
registered = small(Dinov2WithRegistersConfig, OWN_SIZES, num_register_tokens=3)

LAYERS = Layers("encoder.layer")
SHARED = {
    "resid_pre": LAYERS.input(),
    "normalized ln1": LAYERS.output("norm1"),
    "q": LAYERS.output("attention.q_proj"),
    "k": LAYERS.output("attention.k_proj"),
    "v": LAYERS.output("attention.v_proj"),
    "z": LAYERS.input("attention.o_proj"),
    "attn_out": LAYERS.output("layer_scale1"),
    **LAYERS.through("norm2", "resid_mid", "normalized ln2"),
    "mlp_out": LAYERS.output("layer_scale2"),
    "resid_post": LAYERS.output(),
}
PLAIN = SHARED | {"pre": LAYERS.output("mlp.fc1"), "post": LAYERS.input("mlp.fc2")}
GATED = SHARED | {
    "gate": LAYERS.output("mlp.gate_proj"),
    "pre": LAYERS.output("mlp.up_proj"),
    "post": LAYERS.input("mlp.down_proj"),
}


def pooled(theirs, ours):
    """Their pooled output is ours at CLS."""
    inputs = inputs_of(ours)
    return off(ours(*inputs)[:, 0], called(theirs, inputs).pooler_output)


def family(name, cases, shared):
    """Models whose tensors are read as in ``shared``."""
    squares = "embeddings.patch_embeddings.projection.weight"
    return Family(
        name=name,
        cases=cases,
        stacks={"encoder": Stack(shared)},
        pads=(),
        checks={"pooled": pooled},
        embedding=lambda theirs: theirs.get_parameter(squares),
        own_embedding=lambda ours: ours.stacks[0].tokens.weight,
    )


UNBIASED = {"qkv_bias": False, "hidden_act": "relu", "layer_norm_eps": 1e-3, "num_channels": 1}

FAMILIES = [
    family(
        "DINOv2",
        {
            "plain": dinov2(Dinov2Model),
            "unbiased": dinov2(Dinov2Model, **UNBIASED, mlp_ratio=3, use_mask_token=False),
        },
        PLAIN,
    ),
    family("DINOv2", {"gated": dinov2(Dinov2Model, use_swiglu_ffn=True)}, GATED),
    family(
        "DINOv2 with registers",
        {
            "plain": registered(Dinov2WithRegistersModel),
            "unbiased": registered(Dinov2WithRegistersModel, **UNBIASED, num_register_tokens=1),
        },
        PLAIN,
    ),
    family(
        "DINOv2 with registers",
        {"gated": registered(Dinov2WithRegistersModel, use_swiglu_ffn=True)},
        GATED,
    ),
]
