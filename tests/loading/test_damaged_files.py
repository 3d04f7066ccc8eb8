"""Weights that are damaged, missing, unexpected or not finite raise errors that name them."""

import json
import re
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from architectures import ARCHITECTURES, build
from foreign_folders import CONFIG, WEIGHTS, Folder, gpt2, random_tokens
from tables import each
from torch import Tensor

import interp
from interp.errors import ModelLoadError
from interp.loading import save_folder
from interp.loading.source import SafetensorsSource
from interp.loading.weight_files import INDEX, MAX_HEADER_BYTES

EMBEDDING, BIAS = "transformer.wte.weight", "transformer.h.1.mlp.c_fc.bias"
FUSED, GAIN = "transformer.h.0.attn.c_attn.weight", "transformer.ln_f.weight"


def assert_refused(folder: Folder, *parts: str) -> None:
    """Loading fails with one line that has the folder's name and all of ``parts``."""
    with pytest.raises(ModelLoadError) as error:
        interp.load(folder.path)
    message = str(error.value)
    assert "\n" not in message
    assert all(part in message for part in (folder.path.name, *parts)), message


@pytest.fixture
def no_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a weight fails the test."""

    def read(source: SafetensorsSource, key: str) -> Tensor:
        raise AssertionError(f"{key} was read before all checks")

    monkeypatch.setattr(SafetensorsSource, "read", read)


# Bytes of a file.


def by_hand(path: Path, header: object, n_bytes: int = 0, length: int | None = None) -> None:
    """Write a safetensors file with this header, JSON or bytes, and zeros as data."""
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(content) if length is None else length
    path.write_bytes(size.to_bytes(8, "little") + content + bytes(n_bytes))


def entry(
    *shape: int, dtype: str = "F32", start: int = 0, end: int | None = None
) -> dict[str, Any]:
    size = 4 * torch.Size(shape).numel()
    stop = start + size if end is None else end
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, stop]}


TWICE = f'{{"{EMBEDDING}": {json.dumps(entry(2))}, "{EMBEDDING}": {json.dumps(entry(2))}}}'
HEADERS = {
    "garbage": (b"\xff\xfe garbage", "not a valid safetensors"),
    "no-json": (b"{'a': 1}", "not a valid safetensors"),
    "list": ([1, 2], "not a valid safetensors"),
    "word": ("abc", "not a valid safetensors"),
    "deep": (b"[" * 100_000, "not a valid safetensors"),
    "no-object": ({EMBEDDING: 3}, "not a valid safetensors"),
    "no-shape": ({EMBEDDING: {"dtype": "F32", "data_offsets": [0, 8]}}, "shape"),
    "no-type": ({EMBEDDING: {"shape": [2], "data_offsets": [0, 8]}}, "dtype"),
    "no-offsets": ({EMBEDDING: {"dtype": "F32", "shape": [2]}}, "data_offsets"),
    "odd-type": ({EMBEDDING: entry(2, dtype=["F32"])}, "not a valid safetensors"),
    "odd-shape": ({EMBEDDING: entry(2) | {"shape": "ab"}}, EMBEDDING),
    "negative-shape": ({EMBEDDING: entry(2) | {"shape": [-1, -2]}}, EMBEDDING),
    "split-shape": ({EMBEDDING: entry(2) | {"shape": [0.5, 4]}}, EMBEDDING),
    "beyond-the-end": ({EMBEDDING: entry(1000)}, EMBEDDING),
    "backwards": ({EMBEDDING: entry(2, start=8, end=0)}, EMBEDDING),
    "before-the-start": ({EMBEDDING: entry(2, start=-8, end=0)}, EMBEDDING),
    "word-offsets": ({EMBEDDING: entry(2) | {"data_offsets": ["0", "8"]}}, WEIGHTS),
    "too-few-bytes": ({EMBEDDING: entry(2, end=4)}, EMBEDDING),
    "too-many-bytes": ({EMBEDDING: entry(1, end=8)}, EMBEDDING),
    "absurd-shape": ({EMBEDDING: entry(2) | {"shape": [2**62, 2**62]}}, EMBEDDING),
    "twice": (TWICE.encode(), f"'{EMBEDDING}' occurs twice"),
}


@pytest.mark.usefixtures("no_reads")
@each(("header", "part"), HEADERS.values())
def test_an_invalid_header_is_refused(header, part, folder):
    by_hand(folder.path / WEIGHTS, header, n_bytes=64)
    assert_refused(folder, WEIGHTS, part)


@pytest.mark.usefixtures("no_reads")
@pytest.mark.parametrize("length", [0, 3, 10**6, MAX_HEADER_BYTES + 1, 2**63, 2**64 - 1])
def test_a_header_of_a_wrong_length_is_refused(length, folder):
    header = json.dumps({EMBEDDING: entry(2)}).encode()
    by_hand(folder.path / WEIGHTS, header, n_bytes=8, length=length)
    assert_refused(folder, WEIGHTS, "not a valid safetensors")


@pytest.mark.usefixtures("no_reads")
@pytest.mark.parametrize("end", [0, 4, 8, 9, 500, -1])
def test_a_truncated_file_is_refused(end, folder):
    path = folder.path / WEIGHTS
    path.write_bytes(path.read_bytes()[:end])
    assert_refused(folder, WEIGHTS, "not a valid safetensors")


@pytest.mark.usefixtures("no_reads")
def test_a_folder_without_weights_is_refused(folder):
    (folder.path / WEIGHTS).unlink()
    assert_refused(folder, WEIGHTS, "is missing")
    (folder.path / WEIGHTS).mkdir()
    assert_refused(folder, WEIGHTS)


def test_metadata_is_not_a_weight(folder):
    folder.set_weights(folder.weights)
    assert b"__metadata__" in (folder.path / WEIGHTS).read_bytes()[:100]
    assert interp.load(folder.path).config.tied


# Shards.


@pytest.fixture
def halves(folder: Folder) -> tuple[list[str], list[str]]:
    """The keys of all weights, in two halves."""
    keys = sorted(folder.weights)
    return keys[::2], keys[1::2]


def test_sharded_weights_are_one_model(folder, halves):
    whole = interp.load(folder.path)(random_tokens())
    folder.split(first=halves[0], second=halves[1])
    assert torch.equal(interp.load(folder.path)(random_tokens()), whole)


@pytest.mark.usefixtures("no_reads")
def test_a_missing_shard_is_named(folder, halves):
    folder.split(first=halves[0], second=halves[1])
    (folder.path / "second.safetensors").unlink()
    assert_refused(folder, "second.safetensors", "is missing")


@pytest.mark.usefixtures("no_reads")
def test_a_weight_in_two_shards_is_named(folder, halves):
    folder.split(first=[*halves[0], halves[1][3]], second=halves[1])
    assert_refused(folder, halves[1][3], "first.safetensors", "second.safetensors")


@pytest.mark.usefixtures("no_reads")
def test_a_weight_of_the_index_that_no_shard_has_is_named(folder, halves):
    folder.split(first=halves[0], second=halves[1])
    where = dict.fromkeys(halves[0], "first.safetensors")
    where |= dict.fromkeys([*halves[1], "transformer.more"], "second.safetensors")
    folder.write_index(where)
    assert_refused(folder, "transformer.more", "second.safetensors", "lacks it")
    folder.write_index({**where, "transformer.more": "first.safetensors"})
    assert_refused(folder, "transformer.more", "first.safetensors", "lacks it")


@pytest.mark.usefixtures("no_reads")
def test_a_weight_in_another_shard_than_that_of_the_index_is_named(folder, halves):
    folder.split(first=halves[0], second=halves[1])
    where = dict.fromkeys(halves[0], "first.safetensors")
    where |= dict.fromkeys(halves[1], "second.safetensors")
    folder.write_index({**where, halves[0][2]: "second.safetensors"})
    assert_refused(folder, halves[0][2], "second.safetensors", "lacks it")


OUTSIDE = ["../other/x.safetensors", "..", ".", "", "sub/x.safetensors", "a\\x.safetensors"]


@pytest.mark.usefixtures("no_reads")
@pytest.mark.parametrize("name", [*OUTSIDE, "absolute"])
def test_an_existing_shard_outside_of_the_folder_is_refused(name, folder, tmp_path):
    for place in ("other", "a-gpt2/sub"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "x.safetensors").write_bytes((folder.path / WEIGHTS).read_bytes())
    absolute = str(tmp_path / "other" / "x.safetensors")
    shard = absolute if name == "absolute" else name
    folder.write_index(dict.fromkeys(folder.weights, shard))
    assert_refused(folder, INDEX, repr(shard), "plain names inside")


@pytest.mark.usefixtures("no_reads")
@pytest.mark.parametrize(
    "text",
    ["{", "[]", "3", "{}", '{"weight_map": 3}', '{"weight_map": ["a"]}', "[" * 100_000, "\udcff"],
    ids=["no-json", "list", "number", "empty", "no-map", "list-map", "deep", "no-text"],
)
def test_an_invalid_index_is_refused(text, folder):
    folder.write_index({})
    (folder.path / INDEX).write_bytes(text.encode(errors="surrogateescape"))
    assert_refused(folder, INDEX, "not a valid index")


@pytest.mark.usefixtures("no_reads")
def test_an_index_with_duplicates_or_without_entries_is_refused(folder, halves):
    folder.split(first=halves[0], second=halves[1])
    both = f'"{EMBEDDING}": "first.safetensors", "{EMBEDDING}": "second.safetensors"'
    (folder.path / INDEX).write_text(f'{{"weight_map": {{{both}}}}}')
    assert_refused(folder, INDEX, f"'{EMBEDDING}' occurs twice")
    folder.write_index({})
    assert_refused(folder, WEIGHTS, "is missing")


@pytest.mark.usefixtures("no_reads")
def test_an_index_that_is_too_large_is_refused(folder):
    folder.write_index({})
    with (folder.path / INDEX).open("wb") as file:
        file.truncate(MAX_HEADER_BYTES + 1)
    assert_refused(folder, INDEX, "it is larger than")


# Names, shapes and dtypes.

Change = Callable[[dict[str, Tensor]], object]


def swapped(key: str, change: Callable[[Tensor], Tensor]) -> Change:
    return lambda weights: weights.update({key: change(weights[key])})


WRONG: dict[str, tuple[Change, list[str]]] = {
    "missing": (lambda w: w.pop(BIAS), ["h.1.mlp.c_fc.bias is missing", "blocks.1.mlp.b_in (32,)"]),
    "missing-of-several": (lambda w: w.pop(FUSED), ["h.0.attn.c_attn.weight is missing"]),
    "missing-embedding": (lambda w: w.pop(EMBEDDING), ["wte.weight is missing"]),
    "extra": (lambda w: w.update(more=torch.ones(2)), ["more belongs to no part"]),
    "extra-layer": (
        lambda w: w.update({"transformer.h.2.ln_1.bias": torch.ones(8)}),
        ["transformer.h.2.ln_1.bias belongs to no part"],
    ),
    "longer": (
        swapped(EMBEDDING, lambda x: x.repeat(2, 1)),
        [f"{EMBEDDING} (60, 8)", "config asks for (30, 8)"],
    ),
    "turned": (swapped(FUSED, lambda x: x.T), [f"{FUSED} (24, 8)", "config asks for (24, 8)"]),
    "flat": (swapped(FUSED, torch.flatten), [FUSED, "(192,)"]),
    "one-number": (swapped(GAIN, torch.sum), [f"{GAIN} ()", "config asks for (8,)"]),
    "empty": (swapped(GAIN, lambda x: x[:0]), [f"{GAIN} (0,)"]),
    "int8": (swapped(FUSED, lambda x: x.to(torch.int8)), [FUSED, "quantised"]),
    "uint8": (swapped(BIAS, lambda x: x.to(torch.uint8)), [BIAS, "quantised"]),
    "float8": (swapped(FUSED, lambda x: x.to(torch.float8_e4m3fn)), [FUSED, "quantised"]),
    "bool": (swapped(GAIN, lambda x: x > 0), [GAIN, "not have a floating-point dtype"]),
}


@pytest.mark.usefixtures("no_reads")
@pytest.mark.parametrize(("change", "parts"), WRONG.values(), ids=WRONG)
def test_a_wrong_weight_is_named_before_any_is_read(change, parts, folder):
    weights = folder.weights
    change(weights)
    folder.set_weights(weights)
    assert_refused(folder, *parts)


def test_a_head_of_another_dtype_or_shape_is_named(folder):
    embedding = folder.weights[EMBEDDING]
    for head, part in ((embedding.to(torch.int8), "quantised"), (embedding[:9], "(9, 8)")):
        folder.set_weights({**folder.weights, "lm_head.weight": head})
        assert_refused(folder, "lm_head.weight", part)


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("key", [EMBEDDING, BIAS, FUSED])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_a_weight_that_is_not_finite_is_refused(dtype, key, wrong, folder):
    weights = {name: weight.to(dtype) for name, weight in folder.weights.items()}
    folder.set_weights(weights)
    interp.load(folder.path)
    weights[key].view(-1)[-1] = wrong
    folder.set_weights(weights)
    assert_refused(folder, "not finite")


def test_finite_weights_whose_sum_overflows_are_accepted(folder):
    weights = folder.weights
    weights[EMBEDDING] = torch.full_like(weights[EMBEDDING], 3e38)
    assert not weights[EMBEDDING].sum().isfinite()
    folder.set_weights(weights)
    assert torch.equal(interp.load(folder.path).W_E, weights[EMBEDDING])


def test_buffers_of_older_checkpoints_are_ignored(folder):
    expected = interp.load(folder.path)(random_tokens())
    mask = torch.ones(1, 1, 16, 16).tril().to(torch.uint8)
    more = {f"transformer.h.{n}.attn.bias": mask.clone() for n in range(2)}
    more |= {f"transformer.h.{n}.attn.masked_bias": torch.tensor(-1e4) for n in range(2)}
    folder.set_weights(folder.weights | more)
    assert torch.equal(interp.load(folder.path)(random_tokens()), expected)


# Folders that save_folder wrote.


@pytest.fixture
def saved_model(tmp_path: Path) -> Folder:
    save_folder(build(ARCHITECTURES["gpt2"]), tmp_path / "saved")
    return Folder(tmp_path / "saved")


@pytest.mark.usefixtures("no_reads")
@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda w: w.pop("decoder.weight_e"), "decoder.weight_e is missing"),
        (lambda w: w.update(more=torch.ones(2)), "more belongs to no part"),
        (lambda w: w.update({"decoder.weight_e": torch.ones(3)}), "decoder.weight_e (3,)"),
        (lambda w: w.update({"decoder.weight_e": torch.ones(13, 12).char()}), "quantised"),
    ],
    ids=["missing", "extra", "misshapen", "quantised"],
)
def test_wrong_weights_of_a_saved_model_are_named(change, part, saved_model):
    weights = saved_model.weights
    change(weights)
    saved_model.set_weights(weights)
    assert_refused(saved_model, part)


# Sizes are checked before memory is allocated.

ABSURD = {
    "wide-and-deep": {"n_embd": 2**20, "n_layer": 2**10},
    "deep": {"n_layer": 10**9},
    "deep-and-all-different": {"n_layer": 10**9, "scale_attn_by_inverse_layer_idx": True},
    "long": {"n_positions": 2**40},
    "many-tokens": {"vocab_size": 2**50},
    "many-heads": {"n_embd": 2**30, "n_head": 2**30},
    "no-such-size": {"n_embd": 2**40, "n_inner": 2**40},
    "no-such-number": {"n_embd": 10**30},
}


@pytest.mark.timeout(10)
@pytest.mark.usefixtures("no_reads")
@pytest.mark.parametrize("fields", ABSURD.values(), ids=ABSURD)
def test_an_absurd_size_is_refused_without_time_or_memory(fields, folder):
    folder.set_fields(**fields)
    tracemalloc.start()
    start = time.perf_counter()
    try:
        assert_refused(folder)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - start < 5
    assert peak < 20 * 2**20


@pytest.mark.usefixtures("no_reads")
@pytest.mark.parametrize("change", [{"d_model": 2**40}, {"d_vocab": 2**60}, {"d_model": 10**30}])
def test_an_absurd_size_of_a_saved_model_is_refused(change, saved_model):
    saved_model.set_fields(**change)
    assert_refused(saved_model)


@pytest.mark.timeout(10)
@pytest.mark.usefixtures("no_reads")
def test_an_absurd_depth_of_a_saved_model_is_refused_quickly(saved_model):
    decoder = saved_model.fields["decoder"]
    saved_model.set_fields(decoder=decoder | {"n_layers": 10**9})
    assert_refused(saved_model, "1000000000 layers")


# Live models.


def test_a_live_model_on_the_meta_device_is_refused():
    with torch.device("meta"):
        empty = gpt2()
    with pytest.raises(ModelLoadError, match="meta device"):
        interp.load(empty)
    half = gpt2()
    half.transformer.h[1].to("meta")
    with pytest.raises(ModelLoadError, match=re.escape("transformer.h.1.")):
        interp.load(half)


def test_a_live_weight_that_is_not_finite_is_refused():
    theirs = gpt2()
    with torch.no_grad():
        theirs.transformer.h[1].mlp.c_fc.bias[3] = torch.nan
    with pytest.raises(ModelLoadError, match="not finite"):
        interp.load(theirs)


# Sources.


def test_a_source_that_is_neither_a_folder_nor_a_name_is_refused(tmp_path, folder):
    with pytest.raises(ModelLoadError, match="neither a bundled model"):
        interp.load(tmp_path / "nothing")
    with pytest.raises(ModelLoadError, match="too long"):
        interp.load("x" * 5000)
    with pytest.raises(ModelLoadError, match=r"A model is loaded from .*; got 3"):
        interp.load(3)
    (folder.path / CONFIG).unlink()
    assert_refused(folder, CONFIG, "can't be read")


def test_a_saved_model_whose_weights_were_changed_is_refused(saved_model):
    """Also where they would be valid numbers, in the last place and in the first."""
    path = saved_model.path / WEIGHTS
    content = path.read_bytes()
    for index in (-8, -len(content) // 2):
        changed = bytearray(content)
        changed[index] ^= 1
        path.write_bytes(changed)
        assert_refused(saved_model, WEIGHTS, "SHA-256")
    path.write_bytes(content)
    assert interp.load(saved_model.path)


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("no_reads")
def test_a_header_of_many_names_of_which_one_occurs_twice_is_refused_in_time(folder):
    names = ",".join(f'"{n}":0' for n in range(200_000))
    by_hand(folder.path / WEIGHTS, f'{{{names},"199999":0}}'.encode(), n_bytes=64)
    assert_refused(folder, WEIGHTS, "'199999' occurs twice")


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("no_reads")
def test_a_shape_of_many_huge_axes_is_refused_in_time(folder):
    shape = [10**300] * 20_000
    by_hand(folder.path / WEIGHTS, {EMBEDDING: entry(2) | {"shape": shape}}, n_bytes=64)
    assert_refused(folder, WEIGHTS, "invalid shape")


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("no_reads")
def test_as_many_layers_as_weights_are_refused_in_time(saved_model):
    decoder = saved_model.fields["decoder"]
    saved_model.set_fields(decoder=decoder | {"n_layers": 20_000})
    by_hand(saved_model.path / WEIGHTS, {str(n): entry(0) for n in range(20_000)})
    assert_refused(saved_model, "20000 layers; at most")
