"""Phi-3: fused matrices, windows, heads that turn in part, longrope."""

from agreement.comparing import Family, Stack
from agreement.disk import as_before
from agreement.families.llama import LAYERS, SHARED
from agreement.small import small
from transformers import Phi3Config, Phi3ForCausalLM, Phi3Model

HEADS, KEYS, D_HEAD = 4, 2, 6
SHORT, LONG = [1.0, 1.3, 2.0], [1.0, 3.0, 7.0]

phi3 = small(
    Phi3Config, num_key_value_heads=KEYS, bos_token_id=0, eos_token_id=1, pad_token_id=None
)


def longrope(name="longrope", n=3, original=6, **rest):
    """A case; ``n`` pairs turn."""
    rope = {"rope_type": name, "short_factor": SHORT[:n], "long_factor": LONG[:n]} | rest
    return phi3(Phi3ForCausalLM, rope_parameters=rope, original_max_position_embeddings=original)


def fused(keys=KEYS):
    """Of the fused product of the MLP the first half opens, the second is opened."""
    sizes = (HEADS * D_HEAD, keys * D_HEAD, keys * D_HEAD)
    parts = {
        **LAYERS.joint("self_attn.qkv_proj", "qkv", lambda x: x.split(sizes, -1)),
        **LAYERS.joint("mlp.gate_up_proj", ("gate", "pre"), lambda x: x.chunk(2, -1)),
    }
    return {"decoder": Stack(SHARED | parts)}


FAMILIES = [
    Family(
        name="Phi-3",
        cases={
            "plain": phi3(Phi3ForCausalLM),
            "window-tied": phi3(
                Phi3ForCausalLM,
                sliding_window=4,
                tie_word_embeddings=True,
                rms_norm_eps=1e-3,
                hidden_act="gelu",
                resid_pdrop=0.3,
            ),
            "partial": phi3(
                Phi3ForCausalLM,
                rope_parameters={"rope_theta": 77.0, "partial_rotary_factor": 0.7},
            ),
            "longrope-short": longrope(original=16),
        },
        stacks=fused(),
        checks={"disk of version 4": as_before},
    ),
    Family(
        name="Phi-3",
        cases={"all-heads": phi3(Phi3ForCausalLM, num_key_value_heads=None)},
        stacks=fused(HEADS),
    ),
    # Longer texts than the model was trained on: they stretch a batch by its longest, we each text.
    Family(
        name="Phi-3",
        cases={
            "longrope": longrope(),
            "longrope-partial": longrope(n=2, partial_rotary_factor=0.7, rope_theta=77.0),
            "longrope-explicit": longrope(
                "su", factor=3.0, attention_factor=1.3, original_max_position_embeddings=6
            ),
            "longrope-called-yarn": longrope("yarn"),
        },
        stacks=fused(),
        pads=(),
        checks={"disk of version 4": as_before},
    ),
    Family(name="Phi-3", cases={"base": phi3(Phi3Model)}),
]
