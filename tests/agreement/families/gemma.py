"""Gemma 1 to 3: norms before and behind, caps, windows, two ways of turning, odd scalings."""

from agreement.comparing import Family, Stack
from agreement.disk import from_disk
from agreement.families.llama import SHARED, gave
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma2Model,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    Gemma3TextModel,
    GemmaConfig,
    GemmaForCausalLM,
    GemmaModel,
)

SLIDING, FULL = "sliding_attention", "full_attention"


def config(kind, **rest):
    told = {
        "vocab_size": 50,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 32,
        "attn_implementation": "eager",
    }
    return kind(**(told | rest))


def gemma(**rest):
    return config(GemmaConfig, **rest)


def gemma2(**rest):
    return config(Gemma2Config, **({"query_pre_attn_scalar": 6, "sliding_window": 4} | rest))


def gemma3(**rest):
    return config(Gemma3TextConfig, **({"query_pre_attn_scalar": 6, "sliding_window": 4} | rest))


def turning(theta, local, **stretched):
    """Bases of full layers and of those with a window; the first perhaps stretched."""
    return {
        FULL: {"rope_type": "default", "rope_theta": theta} | stretched,
        SLIDING: {"rope_type": "default", "rope_theta": local},
    }


def by_head(name):
    """Of a norm of heads, which is given ``[batch head pos d_head]``."""
    read = gave(name)
    return lambda seen, layer: read(seen, layer).transpose(1, 2)


SANDWICHED = SHARED | {
    "attn_raw": gave("self_attn.o_proj"),
    "normalized ln1_post": gave("post_attention_layernorm"),
    "attn_out": gave("post_attention_layernorm"),
    "resid_mid": lambda seen, layer: seen.given[f"model.layers.{layer}.pre_feedforward_layernorm"],
    "normalized ln2": gave("pre_feedforward_layernorm"),
    "mlp_raw": gave("mlp.down_proj"),
    "normalized ln2_post": gave("post_feedforward_layernorm"),
    "mlp_out": gave("post_feedforward_layernorm"),
}
NORMED = {
    "q_normalized": by_head("self_attn.q_norm"),
    "k_normalized": by_head("self_attn.k_norm"),
}
STRETCHED = {"rope_type": "linear", "factor": 8.0}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}

FAMILIES = [
    Family(
        name="Gemma",
        cases={
            "plain": lambda: GemmaForCausalLM(gemma()),
            "old-gelu-biased": lambda: GemmaForCausalLM(
                gemma(hidden_act="gelu", attention_bias=True, num_key_value_heads=1)
            ),
            "untied": lambda: GemmaForCausalLM(
                gemma(
                    tie_word_embeddings=False,
                    hidden_act="relu",
                    head_dim=10,
                    rms_norm_eps=1e-3,
                    rope_parameters={"rope_theta": 77.0},
                )
            ),
        },
        stacks={"decoder": Stack("model.layers", SHARED)},
        checks={"from disk": from_disk},
    ),
    Family(name="Gemma", cases={"base": lambda: GemmaModel(gemma())}, stacks={}),
    Family(
        name="Gemma 2",
        cases={
            "plain": lambda: Gemma2ForCausalLM(gemma2()),
            "low-caps-biased": lambda: Gemma2ForCausalLM(
                gemma2(
                    attn_logit_softcapping=1.5,
                    final_logit_softcapping=2.0,
                    attention_bias=True,
                    layer_types=[FULL, SLIDING, SLIDING],
                    hidden_activation="gelu",
                )
            ),
            "uncapped-untied": lambda: Gemma2ForCausalLM(
                gemma2(
                    attn_logit_softcapping=None,
                    final_logit_softcapping=None,
                    tie_word_embeddings=False,
                    layer_types=[FULL] * 3,
                    rms_norm_eps=1e-3,
                    query_pre_attn_scalar=256,
                    rope_parameters=STRETCHED | {"rope_theta": 77.0},
                )
            ),
        },
        stacks={"decoder": Stack("model.layers", SANDWICHED)},
        checks={"from disk": from_disk},
    ),
    Family(
        name="Gemma 2",
        cases={
            "base": lambda: Gemma2Model(gemma2()),
            "base-untied": lambda: Gemma2Model(gemma2(tie_word_embeddings=False)),
        },
        stacks={},
    ),
    Family(
        name="Gemma 3 (text)",
        cases={
            "six": lambda: Gemma3ForCausalLM(gemma3(num_hidden_layers=6)),
            "pattern-linear": lambda: Gemma3ForCausalLM(
                gemma3(
                    sliding_window_pattern=2,
                    rope_theta=500.0,
                    rope_local_base_freq=20.0,
                    rope_scaling=STRETCHED,
                )
            ),
            "named-capped": lambda: Gemma3ForCausalLM(
                gemma3(
                    layer_types=[FULL, SLIDING, FULL],
                    final_logit_softcapping=2.0,
                    attention_bias=True,
                    rms_norm_eps=1e-3,
                    rope_parameters=turning(300.0, 30.0, **LLAMA3),
                )
            ),
            "all-full-untied": lambda: Gemma3ForCausalLM(
                gemma3(
                    layer_types=[FULL] * 3,
                    tie_word_embeddings=False,
                    hidden_activation="relu",
                    rope_parameters=turning(500.0, 30.0, **YARN),
                )
            ),
        },
        stacks={"decoder": Stack("model.layers", SANDWICHED | NORMED)},
        checks={"from disk": from_disk},
    ),
    Family(
        name="Gemma 3 (text)",
        cases={
            "base": lambda: Gemma3TextModel(gemma3()),
            "base-untied": lambda: Gemma3TextModel(
                gemma3(tie_word_embeddings=False, final_logit_softcapping=2.0)
            ),
        },
        stacks={},
    ),
]
