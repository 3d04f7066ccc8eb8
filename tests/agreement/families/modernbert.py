"""ModernBERT: masked language models, base models and classifiers; windows in some layers."""

from agreement.comparing import Family, Layers, Stack
from agreement.disk import published
from agreement.families.bert import around
from agreement.small import FULL, SLIDING, YARN, small
from transformers import (
    ModernBertConfig,
    ModernBertForMaskedLM,
    ModernBertForSequenceClassification,
    ModernBertForTokenClassification,
    ModernBertModel,
)

IDS = {"pad_token_id": 0, "bos_token_id": 1, "cls_token_id": 1, "eos_token_id": 2}
bert = small(ModernBertConfig, local_attention=6, **IDS, sep_token_id=2)

PUBLISHED = {
    **{"architectures": ["ModernBertForMaskedLM"], "model_type": "modernbert", **IDS},
    **{"vocab_size": 50, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 4},
    **{"num_attention_heads": 4, "max_position_embeddings": 32, "local_attention": 6},
    **{"attention_bias": False, "mlp_bias": False, "norm_bias": False, "decoder_bias": True},
    **{"classifier_activation": "gelu", "classifier_bias": False, "classifier_pooling": "mean"},
    **{"global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "norm_eps": 1e-5},
    **{"local_rope_theta": 10000.0, "hidden_activation": "gelu", "layer_norm_eps": 1e-5},
    **{"position_embedding_type": "absolute", "sparse_prediction": False, "mlp_dropout": 0.0},
    **{"torch_dtype": "float32", "deterministic_flash_attn": False, "embedding_dropout": 0.0},
}
"""The fields of a file of version 4."""


def stacks(base=""):
    """The stack of a model whose base is called ``base``."""
    layers = Layers(f"{base}layers")
    normed = layers.output("attn_norm")
    shared = {
        "resid_pre": layers.input(),
        "normalized ln1": lambda seen, layer: normed(seen, layer) if layer else None,
        **layers.joint("attn.Wqkv", "qkv", lambda x: x.chunk(3, -1)),
        **layers.through("attn.Wo", "z", "attn_out"),
        **layers.through("mlp_norm", "resid_mid", "normalized ln2"),
        **layers.joint("mlp.Wi", ("gate", "pre"), lambda x: x.chunk(2, -1)),
        **layers.through("mlp.Wo", "post", "mlp_out"),
        "resid_post": layers.output(),
    }
    return {"encoder": Stack(shared)}


AROUND = {
    "embed": "model.embeddings.tok_embeddings",
    "embed_normalized": "model.embeddings.norm",
    "head_normalized": "model.final_norm",
    "head_pre": "head.dense",
    "head_post": "head.act",
    "final_normalized": "head.norm",
}

FAMILIES = [
    Family(
        name="ModernBERT",
        cases={
            "plain": bert(ModernBertForMaskedLM, num_hidden_layers=4),
            "biased-untied": bert(
                ModernBertForMaskedLM,
                tie_word_embeddings=False,
                attention_bias=True,
                mlp_bias=True,
                norm_bias=True,
                classifier_bias=True,
                decoder_bias=False,
                classifier_pooling="mean",
                classifier_activation="relu",
                hidden_activation="gelu_new",
                norm_eps=1e-3,
                num_attention_heads=3,
            ),
            "named-windows": bert(
                ModernBertForMaskedLM,
                layer_types=[SLIDING, FULL, SLIDING],
                local_attention=3,
                norm_bias=True,
                rope_parameters={FULL: YARN | {"rope_theta": 500.0}, SLIDING: {"rope_theta": 30.0}},
            ),
        },
        stacks=stacks("model."),
        checks={"head": around(**AROUND)},
    ),
    Family(
        name="ModernBERT",
        cases={"published": bert(ModernBertForMaskedLM, num_hidden_layers=4)},
        checks={"published": published(PUBLISHED)},
    ),
    Family(
        name="ModernBERT",
        cases={"base": bert(ModernBertModel)},
        stacks=stacks(),
    ),
    Family(
        name="ModernBERT",
        cases={"tokens": bert(ModernBertForTokenClassification, num_labels=5)},
        stacks=stacks("model."),
    ),
    # It reads the first column, which is padding in a row that is padded on the left.
    Family(
        name="ModernBERT",
        cases={"texts": bert(ModernBertForSequenceClassification, num_labels=3)},
        stacks=stacks("model."),
        pads=("right",),
    ),
]
