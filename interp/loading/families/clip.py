"""The towers of CLIP (Radford et al. 2021, arXiv:2103.00020): one for texts, one for images.

The text tower has the form of GPT-2, with a causal mask; the image tower has that of ViT, with a
norm after the embedding. The logits of a tower with a projection are the dimensions of the CLIP
embedding, at every position: the embedding of an image is ``logits[:, 0]`` (CLS), that of a text is
at EOS. A tower without one returns its last stream; in the image tower it is normed here at every
position, and by ``transformers`` only in its ``pooler_output``.
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
from interp.loading.family import Family, TwoTowerFamily
from interp.loading.foreign_config import ForeignConfig
from interp.loading.joined_towers import EmbeddingAt
from interp.loading.weight import (
    Table,
    attention_output,
    each_layer,
    from_key,
    mlp,
    norm,
    prefixed,
    separate_qkv,
)

TEXT: dict[str, Any] = {
    "vocab_size": 49408,
    "hidden_size": 512,
    "intermediate_size": 2048,
    "projection_dim": 512,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "max_position_embeddings": 77,
    "hidden_act": "quick_gelu",
    "layer_norm_eps": 1e-5,
    "bos_token_id": 49406,
    "eos_token_id": 49407,
}
IMAGE: dict[str, Any] = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "projection_dim": 512,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_channels": 3,
    "image_size": 224,
    "patch_size": 32,
    "hidden_act": "quick_gelu",
    "layer_norm_eps": 1e-5,
}
EOS_OF_FIRST_FILES = 2
CLS, EMBEDDING = "embeddings.class_embedding", "embeddings.token_embedding.weight"
TEXT_PROJECTION, IMAGE_PROJECTION = "text_projection.weight", "visual_projection.weight"


def text_config(fields: ForeignConfig) -> Config:
    """A text decoder."""
    exits: dict[str, Any] = {"unembeds": False}
    if TEXT_PROJECTION in fields.weight_names:
        exits = {"n_classes": fields.integer("projection_dim")}
    return Config(
        d_model=fields.integer("hidden_size"),
        d_vocab=fields.integer("vocab_size"),
        n_ctx=fields.integer("max_position_embeddings"),
        decoder=stack(fields),
        **exits,
    )


def image_config(fields: ForeignConfig) -> Config:
    """An image encoder."""
    cut, unembeds = patches(fields, n_special=1), IMAGE_PROJECTION in fields.weight_names
    embedding = EmbeddingConfig(norm=layer_norm(fields), patches=cut)
    return Config(
        d_model=fields.integer("hidden_size"),
        d_vocab=fields.integer("projection_dim") if unembeds else 1,
        n_ctx=cut.n_patches + 1,
        unembeds=unembeds,
        encoder=stack(fields, embedding=embedding),
    )


def stack(fields: ForeignConfig, **settings: Any) -> StackConfig:  # noqa: ANN401
    """A stack of either tower; ``settings`` are further fields of the stack."""
    d_model, n_heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    return StackConfig(
        n_layers=fields.integer("num_hidden_layers"),
        attention=AttentionConfig(n_heads, d_model // n_heads),
        mlp=MLPConfig(fields.integer("intermediate_size"), fields.activation("hidden_act")),
        norm=layer_norm(fields),
        **settings,
    )


def layer_norm(fields: ForeignConfig) -> NormConfig:
    """LayerNorm with ``layer_norm_eps``."""
    return NormConfig(eps=fields.number("layer_norm_eps"))


def patches(fields: ForeignConfig, n_special: int, *, bias: bool = False) -> PatchConfig:
    """The sizes of images and patches; images are square."""
    size, edge = fields.integer("patch_size"), fields.integer("image_size")
    return PatchConfig(edge, edge, size, fields.integer("num_channels"), n_special, bias)


def text_weights(config: Config, fields: ForeignConfig) -> Table:  # noqa: ARG001 - as Family.weights
    """The tower, and the projection."""
    head = {"unembed.weight": from_key(TEXT_PROJECTION)} if config.unembeds else {}
    return prefixed("decoder.", text_tower(config.stacks["decoder"].n_layers)) | head


def text_tower(n_layers: int) -> Table:
    """The text tower, up to its final norm."""
    return {
        "weight_e": from_key(EMBEDDING),
        "entry.W_pos": from_key("embeddings.position_embedding.weight"),
        **blocks(n_layers),
        **norm("final_norm", "final_layer_norm"),
    }


def image_weights(config: Config, fields: ForeignConfig) -> Table:  # noqa: ARG001 - as Family.weights
    """The tower, and the projection."""
    table = {
        **patch_weights(),
        "tokens.special": from_key(CLS).map(lambda x: x[None]),
        **norm("embed_norm", "pre_layrnorm"),
        **blocks(config.stacks["encoder"].n_layers),
        **norm("final_norm", "post_layernorm"),
    }
    head = {"unembed.weight": from_key(IMAGE_PROJECTION)} if config.unembeds else {}
    return prefixed("encoder.", table) | head


def patch_weights() -> Table:
    """The patch matrix, which is stored as a convolution, and the positions."""
    return {
        "tokens.weight": from_key("embeddings.patch_embedding.weight").map(lambda x: x.flatten(1)),
        "entry.W_pos": from_key("embeddings.position_embedding.weight"),
    }


def blocks(n_layers: int) -> Table:
    """The blocks of either tower."""
    names = (f"self_attn.{name}_proj" for name in ("q", "k", "v"))
    block = {
        **norm("ln1", "layer_norm1"),
        **separate_qkv(*names),
        **attention_output("self_attn.out_proj"),
        **norm("ln2", "layer_norm2"),
        **mlp("mlp.fc1", "mlp.fc2"),
    }
    return each_layer(n_layers, block, "encoder.layers.{}.")


def embedding_at(fields: ForeignConfig) -> EmbeddingAt:
    """At EOS; the first files have a wrong id for it, with which the largest id is meant."""
    eos = fields.get("eos_token_id", TEXT["eos_token_id"])
    if eos < 0:
        raise fields.unsupported("eos_token_id", eos, "an id")
    return "largest id" if eos == EOS_OF_FIRST_FILES else eos


def tower(name: str, model_type: str, **settings: Any) -> Family:  # noqa: ANN401
    """The family of a tower; ``settings`` are further fields of :class:`Family`."""
    return Family(
        name=name,
        model_types=(model_type,),
        unread=("initializer_factor", "logit_scale_init_value"),
        renames=((r"^(text|vision)_model\.", ""),),
        ignored=(r"^embeddings\.position_ids$",),
        tied=False,
        **settings,
    )


FAMILIES = [
    tower(
        "CLIP (text)",
        "clip_text_model",
        config=text_config,
        weights=text_weights,
        defaults=TEXT,
        embedding=EMBEDDING,
        head=TEXT_PROJECTION,
    ),
    tower(
        "CLIP (image)",
        "clip_vision_model",
        config=image_config,
        weights=image_weights,
        defaults=IMAGE,
        head=IMAGE_PROJECTION,
        pooled=True,
    ),
]
TWO_TOWERS = [
    TwoTowerFamily(
        name="CLIP",
        model_type="clip",
        text=FAMILIES[0],
        image=FAMILIES[1],
        embedding_at=embedding_at,
        shared={"projection_dim": 512},
        overridden=True,
        unread=("initializer_factor", "logit_scale_init_value"),
    )
]
