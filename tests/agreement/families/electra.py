"""ELECTRA: embeddings of their own width, generator, discriminator, classifiers, base models."""

from agreement.comparing import Family
from agreement.disk import published
from agreement.families.bert import EMBEDDED, around, stacks, types
from agreement.small import small
from transformers import (
    ElectraConfig,
    ElectraForMaskedLM,
    ElectraForPreTraining,
    ElectraForSequenceClassification,
    ElectraForTokenClassification,
    ElectraModel,
)

electra = small(ElectraConfig, embedding_size=12)
WITHIN = {name: f"electra.{module}" for name, module in EMBEDDED.items()}
GENERATOR = "generator_predictions"

# As of the small generator.
PUBLISHED = {
    "architectures": ["ElectraForMaskedLM"],
    "attention_probs_dropout_prob": 0.1,
    "embedding_size": 12,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 24,
    "initializer_range": 0.02,
    "intermediate_size": 40,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 32,
    "model_type": "electra",
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
    "summary_activation": "gelu",
    "summary_last_dropout": 0.1,
    "summary_type": "first",
    "summary_use_proj": True,
    "type_vocab_size": 2,
    "vocab_size": 50,
}
ON_DISK = {r"^generator_lm_head\.weight": "electra.embeddings.word_embeddings.weight"}
BUFFERS = {"electra.embeddings.position_ids": (1, 32)}


FAMILIES = [
    Family(
        name="ELECTRA",
        cases={
            "plain": electra(ElectraForMaskedLM),
            "untied": electra(
                ElectraForMaskedLM,
                tie_word_embeddings=False,
                hidden_act="relu",  # of the blocks alone: its head's is always gelu
                layer_norm_eps=1e-3,
                type_vocab_size=3,
                num_attention_heads=3,
                embedding_size=32,
            ),
        },
        stacks=stacks("electra."),
        checks={
            "head": around(
                **WITHIN, head_pre=f"{GENERATOR}.dense", final_normalized=f"{GENERATOR}.LayerNorm"
            ),
        },
    ),
    Family(
        name="ELECTRA",
        cases={"one-width": electra(ElectraForMaskedLM, embedding_size=24)},
        stacks=stacks("electra."),
        checks={"head": around(**WITHIN)},
    ),
    Family(
        name="ELECTRA",
        cases={"published": electra(ElectraForMaskedLM)},
        checks={"published": published(PUBLISHED, ON_DISK, BUFFERS)},
    ),
    Family(
        name="ELECTRA",
        cases={
            "discriminator": electra(ElectraForPreTraining),
            "discriminator-one-width": electra(
                ElectraForPreTraining, embedding_size=24, hidden_act="gelu_new"
            ),
        },
        stacks=stacks("electra."),
        checks={"head": around(head_pre="discriminator_predictions.dense")},
    ),
    Family(
        name="ELECTRA",
        cases={"base": electra(ElectraModel)},
        stacks=stacks(),
        checks={"types": types, "head": around(**EMBEDDED)},
    ),
    Family(
        name="ELECTRA",
        cases={"tokens": electra(ElectraForTokenClassification, num_labels=5)},
        stacks=stacks("electra."),
    ),
    # They read the first column, which is padding in a row that is padded on the left.
    Family(
        name="ELECTRA",
        cases={
            "texts": electra(ElectraForSequenceClassification, num_labels=3),
            "two-classes": electra(ElectraForSequenceClassification, hidden_act="relu"),
        },
        stacks=stacks("electra."),
        pads=("right",),
    ),
]
