"""M2M-100: positions that start behind the padding token, towers that differ, the base model."""

from agreement.disk import published
from agreement.families.bart import SIZES, UNEVEN, family
from agreement.families.mbart import stacks
from agreement.small import small
from transformers import M2M100Config, M2M100ForConditionalGeneration, M2M100Model

m2m_100 = small(M2M100Config, SIZES)

# As of NLLB, and with the positions that older files hold.
PUBLISHED = {
    "activation_dropout": 0.0,
    "activation_function": "relu",
    "architectures": ["M2M100ForConditionalGeneration"],
    "attention_dropout": 0.1,
    "bos_token_id": 0,
    "d_model": 24,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 40,
    "decoder_layerdrop": 0,
    "decoder_layers": 2,
    "decoder_start_token_id": 2,
    "dropout": 0.1,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 40,
    "encoder_layerdrop": 0,
    "encoder_layers": 3,
    "eos_token_id": 2,
    "init_std": 0.02,
    "is_encoder_decoder": True,
    "max_length": 200,
    "max_position_embeddings": 32,
    "model_type": "m2m_100",
    "num_hidden_layers": 3,
    "pad_token_id": 1,
    "scale_embedding": True,
    "tokenizer_class": "NllbTokenizer",
    "torch_dtype": "float32",
    "transformers_version": "4.21.0.dev0",
    "use_cache": True,
    "vocab_size": 50,
}
WAVES = {f"model.{tower}.embed_positions.weights": (34, 24) for tower in ("encoder", "decoder")}
NAME = "M2M-100, NLLB"

FAMILIES = [
    family(
        NAME,
        {
            "plain": m2m_100(M2M100ForConditionalGeneration),
            "uneven": m2m_100(
                M2M100ForConditionalGeneration,
                **UNEVEN,
                scale_embedding=False,
                activation_function="gelu",
                pad_token_id=0,
            ),
            "untied": m2m_100(
                M2M100ForConditionalGeneration, tie_word_embeddings=False, pad_token_id=2
            ),
        },
        towers=stacks,
    ),
    family(
        NAME,
        {"published": m2m_100(M2M100ForConditionalGeneration)},
        towers=stacks,
        checks={"published": published(PUBLISHED, more=WAVES)},
    ),
    family(NAME, {"base": m2m_100(M2M100Model, **UNEVEN)}, base="", towers=stacks),
]
