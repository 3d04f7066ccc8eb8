"""Models of two towers: what is loaded from folders, and what is refused by name."""

import json
import re
from pathlib import Path

import pytest
import tokenizers
import torch
from foreign_folders import Folder, gpt2, randomised
from tables import each
from tokenizers.models import WordLevel
from tokenizers.processors import TemplateProcessing
from torch import nn
from transformers import (
    CLIPConfig,
    CLIPForImageClassification,
    CLIPModel,
    SiglipConfig,
    SiglipModel,
)

import interp
from interp.errors import IgnoredFieldsWarning, InvalidInput, InvalidTokens, ModelLoadError
from interp.loading import hub

EOS, D_VOCAB, N_CTX = 2, 12, 8
SIZES = {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 2}
TEXT = {**SIZES, "vocab_size": D_VOCAB, "max_position_embeddings": N_CTX}
TEXT |= {"pad_token_id": 1, "bos_token_id": 3, "eos_token_id": 4}
IMAGE = {**SIZES, "image_size": 4, "patch_size": 2}
BOTH = {"text_config": TEXT, "vision_config": IMAGE}
IDS, IMAGES = torch.tensor([[3, 7, 4, 1, 1], [3, 8, 9, 5, 4]]), torch.randn(3, 3, 4, 4)


def clip() -> nn.Module:
    return randomised(CLIPModel(CLIPConfig(**BOTH, projection_dim=6)))


def siglip() -> nn.Module:
    return randomised(SiglipModel(SiglipConfig(**BOTH)))


MODELS = {"clip": clip, "siglip": siglip}
KINDS = pytest.mark.parametrize("kind", MODELS)


@pytest.fixture
def made(tmp_path):
    """Makes the folder of a model of both towers."""

    def make(kind: str) -> Folder:
        path = tmp_path / kind
        MODELS[kind]().save_pretrained(path)
        return Folder(path)

    return make


def logits_of(path: Path, **settings) -> torch.Tensor:
    with torch.no_grad():
        return interp.load_towers(path, **settings).logits_per_image(IDS, IMAGES)


@KINDS
def test_load_refuses_two_towers_and_names_what_loads_them(kind, made):
    message = rf"model_type='{kind}', a model of two towers.*interp\.load_towers\(SOURCE\)"
    for source in (made(kind).path, MODELS[kind]()):
        with pytest.raises(ModelLoadError, match=message + r".*towers\.text\.save\(FOLDER\)"):
            interp.load(source)


@KINDS
def test_a_tower_that_is_saved_is_a_model_of_its_own(kind, made, tmp_path):
    towers = interp.load_towers(made(kind).path)
    for name, inputs in (("text", IDS), ("image", IMAGES)):
        tower = getattr(towers, name)
        tower.save(tmp_path / name)
        again = interp.load(tmp_path / name)
        assert again.config == tower.config
        assert torch.equal(again(inputs), tower(inputs))


def test_towers_are_loaded_from_shards_and_pickles_too(made):
    """With buffers of older files."""
    folder = made("clip")
    expected, weights = logits_of(folder.path), folder.weights
    for tower, size in (("text_model", N_CTX), ("vision_model", 5)):
        weights[f"{tower}.embeddings.position_ids"] = torch.arange(size)[None]
    folder.set_weights(weights)
    keys = sorted(weights)
    folder.split(a=keys[::2], b=keys[1::2])
    assert torch.equal(logits_of(folder.path), expected)
    (folder.path / "model.safetensors.index.json").unlink()
    torch.save(weights, folder.path / "pytorch_model.bin")
    with pytest.raises(ModelLoadError, match="allow_pickle=True"):
        interp.load_towers(folder.path)
    assert torch.allclose(logits_of(folder.path, allow_pickle=True), expected, atol=1e-5)
    (folder.path / "pytorch_model.bin").rename(folder.path / "pytorch_model.old.bin")
    settings = {"allow_pickle": True, "variant": "old"}
    assert torch.allclose(logits_of(folder.path, **settings), expected, atol=1e-5)


@KINDS
def test_both_towers_have_the_dtype_and_the_name(kind, made):
    towers = interp.load_towers(made(kind).path, dtype="float64")
    assert {towers.text.dtype, towers.image.dtype} == {torch.float64}
    assert towers.logits_per_image(IDS, IMAGES).shape == (3, 2)
    assert (towers.text.config.name, towers.image.config.name) == (
        f"{kind} (text)",
        f"{kind} (image)",
    )
    assert f"image         {kind} (image)" in repr(towers)


def test_towers_of_the_hub_have_its_name(made, monkeypatch):
    path = made("clip").path
    monkeypatch.setattr(hub, "fetch", lambda name, **_: (path, f"{name.removeprefix('hub:')}@abc"))
    towers = interp.load_towers("hub:org/clip")
    assert towers.text.config.name == "org/clip@abc (text)"
    assert torch.equal(towers.logits_per_image(IDS, IMAGES), logits_of(path))


def test_the_text_tower_has_the_tokenizer(made):
    folder = made("clip")
    vocab = {f"t{i}": i for i in range(D_VOCAB)}
    backend = tokenizers.Tokenizer(WordLevel(vocab, unk_token="t0"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    backend.post_processor = TemplateProcessing(
        single="t3 $A t4", special_tokens=[("t3", 3), ("t4", 4)]
    )
    with_tokenizer = interp.load_towers(folder.path, tokenizer=backend)
    backend.save(str(folder.path / "tokenizer.json"))
    for towers in (interp.load_towers(folder.path), with_tokenizer):
        assert towers.image.tokenizer is None
        logits = towers.logits_per_image(["t7", "t8 t9 t5"], IMAGES)
        assert torch.allclose(logits, towers.logits_per_image(IDS, IMAGES), atol=1e-5)


# Texts without an embedding.


def test_a_text_of_clip_needs_its_eos(made):
    """Where transformers reads the first position, which is the same for all texts."""
    towers = interp.load_towers(made("clip").path)
    with pytest.raises(InvalidTokens, match=r"Row 1 lacks EOS \(id 4\)"):
        towers.logits_per_image([[3, 7, 4], [3, 7, 8]], IMAGES)
    padded = towers.logits_per_image([[3, 7, 4, interp.PAD], [3, 8, 9, 4]], IMAGES)
    assert torch.allclose(padded[:, :1], towers.logits_per_image([[3, 7, 4]], IMAGES), atol=1e-5)


@each(
    ("tokens", "message"),
    [
        ([[3, 7, interp.PAD], [3, 7, 4]], r"padded with interp\.PAD; .* padded to 8 tokens"),
        ("t7 t8", r"given as strings; .* padded to 8 tokens with the id"),
        (["t7", "t8 t9"], "given as strings"),
    ],
)
def test_texts_of_siglip_are_ids_with_padding(tokens, message, made):
    towers = interp.load_towers(made("siglip").path)
    with pytest.raises(InvalidTokens, match=message):
        towers.logits_per_image(tokens, IMAGES)


# What is refused.


@KINDS
@each(
    ("removed", "message"),
    [
        ("logit_scale", "the weight logit_scale is missing"),
        ("text_model.final_layer_norm.bias", "weight final_layer_norm.bias is missing"),
        ("vision_model.post_layernorm.bias", "weight post_layernorm.bias is missing"),
        (r"^(?!vision_model|visual_proj|logit)", "there are no weights of the text tower"),
        (r"^vision_model|^visual_proj", "there are no weights of the image tower"),
    ],
)
def test_a_missing_weight_is_named(removed, message, kind, made):
    folder = made(kind)
    remaining = {key: w for key, w in folder.weights.items() if not re.search(removed, key)}
    folder.set_weights(remaining)
    with pytest.raises(ModelLoadError, match=f"{folder.path}.*{message}"):
        interp.load_towers(folder.path)


@each(
    ("kind", "name", "shape", "message"),
    [
        ("clip", "logit_bias", (1,), r"CLIP \(text\): logit_bias belongs to no part"),
        ("clip", "text_model.extra", (2,), r"CLIP \(text\): text_model.extra belongs to no part"),
        ("clip", "vision_model.extra", (2,), r"CLIP \(image\): vision_model.extra belongs to no"),
        ("siglip", "extra", (2,), r"SigLIP \(text\): extra belongs to no part"),
        ("siglip", "logit_bias", (2,), r"SigLIP: logit_bias has the shape \(2,\)"),
        ("siglip", "logit_scale", (), "SigLIP: logit_scale is not a finite number"),
        ("clip", "logit_scale", (1,), r"CLIP: exp\(logit_scale\) is not a finite number"),
        ("clip", "text_projection.weight", None, "CLIP: the text tower has no embeddings"),
        ("clip", "visual_projection.weight", None, "CLIP: the image tower has no embeddings"),
        ("siglip", "text_model.head.weight", (6, 8), r"unembed\.weight .*shape|computed from"),
    ],
)
def test_a_weight_that_does_not_fit_is_named(kind, name, shape, message, made):
    folder = made(kind)
    weights = folder.weights
    if shape is None:
        del weights[name]
    else:
        value = {(): torch.nan, (1,): 1e4}.get(shape, 0.1)
        weights[name] = torch.full(shape, value)
    folder.set_weights(weights)
    with pytest.raises(ModelLoadError, match=message):
        interp.load_towers(folder.path)


@each(
    ("kind", "fields", "message"),
    [
        ("clip", {"text_config": 3}, "CLIP: .*text_config=3; expected an object"),
        ("clip", {"vision_config_dict": []}, r"CLIP: .*vision_config_dict=\[\]; expected"),
        ("clip", {"text_config": TEXT | {"hidden_act": "x"}}, r"CLIP \(text\): .*hidden_act='x'"),
        (
            "clip",
            {"text_config": TEXT | {"eos_token_id": [4, 5]}},
            r"eos_token_id=\[4, 5\].*integer",
        ),
        ("clip", {"text_config": TEXT | {"eos_token_id": -1}}, "eos_token_id=-1.*an id"),
        ("clip", {"projection_dim": "6"}, r"projection_dim='6'.*an integer"),
        ("clip", {"hidden_size": 8}, "CLIP: .*hidden_size=8, which transformers reads"),
        ("clip", {"quantization_config": {"bits": 4}}, "quantization_config.*are quantised"),
        ("siglip", {"projection_dim": 6}, None),
        (
            "siglip",
            {"vision_config": IMAGE | {"vision_use_head": False}},
            r"SigLIP \(image\): .*head\.\w+.* belongs to no part",
        ),
        (
            "siglip",
            {"text_config": TEXT | {"pruned_heads": {"0": [1]}}},
            r"\(text\): .*pruned_heads",
        ),
    ],
)
def test_a_field_that_is_not_supported_is_named(kind, fields, message, made):
    folder = made(kind)
    folder.set_fields(**fields)
    if message is None:
        with pytest.warns(IgnoredFieldsWarning, match="SigLIP: .*: projection_dim"):
            interp.load_towers(folder.path)
        return
    with pytest.raises(ModelLoadError, match=message):
        interp.load_towers(folder.path)


def test_embeddings_of_different_sizes_are_refused(tmp_path):
    theirs = SiglipModel(SiglipConfig(**{**BOTH, "text_config": TEXT | {"projection_size": 6}}))
    randomised(theirs).save_pretrained(tmp_path)
    with pytest.raises(ModelLoadError, match="texts have 6 dimensions, those of images 8"):
        interp.load_towers(tmp_path)


@KINDS
def test_fields_that_nothing_reads_are_named_in_a_warning(kind, made):
    """Beside the towers' objects and in each of them; strict=True refuses them."""
    stray = {"unsloth_fixed": True}
    for fields in (stray, {"text_config": TEXT | stray}, {"vision_config": IMAGE | stray}):
        folder = made(kind)
        folder.set_fields(**fields)
        with pytest.warns(IgnoredFieldsWarning, match="unsloth_fixed"):
            interp.load_towers(folder.path)
        with pytest.raises(ModelLoadError, match=r"strict=True refuses: unsloth_fixed"):
            interp.load_towers(folder.path, strict=True)


def test_a_live_model_may_be_in_training_and_in_half_precision():
    theirs = clip().to(torch.bfloat16).train()
    towers = interp.load_towers(theirs)
    assert theirs.training
    assert not towers.text.training
    assert towers.text.dtype == towers.image.dtype == torch.bfloat16


def test_a_live_model_without_a_text_tower_is_refused():
    theirs = randomised(CLIPForImageClassification(CLIPConfig(**BOTH)))
    with pytest.raises(ModelLoadError, match="CLIP: there are no weights of the text tower"):
        interp.load_towers(theirs)


def test_other_models_are_refused_with_what_loads_them(tmp_path):
    gpt2().save_pretrained(tmp_path / "gpt2")
    interp.load("python-2l").save(tmp_path / "own")
    types = r"two towers, of types clip and siglip\."
    for source, message in (
        (tmp_path / "gpt2", rf"model_type='gpt2'; .*{types} Load this model by interp\.load\."),
        (gpt2(), rf"model_type='gpt2'; .*{types} Load this model by interp\.load\."),
        (tmp_path / "own", rf"model_type=None; .*{types} Load this model by interp\.load\."),
        ("python-2l", "python-2l' is not a folder"),
        (tmp_path / "none", "none' is not a folder"),
        ("x" * 5000, "can't be read"),
        (3, "got 3"),
    ):
        with pytest.raises(ModelLoadError, match=message):
            interp.load_towers(source)
    (tmp_path / "gpt2" / "config.json").write_text(json.dumps({"model_type": "clip17"}))
    with pytest.raises(ModelLoadError, match=rf"model_type='clip17'; .*{types}$"):
        interp.load_towers(tmp_path / "gpt2")
    with pytest.raises(InvalidInput, match="variant='fp16' chooses"):
        interp.load_towers(gpt2(), variant="fp16")
