"""Folders whose weights are ``pytorch_model.bin``: read only if allowed, with the same weights."""

import json
import os
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from foreign_folders import D_VOCAB, WEIGHTS, Folder, gpt2, random_tokens, randomised
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import BartConfig, BartForConditionalGeneration, BertConfig, BertForMaskedLM
from typer.testing import CliRunner

import interp
from apps.cli import app
from interp.errors import InvalidInput, ModelLoadError

BIN, INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
EMBEDDING, GAIN = "transformer.wte.weight", "transformer.ln_f.weight"


def bert() -> nn.Module:
    sizes = {"vocab_size": D_VOCAB, "max_position_embeddings": 16, "hidden_size": 8}
    shape = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
    return randomised(BertForMaskedLM(BertConfig(**sizes, **shape, attn_implementation="eager")))


def bart() -> nn.Module:
    """One matrix has four names, and most of the numbers."""
    sizes = {"vocab_size": 2000, "max_position_embeddings": 16, "d_model": 8}
    sides = {
        f"{side}_{name}": size
        for side in ("encoder", "decoder")
        for name, size in {"layers": 1, "attention_heads": 2, "ffn_dim": 12}.items()
    }
    return randomised(BartForConditionalGeneration(BartConfig(**sizes, **sides)))


def old_names(name: str) -> str:
    """The name in files that are older than ``LayerNorm.weight``."""
    for new, old in (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")):
        name = name.replace(new, old)
    return name


def pickled(path: Path, model: nn.Module, **rest: object) -> Path:
    """The folder of a model whose weights ``torch.save`` wrote."""
    model.config.save_pretrained(path)
    torch.save(model.state_dict(), path / BIN, **rest)
    return path


@pytest.fixture
def folder(folder: Folder) -> Folder:
    """A folder of GPT-2 with its state dict as a pickle only."""
    torch.save(gpt2().state_dict(), folder.path / BIN)
    (folder.path / WEIGHTS).unlink()
    return folder


def read(path: object, **rest: object) -> interp.Transformer:
    return interp.load(path, allow_pickle=True, **rest)


def assert_equal_weights(model: interp.Transformer, expected: interp.Transformer) -> None:
    weights = dict(model.named_parameters())
    assert weights.keys() == dict(expected.named_parameters()).keys()
    for name, weight in expected.named_parameters():
        assert torch.equal(weights[name], weight), name
        assert weights[name].dtype == weight.dtype


# The same weights.


@pytest.mark.parametrize("make", [gpt2, bert, bart], ids=lambda make: make.__name__)
@pytest.mark.parametrize("archive", [True, False], ids=["archive", "older-format"])
def test_a_pickled_folder_is_the_live_model_bit_by_bit(make, archive, tmp_path):
    theirs = make()
    pickled(tmp_path, theirs, _use_new_zipfile_serialization=archive)
    model = read(tmp_path)
    assert_equal_weights(model, interp.load(theirs))
    inputs = (random_tokens(), random_tokens()) if make is bart else (random_tokens(),)
    names = ("input_ids", "decoder_input_ids")
    with torch.no_grad():
        expected = theirs(**dict(zip(names, inputs, strict=False))).logits
        assert (model(*inputs) - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_names_and_buffers_of_older_files_are_read(tmp_path):
    theirs = bert()
    pickled(tmp_path, theirs)
    weights = {old_names(name): weight for name, weight in theirs.state_dict().items()}
    assert any(name.endswith("gamma") for name in weights)
    positions = torch.arange(16).expand((1, -1))
    torch.save({**weights, "bert.embeddings.position_ids": positions}, tmp_path / BIN)
    assert_equal_weights(read(tmp_path), interp.load(theirs))


def test_parameters_and_views_of_one_storage_are_read(folder):
    """A weight that is a parameter, a view of a larger one, not contiguous."""
    weights = dict(gpt2().named_parameters())
    both = torch.stack([weights["transformer.ln_f.weight"], weights["transformer.ln_f.bias"]])
    weights |= {"transformer.ln_f.weight": both[0], "transformer.ln_f.bias": both[1]}
    weights[EMBEDDING] = nn.Parameter(weights[EMBEDDING].T.contiguous().T)
    assert not weights[EMBEDDING].is_contiguous()
    torch.save(weights, folder.path / BIN)
    model = read(folder.path)
    assert_equal_weights(model, interp.load(gpt2()))
    assert not any(weight.is_shared() for weight in model.parameters())


def test_two_weights_of_one_storage_can_be_changed_apart(folder):
    weights = gpt2().state_dict()
    weights["transformer.ln_f.bias"] = weights["transformer.ln_f.weight"]
    torch.save(weights, folder.path / BIN)
    model = dict(read(folder.path).named_parameters())
    gain, bias = (
        next(w for name, w in model.items() if name.endswith(f"final_norm.{part}"))
        for part in ("gain", "bias")
    )
    with torch.no_grad():
        gain.zero_()
    assert bias.abs().max() > 0


def test_changing_the_model_does_not_change_the_file(folder):
    before = (folder.path / BIN).read_bytes()
    with torch.no_grad():
        for weight in read(folder.path).parameters():
            weight.zero_()
    assert (folder.path / BIN).read_bytes() == before


def test_safetensors_take_precedence(folder):
    other = {key: weight + 1 for key, weight in gpt2().state_dict().items()}
    del other["lm_head.weight"]
    save_file(other, folder.path / WEIGHTS)
    for allow in (True, False):
        model = interp.load(folder.path, allow_pickle=allow)
        assert torch.equal(model.W_E, other[EMBEDDING])


# Shards.


def split(folder: Folder, **parts: list[str]) -> None:
    """Replace the weights by shards, of which each has the given keys."""
    weights = gpt2().state_dict()
    (folder.path / BIN).unlink(missing_ok=True)
    for name, keys in parts.items():
        torch.save({key: weights[key] for key in keys}, folder.path / f"{name}.bin")
    index = {key: f"{name}.bin" for name, keys in parts.items() for key in keys}
    (folder.path / INDEX).write_text(json.dumps({"weight_map": index}))


@pytest.fixture
def halves() -> tuple[list[str], list[str]]:
    keys = sorted(gpt2().state_dict())
    return keys[::2], keys[1::2]


def test_shards_are_one_model(folder, halves):
    split(folder, first=halves[0], second=halves[1])
    assert_equal_weights(read(folder.path), interp.load(gpt2()))


Refusal = Callable[[Folder, tuple[list[str], list[str]]], object]
WRONG_SHARDS: Mapping[str, tuple[Refusal, str]] = {
    "missing": (lambda f, _: (f.path / "second.bin").unlink(), r"second\.bin is missing"),
    "in-two": (
        lambda f, h: split(f, first=[*h[0], h[1][3]], second=h[1]),
        r"is in both first\.bin and second\.bin",
    ),
    "lacking": (
        lambda f, h: (f.path / INDEX).write_text(json.dumps({"weight_map": {"x": "first.bin"}})),
        r"places 'x' in first\.bin, which lacks it",
    ),
    "outside": (
        lambda f, h: (f.path / INDEX).write_text(json.dumps({"weight_map": {"x": "../a.bin"}})),
        "plain names inside",
    ),
    "damaged": (lambda f, _: (f.path / INDEX).write_text("{"), "not a valid index"),
}


@pytest.mark.parametrize("case", WRONG_SHARDS)
def test_wrong_shards_are_refused(case, folder, halves):
    split(folder, first=halves[0], second=halves[1])
    change, message = WRONG_SHARDS[case]
    change(folder, halves)
    with pytest.raises(ModelLoadError, match=message):
        read(folder.path)


# Refusals.


def test_a_pickle_is_not_opened_unless_allowed(folder, monkeypatch):
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("the pickle was opened"))
    for source in (folder.path, str(folder.path)):
        with pytest.raises(ModelLoadError, match=r"can execute code.*allow_pickle=True") as error:
            interp.load(source)
        assert f"interp convert {folder.path} FOLDER --allow-pickle" in str(error.value)


class Malicious:
    """Creates a folder when it is unpickled without ``weights_only``."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return (os.mkdir, (str(self.marker),))


@pytest.mark.parametrize("archive", [True, False], ids=["archive", "older-format"])
def test_code_in_a_pickle_does_not_run(archive, folder, tmp_path):
    marker = tmp_path / "was-run"
    content = {**gpt2().state_dict(), "more": Malicious(marker)}
    torch.save(content, folder.path / BIN, _use_new_zipfile_serialization=archive)
    with pytest.raises(ModelLoadError, match="holds more than weights"):
        read(folder.path)
    assert not marker.exists()
    torch.load(folder.path / BIN, weights_only=False)  # the converse: the code is in the file
    assert marker.exists()


def swapped(key: str, change: Callable[[Tensor], object]) -> Callable[[], object]:
    return lambda: {**gpt2().state_dict(), key: change(gpt2().state_dict()[key])}


WRONG: Mapping[str, tuple[Callable[[], object], str]] = {
    "nan": (swapped(GAIN, lambda w: w * torch.nan), "not finite"),
    "shape": (swapped(GAIN, lambda w: w[:3]), r"ln_f\.weight \(3,\)"),
    "integers": (swapped(GAIN, lambda w: w.long()), "floating-point dtype"),
    "sparse": (swapped(EMBEDDING, lambda w: w.to_sparse()), "sparse or quantised"),
    "meta": (swapped(EMBEDDING, lambda w: w.to("meta")), "meta device"),
    "expanded": (swapped(EMBEDDING, lambda w: w[:1, :1].expand(100_000, 6000)), "repeat numbers"),
    "no-tensor": (swapped(EMBEDDING, lambda w: [1.0]), "should map names to tensors"),
    "extra": (lambda: {**gpt2().state_dict(), "more": torch.ones(2)}, "more belongs to no part"),
    "nested": (lambda: {"state_dict": gpt2().state_dict()}, "should map names to tensors"),
    "list": (lambda: [torch.ones(2)], "should map names to tensors"),
    "number": (lambda: {3: torch.ones(2)}, "should map names to tensors"),
}


@pytest.mark.parametrize("case", WRONG)
def test_weights_that_are_not_those_of_the_model_are_named(case, folder):
    content, message = WRONG[case]
    torch.save(content(), folder.path / BIN)
    with pytest.raises(ModelLoadError, match=message) as error:
        read(folder.path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("archive", [True, False], ids=["archive", "older-format"])
@pytest.mark.parametrize("end", [0, 1, 17, 50, 500, -1, -200])
def test_a_truncated_pickle_is_refused(end, archive, folder):
    path = folder.path / BIN
    torch.save(gpt2().state_dict(), path, _use_new_zipfile_serialization=archive)
    path.write_bytes(path.read_bytes()[:end])
    with pytest.raises(ModelLoadError, match=BIN) as error:
        read(folder.path)
    assert "\n" not in str(error.value)


def test_a_pickle_that_torch_did_not_write_is_refused(folder):
    (folder.path / BIN).write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(ModelLoadError, match=r"not a file of torch\.save"):
        read(folder.path)


def test_convert_writes_safetensors_once(folder, tmp_path):
    out = tmp_path / "converted"
    command = ["convert", str(folder.path), str(out)]
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 3
    assert "--allow-pickle" in refused.stderr
    assert CliRunner().invoke(app, [*command, "--allow-pickle"]).exit_code == 0
    assert_equal_weights(interp.load(out), interp.load(gpt2()))


# Variants.

VARIANTS = {
    "one-file": ["model.fp16.safetensors"],
    "shards": ["model.safetensors.index.fp16.json", "model.fp16.safetensors.index.json"],
    "pickle": ["pytorch_model.fp16.bin"],
    "pickled-shards": ["pytorch_model.bin.index.fp16.json"],
}
CASES = [(kind, name) for kind, names in VARIANTS.items() for name in names]


@pytest.mark.parametrize(("kind", "name"), CASES, ids=[name for _, name in CASES])
def test_a_variant_is_read_from_its_own_files(kind, name, copied):
    path = copied("gpt2").path
    half = {key: weight.half() for key, weight in gpt2().state_dict().items()}
    del half["lm_head.weight"]
    is_pickle = kind.startswith("pickle")
    stored = "pytorch_model.fp16-1.bin" if is_pickle else "model.fp16-1.safetensors"
    file = path / (stored if name.endswith("json") else name)
    torch.save(half, file) if is_pickle else save_file(half, file)
    if name.endswith("json"):
        (path / name).write_text(json.dumps({"weight_map": dict.fromkeys(half, file.name)}))
    model = read(path, variant="fp16")
    assert model.dtype == torch.float16
    assert torch.equal(model.W_E, half[EMBEDDING])
    assert read(path).dtype == torch.float32
    if is_pickle:
        with pytest.raises(ModelLoadError, match="is a pickle"):
            interp.load(path, variant="fp16")


def test_transformers_writes_the_names_that_are_read(tmp_path):
    for size in ("1GB", "1KB"):
        gpt2().half().save_pretrained(tmp_path / size, variant="fp16", max_shard_size=size)
        assert interp.load(tmp_path / size, variant="fp16").dtype == torch.float16


def test_a_missing_variant_names_those_that_are_there(copied):
    path = copied("gpt2").path
    with pytest.raises(ModelLoadError, match=r"model\.fp16\.safetensors is missing.*variant=None"):
        interp.load(path, variant="fp16")
    (path / WEIGHTS).rename(path / "model.bf16.safetensors")
    for variant in (None, "fp16"):
        with pytest.raises(ModelLoadError, match=r"is missing.*variant='bf16'"):
            interp.load(path, variant=variant)
    assert interp.load(path, variant="bf16").dtype == torch.float32


@pytest.mark.parametrize("variant", ["", "../fp16", "a/b", ".", "fp16."], ids=repr)
def test_a_variant_that_is_no_part_of_a_file_name_is_refused(variant, folder):
    with pytest.raises(InvalidInput, match="should be the part of the file names"):
        interp.load(folder.path, variant=variant)


def test_a_source_without_variants_refuses_one(folder):
    for source in ("python-2l", "python-2l@400", gpt2(), folder.path / BIN):
        with pytest.raises(InvalidInput, match="variant='fp16'"):
            read(source, variant="fp16")


# Adapters.


@pytest.mark.parametrize("has_model", [True, False])
def test_an_adapter_is_refused_with_its_base_model(has_model, folder):
    fields = {"peft_type": "LORA", "base_model_name_or_path": "org/base", "r": 8}
    (folder.path / "adapter_config.json").write_text(json.dumps(fields))
    (folder.path / "adapter_model.safetensors").write_bytes(b"")
    if not has_model:
        (folder.path / "config.json").unlink()
    with pytest.raises(ModelLoadError, match=r"adapter.*'LORA'.*'org/base'.*merge_and_unload"):
        read(folder.path)
    (folder.path / "adapter_config.json").write_text("[")
    with pytest.raises(ModelLoadError, match=r"adapter_config\.json"):
        read(folder.path)
