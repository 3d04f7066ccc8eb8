"""ViT and DeiT: classifiers, and base models with and without a pooler."""

from functools import partial

from agreement.comparing import Family, Layers, Stack
from agreement.families.bert import pooled
from agreement.small import small
from transformers import (
    DeiTConfig,
    DeiTForImageClassification,
    DeiTModel,
    ViTConfig,
    ViTForImageClassification,
    ViTModel,
)

SIZES = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": 12,
    "patch_size": 4,
    "attn_implementation": "eager",
}

vit, deit = small(ViTConfig, SIZES), small(DeiTConfig, SIZES)


def family(name, cases, base="", **checks):
    """Models that read images, and whose base is called ``base``."""
    layers = Layers(f"{base}layers")
    shared = {
        "resid_pre": layers.input(),
        "normalized ln1": layers.output("layernorm_before"),
        "q": layers.output("attention.q_proj"),
        "k": layers.output("attention.k_proj"),
        "v": layers.output("attention.v_proj"),
        **layers.through("attention.o_proj", "z", "attn_out"),
        **layers.through("layernorm_after", "resid_mid", "normalized ln2"),
        "pre": layers.output("mlp.fc1"),
        **layers.through("mlp.fc2", "post", "mlp_out"),
        "resid_post": layers.output(),
    }
    squares = f"{base}embeddings.patch_embeddings.projection.weight"
    return Family(
        name=name,
        cases=cases,
        stacks={"encoder": Stack(shared)},
        pads=(),
        checks=checks,
        embedding=lambda theirs: theirs.get_parameter(squares),
        own_embedding=lambda ours: ours.stacks[0].tokens.weight,
    )


FAMILIES = [
    family(
        "ViT",
        {
            "plain": vit(ViTForImageClassification),
            "unbiased": vit(
                ViTForImageClassification,
                qkv_bias=False,
                hidden_act="relu",
                layer_norm_eps=1e-3,
                num_labels=5,
            ),
            "oblong": vit(
                ViTForImageClassification,
                image_size=[8, 16],
                patch_size=[4, 4],
                num_channels=1,
                head_dim=8,
                hidden_act="gelu_new",
                num_labels=3,
            ),
            "no-classes": vit(ViTForImageClassification, num_labels=0),
        },
        base="vit.",
    ),
    family("ViT", {"base": vit(ViTModel)}, pooler=pooled),
    family(
        "ViT",
        {
            "without-pooler": vit(
                partial(ViTModel, add_pooling_layer=False), pooler_act="relu", pooler_output_size=9
            ),
            "masking": vit(partial(ViTModel, add_pooling_layer=False, use_mask_token=True)),
        },
    ),
    family(
        "DeiT",
        {
            "plain": deit(DeiTForImageClassification),
            "unbiased": deit(
                DeiTForImageClassification,
                qkv_bias=False,
                hidden_act="relu",
                layer_norm_eps=1e-3,
                num_labels=5,
            ),
            "oblong": deit(
                DeiTForImageClassification,
                image_size=(8, 16),
                num_channels=1,
                num_attention_heads=3,
                hidden_act="gelu_new",
            ),
        },
        base="deit.",
    ),
    family("DeiT", {"base": deit(DeiTModel)}, pooler=pooled),
    family("DeiT", {"without-pooler": deit(partial(DeiTModel, add_pooling_layer=False))}),
]
