"""Both towers of CLIP and SigLIP compute what Hugging Face's do, and so do their fields.

Each case is a small random model with both towers; ours is loaded from it.
"""

import json
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from agreement.comparing import Family, inputs_of, noted, off, shared
from agreement.disk import changed
from agreement.exact import exact, randomised, watched
from agreement.families.clip import stack
from agreement.families.vit import SIZES as IMAGE_SIZES
from agreement.small import SIZES
from torch import Tensor, nn
from transformers import (
    CLIPConfig,
    CLIPModel,
    CLIPTextModelWithProjection,
    CLIPVisionModelWithProjection,
    SiglipConfig,
    SiglipModel,
    SiglipTextModel,
    SiglipVisionModel,
)

import interp
from interp import TwoTowers
from interp.errors import ModelLoadError

pytestmark = pytest.mark.agreement

Fields = Mapping[str, Any]
EOS = 7
KINDS = {"clip": (CLIPConfig, CLIPModel), "siglip": (SiglipConfig, SiglipModel)}
ALONE = {
    "clip": {
        "text": (CLIPTextModelWithProjection, "", "text_config"),
        "image": (CLIPVisionModelWithProjection, "", "vision_config"),
    },
    "siglip": {
        "text": (SiglipTextModel, "text_model.", "text_config"),
        "image": (SiglipVisionModel, "vision_model.", "vision_config"),
    },
}
"""The class of each tower alone, its prefix in the weights of both, and its configuration."""
FAMILY = {
    "clip": Family("CLIP (both towers)", {}),
    "siglip": Family("SigLIP (both towers)", {}),
}
IDS = {"pad_token_id": 1, "bos_token_id": 3, "eos_token_id": EOS}
TEXT = {name: size for name, size in SIZES.items() if name != "attn_implementation"} | IDS
IMAGE = {name: size for name, size in IMAGE_SIZES.items() if name != "attn_implementation"}
UNEVEN = {"hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 20, "hidden_act": "relu"}
EAGER = {"attn_implementation": "eager"}


def fields_of(text: Fields = TEXT, image: Fields = IMAGE, **beside: object) -> dict[str, Any]:
    """The fields of a model of both towers."""
    return {"text_config": {**text}, "vision_config": {**image}, **EAGER, **beside}


CASES: dict[str, tuple[str, Fields]] = {
    "clip": ("clip", fields_of(projection_dim=10)),
    "clip-uneven": ("clip", fields_of(image={**IMAGE, **UNEVEN}, projection_dim=24)),
    "clip-first-files": ("clip", fields_of({**TEXT, "eos_token_id": 2}, projection_dim=10)),
    "siglip": ("siglip", fields_of()),
    "siglip-uneven": (
        "siglip",
        fields_of(
            {**TEXT, "projection_size": 16}, {**IMAGE, **UNEVEN, "image_size": 14, "patch_size": 4}
        ),
    ),
}
FIRST = [case for case, (kind, _) in CASES.items() if case == kind]
EVERY = pytest.mark.parametrize(
    "case",
    [case if case in FIRST else pytest.param(case, marks=pytest.mark.slow) for case in CASES],
)


@cache
def pair_of(case: str) -> tuple[nn.Module, TwoTowers]:
    """Theirs, with random weights in float64, and ours, loaded from it."""
    kind, fields = CASES[case]
    with exact(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = built(kind, fields)
        return theirs, interp.load_towers(theirs)


def built(kind: str, fields: Fields) -> nn.Module:
    config, model = KINDS[kind]
    return randomised(model(config(**deepcopy(dict(fields)))))


def inputs_for(towers: TwoTowers) -> tuple[Tensor, Tensor]:
    """Three texts, whose first EOS is at different positions, and two images."""
    (ids,), (images,) = inputs_of(towers.text, rows=3), inputs_of(towers.image)
    ids = ids.where(ids != EOS, EOS + 1)
    ids[0, 4] = ids[0, 6] = ids[1, 10] = ids[2, 0] = EOS
    return ids, images


@torch.no_grad()
def logits_of(theirs: nn.Module, ids: Tensor, images: Tensor) -> Tensor:
    with exact():
        return theirs(input_ids=ids, pixel_values=images).logits_per_image


@EVERY
def test_logits_and_every_shared_activation_agree(case):
    theirs, ours = pair_of(case)
    family, (ids, images) = FAMILY[CASES[case][0]], inputs_for(ours)
    expected = logits_of(theirs, ids, images)
    noted(family, "logits", off(ours.logits_per_image(ids, images), expected))
    for tower, part, inputs in (
        (ours.text, theirs.text_model, {"input_ids": ids}),
        (ours.image, theirs.vision_model, {"pixel_values": images}),
    ):
        with watched(part) as seen, torch.no_grad(), exact():
            part(**inputs)
        done = interp.run(tower, *inputs.values(), record="all")
        (only,) = tower.config.stacks
        for what, error in shared({only: stack()}, seen, tower, done).items():
            noted(family, what, error)


@EVERY
def test_gradients_by_both_embeddings_agree(case):
    theirs, ours = pair_of(case)
    ids, images = inputs_for(ours)
    with exact():
        expected = theirs(input_ids=ids, pixel_values=images).logits_per_image
    weights = torch.randn(expected.shape, dtype=torch.float64)
    sources = (
        theirs.text_model.embeddings.token_embedding.weight,
        theirs.vision_model.embeddings.patch_embedding.weight,
    )
    wanted = torch.autograd.grad((expected * weights).sum(), sources)
    targets = (ours.text.stacks[0].weight_e, ours.image.stacks[0].tokens.weight)
    gradients = torch.autograd.grad((ours.logits_per_image(ids, images) * weights).sum(), targets)
    for ours_by, theirs_by in zip(gradients, wanted, strict=True):
        noted(FAMILY[CASES[case][0]], "gradient", off(ours_by, theirs_by.reshape(ours_by.shape)))


@EVERY
def test_each_tower_is_the_one_that_is_loaded_alone(case, tmp_path):
    """From a live model and from a folder: with the same configuration, weights and outputs."""
    theirs, live = pair_of(case)
    kind = CASES[case][0]
    theirs.save_pretrained(tmp_path)
    stored = interp.load_towers(tmp_path)
    assert stored.text.config.name == f"{tmp_path.name} (text)"
    for ours in (live, stored):
        scale, bias = theirs.logit_scale.exp().item(), getattr(theirs, "logit_bias", None)
        assert ours.logit_scale == pytest.approx(scale, rel=1e-15)
        assert ours.logit_bias == (0 if bias is None else bias.item())
    for part, (model, prefix, config_name) in ALONE[kind].items():
        config = deepcopy(getattr(theirs.config, config_name))
        if kind == "clip":
            config.projection_dim = theirs.config.projection_dim
        weights = {name.removeprefix(prefix): x for name, x in theirs.state_dict().items()}
        with exact():
            alone = model(config).double().eval()
            alone.load_state_dict({name: weights[name] for name in alone.state_dict()})
            expected = interp.load(alone)
        for ours in (live, stored):
            assert changed(getattr(ours, part), expected) <= 1e-12


@EVERY
def test_the_check_at_loading_is_kept(case):
    theirs, _ = pair_of(case)
    with exact():
        ours = interp.load_towers(theirs)
    for tower in (ours.text, ours.image):
        assert tower.agreement is not None
        assert tower.agreement <= 1e-9


@pytest.mark.parametrize("part", ["text_model", "vision_model"])
@pytest.mark.parametrize("case", FIRST)
def test_a_model_with_another_forward_is_refused(case, part):
    """The converse: what is loaded is not what theirs computes."""
    theirs, _ = pair_of(case)
    layer = theirs.get_submodule(part).encoder.layers[1].mlp
    hook = layer.register_forward_hook(lambda module, args, out: 1.5 * out)
    try:
        with pytest.raises(ModelLoadError, match=f"differs from {type(theirs).__name__} by"):
            interp.load_towers(theirs)
    finally:
        hook.remove()
    assert not any(module.training for module in theirs.modules())


# Fields of config.json.

STRAY = {
    **{"add_cross_attention": False, "architectures": None, "bad_words_ids": None},
    **{"chunk_size_feed_forward": 0, "cross_attention_hidden_size": None, "dropout": 0.0},
    **{"decoder_start_token_id": None, "diversity_penalty": 0.0, "do_sample": False},
    **{"early_stopping": False, "encoder_no_repeat_ngram_size": 0, "finetuning_task": None},
    **{"id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "initializer_factor": 1.0},
    **{"initializer_range": 0.02, "is_decoder": False, "is_encoder_decoder": False},
    **{"label2id": {"LABEL_0": 0, "LABEL_1": 1}, "length_penalty": 1.0, "max_length": 20},
    **{"min_length": 0, "no_repeat_ngram_size": 0, "num_beam_groups": 1, "num_beams": 1},
    **{"num_return_sequences": 1, "output_attentions": False, "output_scores": False},
    **{"prefix": None, "problem_type": None, "pruned_heads": {}, "remove_invalid_values": False},
    **{"repetition_penalty": 1.0, "return_dict": True, "return_dict_in_generate": False},
    **{"sep_token_id": None, "task_specific_params": None, "temperature": 1.0, "top_k": 50},
    **{"tie_encoder_decoder": False, "tie_word_embeddings": True, "tokenizer_class": None},
    **{"top_p": 1.0, "torch_dtype": None, "torchscript": False, "use_bfloat16": False},
    **{"transformers_version": "4.16.0.dev0", "projection_dim": 512},
}
"""Fields that version 4 of ``transformers`` wrote for each tower."""


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        # As published: whole configurations of towers, and the same fields again.
        (
            "clip",
            {
                "text_config": {
                    **TEXT,
                    **STRAY,
                    "eos_token_id": 2,
                    "model_type": "clip_text_model",
                },
                "vision_config": {**IMAGE, **STRAY, "model_type": "clip_vision_model"},
                "text_config_dict": {**TEXT, "eos_token_id": 2, "projection_dim": 512},
                "vision_config_dict": IMAGE,
                "logit_scale_init_value": 2.6592,
            },
        ),
        ("siglip", {"text_config": {**TEXT, "model_type": "siglip_text_model"}}),
        # These override the others, with defaults for what they lack.
        ("clip", {"text_config_dict": {**TEXT, "hidden_act": "relu", "eos_token_id": 9}}),
        ("clip", {"text_config": {**TEXT, "hidden_act": "relu"}, "text_config_dict": TEXT}),
        ("clip", {"vision_config": {"hidden_size": 8}, "vision_config_dict": IMAGE}),
        ("clip", {"text_config": None, "text_config_dict": TEXT, "vision_config_dict": None}),
        ("siglip", {"text_config_dict": {"hidden_act": "relu"}}),
        # Fields of one place that mean nothing in the other.
        ("clip", {"text_config": {**TEXT, "projection_dim": 12}, "projection_dim": 8}),
        ("clip", {"eos_token_id": 2, "bos_token_id": 2}),
        ("siglip", {"eos_token_id": 2, "initializer_factor": 3.0}),
        ("siglip", {"text_config": {**TEXT, "eos_token_id": 2}}),
    ],
)
@pytest.mark.filterwarnings("ignore::interp.errors.IgnoredFieldsWarning")
def test_fields_are_followed_as_theirs_are(kind, change, tmp_path):
    fields = {**CASES[kind][1], **change}
    with exact():
        theirs = built(kind, fields)
    theirs.save_pretrained(tmp_path)
    written = {name: value for name, value in fields.items() if name not in EAGER}
    Path(tmp_path, "config.json").write_text(
        json.dumps({**written, "model_type": kind, "architectures": [type(theirs).__name__]})
    )
    ours = interp.load_towers(tmp_path)
    ids, images = inputs_for(ours)
    ids[:, 10], ids[1, 8] = 9, EOS
    assert off(ours.logits_per_image(ids, images), logits_of(theirs, ids, images)) <= 1e-9
