"""StableLM, in turn and in parallel, with norms of heads and without."""

from agreement.comparing import Family, Stack, heads_behind
from agreement.disk import as_before
from agreement.families.cohere import ONE_NORM
from agreement.families.llama import LAYERS, SHARED
from agreement.small import FAR, LINEAR, YARN, small
from transformers import StableLmConfig, StableLmForCausalLM, StableLmModel

stable = small(StableLmConfig, hidden_size=32, num_key_value_heads=2)

NORMS = {
    "q_normalized": LAYERS.output("self_attn.q_layernorm", heads_behind),
    "k_normalized": LAYERS.output("self_attn.k_layernorm", heads_behind),
}


def family(cases, shared):
    """The cases whose tensors are at these places."""
    checks = {"disk of version 4": as_before}
    return Family("StableLM", cases, {"decoder": Stack(shared)}, checks=checks)


FAMILIES = [
    family(
        {
            "plain": stable(StableLmForCausalLM),
            "biased-tied": stable(
                StableLmForCausalLM,
                use_qkv_bias=True,
                tie_word_embeddings=True,
                num_key_value_heads=4,
                hidden_act="gelu",
                layer_norm_eps=1e-3,
                rope_parameters=LINEAR | FAR | {"partial_rotary_factor": 0.5},
            ),
        },
        SHARED,
    ),
    family({"parallel": stable(StableLmForCausalLM, use_parallel_residual=True)}, ONE_NORM),
    family(
        {
            "normed": stable(
                StableLmForCausalLM,
                qk_layernorm=True,
                rope_parameters=YARN | {"partial_rotary_factor": 1.0},
            )
        },
        SHARED | NORMS,
    ),
    family(
        {
            "normed-parallel": stable(
                StableLmForCausalLM, qk_layernorm=True, use_parallel_residual=True
            )
        },
        ONE_NORM | NORMS,
    ),
    Family(name="StableLM", cases={"base": stable(StableLmModel)}),
]
