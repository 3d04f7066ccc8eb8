"""BERT (Devlin et al. 2019), and encoders of its shape: MiniLM and other sentence encoders.

Post-norm, attention both ways; the embedding adds the token's type and is normed; no last norm. A
masked language model reads act(x·W + b), normed, through the embedding; a classifier of texts reads
the pooler's tanh(x·W + b) of the first token, so that its logits are those at position 0.
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
from interp.loading.foreign_config import Raw
from interp.loading.weight import Table, Weight, at, each_layer, linear, norm, separate_qkv, under

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
POOLED = HeadConfig(activation="tanh", norm=NO_NORM)
"""What a classifier reads, where the pooler's weights are the head's."""
TEXTS, TOKENS = "ForSequenceClassification", "ForTokenClassification"


def config(raw: Raw) -> Config:
    """A stack both ways; what follows it is told by the weights that there are."""
    masked = HeadConfig(raw.activation("hidden_act"), NormConfig(eps=raw.number("layer_norm_eps")))
    return of_stack(raw, exit_of(raw, masked), n_ctx=raw.whole("max_position_embeddings"))


def of_stack(raw: Raw, ending: dict[str, Any], n_ctx: int) -> Config:
    """What the fields that BERT and RoBERTa share mean; ``ending`` is what follows the stack."""
    raw.only("position_embedding_type", ("absolute",))
    raw.only("is_decoder", (False,))
    raw.only("add_cross_attention", (False,))
    d_model, n_heads = raw.whole("hidden_size"), raw.whole("num_attention_heads")
    eps = raw.number("layer_norm_eps")
    return Config(
        d_model=d_model,
        d_vocab=raw.whole("vocab_size"),
        n_ctx=n_ctx,
        encoder=StackConfig(
            n_layers=raw.whole("num_hidden_layers"),
            attention=AttentionConfig(n_heads, d_model // n_heads),
            mlp=MLPConfig(raw.whole("intermediate_size"), raw.activation("hidden_act")),
            norm=NormConfig(placement="post", final=False, eps=eps),
            embedding=EmbeddingConfig(
                n_types=raw.whole("type_vocab_size"), norm=NormConfig(eps=eps)
            ),
        ),
        **ending,
    )


def exit_of(raw: Raw, masked: HeadConfig) -> dict[str, Any]:
    """What follows the stack, as fields of the whole configuration."""
    pooler = {"pooler": has_pooler(raw)}
    if f"{MASKED}.transform.dense.weight" in raw.keys:
        return {"head": masked, "tied": raw.head == "tied", "bias_u": True, **pooler}
    if "classifier.weight" in raw.keys:
        own = {"head": POOLED} if of_texts(raw) else pooler
        return {"n_classes": raw.n_classes, "bias_u": True, **own}
    if f"{NEXT}.weight" in raw.keys:
        return {"n_classes": 2, "bias_u": True, "head": POOLED}
    return {"unembeds": False, **pooler}


def of_texts(raw: Raw) -> bool:
    """Whether a classifier reads the pooler, and tells of texts, or each token's stream.

    Old files of classifiers of tokens hold a pooler that nothing reads: their weights do not tell.
    """
    task = raw.saved_as(TEXTS, TOKENS)
    if task is None and has_pooler(raw):
        raise raw.refused("architectures", raw.get("architectures"), f"…{TEXTS} or …{TOKENS}")
    return task == TEXTS


def has_pooler(raw: Raw) -> bool:
    """Whether there are weights of a pooler."""
    return "pooler.dense.weight" in raw.keys


def weights(config: Config, raw: Raw) -> Table:
    """The stack, and what follows it."""
    return encoder(config) | pooler(config) | ending(config, raw)


def encoder(config: Config) -> Table:
    """Embeddings and blocks; queries, keys and values are stored apart."""
    query, key, value = (f"attention.self.{name}" for name in ("query", "key", "value"))
    block = {
        **separate_qkv(query, key, value),
        **linear("attn.weight_o", "attn.b_O", "attention.output.dense"),
        **norm("ln1", "attention.output.LayerNorm"),
        **linear("mlp.weight_in", "mlp.b_in", "intermediate.dense"),
        **linear("mlp.weight_out", "mlp.b_out", "output.dense"),
        **norm("ln2", "output.LayerNorm"),
    }
    stack = {
        "weight_e": at(EMBEDDING),
        "entry.W_pos": at("embeddings.position_embeddings.weight"),
        "types.W_type": at("embeddings.token_type_embeddings.weight"),
        **norm("embed_norm", "embeddings.LayerNorm"),
        **each_layer(config.stacks["encoder"].n_layers, block, "blocks", "encoder.layer.{}."),
    }
    return under("encoder.", stack)


def pooler(config: Config) -> Table:
    """The pooler, where it is no classifier's head."""
    return linear("pooler.weight", "pooler.bias", "pooler.dense") if config.pooler else {}


def head(dense: str, normed: str | None = None) -> Table:
    """The head: its matrix, and its norm if it has one."""
    lines = linear("encoder.final_norm.weight", "encoder.final_norm.bias", dense)
    return lines | (norm("encoder.final_norm.norm", normed) if normed else {})


def ending(config: Config, raw: Raw) -> Table:
    """The unembedding, and a masked language model's head."""
    if config.n_classes is not None:
        name = "classifier" if "classifier.weight" in raw.keys else NEXT
        return (head("pooler.dense") if config.head == POOLED else {}) | classifier(name)
    if not config.unembeds:
        return {}
    return {
        **head(f"{MASKED}.transform.dense", f"{MASKED}.transform.LayerNorm"),
        **decoder(raw, f"{MASKED}.decoder", f"{MASKED}.bias"),
    }


def classifier(name: str) -> Table:
    """An unembedding into classes."""
    return linear("unembed.weight", "unembed.b_U", name)


def decoder(raw: Raw, name: str, *biases: str) -> Table:
    """W_U, if it has weights of its own, and b_U, which may stand under other names too.

    ``transformers`` adds the one that stands beside the matrix.
    """
    own = {} if raw.head == "tied" else {"unembed.weight": at(f"{name}.weight")}
    keys = (f"{name}.bias", *biases)
    there = tuple(key for key in keys if key in raw.keys) or keys[-1:]
    return {**own, "unembed.b_U": Weight(there, _first)}


def _first(tensor: Tensor, *_: Tensor) -> Tensor:
    return tensor


OLD_NORMS = ((r"LayerNorm\.gamma$", "LayerNorm.weight"), (r"LayerNorm\.beta$", "LayerNorm.bias"))
IGNORED = (r"^embeddings\.(position_ids|token_type_ids)$",)

FAMILIES = [
    Family(
        name="BERT",
        model_types=("bert",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        names=((r"^bert\.", ""), *OLD_NORMS),
        ignored=IGNORED,
        spare=(rf"^{re.escape(NEXT)}\.",),
        embedding=EMBEDDING,
        head=f"{MASKED}.decoder.weight",
    ),
]
