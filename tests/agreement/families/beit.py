"""BEiT: biases between patches, of each layer or shared; pooling of patches or CLS; its heads."""

from functools import partial

import torch
from agreement.comparing import Family, Layers, Stack, called, inputs_of, off
from agreement.disk import published
from agreement.families.vit import SIZES
from agreement.small import small
from transformers import (
    BeitConfig,
    BeitForImageClassification,
    BeitForMaskedImageModeling,
    BeitModel,
)

beit = small(BeitConfig, SIZES, use_relative_position_bias=True)
headless = partial(BeitModel, add_pooling_layer=False)
CLS = {"use_mean_pooling": False, "layer_scale_init_value": 0.0}
ALL_POSITIONS = {
    "use_absolute_position_embeddings": True,
    "use_shared_relative_position_bias": True,
}
# As of microsoft/beit-base-patch16-224, in the names of version 4 of transformers.
PUBLISHED = {
    "architectures": ["BeitForImageClassification"],
    "attention_probs_dropout_prob": 0.0,
    "auxiliary_channels": 256,
    "auxiliary_concat_input": False,
    "auxiliary_loss_weight": 0.4,
    "auxiliary_num_convs": 1,
    "drop_path_rate": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "hidden_size": 24,
    "id2label": {"0": "tench", "1": "goldfish", "2": "shark"},
    "image_size": 12,
    "initializer_range": 0.02,
    "intermediate_size": 40,
    "label2id": {"tench": 0, "goldfish": 1, "shark": 2},
    "layer_norm_eps": 1e-12,
    "layer_scale_init_value": 0.1,
    "model_type": "beit",
    "num_attention_heads": 4,
    "num_channels": 3,
    "num_hidden_layers": 3,
    "out_indices": [3, 5, 7, 11],
    "patch_size": 4,
    "pool_scales": [1, 2, 3, 6],
    "semantic_loss_ignore_index": 255,
    "torch_dtype": "float32",
    "transformers_version": "4.11.0.dev0",
    "use_absolute_position_embeddings": False,
    "use_auxiliary_head": True,
    "use_mask_token": False,
    "use_mean_pooling": True,
    "use_relative_position_bias": True,
    "use_shared_relative_position_bias": False,
    "vocab_size": 8192,
}
ON_DISK = {
    r"\.layers\.": ".encoder.layer.",
    r"\.attention\.([qkv])_proj\.": r".attention.attention.\1_proj.",
    r"\.q_proj\.": ".query.",
    r"\.k_proj\.": ".key.",
    r"\.v_proj\.": ".value.",
    r"\.attention\.o_proj\.": ".attention.output.dense.",
    r"\.mlp\.fc1\.": ".intermediate.dense.",
    r"\.mlp\.fc2\.": ".output.dense.",
    r"(\d)\.relative_position_bias\.": r"\1.attention.attention.relative_position_bias.",
}
INDICES = {
    f"beit.encoder.layer.{layer}.attention.attention.relative_position_bias.relative_position_index"
    for layer in range(3)
}
# As of microsoft/beit-base-patch16-224-pt22k.
PRETRAINED = PUBLISHED | {
    "architectures": ["BeitForMaskedImageModeling"],
    "use_mask_token": True,
    "use_relative_position_bias": False,
    "use_shared_relative_position_bias": True,
    "vocab_size": 50,
}
SHARED_ON_DISK = ON_DISK | {r"shared_position_bias": "encoder.relative_position_bias"}
SHARED_INDEX = "beit.encoder.relative_position_bias.relative_position_index"


def pooled(theirs, ours):
    """Their pooled output: that of our pooler, or ours at CLS if there is none."""
    inputs = inputs_of(ours)
    stream = ours(*inputs)
    output = stream[:, 0] if ours.pooler is None else ours.pooler(stream)
    return off(output, called(theirs, inputs).pooler_output)


@torch.no_grad()
def patches_pooled(theirs, ours):
    """What the classifier reads: the last norm at position 0."""
    (images,) = inputs_of(ours)
    batches = ours.check(images)
    return off(ours.stream(batches)[:, 0], called(theirs.base_model, [images]).pooler_output)


def less(after, before):
    """What a sub-layer added to the stream, scaled: the stream after it minus the stream before."""
    return lambda seen, layer: after(seen, layer) - before(seen, layer)


def family(cases, base="", **checks):
    """Models whose base is called ``base``."""
    layers = Layers(f"{base}layers")
    shared = {
        "resid_pre": layers.input(),
        "normalized ln1": layers.output("layernorm_before"),
        "q": layers.output("attention.q_proj"),
        "k": layers.output("attention.k_proj"),
        "v": layers.output("attention.v_proj"),
        "z": layers.input("attention.o_proj"),
        **layers.through("layernorm_after", "resid_mid", "normalized ln2"),
        "pre": layers.output("mlp.fc1"),
        "post": layers.input("mlp.fc2"),
        "resid_post": layers.output(),
        "attn_out": less(layers.input("layernorm_after"), layers.input()),
        "mlp_out": less(layers.output(), layers.input("layernorm_after")),
    }
    squares = f"{base}embeddings.patch_embeddings.projection.weight"
    return Family(
        name="BEiT",
        cases=cases,
        stacks={"encoder": Stack(shared)},
        pads=(),
        checks=checks,
        embedding=lambda theirs: theirs.get_parameter(squares),
        own_embedding=lambda ours: ours.stacks[0].tokens.weight,
    )


FAMILIES = [
    family(
        {
            "plain": beit(BeitForImageClassification),
            "shared": beit(
                BeitForImageClassification,
                use_relative_position_bias=False,
                use_shared_relative_position_bias=True,
                hidden_act="relu",
                layer_norm_eps=1e-3,
                num_attention_heads=3,
                num_channels=1,
                num_labels=5,
            ),
            "CLS": beit(BeitForImageClassification, **CLS, head_dim=8, hidden_act="gelu_new"),
            "all-positions": beit(
                BeitForImageClassification, **ALL_POSITIONS, image_size=[8, 8], patch_size=2
            ),
            "no-classes": beit(BeitForImageClassification, num_labels=0),
        },
        base="beit.",
        pooled=patches_pooled,
    ),
    family(
        {"published": beit(BeitForImageClassification, num_labels=3)},
        base="beit.",
        published=published(PUBLISHED, ON_DISK, dict.fromkeys(INDICES, (10, 10))),
    ),
    family(
        {
            "visual-tokens": beit(
                BeitForMaskedImageModeling,
                use_relative_position_bias=False,
                use_shared_relative_position_bias=True,
                use_mask_token=True,
                vocab_size=50,
            )
        },
        base="beit.",
        published=published(PRETRAINED, SHARED_ON_DISK, {SHARED_INDEX: (10, 10)}),
    ),
    family(
        {
            "base": beit(BeitModel),
            "base-CLS": beit(BeitModel, **CLS, use_relative_position_bias=False),
            "base-absolute": beit(
                BeitModel, use_relative_position_bias=False, use_absolute_position_embeddings=True
            ),
        },
        pooled=pooled,
    ),
    family({"without-pooler": beit(headless), "CLS-without-pooler": beit(headless, **CLS)}),
]
