"""RoBERTa: positions counted from behind the padding token, heads of other names."""

from agreement.comparing import Family, from_disk
from agreement.families.bert import EMBEDDED, around, pooled, stack, types
from transformers import (
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
    RobertaForTokenClassification,
    RobertaModel,
)


def config(**rest):
    told = {
        "vocab_size": 50,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_position_embeddings": 32,
        "type_vocab_size": 1,
        "attn_implementation": "eager",
    }
    return RobertaConfig(**(told | rest))


def after(pad):
    """Where theirs says that a token stands."""
    return lambda index: index + pad + 1


FAMILIES = [
    Family(
        name="RoBERTa",
        cases={
            "plain": lambda: RobertaForMaskedLM(config()),
            "untied": lambda: RobertaForMaskedLM(
                config(
                    tie_word_embeddings=False,
                    hidden_act="relu",  # of the blocks alone: its head's is always gelu
                    layer_norm_eps=1e-3,
                    type_vocab_size=2,
                    num_attention_heads=3,
                )
            ),
        },
        stacks=stack("roberta."),
        places=after(1),
        checks={
            "disk": from_disk,
            "head": around(
                embed="roberta.embeddings.word_embeddings",
                pos_embed="roberta.embeddings.position_embeddings",
                embed_normalized="roberta.embeddings.LayerNorm",
                head_pre="lm_head.dense",
                final_normalized="lm_head.layer_norm",
            ),
        },
    ),
    Family(
        name="RoBERTa",
        cases={
            "padded-with-0": lambda: RobertaForMaskedLM(
                config(pad_token_id=0, bos_token_id=1, hidden_act="gelu_new")
            )
        },
        stacks=stack("roberta."),
        places=after(0),
        checks={"disk": from_disk},
    ),
    Family(
        name="RoBERTa",
        cases={"base": lambda: RobertaModel(config(type_vocab_size=2))},
        stacks=stack(""),
        places=after(1),
        checks={
            "disk": from_disk,
            "types": types,
            "pooler": pooled(),
            "head": around(**EMBEDDED),
        },
    ),
    Family(
        name="RoBERTa",
        cases={
            "without-pooler": lambda: RobertaModel(
                config(pad_token_id=1, hidden_act="silu"), add_pooling_layer=False
            )
        },
        stacks=stack(""),
        places=after(1),
        checks={"disk": from_disk},
    ),
    Family(
        name="RoBERTa",
        cases={"tokens": lambda: RobertaForTokenClassification(config(num_labels=5))},
        stacks=stack("roberta."),
        places=after(1),
        checks={"disk": from_disk},
    ),
    # It reads the first column, which is padding in a row that is padded on the left.
    Family(
        name="RoBERTa",
        cases={"texts": lambda: RobertaForSequenceClassification(config(num_labels=3))},
        stacks=stack("roberta."),
        pads=("right",),
        places=after(1),
        checks={"disk": from_disk},
    ),
]
