"""BERT: masked language models, base models with and without a pooler, and its classifiers."""

from tempfile import TemporaryDirectory

import torch
from agreement.comparing import Family, Stack, called, from_disk, inputs_of, off
from agreement.exact import watched
from safetensors.torch import save_file
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForNextSentencePrediction,
    BertForPreTraining,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
)

import interp


def config(**rest):
    told = {
        "vocab_size": 50,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_position_embeddings": 32,
        "attn_implementation": "eager",
    }
    return BertConfig(**(told | rest))


def shared(block):
    """Where the tensors of one block are, below ``block``, which has ``{}`` for its number."""

    def gave(name):
        return lambda seen, layer: seen.gave[block.format(layer) + name]

    def given(name):
        return lambda seen, layer: seen.given[block.format(layer) + name]

    return {
        "resid_pre": given(""),
        "q": gave(".attention.self.query"),
        "k": gave(".attention.self.key"),
        "v": gave(".attention.self.value"),
        "z": given(".attention.output.dense"),
        "attn_out": gave(".attention.output.dense"),
        "resid_mid": given(".attention.output.LayerNorm"),
        "normalized ln1": gave(".attention.output.LayerNorm"),
        "pre": gave(".intermediate.dense"),
        "post": given(".output.dense"),
        "mlp_out": gave(".output.dense"),
        "resid_post": given(".output.LayerNorm"),
        "normalized ln2": gave(".output.LayerNorm"),
    }


def stack(base):
    """The stack of a model whose base is called ``base``."""
    layers = f"{base}encoder.layer"
    return {"encoder": Stack(layers, shared(layers + ".{}"))}


def reading(**more):
    """A family for :func:`inputs_of` and :func:`called`."""
    return Family(name="", cases={}, stacks={}, **more)


def types(theirs, ours):
    """Tokens of both types; as it is in every batch of pairs of sentences."""
    (tokens,) = inputs_of(reading(), ours)
    of_each = (torch.arange(tokens.shape[1]) > 4).long().expand_as(tokens)
    out = called(reading(), theirs, [tokens], token_type_ids=of_each)
    batch = ours.batch(tokens, types=of_each)
    return off(ours.stream([batch]), out.last_hidden_state)


def pooled(reads="tokens"):
    """What the pooler makes of the first token."""

    def check(theirs, ours):
        inputs = inputs_of(reading(reads=reads), ours)
        expected = called(reading(reads=reads), theirs, inputs).pooler_output
        return off(ours.pooler(ours.stream(ours.check(*inputs))[:, 0]), expected)

    return check


def pooled_beside_head(theirs, ours):
    """The same where the last stream is that of a head: the pooler reads the last block's."""
    inputs = inputs_of(reading(), ours)
    done = interp.run(ours, *inputs, record="all")
    expected = called(reading(), theirs.bert, inputs).pooler_output
    return off(ours.pooler(done.cache["normalized", -1, "ln2"][:, 0]), expected)


def around(**where):
    """What stands before and behind the blocks: our labels, and their modules' outputs."""

    def check(theirs, ours):
        inputs = inputs_of(reading(), ours)
        done = interp.run(ours, *inputs, record="all")
        with watched(theirs) as seen:
            called(reading(), theirs, inputs)
        pairs = [(done.cache[label], seen.gave[name]) for label, name in where.items()]
        return max(off(own, other.expand_as(own)) for own, other in pairs)

    return check


def old_file(theirs, ours):
    """Files as they were first written: other names, no copy of W_E, a pooler in any case."""
    weights = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("Norm.bias", "Norm.beta"): w
        for name, w in theirs.state_dict().items()
        if "predictions.decoder" not in name
    }
    weights["bert.embeddings.position_ids"] = torch.arange(32)[None]
    weights.setdefault("bert.pooler.dense.weight", torch.eye(24).double())
    weights.setdefault("bert.pooler.dense.bias", torch.ones(24).double())
    with TemporaryDirectory() as folder:
        save_file(weights, f"{folder}/model.safetensors")
        theirs.config.architectures = [type(theirs).__name__]
        theirs.config.save_pretrained(folder)
        read = interp.load(folder)
    inputs = inputs_of(reading(), ours)
    assert read.pooler is not None
    return off(read(*inputs), ours(*inputs))


EMBEDDED = {
    "embed": "embeddings.word_embeddings",
    "pos_embed": "embeddings.position_embeddings",
    "embed_normalized": "embeddings.LayerNorm",
}
MASKED = "cls.predictions.transform"

FAMILIES = [
    Family(
        name="BERT",
        cases={
            "plain": lambda: BertForMaskedLM(config()),
            "untied": lambda: BertForMaskedLM(
                config(
                    tie_word_embeddings=False,
                    hidden_act="gelu_new",
                    layer_norm_eps=1e-3,
                    type_vocab_size=1,
                    num_attention_heads=3,
                )
            ),
            "relu": lambda: BertForMaskedLM(
                config(hidden_act="relu", type_vocab_size=3, num_hidden_layers=2)
            ),
        },
        stacks=stack("bert."),
        checks={
            "disk": from_disk,
            "head": around(
                **{name: f"bert.{module}" for name, module in EMBEDDED.items()},
                head_pre=f"{MASKED}.dense",
                head_post=f"{MASKED}.transform_act_fn",
                final_normalized=f"{MASKED}.LayerNorm",
            ),
        },
    ),
    Family(
        name="BERT",
        cases={"base": lambda: BertModel(config())},
        stacks=stack(""),
        checks={
            "disk": from_disk,
            "types": types,
            "pooler": pooled(),
            "head": around(**EMBEDDED),
        },
    ),
    Family(
        name="BERT",
        cases={"without-pooler": lambda: BertModel(config(), add_pooling_layer=False)},
        stacks=stack(""),
        checks={"disk": from_disk, "types": types},
    ),
    Family(
        name="BERT",
        cases={"pretraining": lambda: BertForPreTraining(config())},
        stacks=stack("bert."),
        checks={"disk": from_disk, "old file": old_file, "pooler": pooled_beside_head},
    ),
    Family(
        name="BERT",
        cases={"tokens": lambda: BertForTokenClassification(config(num_labels=5))},
        stacks=stack("bert."),
        checks={"disk": from_disk, "old file": old_file},
    ),
    # They read the first column, which is padding in a row that is padded on the left.
    Family(
        name="BERT",
        cases={
            "texts": lambda: BertForSequenceClassification(config(num_labels=3)),
            "two-classes": lambda: BertForSequenceClassification(config(hidden_act="relu")),
            "next": lambda: BertForNextSentencePrediction(config()),
        },
        stacks=stack("bert."),
        pads=("right",),
        checks={"disk": from_disk},
    ),
]
