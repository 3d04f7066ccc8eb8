"""ModernBERT (Warner et al. 2024, arXiv:2412.13663).

A bidirectional pre-norm encoder with rotary positions, gated MLPs and few biases. Two layers out of
three have a window on both sides, and another base of the rotary positions. The embedding is
normed, and the first attention reads it without another norm. The head of a masked language model,
norm(act(x·W)), reads the output of the final norm.
"""

from dataclasses import replace
from typing import Any

from interp.config import (
    AttentionConfig,
    Config,
    EmbeddingConfig,
    HeadConfig,
    LayerConfig,
    MLPConfig,
    NormConfig,
    StackConfig,
)
from interp.errors import ModelLoadError, shorten
from interp.loading.families import bert, llama
from interp.loading.family import Family
from interp.loading.foreign_config import BASE_MODEL, ForeignConfig
from interp.loading.rotary import with_rope_of
from interp.loading.settings import biases
from interp.loading.sliding_window import FULL, SLIDING, layer_types
from interp.loading.weight import (
    Table,
    attention_output,
    from_key,
    fused_qkv,
    gate_and_in,
    linear,
    norm,
    prefixed,
)

DEFAULTS: dict[str, Any] = {
    "vocab_size": 50368,
    "hidden_size": 768,
    "intermediate_size": 1152,
    "num_hidden_layers": 22,
    "num_attention_heads": 12,
    "hidden_activation": "gelu",
    "max_position_embeddings": 8192,
    "norm_eps": 1e-5,
    "norm_bias": False,
    "attention_bias": False,
    "mlp_bias": False,
    "decoder_bias": True,
    "classifier_bias": False,
    "classifier_activation": "gelu",
    "classifier_pooling": "cls",
    "local_attention": 128,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160_000.0,
    "local_rope_theta": 10_000.0,
}
EMBEDDING, HEAD, CLASSIFIER = "embeddings.tok_embeddings.weight", "head.dense", "classifier"


def config(fields: ForeignConfig) -> Config:
    """The stack; the weights that are present determine the head."""
    fields.allow_only("rope_scaling")
    base, local_base = fields.number("global_rope_theta"), fields.number("local_rope_theta")
    d_model, n_heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    biased = fields.flag("attention_bias")
    attention = AttentionConfig(n_heads, d_model // n_heads, **biases(qkv=biased, output=biased))
    own_norm = layer_norm(fields)
    stack = StackConfig(
        n_layers=fields.integer("num_hidden_layers"),
        attention=attention,
        mlp=MLPConfig(
            fields.integer("intermediate_size"),
            fields.activation("hidden_activation"),
            gated=True,
            bias_in=fields.flag("mlp_bias"),
            bias_out=fields.flag("mlp_bias"),
        ),
        norm=own_norm,
        positions=llama.whole_head_rotary(with_rope_of(fields, FULL, base)),
        embedding=EmbeddingConfig(norm=own_norm),
        exceptions=exceptions(fields, attention, with_rope_of(fields, SLIDING, local_base)),
    )
    n_ctx, d_vocab = fields.integer("max_position_embeddings"), fields.integer("vocab_size")
    return Config(d_model, d_vocab, n_ctx, encoder=stack, **exit_settings(fields))


def layer_norm(fields: ForeignConfig) -> NormConfig:
    """LayerNorm, without bias by default."""
    return NormConfig(eps=fields.number("norm_eps"), bias=fields.flag("norm_bias"))


def exceptions(
    fields: ForeignConfig, attention: AttentionConfig, rope: ForeignConfig
) -> tuple[LayerConfig, ...]:
    """Layers with a window, whose rotary positions ``rope`` describes, and the first layer."""
    period = fields.integer("global_attn_every_n_layers")
    types = layer_types(fields, lambda layer: layer % period != 0)
    local = replace(attention, window=fields.integer("local_attention") // 2 + 1)
    positions = llama.whole_head_rotary(rope)
    layers = tuple(layer for layer, kind in enumerate(types) if kind == SLIDING)
    first = replace(local if types[0] == SLIDING else attention, normed=False)
    windows = (LayerConfig(layers, local, positions=positions),) if layers else ()
    return (*windows, LayerConfig((0,), first))


def exit_settings(fields: ForeignConfig) -> dict[str, Any]:
    """The fields of :class:`Config` for what follows the stack."""
    if f"{HEAD}.weight" not in fields.weight_names:
        return {"unembeds": False}
    head = HeadConfig(
        fields.activation("classifier_activation"),
        layer_norm(fields),
        bias=fields.flag("classifier_bias"),
        after_norm=True,
    )
    if f"{CLASSIFIER}.weight" not in fields.weight_names:
        tied, bias_u = fields.unembedding == "tied", fields.flag("decoder_bias")
        return {"head": head, "tied": tied, "bias_u": bias_u}
    suffix = fields.architecture_suffix(bert.TEXTS, bert.TOKENS)
    if suffix is None:
        raise fields.unsupported_head(bert.TEXTS, bert.TOKENS)
    if suffix == bert.TEXTS:
        check_pooling(fields)
    return {"head": head, "n_classes": fields.n_classes, "bias_u": True}


def check_pooling(fields: ForeignConfig) -> None:
    """Refuse a classifier of texts that reads other positions than the first."""
    if fields.get("classifier_pooling") != "cls":
        raise ModelLoadError(
            f"{fields.family}: config.json has "
            f"classifier_pooling={shorten(fields.get('classifier_pooling'))}: the head reads the "
            "mean over all positions, but here a head reads each position by itself, and the "
            f"first (cls) classifies the text. {BASE_MODEL}"
        )


def weights(config: Config, fields: ForeignConfig) -> Table:  # noqa: ARG001 - as Family.weights
    """Queries, keys and values are one matrix, and so are W_gate and W_in."""
    stack = config.stacks["encoder"]
    table = {
        "weight_e": from_key(EMBEDDING),
        **norm("embed_norm", "embeddings.norm", bias=stack.norm.bias),
    }
    for layer in range(stack.n_layers):
        table |= prefixed(f"blocks.{layer}.", block(config, layer), f"layers.{layer}.")
    last = norm("final_norm", "final_norm", bias=stack.norm.bias)
    if config.head is None:
        return prefixed("encoder.", table | last)
    head = {
        **norm("final_norm.norm_before", "final_norm", bias=stack.norm.bias),
        **linear("final_norm.weight", "final_norm.bias", HEAD, biased=config.head.bias),
        **norm("final_norm.norm", "head.norm", bias=stack.norm.bias),
    }
    return prefixed("encoder.", table | head) | unembedding(config)


def block(config: Config, layer: int) -> Table:
    """One block."""
    stack, d_model = config.stacks["encoder"].of_layer(layer), config.d_model
    biased = stack.mlp is not None and stack.mlp.bias_in
    qkv, qkv_bias = from_key("attn.Wqkv.weight"), from_key("attn.Wqkv.bias")
    table = {
        **fused_qkv(qkv, qkv_bias if stack.attention.bias_q else None, d_model, d_model),
        **attention_output("attn.Wo", biased=stack.attention.bias_o),
        **norm("ln2", "mlp_norm", bias=stack.norm.bias),
        **gate_and_in("mlp.Wi", biased=biased),
        **linear("mlp.weight_out", "mlp.b_out", "mlp.Wo", biased=biased),
    }
    has_norm = stack.attention.normed
    return table | (norm("ln1", "attn_norm", bias=stack.norm.bias) if has_norm else {})


def unembedding(config: Config) -> Table:
    """W_U, unless it is tied, and b_U."""
    if config.n_classes is not None:
        return bert.classifier(CLASSIFIER)
    table = linear("unembed.weight", "unembed.b_U", "decoder", biased=config.bias_u)
    return {
        name: weight for name, weight in table.items() if name.endswith("b_U") or not config.tied
    }


FAMILIES = [
    Family(
        name="ModernBERT",
        model_types=("modernbert",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        fields=("layer_types", "rope_parameters", "rope_scaling"),
        unread=(
            *("cls_token_id", "deterministic_flash_attn", "embedding_dropout", "layer_norm_eps"),
            *("initializer_cutoff_factor", "mlp_dropout", "position_embedding_type"),
            *("reference_compile", "repad_logits_with_grad", "sparse_prediction"),
            "sparse_pred_ignore_index",
        ),
        renames=((r"^model\.", ""),),
        embedding=EMBEDDING,
        head="decoder.weight",
    )
]
