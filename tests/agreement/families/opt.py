"""OPT, with norms before and behind, narrow embeddings, no biases, norms without weights."""

from agreement.comparing import Family, Stack, from_disk, published
from transformers import OPTConfig, OPTForCausalLM, OPTModel


def config(**rest):
    told = {
        "vocab_size": 50,
        "hidden_size": 24,
        "num_hidden_layers": 3,
        "ffn_dim": 40,
        "max_position_embeddings": 32,
        "num_attention_heads": 4,
        "attn_implementation": "eager",
    }
    return OPTConfig(**(told | rest))


def gave(name):
    return lambda seen, layer: seen.gave[f"model.decoder.layers.{layer}.{name}"]


def given(name):
    return lambda seen, layer: seen.given[f"model.decoder.layers.{layer}.{name}"]


def flat(read):
    """They lay all texts of a batch behind one another in the MLP."""
    return lambda seen, layer: read(seen, layer).unflatten(0, (2, -1))


COMMON = {
    "normalized ln1": gave("self_attn_layer_norm"),
    "q": gave("self_attn.q_proj"),
    "k": gave("self_attn.k_proj"),
    "v": gave("self_attn.v_proj"),
    "z": given("self_attn.out_proj"),
    "attn_out": gave("self_attn.out_proj"),
    "pre": flat(gave("fc1")),
    "post": flat(given("fc2")),
    "mlp_out": flat(gave("fc2")),
}
PRE = COMMON | {
    "resid_pre": given("self_attn_layer_norm"),
    "resid_mid": flat(given("final_layer_norm")),
    "normalized ln2": flat(gave("final_layer_norm")),
    "resid_post": lambda seen, layer: seen.gave[f"model.decoder.layers.{layer}"],
}
# The sums are what the norms are given; the stream that enters a block is what its queries read.
POST = COMMON | {
    "resid_pre": given("self_attn.q_proj"),
    "resid_mid": given("self_attn_layer_norm"),
    "resid_post": given("final_layer_norm"),
    "normalized ln2": gave("final_layer_norm"),
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
            "plain": lambda: OPTForCausalLM(config()),
            "unbiased-untied": lambda: OPTForCausalLM(
                config(enable_bias=False, tie_word_embeddings=False, activation_function="gelu")
            ),
            "no-last-norm": lambda: OPTForCausalLM(config(_remove_final_layer_norm=True)),
            "weightless-norms": lambda: OPTForCausalLM(config(layer_norm_elementwise_affine=False)),
            "narrow": lambda: OPTForCausalLM(config(word_embed_proj_dim=16)),
        },
        stacks={"decoder": Stack("model.decoder.layers", PRE)},
        checks={"disk": from_disk},
    ),
    Family(
        name="OPT",
        cases={
            "behind": lambda: OPTForCausalLM(config(do_layer_norm_before=False)),
            "behind-narrow": lambda: OPTForCausalLM(
                config(
                    do_layer_norm_before=False,
                    word_embed_proj_dim=16,
                    layer_norm_elementwise_affine=False,
                )
            ),
            "behind-narrow-untied": lambda: OPTForCausalLM(
                config(
                    do_layer_norm_before=False,
                    word_embed_proj_dim=32,
                    tie_word_embeddings=False,
                )
            ),
        },
        stacks={"decoder": Stack("model.decoder.layers", POST)},
        checks={"disk": from_disk},
    ),
    Family(
        name="OPT",
        cases={
            "published": lambda: OPTForCausalLM(
                config(do_layer_norm_before=False, word_embed_proj_dim=16)
            ),
        },
        stacks={},
        checks={"disk": published(PUBLISHED, {r"^model\.": ""})},
    ),
    Family(
        name="OPT",
        cases={
            "base": lambda: OPTModel(config()),
            "base-narrow": lambda: OPTModel(config(word_embed_proj_dim=16)),
        },
        stacks={},
    ),
]
