"""The towers of SigLIP (Zhai et al. 2023, arXiv:2303.15343): those of CLIP, with other heads.

The text tower is bidirectional. Its logits are the dimensions of the embedding, at every position;
the embedding of a text is the one at the last position, padding included (texts are padded to
``max_position_embeddings`` tokens, and padding is attended to). The image tower has no CLS; its
``pooler`` combines all patches into one vector by attention. If the size of an image is not a
multiple of that of a patch (384 and 14), the last rows and columns of pixels are not read.
"""

from dataclasses import replace
from typing import Any

from interp.config import AttentionPoolerConfig, Config, EmbeddingConfig
from interp.errors import InvalidConfig
from interp.loading.families import clip
from interp.loading.family import TwoTowerFamily
from interp.loading.foreign_config import ForeignConfig
from interp.loading.weight import (
    Table,
    attention_output,
    from_key,
    fused_qkv,
    linear,
    mlp,
    norm,
    prefixed,
)

TEXT: dict[str, Any] = {
    **clip.TEXT,
    "vocab_size": 32000,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_attention_heads": 12,
    "max_position_embeddings": 64,
    "hidden_act": "gelu_pytorch_tanh",
    "layer_norm_eps": 1e-6,
}
IMAGE: dict[str, Any] = {
    **clip.IMAGE,
    "patch_size": 16,
    "hidden_act": "gelu_pytorch_tanh",
    "layer_norm_eps": 1e-6,
    "vision_use_head": True,
}
del TEXT["projection_dim"], IMAGE["projection_dim"]
HEAD = "head.weight"


def text_config(fields: ForeignConfig) -> Config:
    """A text encoder."""
    d_model = fields.integer("hidden_size")
    return Config(
        d_model=d_model,
        d_vocab=fields.integer("vocab_size"),
        n_ctx=fields.integer("max_position_embeddings"),
        encoder=clip.stack(fields),
        n_classes=fields.get("projection_size", d_model),
        bias_u=True,
    )


def image_config(fields: ForeignConfig) -> Config:
    """An image encoder, and the pooler if there is one."""
    edge, size = fields.integer("image_size"), fields.integer("patch_size")
    whole = fields.replace(image_size=edge - edge % size)
    cut = clip.patches(whole, n_special=0, bias=True)
    stack = clip.stack(fields, embedding=EmbeddingConfig(patches=cut))
    if stack.mlp is None:
        raise InvalidConfig("The pooler of an image tower needs an MLP.")
    pooler = AttentionPoolerConfig(stack.attention, stack.mlp, stack.norm)
    return Config(
        d_model=fields.integer("hidden_size"),
        d_vocab=1,
        n_ctx=cut.n_patches,
        unembeds=False,
        encoder=stack,
        attention_pooler=pooler if fields.flag("vision_use_head") else None,
    )


def text_weights(config: Config, fields: ForeignConfig) -> Table:  # noqa: ARG001 - as Family.weights
    """CLIP's text tower as an encoder, and the head."""
    tower = clip.text_tower(config.stacks["encoder"].n_layers)
    return prefixed("encoder.", tower) | linear("unembed.weight", "unembed.b_U", "head")


def image_weights(config: Config, fields: ForeignConfig) -> Table:  # noqa: ARG001 - as Family.weights
    """CLIP's image tower without CLS, and the pooler."""
    table = {
        **clip.patch_weights(),
        "tokens.bias": from_key("embeddings.patch_embedding.bias"),
        **clip.blocks(config.stacks["encoder"].n_layers),
        **norm("final_norm", "post_layernorm"),
    }
    return prefixed("encoder.", table) | (pooler(config.d_model) if config.attention_pooler else {})


def pooler(d_model: int) -> Table:
    """The pooler, whose attention is stored as a :class:`torch.nn.MultiheadAttention`."""
    qkv, bias = from_key("attention.in_proj_weight"), from_key("attention.in_proj_bias")
    table = {
        "probe": from_key("probe").map(lambda x: x[0, 0]),
        **fused_qkv(qkv, bias, d_model, d_model),
        **attention_output("attention.out_proj"),
        **norm("norm", "layernorm"),
        **mlp("mlp.fc1", "mlp.fc2"),
    }
    return prefixed("pooler.", table, "head.")


FAMILIES = [
    replace(
        clip.tower(
            "SigLIP (text)",
            "siglip_text_model",
            config=text_config,
            weights=text_weights,
            defaults=TEXT,
            embedding=clip.EMBEDDING,
            head=HEAD,
            pooled=True,
        ),
        fields=("projection_size",),
    ),
    clip.tower(
        "SigLIP (image)",
        "siglip_vision_model",
        config=image_config,
        weights=image_weights,
        defaults=IMAGE,
    ),
]
TWO_TOWERS = [
    TwoTowerFamily(
        name="SigLIP",
        model_type="siglip",
        text=FAMILIES[0],
        image=FAMILIES[1],
        embedding_at=lambda _: "last",
        biased=True,
        unread=("initializer_factor",),
    )
]
