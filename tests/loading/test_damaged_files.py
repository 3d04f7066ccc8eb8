"""Weights that are damaged, missing, extra or not numbers are refused by name, and read last."""

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
from foreign_folders import CONFIG, WEIGHTS, Folder, gpt2, some_tokens
from tables import each
from torch import Tensor

import interp
from interp.errors import ModelLoadError
from interp.loading import save_folder
from interp.loading.source import INDEX, MOST_HEADER, Files

EMBEDDING, BIAS = "transformer.wte.weight", "transformer.h.1.mlp.c_fc.bias"
FUSED, GAIN = "transformer.h.0.attn.c_attn.weight", "transformer.ln_f.weight"


def refused(folder: Folder, *said: str) -> None:
    """Loading fails with one line that has the folder's name and all that is ``said``."""
    with pytest.raises(ModelLoadError) as error:
        interp.load(folder.path)
    message = str(error.value)
    assert "\n" not in message
    assert all(words in message for words in (folder.path.name, *said)), message


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """No weight is read: whoever tries fails the test."""

    def read(files: Files, key: str) -> Tensor:
        raise AssertionError(f"{key} was read before all was checked")

    monkeypatch.setattr(Files, "read", read)


# The bytes of a file.


def by_hand(path: Path, header: object, room: int = 0, length: int | None = None) -> None:
    """A safetensors file of any header: JSON, or bytes as they are."""
    told = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(told) if length is None else length
    path.write_bytes(size.to_bytes(8, "little") + told + bytes(room))


def entry(
    *shape: int, dtype: str = "F32", start: int = 0, end: int | None = None
) -> dict[str, Any]:
    size = 4 * torch.Size(shape).numel()
    stop = start + size if end is None else end
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, stop]}


TWICE = f'{{"{EMBEDDING}": {json.dumps(entry(2))}, "{EMBEDDING}": {json.dumps(entry(2))}}}'
HEADERS = {
    "garbage": (b"\xff\xfe garbage", "not a sound safetensors"),
    "no-json": (b"{'a': 1}", "not a sound safetensors"),
    "list": ([1, 2], "not a sound safetensors"),
    "word": ("abc", "not a sound safetensors"),
    "deep": (b"[" * 100_000, "not a sound safetensors"),
    "no-object": ({EMBEDDING: 3}, "not a sound safetensors"),
    "no-shape": ({EMBEDDING: {"dtype": "F32", "data_offsets": [0, 8]}}, "shape"),
    "no-type": ({EMBEDDING: {"shape": [2], "data_offsets": [0, 8]}}, "dtype"),
    "no-offsets": ({EMBEDDING: {"dtype": "F32", "shape": [2]}}, "data_offsets"),
    "odd-type": ({EMBEDDING: entry(2, dtype=["F32"])}, "not a sound safetensors"),
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
    "twice": (TWICE.encode(), f"'{EMBEDDING}' stands twice"),
}


@pytest.mark.usefixtures("unread")
@each(("header", "said"), HEADERS.values())
def test_a_header_that_cannot_be_is_refused(header, said, folder):
    by_hand(folder.path / WEIGHTS, header, room=64)
    refused(folder, WEIGHTS, said)


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("length", [0, 3, 10**6, MOST_HEADER + 1, 2**63, 2**64 - 1])
def test_a_header_whose_length_lies_is_refused(length, folder):
    header = json.dumps({EMBEDDING: entry(2)}).encode()
    by_hand(folder.path / WEIGHTS, header, room=8, length=length)
    refused(folder, WEIGHTS, "not a sound safetensors")


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("kept", [0, 4, 8, 9, 500, -1])
def test_a_file_that_is_cut_short_is_refused(kept, folder):
    path = folder.path / WEIGHTS
    path.write_bytes(path.read_bytes()[:kept])
    refused(folder, WEIGHTS, "not a sound safetensors")


@pytest.mark.usefixtures("unread")
def test_a_folder_without_weights_is_refused(folder):
    (folder.path / WEIGHTS).unlink()
    refused(folder, WEIGHTS, "is missing")
    (folder.path / WEIGHTS).mkdir()
    refused(folder, WEIGHTS)
    (folder.path / "pytorch_model.bin").write_bytes(b"a pickle")
    refused(folder, WEIGHTS)


def test_metadata_of_a_file_is_no_weight(folder):
    folder.holds(folder.weights)
    assert b"__metadata__" in (folder.path / WEIGHTS).read_bytes()[:100]
    assert interp.load(folder.path).config.tied


# Several files.


@pytest.fixture
def halves(folder: Folder) -> tuple[list[str], list[str]]:
    """The names of all weights, in two."""
    keys = sorted(folder.weights)
    return keys[::2], keys[1::2]


def test_weights_in_several_files_are_one_model(folder, halves):
    whole = interp.load(folder.path)(some_tokens())
    folder.split(first=halves[0], second=halves[1])
    assert torch.equal(interp.load(folder.path)(some_tokens()), whole)


@pytest.mark.usefixtures("unread")
def test_a_part_that_is_missing_is_named(folder, halves):
    folder.split(first=halves[0], second=halves[1])
    (folder.path / "second.safetensors").unlink()
    refused(folder, "second.safetensors", "is missing")


@pytest.mark.usefixtures("unread")
def test_a_weight_that_stands_in_two_parts_is_named(folder, halves):
    folder.split(first=[*halves[0], halves[1][3]], second=halves[1])
    refused(folder, halves[1][3], "first.safetensors", "second.safetensors")


@pytest.mark.usefixtures("unread")
def test_a_weight_that_the_index_promises_and_no_part_has_is_named(folder, halves):
    folder.split(first=halves[0], second=halves[1])
    where = dict.fromkeys(halves[0], "first.safetensors")
    where |= dict.fromkeys([*halves[1], "transformer.more"], "second.safetensors")
    folder.promises(where)
    refused(folder, "transformer.more", "second.safetensors", "lacks it")
    folder.promises({**where, "transformer.more": "first.safetensors"})
    refused(folder, "transformer.more", "first.safetensors", "lacks it")


@pytest.mark.usefixtures("unread")
def test_a_weight_that_lies_in_another_part_than_promised_is_named(folder, halves):
    folder.split(first=halves[0], second=halves[1])
    where = dict.fromkeys(halves[0], "first.safetensors")
    where |= dict.fromkeys(halves[1], "second.safetensors")
    folder.promises({**where, halves[0][2]: "second.safetensors"})
    refused(folder, halves[0][2], "second.safetensors", "lacks it")


OUTSIDE = ["../other/x.safetensors", "..", ".", "", "sub/x.safetensors", "a\\x.safetensors"]


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("name", [*OUTSIDE, "absolute"])
def test_a_part_outside_of_the_folder_is_refused_though_it_is_there(name, folder, tmp_path):
    for place in ("other", "a-gpt2/sub"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "x.safetensors").write_bytes((folder.path / WEIGHTS).read_bytes())
    absolute = str(tmp_path / "other" / "x.safetensors")
    told = absolute if name == "absolute" else name
    folder.promises(dict.fromkeys(folder.weights, told))
    refused(folder, INDEX, repr(told), "plain names inside")


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize(
    "text",
    ["{", "[]", "3", "{}", '{"weight_map": 3}', '{"weight_map": ["a"]}', "[" * 100_000, "\udcff"],
    ids=["no-json", "list", "number", "empty", "no-map", "list-map", "deep", "no-text"],
)
def test_an_index_that_is_none_is_refused(text, folder):
    folder.promises({})
    (folder.path / INDEX).write_bytes(text.encode(errors="surrogateescape"))
    refused(folder, INDEX, "no sound index")


@pytest.mark.usefixtures("unread")
def test_an_index_that_says_a_thing_twice_or_nothing_is_refused(folder, halves):
    folder.split(first=halves[0], second=halves[1])
    both = f'"{EMBEDDING}": "first.safetensors", "{EMBEDDING}": "second.safetensors"'
    (folder.path / INDEX).write_text(f'{{"weight_map": {{{both}}}}}')
    refused(folder, INDEX, f"'{EMBEDDING}' stands twice")
    folder.promises({})
    refused(folder, WEIGHTS, "is missing")


@pytest.mark.usefixtures("unread")
def test_an_index_larger_than_any_is_refused(folder):
    folder.promises({})
    with (folder.path / INDEX).open("wb") as file:
        file.truncate(MOST_HEADER + 1)
    refused(folder, INDEX, "larger than any")


# Names, shapes and types.

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
    "bool": (swapped(GAIN, lambda x: x > 0), [GAIN, "no floating-point number"]),
}


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize(("change", "said"), WRONG.values(), ids=WRONG)
def test_a_weight_that_does_not_belong_is_named_before_any_is_read(change, said, folder):
    weights = folder.weights
    change(weights)
    folder.holds(weights)
    refused(folder, *said)


def test_a_head_of_another_type_or_shape_is_named(folder):
    embedding = folder.weights[EMBEDDING]
    for head, said in ((embedding.to(torch.int8), "quantised"), (embedding[:9], "(9, 8)")):
        folder.holds({**folder.weights, "lm_head.weight": head})
        refused(folder, "lm_head.weight", said)


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("key", [EMBEDDING, BIAS, FUSED])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_a_weight_that_is_no_number_is_refused(dtype, key, wrong, folder):
    weights = {name: weight.to(dtype) for name, weight in folder.weights.items()}
    folder.holds(weights)
    interp.load(folder.path)
    weights[key].view(-1)[-1] = wrong
    folder.holds(weights)
    refused(folder, "not finite")


def test_large_numbers_whose_sum_is_not_finite_are_numbers(folder):
    weights = folder.weights
    weights[EMBEDDING] = torch.full_like(weights[EMBEDDING], 3e38)
    assert not weights[EMBEDDING].sum().isfinite()
    folder.holds(weights)
    assert torch.equal(interp.load(folder.path).W_E, weights[EMBEDDING])


def test_buffers_that_older_checkpoints_hold_are_no_weights(folder):
    expected = interp.load(folder.path)(some_tokens())
    mask = torch.ones(1, 1, 16, 16).tril().to(torch.uint8)
    more = {f"transformer.h.{n}.attn.bias": mask.clone() for n in range(2)}
    more |= {f"transformer.h.{n}.attn.masked_bias": torch.tensor(-1e4) for n in range(2)}
    folder.holds(folder.weights | more)
    assert torch.equal(interp.load(folder.path)(some_tokens()), expected)


# Our own folders.


@pytest.fixture
def own(tmp_path: Path) -> Folder:
    save_folder(build(ARCHITECTURES["gpt2"]), tmp_path / "own")
    return Folder(tmp_path / "own")


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda w: w.pop("decoder.weight_e"), "decoder.weight_e is missing"),
        (lambda w: w.update(more=torch.ones(2)), "more belongs to no part"),
        (lambda w: w.update({"decoder.weight_e": torch.ones(3)}), "decoder.weight_e (3,)"),
        (lambda w: w.update({"decoder.weight_e": torch.ones(13, 12).char()}), "quantised"),
    ],
    ids=["missing", "extra", "misshapen", "quantised"],
)
def test_weights_of_our_own_that_do_not_belong_are_named(change, said, own):
    weights = own.weights
    change(weights)
    own.holds(weights)
    refused(own, said)


# Little is done before all is known to fit.

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
@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("fields", ABSURD.values(), ids=ABSURD)
def test_an_absurd_size_is_refused_without_time_or_memory(fields, folder):
    folder.says(**fields)
    tracemalloc.start()
    start = time.perf_counter()
    try:
        refused(folder)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - start < 5
    assert peak < 20 * 2**20


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("change", [{"d_model": 2**40}, {"d_vocab": 2**60}, {"d_model": 10**30}])
def test_an_absurd_size_of_our_own_is_refused_too(change, own):
    own.says(**change)
    refused(own)


@pytest.mark.timeout(10)
@pytest.mark.usefixtures("unread")
def test_an_absurd_depth_of_our_own_is_refused_at_once(own):
    decoder = own.fields["decoder"]
    own.says(decoder=decoder | {"n_layers": 10**9})
    refused(own, "1000000000 layers")


# A live model.


def test_a_live_model_without_content_is_refused():
    with torch.device("meta"):
        empty = gpt2()
    with pytest.raises(ModelLoadError, match="meta device"):
        interp.load(empty)
    half = gpt2()
    half.transformer.h[1].to("meta")
    with pytest.raises(ModelLoadError, match=re.escape("transformer.h.1.")):
        interp.load(half)


def test_a_live_weight_that_is_no_number_is_refused():
    theirs = gpt2()
    with torch.no_grad():
        theirs.transformer.h[1].mlp.c_fc.bias[3] = torch.nan
    with pytest.raises(ModelLoadError, match="not finite"):
        interp.load(theirs)


# The folder itself.


def test_what_is_no_folder_and_no_name_is_refused(tmp_path, folder):
    with pytest.raises(ModelLoadError, match="neither a bundled model"):
        interp.load(tmp_path / "nothing")
    with pytest.raises(ModelLoadError, match="too long"):
        interp.load("x" * 5000)
    with pytest.raises(ModelLoadError, match=r"A model is loaded from .*; got int"):
        interp.load(3)
    (folder.path / CONFIG).unlink()
    refused(folder, CONFIG, "can't be read")
