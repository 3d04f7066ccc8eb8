"""T5 1.0 and 1.1, mT5: gated, tied, scaled or not, uneven towers, the encoder alone."""

import torch
from agreement.comparing import Family, Layers, Stack, if_there
from agreement.disk import changed, published, read, with_embedding_elsewhere, written
from agreement.small import small
from transformers import (
    MT5Config,
    MT5EncoderModel,
    MT5ForConditionalGeneration,
    MT5Model,
    T5Config,
    T5EncoderModel,
    T5ForConditionalGeneration,
    T5Model,
)
from transformers.models.t5.modeling_t5 import T5Attention

ENCODER_LAYERS, DECODER_LAYERS = 3, 2
SIZES = {
    "vocab_size": 50,
    "d_model": 24,
    "d_kv": 8,
    "d_ff": 40,
    "num_layers": ENCODER_LAYERS,
    "num_decoder_layers": DECODER_LAYERS,
    "num_heads": 4,
    "decoder_start_token_id": 0,
    "attn_implementation": "eager",
}

t5, mt5 = small(T5Config, SIZES), small(MT5Config, SIZES)


def with_own_head(config):
    """Version 5 of transformers ties what it makes anew; files of T5 1.1 hold a head."""
    model = T5ForConditionalGeneration(config)
    model.lm_head.weight = torch.nn.Parameter(torch.randn(50, 24) * 0.3)
    return model


def mt5_with_own_head(config):
    """Files of mT5 hold a head, too."""
    model = MT5ForConditionalGeneration(config)
    model.lm_head.weight = torch.nn.Parameter(torch.randn(50, 24) * 0.3)
    return model


def with_own_embeddings(config):
    """Each tower reads its own tokens, as some files have it."""
    model = T5ForConditionalGeneration(config)
    model.encoder.embed_tokens.weight = torch.nn.Parameter(torch.randn(50, 24) * 0.3)
    return model


def shared(layers, mlp):
    """Where the parts are that both towers have."""
    return {
        **layers.through("layer.0.layer_norm", "resid_pre", "normalized ln1"),
        "q": layers.output("layer.0.SelfAttention.q"),
        "k": layers.output("layer.0.SelfAttention.k"),
        "v": layers.output("layer.0.SelfAttention.v"),
        **layers.through("layer.0.SelfAttention.o", "z", "attn_out"),
        **layers.through("layer.1.layer_norm", "resid_mid", "normalized ln2"),
        "gate": if_there(layers.output(f"{mlp}.wi_0")),
        "pre": if_there(layers.output(f"{mlp}.wi"), layers.output(f"{mlp}.wi_1")),
        **layers.through(f"{mlp}.wo", "post", "mlp_out"),
        "resid_post": layers.output(),
    }


def crossing(layers):
    """Where the parts are that only the decoder has."""
    return {
        "cross_attn_in": layers.input("layer.1.layer_norm"),
        "cross_q": layers.output("layer.1.EncDecAttention.q"),
        "cross_k": layers.output("layer.1.EncDecAttention.k"),
        "cross_v": layers.output("layer.1.EncDecAttention.v"),
        **layers.through("layer.1.EncDecAttention.o", "cross_z", "cross_attn_out"),
        **layers.through("layer.2.layer_norm", "cross_resid_mid", "normalized ln3"),
    }


def buckets(theirs, ours):
    """The bucket of every distance, also of those that no small text has: off by 0."""
    distance = torch.arange(-2000, 2001)[None, None]
    off = 0.0
    for stack in ours.stacks:
        computed = stack.block(0).attn.positions.buckets(distance)
        tower = getattr(theirs, stack.name)
        expected = T5Attention._relative_position_bucket(
            distance,
            bidirectional=stack.name == "encoder",
            num_buckets=tower.config.relative_attention_num_buckets,
            max_distance=tower.config.relative_attention_max_distance,
        )
        off = max(off, (computed - expected).abs().max().item())
    return float(off)


def early_files(theirs, ours):
    """As version 4 wrote it: one flag stands for the scale, and the embedding has another name."""
    unscaled = ours.config.logit_scale is None
    if not ours.config.shared or (unscaled and ours.config.tied):
        return 0.0  # it wrote no such models
    fields, weights = written(theirs)
    fields["tie_word_embeddings"] = fields.pop("scale_decoder_outputs")
    del fields["dense_act_fn"], fields["is_gated_act"]
    weights["encoder.embed_tokens.weight"] = weights.pop("shared.weight")
    cross = "decoder.block.0.layer.1.EncDecAttention"
    weights[f"{cross}.relative_attention_bias.weight"] = torch.zeros(32, 4)
    return changed(read(fields, weights), ours)


# As of mT5 small, whose file has a head of its own.
PUBLISHED_MT5 = {
    "architectures": ["MT5ForConditionalGeneration"],
    "d_ff": 40,
    "d_kv": 8,
    "d_model": 24,
    "decoder_start_token_id": 0,
    "dropout_rate": 0.1,
    "eos_token_id": 1,
    "feed_forward_proj": "gated-gelu",
    "initializer_factor": 1.0,
    "is_encoder_decoder": True,
    "layer_norm_epsilon": 1e-06,
    "model_type": "mt5",
    "num_decoder_layers": DECODER_LAYERS,
    "num_heads": 4,
    "num_layers": ENCODER_LAYERS,
    "pad_token_id": 0,
    "relative_attention_num_buckets": 32,
    "tie_word_embeddings": False,
    "tokenizer_class": "T5Tokenizer",
    "use_cache": True,
    "vocab_size": 50,
}

ENCODER, DECODER = Layers("encoder.block"), Layers("decoder.block")
TOWERS = {
    "encoder": Stack(shared(ENCODER, "layer.1.DenseReluDense")),
    "decoder": Stack(
        shared(DECODER, "layer.2.DenseReluDense") | crossing(DECODER),
        first_score=ENCODER_LAYERS,
        scores_each=2,
    ),
}
CHECKS = {"buckets": buckets, "embedding elsewhere": with_embedding_elsewhere}

FAMILIES = [
    Family(
        name="T5",
        cases={
            "plain": t5(T5ForConditionalGeneration),
            "gated-untied-unscaled": t5(
                with_own_head, feed_forward_proj="gated-gelu", tie_word_embeddings=False
            ),
            "gated-tied-unscaled": t5(
                T5ForConditionalGeneration,
                feed_forward_proj="gated-silu",
                tie_word_embeddings=False,
                layer_norm_epsilon=1e-3,
            ),
            "few-ranges-untied-scaled": t5(
                with_own_head,
                feed_forward_proj="gelu",
                relative_attention_num_buckets=8,
                relative_attention_max_distance=7,
            ),
            "embeddings-apart": t5(with_own_embeddings),
            "base": t5(T5Model),
            "base-gated": t5(T5Model, feed_forward_proj="gated-relu", tie_word_embeddings=False),
        },
        stacks=TOWERS,
        checks=CHECKS | {"early files": early_files},
        embedding=lambda theirs: theirs.encoder.embed_tokens.weight,
    ),
    Family(
        name="T5",
        cases={"encoder-alone": t5(T5EncoderModel, feed_forward_proj="gated-gelu")},
        stacks={"encoder": TOWERS["encoder"]},
        checks=CHECKS,
    ),
    Family(
        name="mT5",
        cases={
            "plain": mt5(MT5ForConditionalGeneration),
            "untied": mt5(mt5_with_own_head, tie_word_embeddings=False, layer_norm_epsilon=1e-3),
            "not-gated": mt5(
                MT5ForConditionalGeneration,
                feed_forward_proj="relu",
                relative_attention_num_buckets=8,
                relative_attention_max_distance=7,
            ),
            "base": mt5(MT5Model),
        },
        stacks=TOWERS,
        checks=CHECKS,
        embedding=lambda theirs: theirs.encoder.embed_tokens.weight,
    ),
    Family(
        name="mT5",
        cases={"published": mt5(mt5_with_own_head)},
        stacks=TOWERS,
        checks={"published": published(PUBLISHED_MT5)},
        embedding=lambda theirs: theirs.encoder.embed_tokens.weight,
    ),
    Family(
        name="mT5",
        cases={"encoder-alone": mt5(MT5EncoderModel)},
        stacks={"encoder": TOWERS["encoder"]},
        checks=CHECKS,
    ),
]
