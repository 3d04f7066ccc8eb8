"""Gemma 1 to 3: norms before and behind, caps, windows, two ways of turning, odd scalings.

Of Gemma 3 that also reads images, the part that reads texts.
"""

from agreement.comparing import Family, Stack, heads_behind, within
from agreement.disk import as_before, published
from agreement.families.llama import GROUPED, LAYERS, SHARED
from agreement.small import FULL, LLAMA3, SIZES, SLIDING, YARN, Case, small
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma2Model,
    Gemma3Config,
    Gemma3ForCausalLM,
    Gemma3ForConditionalGeneration,
    Gemma3Model,
    Gemma3TextConfig,
    Gemma3TextModel,
    GemmaConfig,
    GemmaForCausalLM,
    GemmaModel,
)

gemma = small(GemmaConfig, **GROUPED)
gemma2 = small(Gemma2Config, **GROUPED, query_pre_attn_scalar=6, sliding_window=4)
gemma3 = small(Gemma3TextConfig, **GROUPED, query_pre_attn_scalar=6, sliding_window=4)


def turning(theta, local, **stretched):
    """Bases of full layers and of those with a window; the first perhaps stretched."""
    return {
        FULL: {"rope_type": "default", "rope_theta": theta} | stretched,
        SLIDING: {"rope_type": "default", "rope_theta": local},
    }


SANDWICHED = SHARED | {
    **LAYERS.through("post_attention_layernorm", "attn_raw", "attn_out"),
    "normalized ln1_post": LAYERS.output("post_attention_layernorm"),
    **LAYERS.through("pre_feedforward_layernorm", "resid_mid", "normalized ln2"),
    **LAYERS.through("post_feedforward_layernorm", "mlp_raw", "mlp_out"),
    "normalized ln2_post": LAYERS.output("post_feedforward_layernorm"),
}
NORMED = SANDWICHED | {
    "q_normalized": LAYERS.output("self_attn.q_norm", heads_behind),
    "k_normalized": LAYERS.output("self_attn.k_norm", heads_behind),
}
STRETCHED = {"rope_type": "linear", "factor": 8.0}
VISION = {
    **{"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2},
    **{"image_size": 8, "patch_size": 4, "model_type": "siglip_vision_model"},
}


def whole(model, *, tied=True, vision=VISION, **text):
    """A model that reads texts and images, of which ours is the part that reads texts."""
    sizes = {**SIZES, **GROUPED, "query_pre_attn_scalar": 6, "sliding_window": 4, **text}
    fields = {"text_config": sizes, "vision_config": vision, "tie_word_embeddings": tied}
    fields |= {"mm_tokens_per_image": 1, "image_token_index": 49, "attn_implementation": "eager"}
    return Case(model, Gemma3Config, fields)


# As of Gemma 3 4B.
PUBLISHED = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "boi_token_index": 47,
    "eoi_token_index": 48,
    "eos_token_id": [1],
    "image_token_index": 49,
    "initializer_range": 0.02,
    "mm_tokens_per_image": 1,
    "model_type": "gemma3",
    "text_config": {
        "head_dim": 8,
        "hidden_size": 24,
        "intermediate_size": 40,
        "max_position_embeddings": 32,
        "model_type": "gemma3_text",
        "num_attention_heads": 4,
        "num_hidden_layers": 3,
        "num_key_value_heads": 2,
        "query_pre_attn_scalar": 6,
        "rope_scaling": STRETCHED,
        "sliding_window": 4,
        "vocab_size": 50,
    },
    "torch_dtype": "bfloat16",
    "transformers_version": "4.50.0.dev0",
    "vision_config": VISION,
}
ON_DISK = {
    r"^model\.language_model\.": "language_model.model.",
    r"^lm_head\.": "language_model.lm_head.",
    r"^model\.(?=vision_tower|multi_modal_projector)": "",
}

FAMILIES = [
    Family(
        name="Gemma",
        cases={
            "plain": gemma(GemmaForCausalLM),
            "old-gelu-biased": gemma(
                GemmaForCausalLM, hidden_act="gelu", attention_bias=True, num_key_value_heads=1
            ),
            "untied": gemma(
                GemmaForCausalLM,
                tie_word_embeddings=False,
                hidden_act="relu",
                head_dim=10,
                rms_norm_eps=1e-3,
                rope_parameters={"rope_theta": 77.0},
            ),
        },
        stacks={"decoder": Stack(SHARED)},
        checks={"disk of version 4": as_before},
    ),
    Family(name="Gemma", cases={"base": gemma(GemmaModel)}),
    Family(
        name="Gemma 2",
        cases={
            "plain": gemma2(Gemma2ForCausalLM),
            "low-caps-biased": gemma2(
                Gemma2ForCausalLM,
                attn_logit_softcapping=1.5,
                final_logit_softcapping=2.0,
                attention_bias=True,
                layer_types=[FULL, SLIDING, SLIDING],
                hidden_activation="gelu",
            ),
            "uncapped-untied": gemma2(
                Gemma2ForCausalLM,
                attn_logit_softcapping=None,
                final_logit_softcapping=None,
                tie_word_embeddings=False,
                layer_types=[FULL] * 3,
                rms_norm_eps=1e-3,
                query_pre_attn_scalar=256,
                rope_parameters=STRETCHED | {"rope_theta": 77.0},
            ),
        },
        stacks={"decoder": Stack(SANDWICHED)},
        checks={"disk of version 4": as_before},
    ),
    Family(
        name="Gemma 2",
        cases={
            "base": gemma2(Gemma2Model),
            "base-untied": gemma2(Gemma2Model, tie_word_embeddings=False),
        },
    ),
    Family(
        name="Gemma 3 (text)",
        cases={
            "six": gemma3(Gemma3ForCausalLM, num_hidden_layers=6),
            "pattern-linear": gemma3(
                Gemma3ForCausalLM,
                sliding_window_pattern=2,
                rope_theta=500.0,
                rope_local_base_freq=20.0,
                rope_scaling=STRETCHED,
            ),
            "named-capped": gemma3(
                Gemma3ForCausalLM,
                layer_types=[FULL, SLIDING, FULL],
                final_logit_softcapping=2.0,
                attention_bias=True,
                rms_norm_eps=1e-3,
                rope_parameters=turning(300.0, 30.0, **LLAMA3),
            ),
            "all-full-untied": gemma3(
                Gemma3ForCausalLM,
                layer_types=[FULL] * 3,
                tie_word_embeddings=False,
                hidden_activation="relu",
                rope_parameters=turning(500.0, 30.0, **YARN),
            ),
        },
        stacks={"decoder": Stack(NORMED)},
        checks={"disk of version 4": as_before},
    ),
    Family(
        name="Gemma 3 (text)",
        cases={
            "base": gemma3(Gemma3TextModel),
            "base-untied": gemma3(
                Gemma3TextModel, tie_word_embeddings=False, final_logit_softcapping=2.0
            ),
        },
    ),
    Family(
        name="Gemma 3",
        cases={
            "six": whole(Gemma3ForConditionalGeneration, num_hidden_layers=6),
            "linear-untied": whole(
                Gemma3ForConditionalGeneration,
                tied=False,
                layer_types=[FULL, SLIDING, FULL],
                attention_bias=True,
                rope_parameters=turning(300.0, 30.0, **STRETCHED),
            ),
        },
        stacks={"decoder": Stack(within("model.language_model.", NORMED))},
    ),
    Family(
        name="Gemma 3",
        cases={
            "published": whole(
                Gemma3ForConditionalGeneration,
                rope_parameters=turning(1_000_000.0, 10_000.0, **STRETCHED),
            )
        },
        stacks={"decoder": Stack(within("model.language_model.", NORMED))},
        checks={"published": published(PUBLISHED, ON_DISK)},
    ),
    Family(name="Gemma 3", cases={"base": whole(Gemma3Model)}),
]
