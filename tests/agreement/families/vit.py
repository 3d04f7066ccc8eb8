"""ViT and DeiT: classifiers, and base models with and without a pooler."""

from agreement.comparing import Family, Stack, from_disk
from agreement.families.bert import pooled
from transformers import (
    DeiTConfig,
    DeiTForImageClassification,
    DeiTModel,
    ViTConfig,
    ViTForImageClassification,
    ViTModel,
)


def config(kind=ViTConfig, **rest):
    told = {
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "image_size": 12,
        "patch_size": 4,
        "attn_implementation": "eager",
    }
    return kind(**(told | rest))


def stack(base):
    """The stack of a model whose base is called ``base``."""
    layers = f"{base}layers"

    def gave(name):
        return lambda seen, layer: seen.gave[f"{layers}.{layer}{name}"]

    def given(name):
        return lambda seen, layer: seen.given[f"{layers}.{layer}{name}"]

    shared = {
        "resid_pre": given(""),
        "normalized ln1": gave(".layernorm_before"),
        "q": gave(".attention.q_proj"),
        "k": gave(".attention.k_proj"),
        "v": gave(".attention.v_proj"),
        "z": given(".attention.o_proj"),
        "attn_out": gave(".attention.o_proj"),
        "resid_mid": given(".layernorm_after"),
        "normalized ln2": gave(".layernorm_after"),
        "pre": gave(".mlp.fc1"),
        "post": given(".mlp.fc2"),
        "mlp_out": gave(".mlp.fc2"),
        "resid_post": gave(""),
    }
    return {"encoder": Stack(layers, shared)}


def family(name, base, cases, **checks):
    """Models that read images."""
    embeddings = f"{base}embeddings"
    return Family(
        name=name,
        cases=cases,
        stacks=stack(base),
        reads="images",
        pads=(),
        checks={"disk": from_disk, **checks},
        embedding=lambda theirs: theirs.get_parameter(
            f"{embeddings}.patch_embeddings.projection.weight"
        ),
        own_embedding=lambda ours: ours.stacks[0].tokens.weight,
    )


FAMILIES = [
    family(
        "ViT",
        "vit.",
        {
            "plain": lambda: ViTForImageClassification(config()),
            "unbiased": lambda: ViTForImageClassification(
                config(qkv_bias=False, hidden_act="relu", layer_norm_eps=1e-3, num_labels=5)
            ),
            "oblong": lambda: ViTForImageClassification(
                config(
                    image_size=[8, 16],
                    patch_size=[4, 4],
                    num_channels=1,
                    head_dim=8,
                    hidden_act="gelu_new",
                    num_labels=3,
                )
            ),
            "no-classes": lambda: ViTForImageClassification(config(num_labels=0)),
        },
    ),
    family("ViT", "", {"base": lambda: ViTModel(config())}, pooler=pooled("images")),
    family(
        "ViT",
        "",
        {
            "without-pooler": lambda: ViTModel(
                config(pooler_act="relu", pooler_output_size=9), add_pooling_layer=False
            ),
            "masking": lambda: ViTModel(config(), add_pooling_layer=False, use_mask_token=True),
        },
    ),
    family(
        "DeiT",
        "deit.",
        {
            "plain": lambda: DeiTForImageClassification(config(DeiTConfig)),
            "unbiased": lambda: DeiTForImageClassification(
                config(
                    DeiTConfig, qkv_bias=False, hidden_act="relu", layer_norm_eps=1e-3, num_labels=5
                )
            ),
            "oblong": lambda: DeiTForImageClassification(
                config(
                    DeiTConfig,
                    image_size=(8, 16),
                    num_channels=1,
                    num_attention_heads=3,
                    hidden_act="gelu_new",
                )
            ),
        },
    ),
    family("DeiT", "", {"base": lambda: DeiTModel(config(DeiTConfig))}, pooler=pooled("images")),
    family(
        "DeiT",
        "",
        {"without-pooler": lambda: DeiTModel(config(DeiTConfig), add_pooling_layer=False)},
    ),
]
