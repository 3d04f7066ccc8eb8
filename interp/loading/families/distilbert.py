"""DistilBERT (Sanh et al. 2019, arXiv:1910.01108): BERT without token types and without a pooler.

The epsilon of norms is fixed. Sinusoidal positions are stored like learned ones, and the stored
values are used. A text classifier reads relu(x·W + b) of the first token.
"""

from dataclasses import replace
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
from interp.loading.families import bert
from interp.loading.foreign_config import ForeignConfig
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

DEFAULTS: dict[str, Any] = {
    "vocab_size": 30522,
    "max_position_embeddings": 512,
    "n_layers": 6,
    "n_heads": 12,
    "dim": 768,
    "hidden_dim": 3072,
    "activation": "gelu",
}
EPS = 1e-12


def config(fields: ForeignConfig) -> Config:
    """The stack; the weights that are present determine the head."""
    d_model, n_heads = fields.integer("dim"), fields.integer("n_heads")
    return Config(
        d_model=d_model,
        d_vocab=fields.integer("vocab_size"),
        n_ctx=fields.integer("max_position_embeddings"),
        encoder=StackConfig(
            n_layers=fields.integer("n_layers"),
            attention=AttentionConfig(n_heads, d_model // n_heads),
            mlp=MLPConfig(fields.integer("hidden_dim"), fields.activation("activation")),
            norm=NormConfig(placement="post", final=False, eps=EPS),
            embedding=EmbeddingConfig(norm=NormConfig(eps=EPS)),
        ),
        **exit_settings(fields),
    )


def exit_settings(fields: ForeignConfig) -> dict[str, Any]:
    """The fields of :class:`Config` for what follows the stack."""
    if "vocab_transform.weight" in fields.weight_names:
        head = HeadConfig(fields.activation("activation"), NormConfig(eps=EPS))
        return bert.masked_exit(fields, head)
    if "classifier.weight" not in fields.weight_names:
        return {"unembeds": False}
    if "pre_classifier.weight" not in fields.weight_names:
        return {"n_classes": fields.n_classes, "bias_u": True}
    if fields.architecture_suffix("ForMultipleChoice"):
        raise fields.unsupported_head(bert.TEXTS)
    return {"n_classes": fields.n_classes, "bias_u": True, "head": HeadConfig("relu", NO_NORM)}


def weights(config: Config, fields: ForeignConfig) -> Table:
    """All projections are separate matrices."""
    block = {
        **separate_qkv("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        **attention_output("attention.out_lin"),
        **norm("ln1", "sa_layer_norm"),
        **mlp("ffn.lin1", "ffn.lin2"),
        **norm("ln2", "output_layer_norm"),
    }
    stack = {
        "weight_e": from_key(bert.EMBEDDING),
        "entry.W_pos": from_key("embeddings.position_embeddings.weight"),
        **norm("embed_norm", "embeddings.LayerNorm"),
        **each_layer(config.stacks["encoder"].n_layers, block, "transformer.layer.{}."),
    }
    return prefixed("encoder.", stack) | exit_weights(config, fields)


def exit_weights(config: Config, fields: ForeignConfig) -> Table:
    """The head and the unembedding."""
    if not config.unembeds:
        return {}
    if config.n_classes is not None:
        head = bert.head("pre_classifier") if config.head else {}
        return head | bert.classifier("classifier")
    return {
        **bert.head("vocab_transform", "vocab_layer_norm"),
        **bert.unembedding(fields, "vocab_projector"),
    }


FAMILIES = [
    replace(
        bert.BERT,
        name="DistilBERT",
        model_types=("distilbert",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        fields=(),
        unread=("sinusoidal_pos_embds", "tie_weights_"),
        aliases={
            "hidden_size": "dim",
            "num_attention_heads": "n_heads",
            "num_hidden_layers": "n_layers",
        },
        renames=((r"^distilbert\.", ""), *bert.OLD_NORMS),
        optional=(),
        head="vocab_projector.weight",
    )
]
