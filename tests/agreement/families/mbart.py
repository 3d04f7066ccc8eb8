"""mBART: norms before each part and at the end of each tower."""

from agreement.comparing import Layers, Stack
from agreement.families import bart
from agreement.families.bart import ENCODER_LAYERS, SIZES, UNEVEN, biased
from agreement.small import small
from transformers import MBartConfig, MBartForConditionalGeneration, MBartModel

mbart = small(MBartConfig, SIZES, decoder_start_token_id=7)


def headed(config):
    return biased(MBartForConditionalGeneration(config))


def shared(layers, last):
    """Where the parts are that both towers have; ``last`` is the norm before the MLP."""
    return {
        **layers.through("self_attn_layer_norm", "resid_pre", "normalized ln1"),
        "q": layers.gave("self_attn.q_proj"),
        "k": layers.gave("self_attn.k_proj"),
        "v": layers.gave("self_attn.v_proj"),
        **layers.through("self_attn.out_proj", "z", "attn_out"),
        **layers.through("final_layer_norm", "mlp_in", f"normalized {last}"),
        "pre": layers.gave("fc1"),
        **layers.through("fc2", "post", "mlp_out"),
        "resid_post": layers.gave(),
    }


def crossing(layers):
    """Where the parts are that only the decoder has."""
    return {
        **layers.through("encoder_attn_layer_norm", "cross_attn_in", "normalized ln2"),
        "cross_q": layers.gave("encoder_attn.q_proj"),
        "cross_k": layers.gave("encoder_attn.k_proj"),
        "cross_v": layers.gave("encoder_attn.v_proj"),
        **layers.through("encoder_attn.out_proj", "cross_z", "cross_attn_out"),
    }


def stacks(base):
    """Both towers of a model whose base is called ``base``."""
    encoder, decoder = Layers(f"{base}encoder.layers"), Layers(f"{base}decoder.layers")
    within = shared(decoder, "ln3") | crossing(decoder)
    return {
        "encoder": Stack(shared(encoder, "ln2")),
        "decoder": Stack(within, first_score=ENCODER_LAYERS, scores_each=2),
    }


FAMILIES = [
    bart.family(
        "mBART",
        {
            "plain": mbart(headed, scale_embedding=True),
            "uneven": mbart(headed, **UNEVEN, activation_function="relu"),
            "untied": mbart(headed, tie_word_embeddings=False, activation_function="gelu_new"),
        },
        towers=stacks,
    ),
    bart.family("mBART", {"base": mbart(MBartModel, **UNEVEN)}, base="", towers=stacks),
]
