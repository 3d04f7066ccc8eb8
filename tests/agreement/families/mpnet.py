"""MPNet: relative biases and positions counted from behind the padding token, and its heads."""

from functools import partial

from agreement.comparing import Family, Layers, Stack
from agreement.disk import published
from agreement.families.bert import EMBEDDED, around, pooled
from agreement.families.roberta import ON_DISK
from agreement.small import small
from transformers import (
    MPNetConfig,
    MPNetForMaskedLM,
    MPNetForSequenceClassification,
    MPNetForTokenClassification,
    MPNetModel,
)

mpnet = small(MPNetConfig)

# As of the base model.
PUBLISHED = {
    "architectures": ["MPNetForMaskedLM"],
    "attention_probs_dropout_prob": 0.1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 24,
    "initializer_range": 0.02,
    "intermediate_size": 40,
    "layer_norm_eps": 1e-05,
    "max_position_embeddings": 32,
    "model_type": "mpnet",
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "pad_token_id": 1,
    "relative_attention_num_buckets": 32,
    "transformers_version": "4.8.2",
    "vocab_size": 50,
}
OF_MPNET = {pattern: name.replace("roberta", "mpnet") for pattern, name in ON_DISK.items()}
POSITION_IDS = {"mpnet.embeddings.position_ids": (1, 32)}


def stacks(base=""):
    """The stack of a model whose base is called ``base``."""
    layers = Layers(f"{base}encoder.layer")
    shared = {
        "resid_pre": layers.input(),
        "q": layers.output("attention.attn.q"),
        "k": layers.output("attention.attn.k"),
        "v": layers.output("attention.attn.v"),
        **layers.through("attention.attn.o", "z", "attn_out"),
        **layers.through("attention.LayerNorm", "resid_mid", "normalized ln1"),
        "pre": layers.output("intermediate.dense"),
        **layers.through("output.dense", "post", "mlp_out"),
        **layers.through("output.LayerNorm", "resid_post", "normalized ln2"),
    }
    return {"encoder": Stack(shared)}


def family(cases, base="mpnet.", **rest):
    """Models whose base is called ``base``."""
    return Family(
        name="MPNet",
        cases=cases,
        stacks=stacks(base),
        places=lambda index: index + 2,
        **rest,
    )


FAMILIES = [
    family(
        {
            "plain": mpnet(MPNetForMaskedLM),
            "untied": mpnet(
                MPNetForMaskedLM,
                tie_word_embeddings=False,
                hidden_act="relu",  # of the blocks alone: its head's is always gelu
                layer_norm_eps=1e-3,
                num_attention_heads=3,
                pad_token_id=0,  # positions start at 2 nevertheless
            ),
        },
        checks={
            "head": around(
                **{name: f"mpnet.{module}" for name, module in EMBEDDED.items()},
                head_pre="lm_head.dense",
                final_normalized="lm_head.layer_norm",
            ),
        },
    ),
    family(
        {"published": mpnet(MPNetForMaskedLM, layer_norm_eps=1e-5)},
        checks={"published": published(PUBLISHED, OF_MPNET, POSITION_IDS)},
    ),
    family(
        {"base": mpnet(MPNetModel)},
        base="",
        checks={"pooler": pooled, "head": around(**EMBEDDED)},
    ),
    family({"without-pooler": mpnet(partial(MPNetModel, add_pooling_layer=False))}, base=""),
    family({"tokens": mpnet(MPNetForTokenClassification, num_labels=5)}),
    # It reads the first column, which is padding in a row that is padded on the left.
    family({"texts": mpnet(MPNetForSequenceClassification, num_labels=3)}, pads=("right",)),
]
