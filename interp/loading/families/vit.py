"""ViT (Dosovitskiy et al. 2021) and DeiT (Touvron et al. 2021): squares of an image are the tokens.

Pre-norm, attention both ways, learned positions. CLS stands in front of the squares, in DeiT the
distillation token behind it. A classifier reads CLS behind the last norm: its logits are those at
position 0. Weights have older names in files than in a live model. Images are of the size that the
model was trained on: positions are not interpolated.
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
from interp.loading.foreign_config import Raw
from interp.loading.weight import Table, at, each_layer, joined, linear, norm, separate_qkv, under

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
TEACHER = "distillation_classifier.weight"


def config(raw: Raw) -> Config:
    """A stack both ways over squares; its classes are the vocabulary."""
    if TEACHER in raw.keys:
        raise ModelLoadError(
            f"{raw.family}: these logits are the mean of two classifiers', one at CLS and one at "
            "the distillation token; this toolkit reads all positions by one. Give it the base "
            "model, or one with a single classifier."
        )
    d_model, n_heads = raw.whole("hidden_size"), raw.whole("num_attention_heads")
    heads, biased = raw.get("head_dim", d_model // n_heads), raw.flag("qkv_bias")
    cut = patches(raw)
    return Config(
        d_model=d_model,
        d_vocab=max(1, raw.n_classes),
        n_ctx=cut.n_patches + cut.n_special,
        unembeds=raw.head != "none",
        bias_u=raw.head != "none",
        pooler=pools(raw, d_model),
        encoder=StackConfig(
            n_layers=raw.whole("num_hidden_layers"),
            attention=AttentionConfig(n_heads, heads, bias_q=biased, bias_k=biased, bias_v=biased),
            mlp=MLPConfig(raw.whole("intermediate_size"), raw.activation("hidden_act")),
            norm=NormConfig(eps=raw.number("layer_norm_eps")),
            embedding=EmbeddingConfig(patches=cut),
        ),
    )


def patches(raw: Raw) -> PatchConfig:
    """How an image is cut."""
    height, width = pair(raw, "image_size")
    size, across = pair(raw, "patch_size")
    if size != across:
        raise raw.refused("patch_size", raw["patch_size"], "squares")
    n_special = 2 if DISTILLATION in raw.keys else 1
    return PatchConfig(height, width, size, raw.whole("num_channels"), n_special)


def pair(raw: Raw, name: str) -> tuple[int, int]:
    """Height and width, which may be told as one number."""
    told = raw[name]
    both = told if isinstance(told, list | tuple) else (told, told)
    match both:
        case (int(height), int(width)):
            return height, width
        case _:
            raise raw.refused(name, told, "one whole number or two")


def pools(raw: Raw, d_model: int) -> bool:
    """Whether there is a pooler, of the one kind that is known."""
    if has_pooler(raw):
        raw.only("pooler_act", ("tanh",))
        raw.only("pooler_output_size", (d_model,))
    return has_pooler(raw)


def weights(config: Config, raw: Raw) -> Table:
    """A square's matrix is stored as a convolution's; tokens and positions have a batch axis."""
    attention = config.stacks["encoder"].attention
    query, key, value = (f"attention.{name}_proj" for name in ("q", "k", "v"))
    block = {
        **norm("ln1", "layernorm_before"),
        **separate_qkv(query, key, value, biased=attention.bias_q),
        **linear("attn.weight_o", "attn.b_O", "attention.o_proj"),
        **norm("ln2", "layernorm_after"),
        **linear("mlp.weight_in", "mlp.b_in", "mlp.fc1"),
        **linear("mlp.weight_out", "mlp.b_out", "mlp.fc2"),
    }
    convolution = "embeddings.patch_embeddings.projection"
    special = [at(key) for key in (CLS, DISTILLATION) if key in raw.keys] or [at(CLS)]
    stack = {
        "tokens.weight": at(f"{convolution}.weight").then(lambda x: x.flatten(1)),
        "tokens.bias": at(f"{convolution}.bias"),
        "tokens.special": joined(*special).then(lambda x: x[:, 0]),
        "entry.W_pos": at("embeddings.position_embeddings").then(lambda x: x[0]),
        **each_layer(config.stacks["encoder"].n_layers, block, "blocks", "layers.{}."),
        **norm("final_norm", "layernorm"),
    }
    exits = classifier("classifier") if config.unembeds else {}
    return under("encoder.", stack) | pooler(config) | exits


NAMES = (
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
        model_types=(kind,),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        names=NAMES,
        ignored=(r"^embeddings\.mask_token$",),
        head="classifier.weight",
        ties=False,
    )
    for name, kind in (("ViT", "vit"), ("DeiT", "deit"))
]
