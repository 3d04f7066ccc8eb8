"""A saved cache is read back unchanged, with the model or without; bad files are refused."""

import json
import pickle
from pathlib import Path

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    assert_close,
    assert_identical,
    build,
    build_new,
    in_turn,
    padded,
    tokens_of,
)
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from interp import Cache, Config, Transformer, edits, load_cache, metrics, run
from interp.errors import InvalidInput, NotRecorded, OutOfResources, StaleCache, UnknownPlace
from interp.saved.cache_format import HEADER, VERSION


def recorded(record: object = "all", name: str = "gpt2", **settings: object) -> Cache:
    return run(build(name), *tokens_of(name), record=record, **settings).cache


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.cache"


@pytest.fixture
def saved(path: Path) -> Path:
    recorded().save(path)
    return path


def rewritten(path: Path, change: object) -> Path:
    """The same tensors under a header that ``change`` changed."""
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()[HEADER])
    change(header)
    save_file(load_file(path), path, {HEADER: json.dumps(header)})
    return path


# A saved cache is read back unchanged.


@pytest.mark.parametrize(
    ("name", "layout"), in_turn(ARCHITECTURES, ["full", "left"], ARCHITECTURES)
)
def test_with_the_model_everything_is_read_as_it_was(name, layout, path):
    model, tokens = build(name), tokens_of(name)
    if layout == "left":
        tokens = tuple(padded([ids[0], ids[1][:3]], layout) for ids in tokens)
    cache = run(model, *tokens, record="all").cache
    cache.save(path)
    again = load_cache(path, build_new(name))
    assert (again.keys(), again.stored) == (cache.keys(), cache.stored)
    assert again.nbytes == cache.nbytes
    for place, value in cache.items():
        if place in cache.stored:
            assert_identical(again[place], value)
        else:  # a product of the same numbers laid out otherwise in memory
            assert_close(again[place], value, 1e-12, place)


def test_gradients_are_read_as_they_were(path):
    cache = recorded(["z", "pattern", "embed"], gradients_of=metrics.loss())
    cache.save(path)
    for again in (load_cache(path), load_cache(str(path), model=build("gpt2"))):
        for name in (("z_grad", 0), ("pattern_grad", 1), "embed_grad"):
            assert_identical(again[name], cache[name])
        assert ("q_grad", 0) not in again


def test_what_was_edited_is_read_as_it_was(path):
    cache = recorded(edits=[edits.zero("scores", layer=0, head=1)])
    cache.save(path)
    again = load_cache(path, build("gpt2"))
    for place, value in cache.items():
        assert_close(again[place], value, 1e-12, place)


@pytest.mark.parametrize("name", ["gpt2", "uneven-pair"])
def test_without_the_model_what_was_kept_is_read(name, path):
    cache = recorded(name=name)
    cache.save(path)
    again = load_cache(path)
    assert list(again) == list(cache)
    for place, hook in build(name).names.hooks.items():
        if place in cache.stored:
            assert_identical(again[place], cache[place])
            assert_identical(again[hook], cache[place])
        else:
            with pytest.raises(NotRecorded, match=r"loaded without.*model="):
                again[place]


def test_without_the_model_what_was_kept_formed_is_read(path):
    cache = recorded(["pattern", "scores"])
    cache.keep("pattern").save(path)
    again = load_cache(path)
    assert_identical(again["pattern", -1], cache["pattern", -1])
    with pytest.raises(NotRecorded, match=r'"scores", 0\) is derived'):
        again["scores", 0]
    with pytest.raises(NotRecorded, match=r'"q", 0\) was not recorded'):
        again["q", 0]
    with pytest.raises(UnknownPlace, match="Nearest"):
        again["patern", 0]


def test_a_cast_cache_is_read_as_it_was(path):
    cache = recorded().keep("pattern").to(torch.bfloat16)
    cache.save(path)
    again = load_cache(path, build("gpt2"))
    for place, value in cache.items():
        assert again[place].dtype == value.dtype == torch.bfloat16
        assert_close(again[place], value, 2**-7, place)
    assert_identical(load_cache(path)["pattern", 0], cache["pattern", 0])


def test_saved_again_it_is_the_same(saved, tmp_path):
    """Also by one who has no model."""
    for model in (None, build("gpt2")):
        load_cache(saved, model).save(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == saved.read_bytes()


def test_what_shares_memory_shares_it_in_the_file(saved):
    """The stream that leaves a block is the one that enters the next."""
    assert saved.stat().st_size < 1.2 * recorded().nbytes + 8192
    assert load_cache(saved).nbytes == recorded().nbytes


def test_an_empty_cache_is_read_as_it_was(path):
    recorded(None).save(path)
    assert load_cache(path, build("gpt2")).keys() == []


# Another model.


def test_with_other_weights_it_is_refused(saved):
    for other in (build_new("gpt2", seed=1), build_new("gpt2").float()):
        with pytest.raises(InvalidInput, match=r"other weights.*without model="):
            load_cache(saved, other)


def test_with_another_config_it_is_refused(saved):
    """Also where the weights agree: they do not determine how positions and norms are computed."""
    model = build_new("gpt2")
    values = model.config.to_dict()
    values["decoder"]["norm"]["eps"] = 0.5
    other = Transformer(Config.from_dict(values)).double()
    other.load_state_dict(model.state_dict())
    with pytest.raises(InvalidInput, match="another config"):
        load_cache(saved, other)
    with pytest.raises(InvalidInput, match="another config"):
        load_cache(saved, build("llama"))


def test_the_name_of_the_model_does_not_matter(saved):
    model = build_new("gpt2")
    other = Transformer(Config.from_dict({**model.config.to_dict(), "name": "mine"})).double()
    other.load_state_dict(model.state_dict())
    assert_close(load_cache(saved, other)["pattern", 0], recorded()["pattern", 0])


def test_once_the_weights_have_changed_it_is_not_saved(path):
    model, tokens = build_new("gpt2"), tokens_of("gpt2")
    cache = run(model, *tokens, record="all").cache
    with torch.no_grad():
        model.blocks[0].attn.weight_qkv.mul_(2.0)
    with pytest.raises(StaleCache, match="before changing"):
        cache.save(path)
    assert not path.exists()


# Bad files.


def test_a_missing_file_is_refused(tmp_path):
    for wrong in (tmp_path / "nothing", tmp_path):
        with pytest.raises(InvalidInput, match="is not a file"):
            load_cache(wrong)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.999])
def test_a_truncated_file_is_refused(saved, share):
    content = saved.read_bytes()
    saved.write_bytes(content[: int(share * len(content))])
    with pytest.raises(InvalidInput, match="valid safetensors"):
        load_cache(saved)


def test_other_files_are_refused(path):
    path.write_text("no tensors at all")
    with pytest.raises(InvalidInput, match="valid safetensors"):
        load_cache(path)
    save_file({"weight": torch.zeros(2)}, path)
    with pytest.raises(InvalidInput, match="not a cache"):
        load_cache(path)


class Trap:
    def __reduce__(self):
        return pytest.fail, ("a pickle was executed",)


def test_a_pickle_is_not_read(path):
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(InvalidInput, match="valid safetensors"):
        load_cache(path)


@pytest.mark.parametrize("version", [0, VERSION + 1, "1", None])
def test_another_version_is_refused(saved, version):
    rewritten(saved, lambda header: header.update(version=version))
    with pytest.raises(InvalidInput, match=r"format .*reads format 1"):
        load_cache(saved)


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.pop("kept"),
        lambda header: header.pop("version"),
        lambda header: header.update(config={}),
        lambda header: header.update(config=3),
        lambda header: header.update(dtype="nothing"),
        lambda header: header.update(dtype="load"),
        lambda header: header.update(asked=[["patern", 0, None, None]]),
        lambda header: header.update(asked=[["pattern", 7, None, None]]),
        lambda header: header.update(asked=[["pattern"]]),
        lambda header: header.update(asked=7),
        lambda header: header["kept"].append([["z", 9, None, None], "0"]),
        lambda header: header["kept"].append([["z", 0, None, None], "999"]),
        lambda header: header["kept"].append([["z", [0], None, None], "0"]),
        lambda header: header.update(contexts=[["decoder", {}]]),
        lambda header: header.update(contexts=[["nowhere", header["contexts"][0][1]]]),
    ],
)
def test_a_damaged_header_is_refused(saved, change):
    with pytest.raises(InvalidInput, match=r"damaged|valid safetensors"):
        load_cache(rewritten(saved, change), build("gpt2"))


@pytest.mark.parametrize("header", ["[]", "7", "{", "null", '"text"'])
def test_a_header_of_another_kind_is_refused(path, header):
    save_file({"0": torch.zeros(1)}, path, {HEADER: header})
    with pytest.raises(InvalidInput, match="damaged"):
        load_cache(path)


def with_tensors(path: Path, change: object) -> Path:
    """Changed tensors under the same header."""
    with safe_open(path, framework="pt") as file:
        metadata = {HEADER: file.metadata()[HEADER]}
    tensors = load_file(path)
    change(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata)
    return path


SHAPES = {
    "longer": lambda tensor: torch.cat([tensor, tensor]),
    "flat": torch.flatten,
    "empty": lambda tensor: tensor[:0],
    "narrower": lambda tensor: tensor[..., :-1],
    "transposed": lambda tensor: tensor.mT,
    "other numbers": lambda tensor: tensor.to(torch.uint8),
}


@pytest.mark.parametrize("change", SHAPES.values(), ids=SHAPES)
def test_tensors_that_no_run_of_the_model_leaves_are_refused(change, saved):
    """Each tensor of the file in turn: activations, positions and padding."""
    content = saved.read_bytes()
    for name, tensor in load_file(saved).items():
        if change(tensor).shape == tensor.shape and change(tensor).dtype == tensor.dtype:
            continue
        saved.write_bytes(content)
        with_tensors(
            saved, lambda tensors, name=name: tensors.update({name: change(tensors[name])})
        )
        for model in (None, build("gpt2")):
            with pytest.raises(InvalidInput, match="is damaged"):
                load_cache(saved, model)


def test_padding_and_positions_that_no_run_leaves_are_refused(path):
    ids = padded([torch.tensor([1, 2, 3, 4]), torch.tensor([1, 2])], "left")
    run(build("gpt2"), ids, record="all").cache.save(path)
    content = path.read_bytes()
    contexts = {"real": lambda t: t[:, :-1], "positions": lambda t: t - 1}
    for field, change in contexts.items():
        path.write_bytes(content)
        with safe_open(path, framework="pt") as file:
            header = json.loads(file.metadata()[HEADER])
        name = header["contexts"][0][1][field][1]
        with_tensors(path, lambda tensors, n=name, c=change: tensors.update({n: c(tensors[n])}))
        with pytest.raises(InvalidInput, match="is damaged: its p"):
            load_cache(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header["contexts"][0][1].update(offset=-1),
        lambda header: header["contexts"][0][1].update(ahead=2**40),
        lambda header: header["contexts"][0][1].update(offset="0"),
        lambda header: header["contexts"][0][1].update(positions=None),
        lambda header: header.update(contexts=[]),
        lambda header: header["config"].update(d_vocab=2**62, d_model=2**62),
        lambda header: header["config"].update(version=2),
    ],
)
def test_a_header_that_no_run_leaves_is_refused_also_without_the_model(saved, change):
    with pytest.raises(InvalidInput, match=r"is damaged"):
        load_cache(rewritten(saved, change))


@pytest.mark.timeout(60)
def test_a_model_of_absurd_depth_is_not_built(saved):
    """It took a minute for 20 000 layers."""
    for layers in (20_000, 10**12):
        rewritten(saved, lambda header, n=layers: header["config"]["decoder"].update(n_layers=n))
        with pytest.raises(InvalidInput, match=f"{layers} layers; without model="):
            load_cache(saved)


@pytest.mark.timeout(60)
def test_exceptions_for_few_of_many_layers_take_little_time(saved):
    def change(header):
        stack = header["config"]["decoder"]
        other = stack["attention"] | {"cap": 3.0}
        stack |= {"n_layers": 10**12, "exceptions": [{"layers": [1], "attention": other}]}

    with pytest.raises(InvalidInput, match="1000000000000 layers"):
        load_cache(rewritten(saved, change))


def test_a_changed_byte_is_noticed(saved):
    content = saved.read_bytes()
    for index in (9, len(content) // 2, len(content) - 1):
        changed = bytearray(content)
        changed[index] ^= 1
        saved.write_bytes(changed)
        with pytest.raises(InvalidInput, match=r"safetensors file|SHA-256"):
            load_cache(saved)


# Written whole.


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing/run.cache", "no folder .*missing.*make it first"),
        ("", "is a folder"),
        ("run\0.cache", "A path of a file"),
        ("\0/run.cache", "A path of a file"),
    ],
)
def test_a_path_where_no_file_can_be_is_bad_input(tmp_path, name, message):
    """And not a full disk: the exit code of the command line differs."""
    with pytest.raises(InvalidInput, match=message):
        recorded().save(f"{tmp_path}/{name}")
    with pytest.raises(InvalidInput, match=r"is not a file|A path of a file"):
        load_cache(f"{tmp_path}/{name}")
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_can_be_written_it_is_an_error(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("interp.saved.cache_format.save_tensors", full)
    with pytest.raises(OutOfResources, match=r"can't be written.*No space"):
        recorded().save(tmp_path / "run.cache")
    with pytest.raises(OutOfResources, match="can't be written"):
        recorded().save(tmp_path / ("long" * 100))
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_save_leaves_what_was_there(saved, monkeypatch):
    before = saved.read_bytes()

    def interrupted(tensors: object, path: Path, metadata: object) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr("interp.saved.cache_format.save_tensors", interrupted)
    with pytest.raises(KeyboardInterrupt):
        recorded("z").save(saved)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]
