"""BERT: masked language models, base models with and without a pooler, and its classifiers."""

from functools import partial

import torch
from agreement.comparing import Family, Layers, Stack, called, inputs_of, off
from agreement.disk import outputs_apart, read, written
from agreement.exact import watched
from agreement.small import small
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

bert = small(BertConfig)


def stacks(base=""):
    """The stack of a model whose base is called ``base``."""
    layers = Layers(f"{base}encoder.layer")
    shared = {
        "resid_pre": layers.input(),
        "q": layers.output("attention.self.query"),
        "k": layers.output("attention.self.key"),
        "v": layers.output("attention.self.value"),
        **layers.through("attention.output.dense", "z", "attn_out"),
        **layers.through("attention.output.LayerNorm", "resid_mid", "normalized ln1"),
        "pre": layers.output("intermediate.dense"),
        **layers.through("output.dense", "post", "mlp_out"),
        **layers.through("output.LayerNorm", "resid_post", "normalized ln2"),
    }
    return {"encoder": Stack(shared)}


def types(theirs, ours):
    """Tokens of both types; as it is in every batch of pairs of sentences."""
    (tokens,) = inputs_of(ours)
    of_each = (torch.arange(tokens.shape[1]) > 4).long().expand_as(tokens)
    out = called(theirs, [tokens], token_type_ids=of_each)
    batch = ours.batch(tokens, types=of_each)
    return off(ours.stream([batch]), out.last_hidden_state)


def pooled(theirs, ours):
    """What the pooler makes of the first token."""
    inputs = inputs_of(ours)
    expected = called(theirs, inputs).pooler_output
    return off(ours.pooler(ours.stream(ours.check(*inputs))[:, 0]), expected)


def pooled_beside_head(theirs, ours):
    """The same where the last stream is that of a head: the pooler reads the last block's."""
    inputs = inputs_of(ours)
    done = interp.run(ours, *inputs, record="all")
    expected = called(theirs.bert, inputs).pooler_output
    return off(ours.pooler(done.cache["normalized", -1, "ln2"][:, 0]), expected)


def around(**where):
    """What stands before and behind the blocks: our labels, and their modules' outputs."""

    def check(theirs, ours):
        inputs = inputs_of(ours)
        done = interp.run(ours, *inputs, record="all")
        with watched(theirs) as seen:
            called(theirs, inputs)
        pairs = [(done.cache[label], seen.outputs[name]) for label, name in where.items()]
        return max(off(stream, expected.expand_as(stream)) for stream, expected in pairs)

    return check


def old_file(theirs, ours):
    """Files as they were first written: other names, no copy of W_E, a pooler in any case."""
    fields, weights = written(theirs)
    weights = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("Norm.bias", "Norm.beta"): w
        for name, w in weights.items()
        if "predictions.decoder" not in name
    }
    weights["bert.embeddings.position_ids"] = torch.arange(32)[None]
    weights.setdefault("bert.pooler.dense.weight", torch.eye(24).double())
    weights.setdefault("bert.pooler.dense.bias", torch.ones(24).double())
    loaded = read(fields, weights)
    assert loaded.pooler is not None
    return outputs_apart(loaded, ours)


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
            "plain": bert(BertForMaskedLM),
            "untied": bert(
                BertForMaskedLM,
                tie_word_embeddings=False,
                hidden_act="gelu_new",
                layer_norm_eps=1e-3,
                type_vocab_size=1,
                num_attention_heads=3,
            ),
            "relu": bert(
                BertForMaskedLM, hidden_act="relu", type_vocab_size=3, num_hidden_layers=2
            ),
        },
        stacks=stacks("bert."),
        checks={
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
        cases={"base": bert(BertModel)},
        stacks=stacks(),
        checks={"types": types, "pooler": pooled, "head": around(**EMBEDDED)},
    ),
    Family(
        name="BERT",
        cases={"without-pooler": bert(partial(BertModel, add_pooling_layer=False))},
        stacks=stacks(),
        checks={"types": types},
    ),
    Family(
        name="BERT",
        cases={"pretraining": bert(BertForPreTraining)},
        stacks=stacks("bert."),
        checks={"old file": old_file, "pooler": pooled_beside_head},
    ),
    Family(
        name="BERT",
        cases={"tokens": bert(BertForTokenClassification, num_labels=5)},
        stacks=stacks("bert."),
        checks={"old file": old_file},
    ),
    # They read the first column, which is padding in a row that is padded on the left.
    Family(
        name="BERT",
        cases={
            "texts": bert(BertForSequenceClassification, num_labels=3),
            "two-classes": bert(BertForSequenceClassification, hidden_act="relu"),
            "next": bert(BertForNextSentencePrediction),
        },
        stacks=stacks("bert."),
        pads=("right",),
    ),
]
