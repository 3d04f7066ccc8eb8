"""RoBERTa: positions counted from behind the padding token, heads of other names."""

from functools import partial

from agreement.comparing import Family
from agreement.families.bert import EMBEDDED, around, pooled, stacks, types
from agreement.small import small
from transformers import (
    CamembertConfig,
    CamembertForMaskedLM,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
    RobertaForTokenClassification,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
)

roberta = small(RobertaConfig, type_vocab_size=1)
xlm_roberta, camembert = small(XLMRobertaConfig), small(CamembertConfig)


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
    family({"plain": camembert(CamembertForMaskedLM)}, name="CamemBERT"),
    # It reads the first column, which is padding in a row that is padded on the left.
    family({"texts": roberta(RobertaForSequenceClassification, num_labels=3)}, pads=("right",)),
]
