"""DistilBERT: masked language models, base models, its classifiers; positions of sines too."""

from agreement.comparing import Family, Layers, Stack
from agreement.families.bert import EMBEDDED, around
from agreement.small import small
from transformers import (
    DistilBertConfig,
    DistilBertForMaskedLM,
    DistilBertForSequenceClassification,
    DistilBertForTokenClassification,
    DistilBertModel,
)

SIZES = {
    "vocab_size": 50,
    "dim": 24,
    "hidden_dim": 40,
    "n_layers": 3,
    "n_heads": 4,
    "max_position_embeddings": 32,
    "attn_implementation": "eager",
}

distilbert = small(DistilBertConfig, SIZES)


def stacks(base=""):
    """The stack of a model whose base is called ``base``."""
    layers = Layers(f"{base}transformer.layer")
    shared = {
        "resid_pre": layers.input(),
        "q": layers.output("attention.q_lin"),
        "k": layers.output("attention.k_lin"),
        "v": layers.output("attention.v_lin"),
        **layers.through("attention.out_lin", "z", "attn_out"),
        **layers.through("sa_layer_norm", "resid_mid", "normalized ln1"),
        "pre": layers.output("ffn.lin1"),
        **layers.through("ffn.lin2", "post", "mlp_out"),
        **layers.through("output_layer_norm", "resid_post", "normalized ln2"),
    }
    return {"encoder": Stack(shared)}


FAMILIES = [
    Family(
        name="DistilBERT",
        cases={
            "plain": distilbert(DistilBertForMaskedLM),
            "sines": distilbert(
                DistilBertForMaskedLM, sinusoidal_pos_embds=True, activation="relu", n_heads=3
            ),
            "untied": distilbert(
                DistilBertForMaskedLM, tie_word_embeddings=False, activation="gelu_new", n_layers=2
            ),
        },
        stacks=stacks("distilbert."),
        checks={
            "head": around(
                **{name: f"distilbert.{module}" for name, module in EMBEDDED.items()},
                head_pre="vocab_transform",
                head_post="activation",
                final_normalized="vocab_layer_norm",
            ),
        },
    ),
    Family(
        name="DistilBERT",
        cases={"base": distilbert(DistilBertModel)},
        stacks=stacks(),
        checks={"head": around(**EMBEDDED)},
    ),
    Family(
        name="DistilBERT",
        cases={"tokens": distilbert(DistilBertForTokenClassification, num_labels=5)},
        stacks=stacks("distilbert."),
    ),
    # It reads the first column, which is padding in a row that is padded on the left.
    Family(
        name="DistilBERT",
        cases={"texts": distilbert(DistilBertForSequenceClassification, num_labels=3)},
        stacks=stacks("distilbert."),
        pads=("right",),
    ),
]
