"""BART: towers that differ, a scaled embedding, biases, a head of its own, and the base model."""

import torch
from agreement.comparing import Family, Stack
from agreement.pairs import pair_from_disk
from transformers import BartConfig, BartForConditionalGeneration, BartModel

ENCODER_LAYERS, DECODER_LAYERS = 3, 2
UNEVEN = {
    "encoder_attention_heads": 6,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 56,
}


def told(**rest):
    return {
        "vocab_size": 50,
        "d_model": 24,
        "encoder_layers": ENCODER_LAYERS,
        "decoder_layers": DECODER_LAYERS,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 40,
        "decoder_ffn_dim": 40,
        "max_position_embeddings": 32,
        "attn_implementation": "eager",
    } | rest


def biased(model):
    """With logits' biases that are no zeros."""
    model.final_logits_bias.copy_(torch.randn(model.final_logits_bias.shape))
    return model


def model(**rest):
    return biased(BartForConditionalGeneration(BartConfig(**told(**rest))))


def reading(stack, tower):
    """Readers of the parts of a tower, whose layers are at ``stack``."""

    def gave(name):
        return lambda seen, layer: seen.gave[f"{stack}.{layer}.{name}"]

    def given(name):
        return lambda seen, layer: seen.given[f"{stack}.{layer}.{name}"]

    last = {"encoder": "ln2", "decoder": "ln3"}[tower]
    shared = {
        "resid_pre": lambda seen, layer: seen.given[f"{stack}.{layer}"],
        "q": gave("self_attn.q_proj"),
        "k": gave("self_attn.k_proj"),
        "v": gave("self_attn.v_proj"),
        "z": given("self_attn.out_proj"),
        "attn_out": gave("self_attn.out_proj"),
        "resid_mid": given("self_attn_layer_norm"),
        "normalized ln1": gave("self_attn_layer_norm"),
        "mlp_in": given("fc1"),
        "pre": gave("fc1"),
        "post": given("fc2"),
        "mlp_out": gave("fc2"),
        "resid_post": given("final_layer_norm"),
        f"normalized {last}": gave("final_layer_norm"),
    }
    if tower == "encoder":
        return shared
    return shared | {
        "cross_attn_in": given("encoder_attn.q_proj"),
        "cross_q": gave("encoder_attn.q_proj"),
        "cross_k": gave("encoder_attn.k_proj"),
        "cross_v": gave("encoder_attn.v_proj"),
        "cross_z": given("encoder_attn.out_proj"),
        "cross_attn_out": gave("encoder_attn.out_proj"),
        "cross_resid_mid": given("encoder_attn_layer_norm"),
        "normalized ln2": gave("encoder_attn_layer_norm"),
    }


def stacks(prefix=""):
    """Where the two towers are."""
    return {
        name: Stack(
            f"{prefix}{name}.layers",
            reading(f"{prefix}{name}.layers", name),
            first_score=0 if name == "encoder" else ENCODER_LAYERS,
            scores_each=1 if name == "encoder" else 2,
        )
        for name in ("encoder", "decoder")
    }


# Their positions count columns, padding too; so padding on the left means something to them.
PADS = ("right",)

FAMILIES = [
    Family(
        name="BART",
        cases={
            "plain": model,
            "scaled-uneven": lambda: model(
                scale_embedding=True, activation_function="relu", **UNEVEN
            ),
            "untied": lambda: model(tie_word_embeddings=False, activation_function="gelu_new"),
        },
        stacks=stacks("model."),
        reads="pair",
        pads=PADS,
        checks={"disk": pair_from_disk},
        embedding=lambda theirs: theirs.model.encoder.embed_tokens.weight,
    ),
    Family(
        name="BART",
        cases={"base": lambda: BartModel(BartConfig(**told(**UNEVEN)))},
        stacks=stacks(),
        reads="pair",
        pads=PADS,
        checks={"disk": pair_from_disk},
    ),
]
