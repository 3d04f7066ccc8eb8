"""ViT (Dosovitskiy et al. 2021, arXiv:2010.11929) and DeiT (Touvron et al. 2021, arXiv:2012.12877).

The tokens are patches of an image. Pre-norm, bidirectional, learned positions. The CLS token comes
before the patches; DeiT has a distillation token between them. A classifier reads CLS after the
final norm: its logits are those at position 0. Files use older names of weights than live models.
Images have the size of training: positions are not interpolated.
"""

from typing import Any

from interp.config import (
    AttentionConfig,
    Config,
    EmbeddingConfig,
    MLPConfig,
    NormConfig,
    PatchConfig,
    StackConfig,
)
from interp.errors import ModelLoadError
from interp.loading.families.bert import classifier, has_pooler, pooler
from interp.loading.family import Family
from interp.loading.foreign_config import ForeignConfig
from interp.loading.settings import biases
from interp.loading.weight import (
    Table,
    attention_output,
    concatenated,
    each_layer,
    from_key,
    mlp,
    norm,
    prefixed,
    separate_qkv,
)

DEFAULTS: dict[str, Any] = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "image_size": 224,
    "patch_size": 16,
    "num_channels": 3,
    "qkv_bias": True,
    "pooler_act": "tanh",
}
CLS, DISTILLATION = "embeddings.cls_token", "embeddings.distillation_token"
POSITIONS = "embeddings.position_embeddings"
TEACHER = "distillation_classifier.weight"


def config(fields: ForeignConfig) -> Config:
    """An encoder of patches; its classes are the vocabulary."""
    if TEACHER in fields.weight_names:
        raise ModelLoadError(
            f"{fields.family}: the logits are the mean of two classifiers, at CLS and at the "
            "distillation token, but only one classifier is supported. Load the base model, or a "
            "model with a single classifier."
        )
    d_model, n_heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    d_head, biased = fields.get("head_dim", d_model // n_heads), fields.flag("qkv_bias")
    cut, unembeds = patches(fields), fields.unembedding != "none"
    bias = biases(qkv=biased, output=True)
    return Config(
        d_model=d_model,
        d_vocab=max(1, fields.n_classes),
        n_ctx=cut.n_patches + cut.n_special,
        unembeds=unembeds,
        bias_u=unembeds,
        pooler=uses_pooler(fields, d_model),
        encoder=StackConfig(
            n_layers=fields.integer("num_hidden_layers"),
            attention=AttentionConfig(n_heads, d_head, **bias),
            mlp=MLPConfig(fields.integer("intermediate_size"), fields.activation("hidden_act")),
            norm=NormConfig(eps=fields.number("layer_norm_eps")),
            embedding=EmbeddingConfig(patches=cut),
        ),
    )


def patches(fields: ForeignConfig) -> PatchConfig:
    """The sizes of images and patches."""
    height, width = pair(fields, "image_size")
    size, other = pair(fields, "patch_size")
    if size != other:
        raise fields.unsupported("patch_size", fields["patch_size"], "a square")
    n_special = 2 if DISTILLATION in fields.weight_names else 1
    return PatchConfig(height, width, size, fields.integer("num_channels"), n_special)


def pair(fields: ForeignConfig, name: str) -> tuple[int, int]:
    """Height and width; a single number means both."""
    value = fields[name]
    match value if isinstance(value, list | tuple) else (value, value):
        case (int(height), int(width)):
            return height, width
        case _:
            raise fields.unsupported(name, value, "one integer or two")


def uses_pooler(fields: ForeignConfig, d_model: int) -> bool:
    """Whether there is a pooler; only tanh and width d_model are supported."""
    if has_pooler(fields):
        fields.allow_only("pooler_act", ("tanh",))
        fields.allow_only("pooler_output_size", (d_model,))
    return has_pooler(fields)


def weights(config: Config, fields: ForeignConfig) -> Table:
    """The patch matrix is stored as a convolution; tokens and positions have a batch axis."""
    attention = config.stacks["encoder"].attention
    query, key, value = (f"attention.{name}_proj" for name in ("q", "k", "v"))
    block = {
        **norm("ln1", "layernorm_before"),
        **separate_qkv(query, key, value, biased=attention.bias_q),
        **attention_output("attention.o_proj"),
        **norm("ln2", "layernorm_after"),
        **mlp("mlp.fc1", "mlp.fc2"),
    }
    convolution = "embeddings.patch_embeddings.projection"
    special = [CLS, DISTILLATION] if DISTILLATION in fields.weight_names else [CLS]
    stack = {
        "tokens.weight": from_key(f"{convolution}.weight").map(lambda x: x.flatten(1)),
        "tokens.bias": from_key(f"{convolution}.bias"),
        "tokens.special": concatenated(*map(from_key, special)).map(lambda x: x[:, 0]),
        "entry.W_pos": from_key(POSITIONS).map(lambda x: x[0]),
        **each_layer(config.stacks["encoder"].n_layers, block, "layers.{}."),
        **norm("final_norm", "layernorm"),
    }
    head = classifier("classifier") if config.unembeds else {}
    return prefixed("encoder.", stack) | pooler(config) | head


RENAMES = (
    (r"^(vit|deit)\.", ""),
    (r"^encoder\.layer\.", "layers."),
    (r"\.attention\.attention\.query\.", ".attention.q_proj."),
    (r"\.attention\.attention\.key\.", ".attention.k_proj."),
    (r"\.attention\.attention\.value\.", ".attention.v_proj."),
    (r"\.attention\.output\.dense\.", ".attention.o_proj."),
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"\.output\.dense\.", ".mlp.fc2."),
)

FAMILIES = [
    Family(
        name=name,
        model_types=(model_type,),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        fields=("head_dim", "pooler_output_size"),
        unread=("encoder_stride",),
        renames=RENAMES,
        ignored=(r"^embeddings\.mask_token$",),
        head="classifier.weight",
        tied=False,
    )
    for name, model_type in (("ViT", "vit"), ("DeiT", "deit"))
]
