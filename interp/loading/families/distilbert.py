"""DistilBERT (Sanh et al. 2019): BERT's stack without types of tokens and without a pooler.

Its epsilon can't be chosen. Positions made of sines are stored like those that were learned, and
what is stored counts. A classifier of texts reads relu(x·W + b) of the first token.
"""

from typing import Any

from interp.config import (
    NO_NORM,
    AttentionConfig,
    Config,
    EmbeddingConfig,
    HeadConfig,
    MLPConfig,
    NormConfig,
    StackConfig,
)
from interp.loading.families.bert import EMBEDDING, IGNORED, OLD_NORMS, classifier, decoder, head
from interp.loading.family import Family
from interp.loading.foreign_config import Raw
from interp.loading.weight import Table, at, each_layer, linear, norm, separate_qkv, under

DEFAULTS: dict[str, Any] = {
    "vocab_size": 30522,
    "max_position_embeddings": 512,
    "n_layers": 6,
    "n_heads": 12,
    "dim": 768,
    "hidden_dim": 3072,
    "activation": "gelu",
}
ALIASES = {"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"}
EPS = 1e-12


def config(raw: Raw) -> Config:
    """What the fields mean; what follows the stack is told by the weights that there are."""
    d_model, n_heads = raw.whole("dim"), raw.whole("n_heads")
    return Config(
        d_model=d_model,
        d_vocab=raw.whole("vocab_size"),
        n_ctx=raw.whole("max_position_embeddings"),
        encoder=StackConfig(
            n_layers=raw.whole("n_layers"),
            attention=AttentionConfig(n_heads, d_model // n_heads),
            mlp=MLPConfig(raw.whole("hidden_dim"), raw.activation("activation")),
            norm=NormConfig(placement="post", final=False, eps=EPS),
            embedding=EmbeddingConfig(norm=NormConfig(eps=EPS)),
        ),
        **exit_of(raw),
    )


def exit_of(raw: Raw) -> dict[str, Any]:
    """What follows the stack, as fields of the whole configuration."""
    if "vocab_transform.weight" in raw.keys:
        masked = HeadConfig(raw.activation("activation"), NormConfig(eps=EPS))
        return {"head": masked, "tied": raw.head == "tied", "bias_u": True}
    if "classifier.weight" not in raw.keys:
        return {"unembeds": False}
    if "pre_classifier.weight" not in raw.keys:
        return {"n_classes": raw.n_classes, "bias_u": True}
    if raw.saved_as("ForMultipleChoice"):
        raise raw.refused("architectures", raw.get("architectures"), "…ForSequenceClassification")
    return {"n_classes": raw.n_classes, "bias_u": True, "head": HeadConfig("relu", NO_NORM)}


def weights(config: Config, raw: Raw) -> Table:
    """Queries, keys and values are stored apart."""
    block = {
        **separate_qkv("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        **linear("attn.weight_o", "attn.b_O", "attention.out_lin"),
        **norm("ln1", "sa_layer_norm"),
        **linear("mlp.weight_in", "mlp.b_in", "ffn.lin1"),
        **linear("mlp.weight_out", "mlp.b_out", "ffn.lin2"),
        **norm("ln2", "output_layer_norm"),
    }
    stack = {
        "weight_e": at(EMBEDDING),
        "entry.W_pos": at("embeddings.position_embeddings.weight"),
        **norm("embed_norm", "embeddings.LayerNorm"),
        **each_layer(config.stacks["encoder"].n_layers, block, "blocks", "transformer.layer.{}."),
    }
    return under("encoder.", stack) | ending(config, raw)


def ending(config: Config, raw: Raw) -> Table:
    """Head and unembedding."""
    if not config.unembeds:
        return {}
    if config.n_classes is not None:
        return (head("pre_classifier") if config.head else {}) | classifier("classifier")
    return {
        **head("vocab_transform", "vocab_layer_norm"),
        **decoder(raw, "vocab_projector"),
    }


FAMILIES = [
    Family(
        name="DistilBERT",
        model_types=("distilbert",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        aliases=ALIASES,
        names=((r"^distilbert\.", ""), *OLD_NORMS),
        ignored=IGNORED,
        embedding=EMBEDDING,
        head="vocab_projector.weight",
    ),
]
