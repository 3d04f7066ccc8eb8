"""GPT-2, with its scalings of scores, with and without a head."""

from agreement.comparing import Family, Stack
from transformers import GPT2Config, GPT2LMHeadModel, GPT2Model

HEADS = 4


def config(**rest):
    return GPT2Config(
        vocab_size=50,
        n_positions=32,
        n_embd=24,
        n_layer=3,
        n_head=HEADS,
        bos_token_id=0,
        eos_token_id=1,
        attn_implementation="eager",
        **rest,
    )


def gave(name, change=lambda x: x):
    return lambda seen, layer: change(seen.gave[f"transformer.h.{layer}.{name}"])


def given(name, change=lambda x: x):
    return lambda seen, layer: change(seen.given[f"transformer.h.{layer}.{name}"])


def part_of_qkv(n):
    """Queries, keys or values of the joint product."""
    return gave("attn.c_attn", lambda x: x.chunk(3, -1)[n])


SHARED = {
    "resid_pre": given("ln_1"),
    "normalized ln1": gave("ln_1"),
    "q": part_of_qkv(0),
    "k": part_of_qkv(1),
    "v": part_of_qkv(2),
    "z": given("attn.c_proj"),
    "attn_out": gave("attn.c_proj"),
    "resid_mid": given("ln_2"),
    "normalized ln2": gave("ln_2"),
    "pre": gave("mlp.c_fc"),
    "post": given("mlp.c_proj"),
    "mlp_out": gave("mlp.c_proj"),
    "resid_post": lambda seen, layer: seen.gave[f"transformer.h.{layer}"],
}

FAMILIES = [
    Family(
        name="GPT-2",
        cases={
            "plain": lambda: GPT2LMHeadModel(config()),
            "by-layer": lambda: GPT2LMHeadModel(
                config(scale_attn_by_inverse_layer_idx=True, activation_function="relu")
            ),
            "unscaled-untied": lambda: GPT2LMHeadModel(
                config(
                    scale_attn_weights=False,
                    tie_word_embeddings=False,
                    n_inner=40,
                    activation_function="gelu",
                    layer_norm_epsilon=1e-3,
                )
            ),
        },
        stacks={"decoder": Stack("transformer.h", SHARED)},
    ),
    Family(
        name="GPT-2",
        cases={"base": lambda: GPT2Model(config())},
        stacks={},
    ),
]
