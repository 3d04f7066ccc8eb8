"""mBART: norms before each part and at the end of each tower."""

from agreement.comparing import Layers, Stack
from agreement.disk import published
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
        "q": layers.output("self_attn.q_proj"),
        "k": layers.output("self_attn.k_proj"),
        "v": layers.output("self_attn.v_proj"),
        **layers.through("self_attn.out_proj", "z", "attn_out"),
        **layers.through("final_layer_norm", "mlp_in", f"normalized {last}"),
        "pre": layers.output("fc1"),
        **layers.through("fc2", "post", "mlp_out"),
        "resid_post": layers.output(),
    }


def crossing(layers):
    """Where the parts are that only the decoder has."""
    return {
        **layers.through("encoder_attn_layer_norm", "cross_attn_in", "normalized ln2"),
        "cross_q": layers.output("encoder_attn.q_proj"),
        "cross_k": layers.output("encoder_attn.k_proj"),
        "cross_v": layers.output("encoder_attn.v_proj"),
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


# As of the model of English and Romanian.
PUBLISHED = {
    "_num_labels": 3,
    "activation_dropout": 0.0,
    "activation_function": "gelu",
    "add_bias_logits": False,
    "add_final_layer_norm": True,
    "architectures": ["MBartForConditionalGeneration"],
    "attention_dropout": 0.1,
    "bos_token_id": 0,
    "classif_dropout": 0.0,
    "classifier_dropout": 0.0,
    "d_model": 24,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 40,
    "decoder_layerdrop": 0.0,
    "decoder_layers": 2,
    "decoder_start_token_id": 7,
    "dropout": 0.1,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 40,
    "encoder_layerdrop": 0.0,
    "encoder_layers": 3,
    "eos_token_id": 2,
    "extra_pos_embeddings": 2,
    "gradient_checkpointing": False,
    "id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"},
    "init_std": 0.02,
    "is_encoder_decoder": True,
    "label2id": {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2},
    "max_length": 200,
    "max_position_embeddings": 32,
    "model_type": "mbart",
    "normalize_before": True,
    "normalize_embedding": True,
    "num_beams": 5,
    "num_hidden_layers": 3,
    "output_past": True,
    "pad_token_id": 1,
    "save_step": 14,
    "scale_embedding": True,
    "static_position_embeddings": False,
    "task_specific_params": {"translation_en_to_ro": {"decoder_start_token_id": 7}},
    "vocab_size": 50,
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
    bart.family(
        "mBART",
        {"published": mbart(headed, scale_embedding=True)},
        towers=stacks,
        checks={"published": published(PUBLISHED)},
    ),
    bart.family("mBART", {"base": mbart(MBartModel, **UNEVEN)}, base="", towers=stacks),
]
