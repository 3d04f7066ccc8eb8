"""OPT, with norms before and behind, narrow embeddings, no biases, norms without weights."""

from agreement.comparing import Family, Layers, Stack
from agreement.disk import published
from agreement.small import small
from transformers import OPTConfig, OPTForCausalLM, OPTModel

SIZES = {
    "vocab_size": 50,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "ffn_dim": 40,
    "max_position_embeddings": 32,
    "num_attention_heads": 4,
    "attn_implementation": "eager",
}

opt = small(OPTConfig, SIZES)
behind = small(OPTConfig, SIZES, do_layer_norm_before=False)

LAYERS = Layers("model.decoder.layers")
COMMON = {
    "q": LAYERS.output("self_attn.q_proj"),
    "k": LAYERS.output("self_attn.k_proj"),
    "v": LAYERS.output("self_attn.v_proj"),
    **LAYERS.through("self_attn.out_proj", "z", "attn_out"),
    "pre": LAYERS.output("fc1"),
    **LAYERS.through("fc2", "post", "mlp_out"),
}
BEFORE = COMMON | {
    **LAYERS.through("self_attn_layer_norm", "resid_pre", "normalized ln1"),
    **LAYERS.through("final_layer_norm", "resid_mid", "normalized ln2"),
    "resid_post": LAYERS.output(),
}
# The sums are what the norms are given; the stream that enters a block is what its queries read.
BEHIND = COMMON | {
    "resid_pre": LAYERS.input("self_attn.q_proj"),
    **LAYERS.through("self_attn_layer_norm", "resid_mid", "normalized ln1"),
    **LAYERS.through("final_layer_norm", "resid_post", "normalized ln2"),
}

# As of OPT 350m.
PUBLISHED = {
    "_remove_final_layer_norm": False,
    "activation_dropout": 0.0,
    "activation_function": "relu",
    "architectures": ["OPTForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 2,
    "do_layer_norm_before": False,
    "dropout": 0.1,
    "eos_token_id": 2,
    "ffn_dim": 40,
    "hidden_size": 24,
    "init_std": 0.02,
    "layerdrop": 0.0,
    "max_position_embeddings": 32,
    "model_type": "opt",
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "pad_token_id": 1,
    "prefix": "</s>",
    "torch_dtype": "float16",
    "use_cache": True,
    "vocab_size": 50,
    "word_embed_proj_dim": 16,
}

FAMILIES = [
    Family(
        name="OPT",
        cases={
            "plain": opt(OPTForCausalLM),
            "unbiased-untied": opt(
                OPTForCausalLM,
                enable_bias=False,
                tie_word_embeddings=False,
                activation_function="gelu",
            ),
            "no-last-norm": opt(OPTForCausalLM, _remove_final_layer_norm=True),
            "weightless-norms": opt(OPTForCausalLM, layer_norm_elementwise_affine=False),
            "narrow": opt(OPTForCausalLM, word_embed_proj_dim=16),
        },
        stacks={"decoder": Stack(BEFORE)},
    ),
    Family(
        name="OPT",
        cases={
            "behind": behind(OPTForCausalLM),
            "behind-narrow": behind(
                OPTForCausalLM, word_embed_proj_dim=16, layer_norm_elementwise_affine=False
            ),
            "behind-narrow-untied": behind(
                OPTForCausalLM, word_embed_proj_dim=32, tie_word_embeddings=False
            ),
        },
        stacks={"decoder": Stack(BEHIND)},
    ),
    Family(
        name="OPT",
        cases={"published": behind(OPTForCausalLM, word_embed_proj_dim=16)},
        checks={"published": published(PUBLISHED, {r"^model\.": ""})},
    ),
    Family(
        name="OPT",
        cases={
            "base": opt(OPTModel),
            "base-narrow": opt(OPTModel, word_embed_proj_dim=16),
            "base-narrow-untied": opt(OPTModel, word_embed_proj_dim=16, tie_word_embeddings=False),
        },
    ),
]
