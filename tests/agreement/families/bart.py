"""BART: towers that differ, a scaled embedding, biases, a head of its own, and the base model."""

import torch
from agreement.comparing import Family, Layers, Stack
from agreement.disk import with_embedding_elsewhere
from agreement.small import small
from transformers import BartConfig, BartForConditionalGeneration, BartModel

ENCODER_LAYERS, DECODER_LAYERS = 3, 2
SIZES = {
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
}
UNEVEN = {
    "encoder_attention_heads": 6,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 56,
}

bart = small(BartConfig, SIZES)


def biased(model):
    """With logits' biases that are no zeros."""
    model.final_logits_bias.copy_(torch.randn(model.final_logits_bias.shape))
    return model


def headed(config):
    return biased(BartForConditionalGeneration(config))


def shared(layers, last):
    """Where the parts are that both towers have; ``last`` is the norm behind the MLP."""
    return {
        "resid_pre": layers.input(),
        "q": layers.output("self_attn.q_proj"),
        "k": layers.output("self_attn.k_proj"),
        "v": layers.output("self_attn.v_proj"),
        **layers.through("self_attn.out_proj", "z", "attn_out"),
        **layers.through("self_attn_layer_norm", "resid_mid", "normalized ln1"),
        **layers.through("fc1", "mlp_in", "pre"),
        **layers.through("fc2", "post", "mlp_out"),
        **layers.through("final_layer_norm", "resid_post", f"normalized {last}"),
    }


def crossing(layers):
    """Where the parts are that only the decoder has."""
    return {
        **layers.through("encoder_attn.q_proj", "cross_attn_in", "cross_q"),
        "cross_k": layers.output("encoder_attn.k_proj"),
        "cross_v": layers.output("encoder_attn.v_proj"),
        **layers.through("encoder_attn.out_proj", "cross_z", "cross_attn_out"),
        **layers.through("encoder_attn_layer_norm", "cross_resid_mid", "normalized ln2"),
    }


def stacks(base):
    """Both towers of a model whose base is called ``base``."""
    encoder, decoder = Layers(f"{base}encoder.layers"), Layers(f"{base}decoder.layers")
    within = shared(decoder, "ln3") | crossing(decoder)
    return {
        "encoder": Stack(shared(encoder, "ln2")),
        "decoder": Stack(within, first_score=ENCODER_LAYERS, scores_each=2),
    }


def family(name, cases, base="model.", towers=stacks, checks=None):
    """Models whose base is called ``base``.

    Their positions count columns, padding too; so padding on the left means something to them.
    """
    return Family(
        name=name,
        cases=cases,
        stacks=towers(base),
        pads=("right",),
        checks={"embedding elsewhere": with_embedding_elsewhere, **(checks or {})},
        embedding=lambda theirs: theirs.get_encoder().embed_tokens.weight,
    )


FAMILIES = [
    family(
        "BART",
        {
            "plain": bart(headed),
            "scaled-uneven": bart(
                headed, **UNEVEN, scale_embedding=True, activation_function="relu"
            ),
            "untied": bart(headed, tie_word_embeddings=False, activation_function="gelu_new"),
        },
    ),
    family("BART", {"base": bart(BartModel, **UNEVEN)}, base=""),
]
