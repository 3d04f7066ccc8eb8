"""BERT (Devlin et al. 2019, arXiv:1810.04805), and parts shared by encoders of its shape.

Bidirectional and post-norm, without a final norm. The sum of token, position and token-type
embeddings is normed. A masked language model computes the logits from norm(act(x·W + b)) with the
tied embedding; a text classifier computes them from the pooler's tanh(x·W + b) of the first token,
so its logits are those at position 0.
"""

import re
from typing import Any

from torch import Tensor

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
from interp.loading.family import Family
from interp.loading.foreign_config import ForeignConfig
from interp.loading.weight import (
    Table,
    Weight,
    attention_output,
    each_layer,
    from_key,
    linear,
    mlp,
    norm,
    prefixed,
    separate_qkv,
)

DEFAULTS: dict[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}
EMBEDDING = "embeddings.word_embeddings.weight"
MASKED, NEXT = "cls.predictions", "cls.seq_relationship"
"""Prefixes of the heads of masked language models and of next-sentence prediction."""
POOLED = HeadConfig(activation="tanh", norm=NO_NORM)
"""The head of a text classifier: the pooler's matrix and activation."""
TEXTS, TOKENS = "ForSequenceClassification", "ForTokenClassification"


def config(fields: ForeignConfig) -> Config:
    """The stack; the weights that are present determine the head."""
    eps = NormConfig(eps=fields.number("layer_norm_eps"))
    head = HeadConfig(fields.activation("hidden_act"), eps)
    n_ctx = fields.integer("max_position_embeddings")
    return of_stack(fields, exit_settings(fields, head), n_ctx=n_ctx)


def of_stack(
    fields: ForeignConfig,
    exits: dict[str, Any],
    n_ctx: int,
    sum_width: int | None = None,
    *,
    has_types: bool = True,
) -> Config:
    """The configuration of BERT, RoBERTa, ELECTRA, ALBERT and MPNet.

    Args:
        fields: the foreign configuration.
        exits: the fields of :class:`Config` for what follows the stack.
        n_ctx: length of the longest sequence.
        sum_width: width of the embeddings, if their sum is projected to the stream.
        has_types: whether there are token types.
    """
    fields.allow_only("position_embedding_type", ("absolute",))
    fields.allow_only("is_decoder", (False,))
    fields.allow_only("add_cross_attention", (False,))
    d_model, n_heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    eps = fields.number("layer_norm_eps")
    n_types = fields.integer("type_vocab_size") if has_types else 0
    embedding = EmbeddingConfig(n_types=n_types, norm=NormConfig(eps=eps), sum_width=sum_width)
    return Config(
        d_model=d_model,
        d_vocab=fields.integer("vocab_size"),
        n_ctx=n_ctx,
        encoder=StackConfig(
            n_layers=fields.integer("num_hidden_layers"),
            attention=AttentionConfig(n_heads, d_model // n_heads),
            mlp=MLPConfig(fields.integer("intermediate_size"), fields.activation("hidden_act")),
            norm=NormConfig(placement="post", final=False, eps=eps),
            embedding=embedding,
        ),
        **exits,
    )


def exit_settings(fields: ForeignConfig, head: HeadConfig) -> dict[str, Any]:
    """The fields of :class:`Config` for what follows the stack.

    Args:
        fields: the foreign configuration.
        head: the head of a masked language model of this family.
    """
    pooler = {"pooler": has_pooler(fields)}
    if f"{MASKED}.transform.dense.weight" in fields.weight_names:
        return masked_exit(fields, head) | pooler
    if "classifier.weight" in fields.weight_names:
        reads = {"head": POOLED} if classifies_texts(fields) else pooler
        return {"n_classes": fields.n_classes, "bias_u": True, **reads}
    if f"{NEXT}.weight" in fields.weight_names:
        return {"n_classes": 2, "bias_u": True, "head": POOLED}
    return {"unembeds": False, **pooler}


def masked_exit(fields: ForeignConfig, head: HeadConfig) -> dict[str, Any]:
    """The head of a masked language model, and its unembedding with a bias."""
    return {"head": head, "tied": fields.unembedding == "tied", "bias_u": True}


def classifies_texts(fields: ForeignConfig) -> bool:
    """Whether a classifier reads the pooler (one class per text) or each token's stream.

    ``architectures`` determines it. The weights do not: old files of token classifiers have an
    unused pooler.
    """
    suffix = fields.architecture_suffix(TEXTS, TOKENS)
    if suffix is None and has_pooler(fields):
        raise fields.unsupported_head(TEXTS, TOKENS)
    return suffix == TEXTS


def has_pooler(fields: ForeignConfig) -> bool:
    """Whether there are weights of a pooler."""
    return "pooler.dense.weight" in fields.weight_names


def weights(config: Config, fields: ForeignConfig) -> Table:
    """The stack, the pooler and the head."""
    return encoder(config) | pooler(config) | exit_weights(config, fields)


def encoder(config: Config) -> Table:
    """Embeddings and blocks; queries, keys and values are separate matrices."""
    query, key, value = (f"attention.self.{name}" for name in ("query", "key", "value"))
    block = {
        **separate_qkv(query, key, value),
        **attention_output("attention.output.dense"),
        **norm("ln1", "attention.output.LayerNorm"),
        **mlp("intermediate.dense", "output.dense"),
        **norm("ln2", "output.LayerNorm"),
    }
    n_layers = config.stacks["encoder"].n_layers
    blocks = each_layer(n_layers, block, "encoder.layer.{}.")
    return embeddings(config) | prefixed("encoder.", blocks)


def embeddings(config: Config) -> Table:
    """The embeddings of tokens, positions and token types, and the norm of their sum.

    Positions are left out if they are rotary.
    """
    stack = config.stacks["encoder"]
    table = {"weight_e": from_key(EMBEDDING), **norm("embed_norm", "embeddings.LayerNorm")}
    if stack.positions.kind != "rotary":
        table["entry.W_pos"] = from_key("embeddings.position_embeddings.weight")
    if stack.embedding.n_types:
        table["types.W_type"] = from_key("embeddings.token_type_embeddings.weight")
    return prefixed("encoder.", table)


def pooler(config: Config) -> Table:
    """The pooler, unless it is a classifier's head."""
    return linear("pooler.weight", "pooler.bias", "pooler.dense") if config.pooler else {}


def head(dense: str, layer_norm: str | None = None) -> Table:
    """The head's matrix, and its norm if it has one."""
    table = linear("encoder.final_norm.weight", "encoder.final_norm.bias", dense)
    return table | (norm("encoder.final_norm.norm", layer_norm) if layer_norm else {})


def exit_weights(config: Config, fields: ForeignConfig) -> Table:
    """The head and the unembedding."""
    if config.n_classes is not None:
        name = "classifier" if "classifier.weight" in fields.weight_names else NEXT
        return (head("pooler.dense") if config.head == POOLED else {}) | classifier(name)
    if not config.unembeds:
        return {}
    return {
        **head(f"{MASKED}.transform.dense", f"{MASKED}.transform.LayerNorm"),
        **unembedding(fields, f"{MASKED}.decoder", f"{MASKED}.bias"),
    }


def classifier(name: str) -> Table:
    """An unembedding into classes."""
    return linear("unembed.weight", "unembed.b_U", name)


def unembedding(fields: ForeignConfig, name: str, *biases: str) -> Table:
    """W_U, unless it is tied, and b_U.

    Args:
        fields: the foreign configuration.
        name: the name of the linear layer. Its own bias is used, as in ``transformers``.
        *biases: other names under which the same bias may be stored.
    """
    matrix = {} if fields.unembedding == "tied" else {"unembed.weight": from_key(f"{name}.weight")}
    keys = (f"{name}.bias", *biases)
    present = tuple(key for key in keys if key in fields.weight_names) or keys[-1:]
    return {**matrix, "unembed.b_U": Weight(present, _first)}


def _first(tensor: Tensor, *_: Tensor) -> Tensor:
    return tensor


OLD_NORMS = ((r"LayerNorm\.gamma$", "LayerNorm.weight"), (r"LayerNorm\.beta$", "LayerNorm.bias"))
BERT = Family(
    name="BERT",
    model_types=("bert",),
    config=config,
    weights=weights,
    defaults=DEFAULTS,
    fields=("add_cross_attention", "is_decoder", "position_embedding_type"),
    unread=(
        *("directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers"),
        *("pooler_size_per_head", "pooler_type"),
    ),
    renames=((r"^bert\.", ""), *OLD_NORMS),
    ignored=(r"^embeddings\.(position_ids|token_type_ids)$",),
    optional=(rf"^{re.escape(NEXT)}\.",),
    embedding=EMBEDDING,
    head=f"{MASKED}.decoder.weight",
)
FAMILIES = [BERT]
