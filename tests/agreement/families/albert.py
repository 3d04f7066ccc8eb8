"""ALBERT: layers with shared weights and with their own, base models, its heads."""

from functools import partial

from agreement.comparing import Family, Layers, Stack
from agreement.disk import published, read, written
from agreement.families.bert import EMBEDDED, around, pooled, types
from agreement.small import small
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    AlbertForPreTraining,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
    AlbertModel,
)

albert = small(AlbertConfig, embedding_size=10)


def stacks(base=""):
    """The stack of a model whose base is called ``base``, where each layer is a group."""
    layers = Layers(f"{base}encoder.albert_layer_groups")
    part = "albert_layers.0"
    shared = {
        "resid_pre": layers.input(),
        "q": layers.output(f"{part}.attention.query"),
        "k": layers.output(f"{part}.attention.key"),
        "v": layers.output(f"{part}.attention.value"),
        **layers.through(f"{part}.attention.dense", "z", "attn_out"),
        **layers.through(f"{part}.attention.LayerNorm", "resid_mid", "normalized ln1"),
        "pre": layers.output(f"{part}.ffn"),
        **layers.through(f"{part}.ffn_output", "post", "mlp_out"),
        **layers.through(f"{part}.full_layer_layer_norm", "resid_post", "normalized ln2"),
    }
    return {"encoder": Stack(shared)}


# A module that runs in several layers is watched in the last one only: of these, scores.
SHARING = {"encoder": Stack({})}


def own_memory(theirs, ours):
    """Layers loaded from a folder share no memory, so that each can be changed by itself."""
    loaded = read(*written(theirs))
    addresses = [weight.data_ptr() for weight in loaded.parameters()]
    assert len({*addresses}) == len(addresses)
    return 0.0


# As of the base model, version 2, with the head of next sentences that pretraining leaves.
PUBLISHED = {
    "architectures": ["AlbertForMaskedLM"],
    "attention_probs_dropout_prob": 0,
    "bos_token_id": 2,
    "classifier_dropout_prob": 0.1,
    "down_scale_factor": 1,
    "embedding_size": 10,
    "eos_token_id": 3,
    "gap_size": 0,
    "hidden_act": "gelu_new",
    "hidden_dropout_prob": 0,
    "hidden_size": 24,
    "initializer_range": 0.02,
    "inner_group_num": 1,
    "intermediate_size": 40,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 32,
    "model_type": "albert",
    "net_structure_type": 0,
    "num_attention_heads": 4,
    "num_hidden_groups": 1,
    "num_hidden_layers": 3,
    "num_memory_blocks": 0,
    "pad_token_id": 0,
    "type_vocab_size": 2,
    "vocab_size": 50,
}

FAMILIES = [
    Family(
        name="ALBERT",
        cases={
            "plain": albert(AlbertForMaskedLM),
            "inner": albert(AlbertForMaskedLM, inner_group_num=2, num_hidden_groups=2),
        },
        stacks=SHARING,
        checks={"own memory": own_memory},
    ),
    Family(
        name="ALBERT",
        cases={
            "groups": albert(AlbertForMaskedLM, num_hidden_groups=3),
            "untied": albert(
                AlbertForMaskedLM,
                num_hidden_groups=3,
                embedding_size=24,
                tie_word_embeddings=False,
                hidden_act="relu",
                layer_norm_eps=1e-3,
                type_vocab_size=1,
                num_attention_heads=3,
            ),
        },
        stacks=stacks("albert."),
        checks={
            "head": around(
                **{name: f"albert.{module}" for name, module in EMBEDDED.items()},
                head_pre="predictions.dense",
                final_normalized="predictions.LayerNorm",
            ),
        },
    ),
    Family(
        name="ALBERT",
        cases={"base": albert(AlbertModel, num_hidden_groups=3)},
        stacks=stacks(),
        checks={"types": types, "pooler": pooled, "head": around(**EMBEDDED)},
    ),
    Family(
        name="ALBERT",
        # As in the xlarge model, there are more layers than weights (23).
        cases={
            "without-pooler": albert(
                partial(AlbertModel, add_pooling_layer=False), num_hidden_layers=24
            )
        },
        stacks=SHARING,
        checks={"types": types},
    ),
    Family(
        name="ALBERT",
        cases={"pretraining": albert(AlbertForPreTraining)},
        stacks=SHARING,
        checks={"published": published(PUBLISHED)},
    ),
    Family(
        name="ALBERT",
        cases={"tokens": albert(AlbertForTokenClassification, num_labels=5)},
        stacks=SHARING,
    ),
    # They read the first column, which is padding in a row that is padded on the left.
    Family(
        name="ALBERT",
        cases={"texts": albert(AlbertForSequenceClassification, num_labels=3)},
        stacks=SHARING,
        pads=("right",),
    ),
]
