"""OPT (Zhang et al. 2022): GPT-2 with ReLU and separate projections, in two arrangements.

The 350m norms behind each sub-layer, has no last norm, and an embedding narrower than the stream;
all others norm before. The first two rows of the table of positions belong to no token.
"""

from typing import Any

from interp.config import (
    AttentionConfig,
    Config,
    EmbeddingConfig,
    MLPConfig,
    NormConfig,
    StackConfig,
)
from interp.loading.family import Family
from interp.loading.foreign_config import Raw
from interp.loading.weight import (
    Table,
    at,
    each_layer,
    linear,
    norm,
    separate_qkv,
    under,
    unembedding,
)

DEFAULTS: dict[str, Any] = {
    "vocab_size": 50272,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "ffn_dim": 3072,
    "max_position_embeddings": 2048,
    "do_layer_norm_before": True,
    "_remove_final_layer_norm": False,
    "num_attention_heads": 12,
    "activation_function": "relu",
    "enable_bias": True,
    "layer_norm_elementwise_affine": True,
    "bos_token_id": 2,
    "eos_token_id": 2,
}
UNUSED_POSITIONS = 2


def config(raw: Raw) -> Config:
    """Heads share d_model evenly; one flag for all biases but those of the norms."""
    d_model, n_heads = raw.whole("hidden_size"), raw.whole("num_attention_heads")
    width, biased = raw.get("word_embed_proj_dim", d_model), raw.flag("enable_bias")
    narrow = None if width == d_model else width
    unembeds = raw.head != "none"
    return Config(
        d_model=d_model,
        d_vocab=raw.whole("vocab_size"),
        n_ctx=raw.whole("max_position_embeddings"),
        tied=raw.head == "tied",
        unembeds=unembeds,
        d_unembed=narrow if unembeds else None,
        decoder=StackConfig(
            n_layers=raw.whole("num_hidden_layers"),
            attention=AttentionConfig(
                n_heads,
                d_model // n_heads,
                bias_q=biased,
                bias_k=biased,
                bias_v=biased,
                bias_o=biased,
            ),
            mlp=MLPConfig(
                raw.whole("ffn_dim"),
                raw.activation("activation_function"),
                bias_in=biased,
                bias_out=biased,
            ),
            norm=_norm(raw),
            embedding=EmbeddingConfig(width=narrow),
        ),
    )


def _norm(raw: Raw) -> NormConfig:
    before, affine = raw.flag("do_layer_norm_before"), raw.flag("layer_norm_elementwise_affine")
    return NormConfig(
        placement="pre" if before else "post",
        final=before and not raw.flag("_remove_final_layer_norm"),
        gain=affine,
        bias=affine,
    )


def weights(config: Config, raw: Raw) -> Table:
    """Each projection by itself."""
    stack = config.stacks["decoder"]
    biased, affine = stack.attention.bias_o, stack.norm.gain
    qkv = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    block = {
        **(norm("ln1", "self_attn_layer_norm") if affine else {}),
        **separate_qkv(*qkv, biased=biased),
        **linear("attn.weight_o", "attn.b_O", "self_attn.out_proj", biased=biased),
        **(norm("ln2", "final_layer_norm") if affine else {}),
        **linear("mlp.weight_in", "mlp.b_in", "fc1", biased=biased),
        **linear("mlp.weight_out", "mlp.b_out", "fc2", biased=biased),
    }
    lines = {
        "weight_e": at("embed_tokens.weight"),
        "entry.W_pos": at("embed_positions.weight")[UNUSED_POSITIONS:],
        **each_layer(stack.n_layers, block, "blocks", "layers.{}."),
    }
    if stack.norm.final and affine:
        lines |= norm("final_norm", "final_layer_norm")
    if stack.embedding.width is not None:
        lines |= {"tokens.project.weight": at("project_in.weight")}
    narrowed = {} if config.d_unembed is None else {"unembed.project.weight": at(PROJECT_OUT)}
    return under("decoder.", lines) | unembedding(raw.head) | narrowed


PROJECT_OUT = "project_out.weight"

FAMILIES = [
    Family(
        name="OPT",
        model_types=("opt",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        names=((r"^model\.", ""), (r"^decoder\.", "")),
        embedding="embed_tokens.weight",
    ),
]
