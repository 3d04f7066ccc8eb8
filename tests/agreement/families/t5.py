"""T5 1.0 and 1.1: gated or not, tied or not, scaled or not, uneven towers, the encoder alone."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from agreement.comparing import Family, Stack, off
from agreement.pairs import pair_from_disk, some_tokens
from safetensors.torch import load_file, save_file
from transformers import T5Config, T5EncoderModel, T5ForConditionalGeneration, T5Model
from transformers.models.t5.modeling_t5 import T5Attention

import interp

ENCODER_LAYERS, DECODER_LAYERS = 3, 2


def config(**rest):
    told = {
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
    return T5Config(**(told | rest))


def with_own_head(**rest):
    """Version 5 of transformers ties what it makes anew; files of T5 1.1 hold a head."""
    model = T5ForConditionalGeneration(config(**rest))
    model.lm_head.weight = torch.nn.Parameter(torch.randn(50, 24) * 0.3)
    return model


def with_own_embeddings():
    """Each tower reads its own tokens, as some files have it."""
    model = T5ForConditionalGeneration(config())
    model.encoder.embed_tokens.weight = torch.nn.Parameter(torch.randn(50, 24) * 0.3)
    return model


def reading(tower):
    """Readers of the parts that both towers have; the MLP is the last of a block."""
    last = {"encoder": 1, "decoder": 2}[tower]

    def gave(name):
        return lambda seen, layer: seen.gave.get(f"{tower}.block.{layer}.{name}")

    def given(name):
        return lambda seen, layer: seen.given.get(f"{tower}.block.{layer}.{name}")

    def first_of(*readers):
        return lambda seen, layer: next(
            (x for x in (read(seen, layer) for read in readers) if x is not None), None
        )

    attention, mlp = "layer.0.SelfAttention", f"layer.{last}.DenseReluDense"
    shared = {
        "resid_pre": given("layer.0.layer_norm"),
        "normalized ln1": gave("layer.0.layer_norm"),
        "q": gave(f"{attention}.q"),
        "k": gave(f"{attention}.k"),
        "v": gave(f"{attention}.v"),
        "z": given(f"{attention}.o"),
        "attn_out": gave(f"{attention}.o"),
        "resid_mid": given("layer.1.layer_norm"),
        "normalized ln2": gave("layer.1.layer_norm"),
        "gate": gave(f"{mlp}.wi_0"),
        "pre": first_of(gave(f"{mlp}.wi"), gave(f"{mlp}.wi_1")),
        "post": given(f"{mlp}.wo"),
        "mlp_out": gave(f"{mlp}.wo"),
        "resid_post": lambda seen, layer: seen.gave[f"{tower}.block.{layer}"],
    }
    if tower == "encoder":
        return shared
    attention = "layer.1.EncDecAttention"
    return shared | {
        "cross_attn_in": given("layer.1.layer_norm"),
        "cross_q": gave(f"{attention}.q"),
        "cross_k": gave(f"{attention}.k"),
        "cross_v": gave(f"{attention}.v"),
        "cross_z": given(f"{attention}.o"),
        "cross_attn_out": gave(f"{attention}.o"),
        "cross_resid_mid": given("layer.2.layer_norm"),
        "normalized ln3": gave("layer.2.layer_norm"),
    }


def ranges(theirs, ours):
    """Every distance, also those that no small text has, falls into the same range: off by 0."""
    distance = torch.arange(-2000, 2001)[None, None]
    off = 0.0
    for stack in ours.stacks:
        found = stack.block(0).attn.positions.range_of(distance)
        tower = getattr(theirs, stack.name)
        expected = T5Attention._relative_position_bucket(
            distance,
            bidirectional=stack.name == "encoder",
            num_buckets=tower.config.relative_attention_num_buckets,
            max_distance=tower.config.relative_attention_max_distance,
        )
        off = max(off, (found - expected).abs().max().item())
    return float(off)


def from_early_files(theirs, ours):
    """As version 4 wrote it: one flag tells the scale, and the embedding has another name."""
    unscaled = ours.config.logit_scale is None
    if not ours.config.shared or (unscaled and ours.config.tied):
        return 0.0  # it wrote no such models
    ids = some_tokens(ours)
    with TemporaryDirectory() as folder, torch.no_grad():
        theirs.save_pretrained(folder)
        path = Path(folder, "config.json")
        told = json.loads(path.read_text())
        told["tie_word_embeddings"] = told.pop("scale_decoder_outputs")
        del told["dense_act_fn"], told["is_gated_act"]
        path.write_text(json.dumps(told))
        path = Path(folder, "model.safetensors")
        weights = load_file(path)
        weights["encoder.embed_tokens.weight"] = weights.pop("shared.weight")
        cross = "decoder.block.0.layer.1.EncDecAttention"
        weights[f"{cross}.relative_attention_bias.weight"] = torch.zeros(32, 4)
        save_file(weights, path)
        return off(interp.load(folder)(*ids), ours(*ids))


ENCODER = Stack("encoder.block", reading("encoder"))
DECODER = Stack("decoder.block", reading("decoder"), first_score=ENCODER_LAYERS, scores_each=2)

FAMILIES = [
    Family(
        name="T5",
        cases={
            "plain": lambda: T5ForConditionalGeneration(config()),
            "gated-untied-unscaled": lambda: with_own_head(
                feed_forward_proj="gated-gelu", tie_word_embeddings=False
            ),
            "gated-tied-unscaled": lambda: T5ForConditionalGeneration(
                config(
                    feed_forward_proj="gated-silu",
                    tie_word_embeddings=False,
                    layer_norm_epsilon=1e-3,
                )
            ),
            "few-ranges-untied-scaled": lambda: with_own_head(
                feed_forward_proj="gelu",
                relative_attention_num_buckets=8,
                relative_attention_max_distance=7,
            ),
            "embeddings-apart": with_own_embeddings,
            "base": lambda: T5Model(config()),
            "base-gated": lambda: T5Model(
                config(feed_forward_proj="gated-relu", tie_word_embeddings=False)
            ),
        },
        stacks={"encoder": ENCODER, "decoder": DECODER},
        reads="pair",
        checks={"ranges": ranges, "disk": pair_from_disk, "early files": from_early_files},
        embedding=lambda theirs: theirs.encoder.embed_tokens.weight,
    ),
    Family(
        name="T5",
        cases={"encoder-alone": lambda: T5EncoderModel(config(feed_forward_proj="gated-gelu"))},
        stacks={"encoder": ENCODER},
        checks={"ranges": ranges, "disk": pair_from_disk},
    ),
]
