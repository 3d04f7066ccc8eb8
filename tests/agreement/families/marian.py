"""Marian: one vocabulary or two, scaled embeddings, towers that differ, and the base model."""

import torch
from agreement.comparing import Family
from agreement.families.bart import PADS, UNEVEN, biased, stacks, told
from agreement.pairs import pair_from_disk
from transformers import MarianConfig, MarianModel, MarianMTModel

TWO = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 43}


def config(**rest):
    tokens = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    return MarianConfig(**told(**(tokens | rest)))


def exact_waves(model):
    """Their waves are rounded to float32, and are no weights: have them in float64, and kept."""
    for tower in (model.get_encoder(), model.get_decoder()):
        table = tower.embed_positions
        n, d = table.weight.shape
        angles = torch.arange(n)[:, None] / 10_000 ** (torch.arange(0, d, 2).double() / d)
        del table.weight
        table.register_buffer("weight", torch.cat([angles.sin(), angles.cos()], dim=1))
    return model


def model(**rest):
    return exact_waves(biased(MarianMTModel(config(**rest))))


FAMILIES = [
    Family(
        name="Marian",
        cases={
            "plain": model,
            "scaled-uneven": lambda: model(
                scale_embedding=True, activation_function="swish", **UNEVEN
            ),
            "two-vocabularies": lambda: model(**TWO),
            "two-vocabularies-untied": lambda: model(
                **(TWO | {"decoder_vocab_size": 57}),
                tie_word_embeddings=False,
                activation_function="relu",
            ),
        },
        stacks=stacks("model."),
        reads="pair",
        pads=PADS,
        checks={"disk": pair_from_disk},
        embedding=lambda theirs: theirs.model.encoder.embed_tokens.weight,
    ),
    Family(
        name="Marian",
        cases={
            "base": lambda: exact_waves(MarianModel(config())),
            "base-two-vocabularies": lambda: exact_waves(MarianModel(config(**TWO))),
        },
        stacks=stacks(),
        reads="pair",
        pads=PADS,
        checks={"disk": pair_from_disk},
        embedding=lambda theirs: theirs.encoder.embed_tokens.weight,
    ),
]
