"""OLMo 2: norms of what is written, and of all queries and keys together."""

from agreement.comparing import Family, Stack
from agreement.disk import as_before
from agreement.families.llama import LAYERS, SHARED
from agreement.small import FAR, YARN, small
from transformers import Olmo2Config, Olmo2ForCausalLM, Olmo2Model

olmo2 = small(Olmo2Config, num_key_value_heads=2, eos_token_id=2)

READ = {name: read for name, read in SHARED.items() if not name.startswith("normalized")}
WRITTEN = READ | {
    "resid_pre": LAYERS.input("self_attn"),
    "q_normalized": LAYERS.output("self_attn.q_norm"),
    "k_normalized": LAYERS.output("self_attn.k_norm"),
    **LAYERS.through("post_attention_layernorm", "attn_raw", "attn_out"),
    "normalized ln1": LAYERS.output("post_attention_layernorm"),
    "resid_mid": LAYERS.input("mlp"),
    **LAYERS.through("post_feedforward_layernorm", "mlp_raw", "mlp_out"),
    "normalized ln2": LAYERS.output("post_feedforward_layernorm"),
}

FAMILIES = [
    Family(
        name="OLMo 2",
        cases={
            "plain": olmo2(Olmo2ForCausalLM),
            "biased-tied": olmo2(
                Olmo2ForCausalLM,
                attention_bias=True,
                tie_word_embeddings=True,
                rms_norm_eps=1e-3,
                hidden_act="gelu",
            ),
            "all-heads": olmo2(
                Olmo2ForCausalLM, num_key_value_heads=None, rope_parameters={"rope_theta": 77.0}
            ),
            "wide-heads": olmo2(Olmo2ForCausalLM, head_dim=8, rope_parameters=YARN | FAR),
        },
        stacks={"decoder": Stack(WRITTEN)},
        checks={"disk of version 4": as_before},
    ),
    Family(name="OLMo 2", cases={"base": olmo2(Olmo2Model)}),
]
