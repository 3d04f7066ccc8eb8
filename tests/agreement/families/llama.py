"""Llama, with every scaling of its rotary positions, biases, a tied head, and base models."""

from agreement.comparing import Family, Layers, Stack
from agreement.small import DYNAMIC, FAR, LINEAR, LLAMA3, LONGROPE, YARN, small
from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel

GROUPED = {"num_key_value_heads": 2, "head_dim": 8}

llama = small(LlamaConfig, **GROUPED)

LAYERS = Layers("model.layers")
SHARED = {
    **LAYERS.through("input_layernorm", "resid_pre", "normalized ln1"),
    "q": LAYERS.output("self_attn.q_proj"),
    "k": LAYERS.output("self_attn.k_proj"),
    "v": LAYERS.output("self_attn.v_proj"),
    **LAYERS.through("self_attn.o_proj", "z", "attn_out"),
    **LAYERS.through("post_attention_layernorm", "resid_mid", "normalized ln2"),
    "gate": LAYERS.output("mlp.gate_proj"),
    "pre": LAYERS.output("mlp.up_proj"),
    **LAYERS.through("mlp.down_proj", "post", "mlp_out"),
    "resid_post": LAYERS.output(),
}

FAMILIES = [
    Family(
        name="Llama",
        cases={
            "plain": llama(LlamaForCausalLM),
            "biased-tied": llama(
                LlamaForCausalLM,
                attention_bias=True,
                mlp_bias=True,
                tie_word_embeddings=True,
                rms_norm_eps=1e-3,
                hidden_act="gelu_pytorch_tanh",
            ),
            "all-heads": llama(
                LlamaForCausalLM,
                head_dim=None,
                num_key_value_heads=None,
                rope_parameters={"rope_theta": 77.0},
            ),
            "linear": llama(LlamaForCausalLM, rope_parameters=LINEAR | FAR),
            "llama3": llama(LlamaForCausalLM, rope_parameters=LLAMA3 | FAR),
            "yarn": llama(LlamaForCausalLM, rope_parameters=YARN | FAR),
            "yarn-explicit": llama(
                LlamaForCausalLM,
                rope_parameters={
                    **(YARN | FAR),
                    "beta_fast": 8.0,
                    "beta_slow": 2.0,
                    "mscale": 0.7,
                    "mscale_all_dim": 0.4,
                    "truncate": False,
                },
            ),
        },
        stacks={"decoder": Stack(SHARED)},
    ),
    # They stretch all texts of a batch by its longest, and remember that in later calls; we stretch
    # each by its own length, so that no number depends on its company.
    Family(
        name="Llama",
        cases={
            "dynamic": llama(
                LlamaForCausalLM, max_position_embeddings=6, rope_parameters=DYNAMIC | FAR
            ),
            "longrope": llama(
                LlamaForCausalLM,
                rope_parameters={
                    **(LONGROPE | FAR),
                    "short_factor": [1.0, 1.3, 2.0, 2.5],
                    "long_factor": [1.0, 3.0, 7.0, 9.0],
                },
            ),
        },
        stacks={"decoder": Stack(SHARED)},
        pads=(),
    ),
    Family(name="Llama", cases={"base": llama(LlamaModel)}),
]
