"""Phi-3: fused matrices, windows, heads that turn in part, longrope."""

from agreement.comparing import Family, Stack
from agreement.disk import from_disk
from agreement.families.llama import SHARED, gave
from transformers import Phi3Config, Phi3ForCausalLM, Phi3Model

HEADS, KEYS, D_HEAD = 4, 2, 6
SHORT, LONG = [1.0, 1.3, 2.0], [1.0, 3.0, 7.0]


def config(**rest):
    told = {
        "vocab_size": 50,
        "hidden_size": HEADS * D_HEAD,
        "intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEYS,
        "max_position_embeddings": 32,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": None,
        "attn_implementation": "eager",
    }
    return Phi3Config(**(told | rest))


def longrope(name="longrope", n=3, original=6, **rest):
    """A case; ``n`` pairs turn."""

    def make():
        rope = {"rope_type": name, "short_factor": SHORT[:n], "long_factor": LONG[:n]} | rest
        return Phi3ForCausalLM(
            config(rope_parameters=rope, original_max_position_embeddings=original)
        )

    return make


def part_of_qkv(n, keys=KEYS):
    read = gave("self_attn.qkv_proj")
    sizes = [HEADS * D_HEAD, keys * D_HEAD, keys * D_HEAD]
    return lambda seen, layer: read(seen, layer).split(sizes, -1)[n]


def half(n):
    """The first half of the fused product opens, the second is opened."""
    read = gave("mlp.gate_up_proj")
    return lambda seen, layer: read(seen, layer).chunk(2, -1)[n]


def fused(keys=KEYS):
    parts = {name: part_of_qkv(n, keys) for n, name in enumerate("qkv")}
    return {"decoder": Stack("model.layers", SHARED | parts | {"gate": half(0), "pre": half(1)})}


FAMILIES = [
    Family(
        name="Phi-3",
        cases={
            "plain": lambda: Phi3ForCausalLM(config()),
            "window-tied": lambda: Phi3ForCausalLM(
                config(
                    sliding_window=4,
                    tie_word_embeddings=True,
                    rms_norm_eps=1e-3,
                    hidden_act="gelu",
                    resid_pdrop=0.3,
                )
            ),
            "partial": lambda: Phi3ForCausalLM(
                config(rope_parameters={"rope_theta": 77.0, "partial_rotary_factor": 0.7})
            ),
            "longrope-short": longrope(original=16),
        },
        stacks=fused(),
        checks={"from disk": from_disk},
    ),
    Family(
        name="Phi-3",
        cases={"all-heads": lambda: Phi3ForCausalLM(config(num_key_value_heads=None))},
        stacks=fused(HEADS),
    ),
    # Longer texts than the model was trained on: they stretch a batch by its longest, we each text.
    Family(
        name="Phi-3",
        cases={
            "longrope": longrope(),
            "longrope-partial": longrope(n=2, partial_rotary_factor=0.7, rope_theta=77.0),
            "longrope-told": longrope(
                "su", factor=3.0, attention_factor=1.3, original_max_position_embeddings=6
            ),
            "longrope-called-yarn": longrope("yarn"),
        },
        stacks=fused(),
        pads=(),
        checks={"from disk": from_disk},
    ),
    Family(name="Phi-3", cases={"base": lambda: Phi3Model(config())}, stacks={}),
]
