"""Nomic BERT: rotary positions and their scalings, its heads, and files as published."""

from functools import partial

import torch
from agreement.comparing import Family, Layers, Stack
from agreement.disk import changed, read
from agreement.families.bert import around, pooled, types
from agreement.small import DYNAMIC, FAR, YARN, small
from transformers import (
    NomicBertConfig,
    NomicBertForMaskedLM,
    NomicBertForSequenceClassification,
    NomicBertForTokenClassification,
    NomicBertModel,
)

nomic_bert = small(NomicBertConfig)

# As of the embedding model, version 1.5.
PUBLISHED = {
    "activation_function": "swiglu",
    "architectures": ["NomicBertModel"],
    "attn_pdrop": 0.0,
    "auto_map": {"AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"},
    "bos_token_id": None,
    "causal": False,
    "dense_seq_output": True,
    "embd_pdrop": 0.0,
    "eos_token_id": None,
    "fused_bias_fc": True,
    "fused_dropout_add_ln": True,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-12,
    "max_trained_positions": 16,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "model_type": "nomic_bert",
    "n_embd": 24,
    "n_head": 4,
    "n_inner": 40,
    "n_layer": 3,
    "n_positions": 32,
    "pad_vocab_size_multiple": 64,
    "parallel_block": False,
    "parallel_block_tied_norm": False,
    "prenorm": False,
    "qkv_proj_bias": False,
    "reorder_and_upcast_attn": False,
    "resid_pdrop": 0.0,
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "scale_attn_by_inverse_layer_idx": False,
    "scale_attn_weights": True,
    "summary_activation": None,
    "summary_first_dropout": 0.0,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "torch_dtype": "float32",
    "transformers_version": "4.37.2",
    "type_vocab_size": 2,
    "use_cache": True,
    "use_flash_attn": True,
    "use_rms_norm": False,
    "use_xentropy": True,
    "vocab_size": 50,
}
OF_PUBLISHED = {
    "embeddings.LayerNorm": "emb_ln",
    "self_attn.o_proj": "attn.out_proj",
    "up_proj": "fc11",
    "gate_proj": "fc12",
    "down_proj": "fc2",
    "post_attention_layernorm": "norm1",
    "post_mlp_layernorm": "norm2",
}


def published(theirs, ours):
    """A file in the format of the first release, with one matrix for queries, keys and values."""
    weights = {}
    for name, weight in theirs.state_dict().items():
        key = f"encoder.{name}" if name.startswith("layers.") else name
        for part, old in OF_PUBLISHED.items():
            key = key.replace(part, old)
        weights[key] = weight
    for layer in range(3):
        parts = [weights.pop(f"encoder.layers.{layer}.self_attn.{n}_proj.weight") for n in "qkv"]
        weights[f"encoder.layers.{layer}.attn.Wqkv.weight"] = torch.cat(parts)
    return changed(read(PUBLISHED, weights), ours)


def stacks(base=""):
    """The stack of a model whose base is called ``base``."""
    layers = Layers(f"{base}layers")
    shared = {
        "resid_pre": layers.input(),
        "q": layers.output("self_attn.q_proj"),
        "k": layers.output("self_attn.k_proj"),
        "v": layers.output("self_attn.v_proj"),
        **layers.through("self_attn.o_proj", "z", "attn_out"),
        **layers.through("post_attention_layernorm", "resid_mid", "normalized ln1"),
        "gate": layers.output("mlp.gate_proj"),
        "pre": layers.output("mlp.up_proj"),
        **layers.through("mlp.down_proj", "post", "mlp_out"),
        **layers.through("post_mlp_layernorm", "resid_post", "normalized ln2"),
    }
    return {"encoder": Stack(shared)}


def family(cases, base="nomic_bert.", **rest):
    """Models whose base is called ``base``."""
    return Family(name="Nomic BERT", cases=cases, stacks=stacks(base), **rest)


MASKED = "cls.predictions.transform"

FAMILIES = [
    family(
        {
            "plain": nomic_bert(NomicBertForMaskedLM),
            "untied": nomic_bert(
                NomicBertForMaskedLM,
                tie_word_embeddings=False,
                hidden_act="gelu",
                layer_norm_eps=1e-3,
                type_vocab_size=1,
                head_dim=10,
                rope_parameters={"rope_type": "default", **FAR},
            ),
            "yarn": nomic_bert(NomicBertForMaskedLM, rope_parameters=YARN | FAR),
            "dynamic": nomic_bert(NomicBertForMaskedLM, rope_parameters=DYNAMIC | FAR),
        },
        checks={
            "head": around(
                embed="nomic_bert.embeddings.word_embeddings",
                embed_normalized="nomic_bert.embeddings.LayerNorm",
                head_pre=f"{MASKED}.dense",
                final_normalized=f"{MASKED}.layer_norm",
            )
        },
    ),
    family(
        {"base": nomic_bert(NomicBertModel)},
        base="",
        checks={"types": types, "published": published},
    ),
    family(
        {"with-pooler": nomic_bert(partial(NomicBertModel, add_pooling_layer=True))},
        base="",
        checks={"pooler": pooled},
    ),
    family({"tokens": nomic_bert(NomicBertForTokenClassification, num_labels=5)}),
    # It reads the first column, which is padding in a row that is padded on the left.
    family(
        {"texts": nomic_bert(NomicBertForSequenceClassification, num_labels=3)}, pads=("right",)
    ),
]
