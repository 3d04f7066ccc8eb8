"""Marian: one vocabulary or two, scaled embeddings, towers that differ, and the base model."""

import torch
from agreement.families.bart import SIZES, UNEVEN, biased, family
from agreement.small import small
from transformers import MarianConfig, MarianModel, MarianMTModel

TWO = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 43}

marian = small(MarianConfig, SIZES, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0)


def exact_waves(model):
    """Their waves are rounded to float32, and are no weights: have them in float64, and kept."""
    for tower in (model.get_encoder(), model.get_decoder()):
        table = tower.embed_positions
        n, d = table.weight.shape
        angles = torch.arange(n)[:, None] / 10_000 ** (torch.arange(0, d, 2).double() / d)
        del table.weight
        table.register_buffer("weight", torch.cat([angles.sin(), angles.cos()], dim=1))
    return model


def headed(config):
    return exact_waves(biased(MarianMTModel(config)))


def base(config):
    return exact_waves(MarianModel(config))


FAMILIES = [
    family(
        "Marian",
        {
            "plain": marian(headed),
            "scaled-uneven": marian(
                headed, **UNEVEN, scale_embedding=True, activation_function="swish"
            ),
            "two-vocabularies": marian(headed, **TWO),
            "two-vocabularies-untied": marian(
                headed,
                **(TWO | {"decoder_vocab_size": 57}),
                tie_word_embeddings=False,
                activation_function="relu",
            ),
        },
    ),
    family("Marian", {"base": marian(base), "base-two-vocabularies": marian(base, **TWO)}, base=""),
]
