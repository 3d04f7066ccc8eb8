"""OLMo 2: norms of what is written, and of all queries and keys together."""

from agreement.comparing import Family, Stack
from agreement.disk import from_disk
from agreement.families.llama import SHARED, gave, given
from transformers import Olmo2Config, Olmo2ForCausalLM, Olmo2Model

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}


def config(**rest):
    told = {
        "vocab_size": 50,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32,
        "eos_token_id": 2,
        "attn_implementation": "eager",
    }
    return Olmo2Config(**(told | rest))


READ = {name: read for name, read in SHARED.items() if not name.startswith("normalized")}
WRITTEN = READ | {
    "resid_pre": given("self_attn"),
    "q_normalized": gave("self_attn.q_norm"),
    "k_normalized": gave("self_attn.k_norm"),
    "attn_raw": gave("self_attn.o_proj"),
    "normalized ln1": gave("post_attention_layernorm"),
    "attn_out": gave("post_attention_layernorm"),
    "resid_mid": given("mlp"),
    "mlp_raw": gave("mlp.down_proj"),
    "normalized ln2": gave("post_feedforward_layernorm"),
    "mlp_out": gave("post_feedforward_layernorm"),
}

FAMILIES = [
    Family(
        name="OLMo 2",
        cases={
            "plain": lambda: Olmo2ForCausalLM(config()),
            "biased-tied": lambda: Olmo2ForCausalLM(
                config(
                    attention_bias=True,
                    tie_word_embeddings=True,
                    rms_norm_eps=1e-3,
                    hidden_act="gelu",
                )
            ),
            "all-heads": lambda: Olmo2ForCausalLM(
                config(num_key_value_heads=None, rope_parameters={"rope_theta": 77.0})
            ),
            "wide-heads": lambda: Olmo2ForCausalLM(
                config(head_dim=8, rope_parameters=YARN | {"rope_theta": 500.0})
            ),
        },
        stacks={"decoder": Stack("model.layers", WRITTEN)},
        checks={"from disk": from_disk},
    ),
    Family(name="OLMo 2", cases={"base": lambda: Olmo2Model(config())}, stacks={}),
]
