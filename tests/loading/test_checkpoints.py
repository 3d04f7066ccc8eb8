"""Checkpoints of nanoGPT: read only if allowed, as weights only, with equal logits."""

import os
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
import torch
from architectures import assert_close
from foreign_folders import random_tokens, randomised
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the usual alias
from typer.testing import CliRunner

import interp
from apps.cli import app
from interp.errors import InvalidInput, ModelLoadError

SIZES = {"n_layer": 2, "n_head": 2, "n_embd": 8, "block_size": 16, "vocab_size": 30}


# An independent implementation of nanoGPT's model.


class Norm(nn.Module):
    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, longest: int, bias: bool) -> None:
        super().__init__()
        self.c_attn = nn.Linear(width, 3 * width, bias=bias)
        self.c_proj = nn.Linear(width, width, bias=bias)
        self.heads = heads
        self.register_buffer("bias", torch.ones(1, 1, longest, longest).tril())

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.c_attn(x).chunk(3, -1)
        )
        scores = q @ k.mT / k.shape[-1] ** 0.5
        seen = self.bias[:, :, : x.shape[1], : x.shape[1]] == 0
        pattern = scores.masked_fill(seen, -torch.inf).softmax(-1)
        return self.c_proj((pattern @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, longest: int, bias: bool) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = Norm(width, bias), Norm(width, bias)
        self.attn = Attention(width, heads, longest, bias)
        self.mlp = nn.ModuleDict(
            {
                "c_fc": nn.Linear(width, 4 * width, bias=bias),
                "c_proj": nn.Linear(4 * width, width, bias=bias),
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x))))


class NanoGPT(nn.Module):
    """A tied model in float64 with random weights."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        width, heads, longest = SIZES["n_embd"], SIZES["n_head"], SIZES["block_size"]
        blocks = [Block(width, heads, longest, bias) for _ in range(SIZES["n_layer"])]
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(SIZES["vocab_size"], width),
                "wpe": nn.Embedding(longest, width),
                "h": nn.ModuleList(blocks),
                "ln_f": Norm(width, bias),
            }
        )
        self.lm_head = nn.Linear(width, SIZES["vocab_size"], bias=False)
        self.lm_head.weight = self.transformer["wte"].weight
        randomised(self.double())

    @torch.no_grad()
    def forward(self, ids: Tensor) -> Tensor:
        x = self.transformer["wte"](ids) + self.transformer["wpe"].weight[: ids.shape[1]]
        for block in self.transformer["h"]:
            x = block(x)
        return self.lm_head(self.transformer["ln_f"](x))


Write = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path) -> Write:
    """Writes a checkpoint as ``train.py`` does; ``entries`` replace some of its entries."""

    def write(model: nn.Module, arguments: Mapping[str, Any], /, **entries: Any) -> Path:
        checkpoint = {
            "model": model.state_dict(),
            "optimizer": {
                "state": {0: {"step": torch.tensor(3.0)}},
                "param_groups": [{"lr": 6e-4}],
            },
            "model_args": dict(arguments),
            "iter_num": 2000,
            "best_val_loss": torch.tensor(1.47),
            "config": {"out_dir": "out", "device": "cuda", "compile": True, "dropout": 0.2},
        }
        torch.save({**checkpoint, **entries}, tmp_path / "ckpt.pt")
        return tmp_path / "ckpt.pt"

    return write


@pytest.fixture
def plain(written: Write) -> Path:
    """A valid checkpoint."""
    return written(NanoGPT(bias=False), {**SIZES, "bias": False, "dropout": 0.0})


def read(path: Path, **rest: Any) -> interp.Transformer:
    return interp.load(path, allow_pickle=True, **rest)


# Equal logits.


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("prefix", ["", "_orig_mod."])
def test_logits_equal_those_of_the_original(bias, prefix, written):
    theirs = NanoGPT(bias)
    assert "transformer.h.1.attn.bias" in theirs.state_dict()
    renamed = {f"{prefix}{name}": weight for name, weight in theirs.state_dict().items()}
    arguments = {**SIZES, "bias": bias, "dropout": 0.0}
    model = read(written(theirs, arguments, model=renamed))
    expected = theirs(random_tokens())
    assert model.dtype == torch.float64
    assert (model(random_tokens()) - expected).abs().max() <= 1e-9 * expected.abs().max()
    assert model.config.tied
    biases = [name for name, _ in model.named_parameters() if ".b_" in name or "bias" in name]
    assert len(biases) == (SIZES["n_layer"] * 8 + 1 if bias else 0)


def test_mask_buffers_and_the_bias_setting_are_optional(written):
    theirs = NanoGPT(bias=True)
    weights = {n: w for n, w in theirs.state_dict().items() if not n.endswith(".attn.bias")}
    model = read(written(theirs, SIZES, model=weights))
    expected = theirs(random_tokens())
    assert (model(random_tokens()) - expected).abs().max() <= 1e-9 * expected.abs().max()


def test_an_untied_head_is_kept(written):
    theirs = NanoGPT(bias=False)
    theirs.lm_head.weight = nn.Parameter(theirs.lm_head.weight * 2)
    model = read(written(theirs, {**SIZES, "bias": False}))
    assert not model.config.tied
    expected = theirs(random_tokens())
    assert (model(random_tokens()) - expected).abs().max() <= 1e-9 * expected.abs().max()


def test_a_model_type_among_the_arguments_is_ignored(written):
    theirs = NanoGPT(bias=False)
    model = read(written(theirs, {**SIZES, "bias": False, "model_type": "llama"}))
    assert model.config.decoder.positions.kind == "learned"


def test_a_dtype_can_be_requested(plain):
    exact, model = read(plain), read(plain, dtype=torch.float32)
    assert model.dtype == torch.float32
    assert torch.equal(model.W_E, exact.W_E.float())


def test_changing_the_model_does_not_change_the_file(plain):
    before = plain.read_bytes()
    model = read(plain)
    with torch.no_grad():
        model.W_E.zero_()
    assert plain.read_bytes() == before
    assert read(plain).W_E.abs().max() > 0


# Refused checkpoints.


def test_a_pickle_is_not_opened_unless_allowed(plain, monkeypatch):
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("the pickle was opened"))
    for path in (plain, str(plain)):
        with pytest.raises(ModelLoadError, match=r"ckpt\.pt is a pickle.*allow_pickle=True"):
            interp.load(path)
    with pytest.raises(ModelLoadError, match="interp convert"):
        interp.load(plain, allow_pickle=False)


class Malicious:
    """Creates a folder when it is unpickled without ``weights_only``."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return (os.mkdir, (str(self.marker),))


@pytest.mark.parametrize("place", ["beside", "in-arguments", "whole", "old-format"])
def test_code_in_a_pickle_is_refused_and_does_not_run(place, written, tmp_path):
    marker = tmp_path / "was-run"
    bomb, arguments = Malicious(marker), {**SIZES, "bias": False}
    if place == "whole":
        (tmp_path / "ckpt.pt").write_bytes(pickle.dumps(bomb))
    elif place == "old-format":
        checkpoint = {"model": {}, "model_args": {}, "more": bomb}
        torch.save(checkpoint, tmp_path / "ckpt.pt", _use_new_zipfile_serialization=False)
    else:
        more = {
            "beside": {"config": bomb},
            "in-arguments": {"model_args": {**arguments, "x": bomb}},
        }
        written(NanoGPT(bias=False), arguments, **more[place])
    for allow in (False, True):
        with pytest.raises(ModelLoadError, match="pickle" if not allow else "ckpt") as error:
            interp.load(tmp_path / "ckpt.pt", allow_pickle=allow)
        assert "\n" not in str(error.value)
    assert not marker.exists()
    with (tmp_path / "ckpt.pt").open(
        "rb"
    ) as file:  # the converse: the payload runs without weights_only
        pickle.load(file) if place == "whole" else torch.load(file, weights_only=False)
    assert marker.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_experts": 8}, "n_experts=8, a field that is not known"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings=False, which is not supported"),
        ({"bias": "yes"}, "bias='yes'"),
        ({"n_head": 3}, "attn"),
        ({"n_layer": 0}, "n_layer=0"),
        ({"n_layer": 3}, "h.2."),
        ({"n_layer": 1}, "h.1."),
        ({"n_layer": 10**9}, "n_layer=1000000000"),
        ({"block_size": 8}, "wpe.weight"),
        ({"vocab_size": None}, "lacks 'vocab_size'"),
        ({"bias": True}, "h.0.attn.c_attn.bias is missing"),
    ],
    ids=str,
)
def test_arguments_that_are_unsupported_or_contradict_the_weights_are_refused(
    arguments, message, written
):
    path = written(NanoGPT(bias=False), {**SIZES, "bias": False, **arguments})
    with pytest.raises(ModelLoadError) as error:
        read(path)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "entries",
    [
        {"model": [torch.ones(2)]},
        {"model": {"transformer.wte.weight": [1.0, 2.0]}},
        {"model": {3: torch.ones(2)}},
        {"model": {}},
        {"model_args": [1, 2]},
        {"model_args": {3: 4}},
        {"model_args": None},
    ],
    ids=lambda entries: repr(entries)[:30],
)
def test_entries_of_other_types_are_refused(entries, written):
    path = written(NanoGPT(bias=False), {**SIZES, "bias": False}, **entries)
    with pytest.raises(ModelLoadError) as error:
        read(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "content", [{"model": {}}, {"state_dict": {}}, [1], torch.ones(3), 4], ids=repr
)
def test_a_pickle_that_is_not_a_checkpoint_of_nanogpt_is_refused(content, tmp_path):
    torch.save(content, tmp_path / "other.pth")
    with pytest.raises(ModelLoadError, match=r"other\.pth is not a checkpoint of nanoGPT"):
        read(tmp_path / "other.pth")


@pytest.mark.parametrize("end", [0, 1, 50, 500, -1, -200])
def test_a_truncated_checkpoint_is_refused(end, plain):
    plain.write_bytes(plain.read_bytes()[:end])
    with pytest.raises(ModelLoadError, match=r"ckpt\.pt") as error:
        read(plain)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("seed", range(5))
def test_random_bytes_are_refused(seed, tmp_path):
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randint(256, (300,), generator=generator, dtype=torch.uint8)
    (tmp_path / "a.ckpt").write_bytes(b"\x80\x02" * (seed % 2) + bytes(noise.tolist()))
    with pytest.raises(ModelLoadError, match=r"a\.ckpt"):
        read(tmp_path / "a.ckpt")


def test_weights_with_nan_are_refused(written):
    theirs = NanoGPT(bias=False)
    with torch.no_grad():
        theirs.transformer["wpe"].weight[3, 1] = torch.nan
    with pytest.raises(ModelLoadError, match="not finite"):
        read(written(theirs, {**SIZES, "bias": False}))


WEIGHT = "transformer.wte.weight"
OTHER_TENSORS = {
    "stride-0": (lambda w: w[:1, :1].expand(100_000, 6000), "tensors repeat numbers"),
    "sparse": (lambda w: w.to_sparse(), "sparse or quantised"),
    "meta": (lambda w: w.to("meta"), "meta"),
}


@pytest.mark.parametrize(("change", "message"), OTHER_TENSORS.values(), ids=OTHER_TENSORS)
def test_tensors_that_are_not_what_the_file_holds_are_refused(change, message, written):
    """A stride of 0 makes gigabytes of a few kilobytes."""
    model = NanoGPT(bias=False)
    weights = {**model.state_dict(), WEIGHT: change(model.state_dict()[WEIGHT])}
    with pytest.raises(ModelLoadError, match=message):
        read(written(model, {**SIZES, "bias": False}, model=weights))


def test_many_names_of_one_tensor_are_refused(written):
    model = NanoGPT(bias=False)
    weights = model.state_dict() | {f"x{n}": model.lm_head.weight for n in range(500)}
    with pytest.raises(ModelLoadError, match="tensors repeat numbers"):
        read(written(model, {**SIZES, "bias": False}, model=weights))


def test_a_compressed_archive_is_refused(plain, tmp_path):
    """A thousand zeros take one byte."""
    with ZipFile(plain) as old, ZipFile(tmp_path / "b.pt", "w", ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name) + bytes(10**6 if "data" in name else 0))
    with pytest.raises(ModelLoadError, match="more bytes than the file"):
        read(tmp_path / "b.pt")


# Conversion to safetensors.


def convert(*words: object) -> Any:
    return CliRunner().invoke(app, ["convert", *map(str, words)])


def test_convert_writes_a_folder_with_the_same_logits(plain, tmp_path):
    folder = tmp_path / "new" / "folder"
    done = convert(plain, folder, "--allow-pickle")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "float64" in done.stdout
    assert {path.name for path in folder.iterdir()} == {
        "config.json",
        "manifest.json",
        "model.safetensors",
    }
    again, before = interp.load(folder), read(plain)
    assert_close(again(random_tokens()), before(random_tokens()), 1e-14)
    expected = dict(before.named_parameters())
    assert all(torch.equal(weight, expected[name]) for name, weight in again.named_parameters())


def test_convert_without_allow_pickle_fails_in_one_line_and_writes_nothing(plain, tmp_path):
    done = convert(plain, tmp_path / "folder")
    assert (done.exit_code, done.stdout) == (3, "")
    assert done.stderr.startswith("error: ")
    assert "--allow-pickle" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "folder").exists()


def test_convert_of_a_pickle_with_code_fails_in_one_line(tmp_path):
    marker = tmp_path / "was-run"
    (tmp_path / "ckpt.pt").write_bytes(pickle.dumps(Malicious(marker)))
    done = convert(tmp_path / "ckpt.pt", tmp_path / "folder", "--allow-pickle")
    assert (done.exit_code, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1
    assert not marker.exists()


def test_convert_accepts_a_folder_of_another_family(copied, tmp_path):
    source = copied("llama").path
    assert convert(source, tmp_path / "folder").exit_code == 0
    model = interp.load(tmp_path / "folder")
    assert model.config.name == "a-llama"
    assert torch.equal(model(random_tokens()), interp.load(source)(random_tokens()))


def test_convert_replaces_no_file_of_the_users(plain, copied, tmp_path):
    folder = copied("llama").path
    (folder / "tokenizer.json").write_text("mine")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = convert(plain, folder, "--allow-pickle")
    assert done.exit_code == 2
    assert "config.json" in done.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_convert_replaces_what_it_wrote_and_no_tokenizer_stays(plain, tmp_path):
    for source in ("induction-by-hand", plain):
        done = convert(source, tmp_path / "folder", "--allow-pickle")
        assert done.exit_code == 0, done.stderr
    assert interp.load(tmp_path / "folder").tokenizer is None


def test_a_tokenizer_larger_than_its_vocabulary_is_refused(plain):
    with pytest.raises(ModelLoadError, match="The tokenizer has 63 tokens, the model 30"):
        read(plain, tokenizer=interp.load("induction-by-hand").tokenizer)
    with pytest.raises(InvalidInput, match="no tokenizer"):
        read(plain)("abc")
