"""MPT, with numbers of heads that are powers of two and not."""

from agreement.comparing import Family, Layers, Stack
from agreement.disk import published
from agreement.small import small
from transformers import MptConfig, MptForCausalLM, MptModel

SIZES = {
    "vocab_size": 50,
    "d_model": 24,
    "n_layers": 3,
    "n_heads": 4,
    "max_seq_len": 32,
    "attn_implementation": "eager",
}
mpt = small(MptConfig, SIZES)

LAYERS = Layers("transformer.blocks")
SHARED = {
    **LAYERS.through("norm_1", "resid_pre", "normalized ln1"),
    **LAYERS.joint("attn.Wqkv", "qkv", lambda x: x.chunk(3, -1)),
    **LAYERS.through("attn.out_proj", "z", "attn_out"),
    **LAYERS.through("norm_2", "resid_mid", "normalized ln2"),
    "pre": LAYERS.output("ffn.up_proj"),
    **LAYERS.through("ffn.down_proj", "post", "mlp_out"),
    "resid_post": LAYERS.output(),
}

# As of MPT 7B.
PUBLISHED = {
    "architectures": ["MPTForCausalLM"],
    "attn_config": {
        "alibi": True,
        "alibi_bias_max": 8,
        "attn_impl": "torch",
        "attn_pdrop": 0,
        "attn_type": "multihead_attention",
        "attn_uses_sequence_id": False,
        "clip_qkv": None,
        "prefix_lm": False,
        "qk_ln": False,
        "softmax_scale": None,
    },
    "d_model": 24,
    "emb_pdrop": 0,
    "embedding_fraction": 1.0,
    "expansion_ratio": 4,
    "init_config": {"emb_init_std": None, "init_nonlinearity": "relu", "verbose": 0},
    "init_device": "cpu",
    "learned_pos_emb": True,
    "logit_scale": None,
    "max_seq_len": 32,
    "model_type": "mpt",
    "n_heads": 4,
    "n_layers": 3,
    "no_bias": True,
    "norm_type": "low_precision_layernorm",
    "resid_pdrop": 0,
    "tokenizer_name": "EleutherAI/gpt-neox-20b",
    "torch_dtype": "bfloat16",
    "use_cache": False,
    "verbose": 0,
    "vocab_size": 50,
}

# Their biases count from the last key, ours from the query: a constant a row.
STACKS = {"decoder": Stack(SHARED, shifted_scores=True)}

FAMILIES = [
    Family(
        name="MPT",
        cases={
            "plain": mpt(MptForCausalLM),
            "six-heads-untied": mpt(
                MptForCausalLM, n_heads=6, tie_word_embeddings=False, layer_norm_epsilon=1e-3
            ),
            "clipped": mpt(MptForCausalLM, attn_config={"clip_qkv": 0.5}),
            "scaled": mpt(MptForCausalLM, n_heads=3, attn_config={"softmax_scale": 0.3}),
        },
        stacks=STACKS,
    ),
    Family(
        name="MPT",
        cases={"published": mpt(MptForCausalLM)},
        checks={"published": published(PUBLISHED)},
    ),
    Family(name="MPT", cases={"base": mpt(MptModel)}),
]
