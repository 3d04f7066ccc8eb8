"""BEiT (Bao et al. 2022, arXiv:2106.08254): ViT with biases of the scores between patches.

The biases depend on the offset of two patches in rows and columns; each layer has its own, or all
share one table. If there are both, a layer has their sum. Keys have no bias. The outputs of
attention and MLP are scaled by one factor per channel, which is folded into W_O, W_out and their
biases. Learned positions are an option.

A classifier reads the norm of the mean of all patches, or CLS: its logits are those at position 0.
In a base model with mean pooling, no norm follows the last block, and ``model.pooler`` computes the
norm of the mean. Masked image modelling has logits of visual tokens at every patch (no patch is
masked here, so the mask token is not read). Images have the size of training: biases and positions
are not interpolated.
"""

from dataclasses import replace
from typing import Any

from torch import Tensor

from interp.config import (
    AttentionConfig,
    Config,
    EmbeddingConfig,
    MLPConfig,
    NormConfig,
    PatchConfig,
    PositionsConfig,
    StackConfig,
)
from interp.errors import ModelLoadError
from interp.loading.families import dinov2, vit
from interp.loading.families.bert import classifier
from interp.loading.family import Family
from interp.loading.foreign_config import BASE_MODEL, ForeignConfig
from interp.loading.weight import (
    Table,
    Weight,
    concatenated,
    each_layer,
    from_key,
    linear,
    norm,
    prefixed,
)

DEFAULTS: dict[str, Any] = {
    "vocab_size": 8192,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "image_size": 224,
    "patch_size": 16,
    "num_channels": 3,
    "use_absolute_position_embeddings": False,
    "use_relative_position_bias": False,
    "use_shared_relative_position_bias": False,
    "layer_scale_init_value": 0.1,
    "use_mean_pooling": True,
}
VISUAL_TOKENS, POOLER = "lm_head.weight", "pooler.layernorm"
NORM, OUTER_NORM = "layernorm", "outer_layernorm"
"""The norm of a base model within another; that of a base model alone, or of the visual tokens."""
OF_LAYER = "relative_position_bias.relative_position_bias_table"
SHARED = "shared_position_bias.relative_position_bias_table"


def config(fields: ForeignConfig) -> Config:
    """An encoder of patches; its classes, or visual tokens, are the vocabulary."""
    d_model, n_heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    d_head = fields.get("head_dim", d_model // n_heads)
    means, predicts = fields.flag("use_mean_pooling"), VISUAL_TOKENS in fields.weight_names
    if predicts and not means:
        raise ModelLoadError(
            f"{fields.family}: with use_mean_pooling=False, the head of masked image modelling has "
            "a norm of its own after the last norm; two norms before the logits are not supported. "
            f"{BASE_MODEL}"
        )
    classifies = classifies_images(fields)
    pooled = means and (classifies or f"{POOLER}.weight" in fields.weight_names)
    cut = replace(patches(fields), mean_pooled=pooled)
    unembeds = predicts or fields.unembedding != "none"
    return Config(
        d_model=d_model,
        d_vocab=fields.integer("vocab_size") if predicts else max(1, fields.n_classes),
        n_ctx=cut.n_patches + cut.n_special,
        unembeds=unembeds,
        bias_u=unembeds,
        encoder=StackConfig(
            n_layers=fields.integer("num_hidden_layers"),
            attention=AttentionConfig(n_heads, d_head, bias_k=False),
            mlp=MLPConfig(fields.integer("intermediate_size"), fields.activation("hidden_act")),
            norm=NormConfig(
                eps=fields.number("layer_norm_eps"), final=classifies or predicts or not means
            ),
            positions=positions(fields),
            embedding=EmbeddingConfig(patches=cut),
        ),
    )


def classifies_images(fields: ForeignConfig) -> bool:
    """Whether the model is a classifier, possibly one without classes."""
    named = fields.architecture_suffix("ForImageClassification") is not None
    return named or fields.unembedding != "none"


def patches(fields: ForeignConfig) -> PatchConfig:
    """The sizes of images and patches."""
    height, width = vit.pair(fields, "image_size")
    if height != width:  # transformers exchanges rows and columns of the biases
        raise fields.unsupported("image_size", fields["image_size"], "a square")
    return vit.patches(fields)


def positions(fields: ForeignConfig) -> PositionsConfig:
    """Biases between patches, learned positions, both or neither."""
    learned = fields.flag("use_absolute_position_embeddings")
    if fields.flag("use_relative_position_bias"):
        return PositionsConfig("layer_grid", learned=learned)
    if fields.flag("use_shared_relative_position_bias"):
        return PositionsConfig("grid", learned=learned)
    return PositionsConfig("learned" if learned else "none")


def weights(config: Config, fields: ForeignConfig) -> Table:
    """Like ViT, with biases between patches and scaled outputs."""
    n_layers = config.stacks["encoder"].n_layers
    convolution = "embeddings.patch_embeddings.projection"
    stack = {
        "tokens.weight": from_key(f"{convolution}.weight").map(lambda x: x.flatten(1)),
        "tokens.bias": from_key(f"{convolution}.bias"),
        "tokens.special": from_key(vit.CLS).map(lambda x: x[0]),
        **each_layer(n_layers, block(fields), "layers.{}."),
        **biases_between_patches(n_layers, fields),
    }
    if fields.flag("use_absolute_position_embeddings"):
        stack["entry.W_pos"] = from_key(vit.POSITIONS).map(lambda x: x[0])
    head = classifier("lm_head" if VISUAL_TOKENS in fields.weight_names else "classifier")
    exits = last_norm(config, fields) | (head if config.unembeds else {})
    return prefixed("encoder.", stack) | exits


def block(fields: ForeignConfig) -> Table:
    """The weights of a block; only keys have no bias."""
    query, key, value = (f"attention.{name}_proj" for name in ("q", "k", "v"))
    matrices = (from_key(f"{source}.weight") for source in (query, key, value))
    outputs = (
        ("attn.weight_o", "attn.b_O", "attention.o_proj", "lambda_1"),
        ("mlp.weight_out", "mlp.b_out", "mlp.fc2", "lambda_2"),
    )
    has_scales = fields.number("layer_scale_init_value") > 0
    table = {
        **norm("ln1", "layernorm_before"),
        "attn.weight_qkv": concatenated(*matrices),
        "attn.b_q": from_key(f"{query}.bias"),
        "attn.b_v": from_key(f"{value}.bias"),
        **norm("ln2", "layernorm_after"),
        **linear("mlp.weight_in", "mlp.b_in", "mlp.fc1"),
    }
    for weight, bias, source, scale in outputs:
        scaled = dinov2.scaled_output(weight, bias, source, scale)
        table |= scaled if has_scales else linear(weight, bias, source)
    return table


def biases_between_patches(n_layers: int, fields: ForeignConfig) -> Table:
    """The biases of the scores: of each layer, shared by all, or the sum of both."""
    shared = (SHARED,) if fields.flag("use_shared_relative_position_bias") else ()
    if not fields.flag("use_relative_position_bias"):
        return {"ranges.weight": from_key(SHARED)} if shared else {}
    return {
        f"ranges.{layer}.weight": Weight((f"layers.{layer}.{OF_LAYER}", *shared), total)
        for layer in range(n_layers)
    }


def total(first: Tensor, *others: Tensor) -> Tensor:
    """The sum of tensors."""
    return sum(others, start=first)


def last_norm(config: Config, fields: ForeignConfig) -> Table:
    """The norm of the last stream, of the mean of its patches, or neither."""
    stack = config.stacks["encoder"]
    if stack.embedding.patches is not None and stack.embedding.patches.mean_pooled:
        return norm("encoder.final_norm.norm" if stack.norm.final else "pooler.norm", POOLER)
    inner = f"{NORM}.weight" in fields.weight_names
    return norm("encoder.final_norm", NORM if inner else OUTER_NORM) if stack.norm.final else {}


FAMILIES = [
    Family(
        name="BEiT",
        model_types=("beit",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        fields=("head_dim",),
        unread=(
            *("_out_features", "_out_indices", "add_fpn", "auxiliary_channels"),
            *("auxiliary_concat_input", "auxiliary_loss_weight", "auxiliary_num_convs"),
            *("drop_path_rate", "out_features", "out_indices", "pool_scales"),
            *("reshape_hidden_states", "segmentation_indices", "semantic_loss_ignore_index"),
            *("stage_names", "use_auxiliary_head", "use_mask_token"),
        ),
        renames=(
            (r"^layernorm\.", f"{OUTER_NORM}."),
            (r"^beit\.", ""),
            (r"^encoder\.relative_position_bias\.", "shared_position_bias."),
            (r"\.attention\.attention\.relative_position_bias\.", ".relative_position_bias."),
            *vit.RENAMES,
        ),
        ignored=(r"^embeddings\.mask_token$", r"relative_position_index$"),
        head="classifier.weight",
        tied=False,
    )
]
