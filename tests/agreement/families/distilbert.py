"""DistilBERT: masked language models, base models, its classifiers; positions of sines too."""

from agreement.comparing import Family, Stack, from_disk
from agreement.families.bert import EMBEDDED, around
from transformers import (
    DistilBertConfig,
    DistilBertForMaskedLM,
    DistilBertForSequenceClassification,
    DistilBertForTokenClassification,
    DistilBertModel,
)


def config(**rest):
    told = {
        "vocab_size": 50,
        "dim": 24,
        "hidden_dim": 40,
        "n_layers": 3,
        "n_heads": 4,
        "max_position_embeddings": 32,
        "attn_implementation": "eager",
    }
    return DistilBertConfig(**(told | rest))


def stack(base):
    """The stack of a model whose base is called ``base``."""
    layers = f"{base}transformer.layer"

    def gave(name):
        return lambda seen, layer: seen.gave[f"{layers}.{layer}{name}"]

    def given(name):
        return lambda seen, layer: seen.given[f"{layers}.{layer}{name}"]

    shared = {
        "resid_pre": given(""),
        "q": gave(".attention.q_lin"),
        "k": gave(".attention.k_lin"),
        "v": gave(".attention.v_lin"),
        "z": given(".attention.out_lin"),
        "attn_out": gave(".attention.out_lin"),
        "resid_mid": given(".sa_layer_norm"),
        "normalized ln1": gave(".sa_layer_norm"),
        "pre": gave(".ffn.lin1"),
        "post": given(".ffn.lin2"),
        "mlp_out": gave(".ffn.lin2"),
        "resid_post": given(".output_layer_norm"),
        "normalized ln2": gave(".output_layer_norm"),
    }
    return {"encoder": Stack(layers, shared)}


def head():
    """What stands before and behind the blocks of a masked language model."""
    return around(
        **{name: f"distilbert.{module}" for name, module in EMBEDDED.items()},
        head_pre="vocab_transform",
        head_post="activation",
        final_normalized="vocab_layer_norm",
    )


FAMILIES = [
    Family(
        name="DistilBERT",
        cases={
            "plain": lambda: DistilBertForMaskedLM(config()),
            "sines": lambda: DistilBertForMaskedLM(
                config(sinusoidal_pos_embds=True, activation="relu", n_heads=3)
            ),
            "untied": lambda: DistilBertForMaskedLM(
                config(tie_word_embeddings=False, activation="gelu_new", n_layers=2)
            ),
        },
        stacks=stack("distilbert."),
        checks={"disk": from_disk, "head": head()},
    ),
    Family(
        name="DistilBERT",
        cases={"base": lambda: DistilBertModel(config())},
        stacks=stack(""),
        checks={"disk": from_disk, "head": around(**EMBEDDED)},
    ),
    Family(
        name="DistilBERT",
        cases={"tokens": lambda: DistilBertForTokenClassification(config(num_labels=5))},
        stacks=stack("distilbert."),
        checks={"disk": from_disk},
    ),
    # It reads the first column, which is padding in a row that is padded on the left.
    Family(
        name="DistilBERT",
        cases={"texts": lambda: DistilBertForSequenceClassification(config(num_labels=3))},
        stacks=stack("distilbert."),
        pads=("right",),
        checks={"disk": from_disk},
    ),
]
