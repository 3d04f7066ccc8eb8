"""RoBERTa: positions counted from behind the padding token, heads of other names."""

from functools import partial

from agreement.comparing import Family
from agreement.disk import published
from agreement.families.bert import EMBEDDED, around, pooled, stacks, types
from agreement.small import small
from transformers import (
    CamembertConfig,
    CamembertForMaskedLM,
    CamembertForSequenceClassification,
    CamembertModel,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
    RobertaForTokenClassification,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
    XLMRobertaForSequenceClassification,
    XLMRobertaForTokenClassification,
    XLMRobertaModel,
)

roberta = small(RobertaConfig, type_vocab_size=1)
xlm_roberta, camembert = small(XLMRobertaConfig), small(CamembertConfig)

# As of XLM-RoBERTa and CamemBERT.
PUBLISHED = {
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
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "output_past": True,
    "pad_token_id": 1,
    "position_embedding_type": "absolute",
    "transformers_version": "4.17.0.dev0",
    "type_vocab_size": 1,
    "use_cache": True,
    "vocab_size": 50,
}
ON_DISK = {
    r"^lm_head\.decoder\.bias": "lm_head.bias",
    r"^lm_head\.decoder\.weight": "roberta.embeddings.word_embeddings.weight",
}
AS_PUBLISHED = {"type_vocab_size": 1, "layer_norm_eps": 1e-5}


def old_file(model_type, architecture):
    """A file in the format of the first release."""
    fields = {**PUBLISHED, "model_type": model_type, "architectures": [architecture]}
    more = {"roberta.embeddings.position_ids": (1, 32)}
    return {"published": published(fields, ON_DISK, more)}


def family(cases, base="roberta.", pad=1, name="RoBERTa", **rest):
    """Models whose base is called ``base``; positions are counted from behind that of ``pad``."""
    return Family(
        name=name,
        cases=cases,
        stacks=stacks(base),
        places=lambda index: index + pad + 1,
        **rest,
    )


FAMILIES = [
    family(
        {
            "plain": roberta(RobertaForMaskedLM),
            "untied": roberta(
                RobertaForMaskedLM,
                tie_word_embeddings=False,
                hidden_act="relu",  # of the blocks alone: its head's is always gelu
                layer_norm_eps=1e-3,
                type_vocab_size=2,
                num_attention_heads=3,
            ),
        },
        checks={
            "head": around(
                **{name: f"roberta.{module}" for name, module in EMBEDDED.items()},
                head_pre="lm_head.dense",
                final_normalized="lm_head.layer_norm",
            ),
        },
    ),
    family(
        {
            "padded-with-0": roberta(
                RobertaForMaskedLM, pad_token_id=0, bos_token_id=1, hidden_act="gelu_new"
            )
        },
        pad=0,
    ),
    family(
        {"base": roberta(RobertaModel, type_vocab_size=2)},
        base="",
        checks={"types": types, "pooler": pooled, "head": around(**EMBEDDED)},
    ),
    family(
        {
            "without-pooler": roberta(
                partial(RobertaModel, add_pooling_layer=False), pad_token_id=1, hidden_act="silu"
            )
        },
        base="",
    ),
    family({"tokens": roberta(RobertaForTokenClassification, num_labels=5)}),
    family({"plain": xlm_roberta(XLMRobertaForMaskedLM)}, name="XLM-RoBERTa"),
    family(
        {"published": xlm_roberta(XLMRobertaForMaskedLM, **AS_PUBLISHED)},
        name="XLM-RoBERTa",
        checks=old_file("xlm-roberta", "XLMRobertaForMaskedLM"),
    ),
    family(
        {"base": xlm_roberta(XLMRobertaModel)},
        base="",
        name="XLM-RoBERTa",
        checks={"types": types, "pooler": pooled},
    ),
    family(
        {"tokens": xlm_roberta(XLMRobertaForTokenClassification, num_labels=5)}, name="XLM-RoBERTa"
    ),
    family({"plain": camembert(CamembertForMaskedLM)}, name="CamemBERT"),
    family(
        {"published": camembert(CamembertForMaskedLM, **AS_PUBLISHED)},
        name="CamemBERT",
        checks=old_file("camembert", "CamembertForMaskedLM"),
    ),
    family({"base": camembert(CamembertModel)}, base="", name="CamemBERT"),
    # It reads the first column, which is padding in a row that is padded on the left.
    family({"texts": roberta(RobertaForSequenceClassification, num_labels=3)}, pads=("right",)),
    family(
        {"texts": xlm_roberta(XLMRobertaForSequenceClassification, num_labels=3)},
        name="XLM-RoBERTa",
        pads=("right",),
    ),
    family(
        {"texts": camembert(CamembertForSequenceClassification, num_labels=3)},
        name="CamemBERT",
        pads=("right",),
    ),
]
