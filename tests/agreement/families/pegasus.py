"""Pegasus: norms before each part, sinusoidal positions, towers that differ, the base model."""

from agreement.disk import published
from agreement.families.bart import SIZES, UNEVEN, biased, family
from agreement.families.marian import exact_waves
from agreement.families.mbart import PUBLISHED as OF_MBART
from agreement.families.mbart import stacks
from agreement.small import small
from transformers import PegasusConfig, PegasusForConditionalGeneration, PegasusModel

pegasus = small(PegasusConfig, SIZES)


def headed(config):
    return exact_waves(biased(PegasusForConditionalGeneration(config)))


def base(config):
    return exact_waves(PegasusModel(config))


# As of the model of news summaries.
PUBLISHED = {
    **{name: value for name, value in OF_MBART.items() if name != "_num_labels"},
    "activation_function": "relu",
    "architectures": ["PegasusForConditionalGeneration"],
    "decoder_start_token_id": 0,
    "eos_token_id": 1,
    "extra_pos_embeddings": 1,
    "force_bos_token_to_be_generated": False,
    "forced_eos_token_id": 1,
    "length_penalty": 0.6,
    "model_type": "pegasus",
    "normalize_embedding": False,
    "pad_token_id": 0,
    "static_position_embeddings": True,
    "task_specific_params": {"summarization_xsum": {"max_length": 64}},
}

FAMILIES = [
    family(
        "Pegasus",
        {
            "plain": pegasus(headed, scale_embedding=True, activation_function="relu"),
            "uneven": pegasus(headed, **UNEVEN),
            "untied": pegasus(headed, tie_word_embeddings=False, activation_function="gelu_new"),
        },
        towers=stacks,
    ),
    family(
        "Pegasus",
        {
            "published": pegasus(
                headed, scale_embedding=True, activation_function="relu", bos_token_id=0
            )
        },
        towers=stacks,
        checks={"published": published(PUBLISHED)},
    ),
    family("Pegasus", {"base": pegasus(base, **UNEVEN)}, base="", towers=stacks),
]
