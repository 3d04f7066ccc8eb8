"""Files of dictionary_learning and Gemma Scope 2 are read by their settings, or refused by name.

What they compute is compared in ``test_dictionaries.py`` with their libraries.
"""

import json
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from architectures import build
from huggingface_hub import constants
from safetensors.torch import load_file, save_file

from interp import Place, Point, dictionaries
from interp.dictionaries import JumpReLU, TopK
from interp.errors import InvalidInput, ModelLoadError, UnknownPlace

REFERENCES = Path(__file__).with_name("references")
LEARNING, SCOPE = "dictionary_learning-", REFERENCES / "gemma_scope_2-skip_transcoder"
COMMIT = "0123456789abcdef" * 2 + "01234567"


def copied(folder: Path, into: Path) -> Path:
    """A copy of a folder."""
    return Path(shutil.copytree(folder, into / folder.name))


def with_settings(folder: Path, **changed) -> Path:
    """The same folder, with other settings; ``None`` removes one. Those of a trainer are inside."""
    path = folder / "config.json"
    settings = json.loads(path.read_text())
    for section in (settings, settings.get("trainer", {})):
        section |= {name: value for name, value in changed.items() if name in section}
    path.write_text(json.dumps(settings))
    return folder


# ---- dictionary_learning -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("BatchTopKSAE", {"threshold": torch.tensor(-1.0)}, r"threshold is -1.0; .* at least 0"),
        ("BatchTopKSAE", {"threshold": torch.tensor([0.1])}, r"threshold is \[.*; a number"),
        ("BatchTopKSAE", {"k": torch.tensor(4)}, "k is 4, and config.json has 3"),
        ("BatchTopKSAE", {"k": None}, "lacks k; it has"),
        ("AutoEncoderTopK", {"k": torch.tensor(17)}, "one integer from 1 to 16"),
        (
            "AutoEncoderTopK",
            {"b_dec": torch.zeros(5)},
            r"b_dec has the shape \[5\]; expected \[6\]",
        ),
        (
            "MatryoshkaBatchTopKSAE",
            {"group_sizes": torch.tensor([4, 13])},
            r"group_sizes is \[4, 13\]; positive integers with the sum 16",
        ),
        ("AutoEncoder", {"decoder.weight": torch.zeros(6, 16)}, "16 features have a decoder of no"),
        ("AutoEncoder", {"bias": torch.full((6,), torch.nan)}, "bias.* has values that are not f"),
        ("AutoEncoder", {"extra": torch.zeros(1)}, r"missing: none, unknown: \['extra'\]"),
        ("AutoEncoder", {"encoder.weight": None}, "has no matrix encoder.weight"),
        ("GatedAutoEncoder", {"r_mag": None}, "missing: r_mag, unknown: none"),
        ("GatedAutoEncoder", {"r_mag": "text"}, "r_mag.* is of the type str; a state dict was"),
        ("JumpReluAutoEncoder", {"threshold": torch.zeros(16, dtype=torch.int64)}, "torch.int64"),
        ("JumpReluAutoEncoder", {"b_enc": torch.zeros(1).expand(16)}, None),
        ("JumpReluAutoEncoder", {"W_enc": torch.zeros(6, 16).to_sparse()}, "sparse or quantised"),
    ],
)
def test_tensors_of_a_pickle_are_checked(tmp_path, name, changed, message):
    folder = copied(REFERENCES / f"{LEARNING}{name}", tmp_path)
    assert dictionaries.load(folder).n_features == 16
    state = torch.load(folder / "ae.pt", weights_only=True) | changed
    state = {name: value for name, value in state.items() if value is not None}
    torch.save(state, folder / "ae.pt")
    if message is None:
        assert torch.equal(dictionaries.load(folder).b_enc, torch.zeros(16))
    else:
        with pytest.raises(ModelLoadError, match=message):
            dictionaries.load(folder)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"trainer": [1]}, r"trainer is \[1\]; an object was expected"),
        ({"dict_class": "CrossCoder"}, "class 'CrossCoder' are not read; those that are: AutoEnc"),
        ({"dict_class": ["BatchTopKSAE"]}, "are not read"),
        ({"dict_class": "GatedAutoEncoder"}, "'k' has the dtype torch.int32"),
        ({"activation_dim": 7}, "activation_dim is 7, but ae.pt has 6"),
        ({"dict_size": 32}, "dict_size is 32, but ae.pt has 16"),
        ({"k": 5}, "k is 3, and config.json has 5"),
    ],
)
def test_settings_of_a_trainer_are_compared_with_the_tensors(tmp_path, changed, message):
    folder = copied(REFERENCES / f"{LEARNING}BatchTopKSAE", tmp_path)
    with pytest.raises(ModelLoadError, match=message):
        dictionaries.load(with_settings(folder, **changed))


def test_a_layer_is_a_place_only_if_the_settings_name_it(tmp_path):
    folder = copied(REFERENCES / f"{LEARNING}BatchTopKSAE", tmp_path)
    places = {}
    for submodule, layer, io in (
        ("resid_post", 2, "out"),
        ("resid_post_layer_2", 2, "out"),
        ("resid_post_layer_3", 2, "out"),
        ("mlp", 2, "out"),
        ("resid_post", 2, "in"),
        (None, True, "out"),
    ):
        with_settings(folder, submodule_name=submodule, layer=layer, buffer={"io": io})
        places[submodule, io] = dictionaries.load(folder).reads
    assert [bool(place) for place in places.values()] == [True, True, False, False, False, False]
    assert set(places.values()) == {"blocks.2.hook_resid_post", ""}


def test_topk_takes_k_and_batch_topk_the_threshold():
    topk = dictionaries.load(REFERENCES / f"{LEARNING}AutoEncoderTopK")
    batch = dictionaries.load(REFERENCES / f"{LEARNING}BatchTopKSAE", dtype=torch.float64)
    assert topk.activation == TopK(3)
    assert isinstance(batch.activation, JumpReLU)
    assert batch.activation.threshold.dtype == torch.float64
    assert len(set(batch.activation.threshold.tolist())) == 1


class Executes:
    """An object whose unpickling writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_no_code_of_a_pickle_is_executed(tmp_path):
    folder = copied(REFERENCES / f"{LEARNING}AutoEncoder", tmp_path)
    written = tmp_path / "written"
    state = torch.load(folder / "ae.pt", weights_only=True)
    torch.save({**state, "bias": Executes(written)}, folder / "ae.pt")
    with pytest.raises(ModelLoadError, match=r"ae.pt holds more than weights and plain values"):
        dictionaries.load(folder)
    (folder / "ae.pt").write_bytes(pickle.dumps(Executes(written)))
    with pytest.raises(ModelLoadError, match=r"ae.pt"):
        dictionaries.load(folder)
    assert not written.exists()


# ---- Gemma Scope 2 -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "place"),
    [
        ("model.layers.1.output", Place(Point.RESID_POST, 1)),
        ("model.layers.0.self_attn.o_proj.input", Place(Point.Z, 0)),
        ("model.layers.1.pre_feedforward_layernorm.output", Place(Point.NORMALIZED, 1, "ln2")),
        (
            "model.language_model.layers.1.post_feedforward_layernorm.output",
            Place(Point.MLP_OUT, 1),
        ),
    ],
)
def test_modules_of_gemma_3_are_places_of_its_models(tmp_path, module, place):
    model = build("gemma3")
    attention = model.config.decoder.attention
    is_z = place.point is Point.Z
    width = attention.n_heads * attention.d_head if is_z else model.config.d_model
    draw = torch.Generator().manual_seed(0)
    shapes = {"w_enc": (width, 8), "w_dec": (8, width), "b_enc": (8,), "b_dec": (width,)}
    tensors = {name: torch.randn(x, generator=draw) for name, x in shapes.items()}
    save_file(tensors | {"threshold": torch.rand(8)}, tmp_path / "params.safetensors")
    settings = {"architecture": "jump_relu", "hf_hook_point_in": module}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    read = dictionaries.load(tmp_path)
    assert read.places(model) == (place, place)
    settings["hf_hook_point_in"] = "model.layers.0.other.output"
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(UnknownPlace, match=r"model.layers.0.other.output"):
        dictionaries.load(tmp_path).places(model)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"architecture": "topk"}, "architecture is 'topk'; 'jump_relu' was expected"),
        ({"affine_connection": False}, r"unknown: \['affine_skip_connection'\]"),
        ({"affine_connection": "no"}, "affine_connection is 'no'; true or false was expected"),
        ({"affine_connection": 1}, "affine_connection is 1; true or false was expected"),
    ],
)
def test_settings_of_gemma_scope_2_are_checked(tmp_path, changed, message):
    with pytest.raises(ModelLoadError, match=message):
        dictionaries.load(with_settings(copied(SCOPE, tmp_path), **changed))


def test_other_readers_of_cross_layer_transcoders_are_named(tmp_path):
    folder = copied(SCOPE, tmp_path)
    weights = folder / "params.safetensors"
    tensors = load_file(weights)
    w_dec = tensors["w_dec"][:, None].expand(-1, 3, -1).contiguous()
    save_file(tensors | {"w_dec": w_dec}, weights)
    with pytest.raises(ModelLoadError, match=r"\[16, 3, 6\]: it is one layer of a cross-layer"):
        dictionaries.load(folder)
    weights.rename(folder / "params_layer_3.safetensors")
    with pytest.raises(ModelLoadError, match=r"read it with interp.dictionaries.load_cross_layer"):
        dictionaries.load(folder)


def test_an_affine_path_may_not_be_missing(tmp_path):
    folder = copied(REFERENCES / "gemma_scope_2-transcoder", tmp_path)
    assert not hasattr(dictionaries.load(folder), "w_skip")
    with pytest.raises(ModelLoadError, match="missing: affine_skip_connection"):
        dictionaries.load(with_settings(folder, affine_connection=True))
    (folder / "config.json").unlink()
    with pytest.raises(ModelLoadError, match=r"config.json can't be read: No such file"):
        dictionaries.load(folder)


# ---- folders and the hub -----------------------------------------------------------------------


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a repository in a cache, offline."""
    cache = tmp_path / "cache"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    assert constants.is_offline_mode()
    store = cache / "models--org--name"
    (store / "refs").mkdir(parents=True)
    (store / "refs" / "main").write_text(COMMIT)
    folder = store / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("name", ["hub:org/name", f"hub:org/name@{COMMIT}", "hub:org/name@main"])
def test_a_dictionary_in_the_cache_is_read_offline(snapshot, name):
    source = REFERENCES / "sparsify-transcoder" / "layers.0.mlp"
    shutil.copytree(source, snapshot / "layers.0.mlp")
    read = dictionaries.load(name, inside="layers.0.mlp")
    assert read.writes == "blocks.0.hook_mlp_out"
    assert torch.equal(read.w_enc, dictionaries.load(source).w_enc)
    local = dictionaries.load(snapshot, inside="layers.0.mlp")
    assert torch.equal(local.w_enc, read.w_enc)


def test_a_set_in_the_cache_is_read_offline(snapshot):
    shutil.copytree(REFERENCES / "circuit_tracer-relu", snapshot / "sets/relu")
    with pytest.warns(UserWarning, match="2 layers were read, which are those in the cache"):
        assert len(dictionaries.load_set("hub:org/name", inside="sets/relu")) == 2
    with pytest.raises(ModelLoadError, match=r"read it with interp.dictionaries.load_set"):
        dictionaries.load("hub:org/name", inside="sets/relu")


def test_a_set_of_which_the_cache_lacks_layers_is_refused(snapshot, monkeypatch):
    """By the list of its configuration or of its repository; whole ones give no warning."""
    folder = Path(shutil.copytree(REFERENCES / "circuit_tracer-relu", snapshot / "sets"))
    names = [f"layer_{layer}.safetensors" for layer in range(4)]
    for published in (names, names[:2]):
        files = ["README.md", "layer_9.safetensors", *(f"sets/{name}" for name in published)]
        listing = lambda *_, files=files, **__: files  # noqa: E731
        monkeypatch.setattr("huggingface_hub.HfApi.list_repo_files", listing)
        if len(published) == 2:
            assert len(dictionaries.load_set("hub:org/name", inside="sets")) == 2
            continue
        with pytest.raises(ModelLoadError, match=r"missing: \['layer_2.saf.*'layer_3.saf"):
            dictionaries.load_set("hub:org/name", inside="sets")
    monkeypatch.undo()
    settings = folder / "config.yaml"
    text = settings.read_text()
    for listed, message in (
        (names, "lists 4 files, of which 2 are not in the folder: 'layer_2.*layer_3.safetensors"),
        ([f"hf://org/name/sets/{name}" for name in names], "missing: .*layer_2.*layer_3"),
    ):
        settings.write_text(f"{text}\ntranscoders: {listed}\n")
        with pytest.raises(ModelLoadError, match=message):
            dictionaries.load_set(folder)


def test_only_files_of_the_dictionary_are_requested(snapshot, monkeypatch):
    asked = []

    def noted(repo, *, revision, allow_patterns, local_files_only=False):
        asked.append((repo, revision, allow_patterns, local_files_only))
        shutil.copytree(SCOPE, snapshot / "a/b", dirs_exist_ok=not local_files_only)
        return str(snapshot)

    monkeypatch.setattr("huggingface_hub.snapshot_download", noted)
    dictionaries.load("hub:org/name@v1", inside="a/b")
    ((repo, revision, patterns, is_local),) = asked
    assert (repo, revision, is_local) == ("org/name", "v1", True)
    assert {"a/b/cfg.json", "a/b/config.json", "a/b/ae.pt"} < set(patterns)
    assert all(pattern.startswith("a/b/") and "*" not in pattern for pattern in patterns)
    (snapshot / "a/b/params.safetensors").unlink()
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: str(snapshot))
    with pytest.raises(ModelLoadError, match="it has none of them"):
        dictionaries.load("hub:org/name@v1", inside="a/b")


def test_what_the_cache_lacks_fails_offline(snapshot):
    with pytest.raises(ModelLoadError, match="hub:org/other is not in the cache and can't be down"):
        dictionaries.load("hub:org/other")
    for inside in ("../up", "/root", "a*", "a//b"):
        with pytest.raises(InvalidInput, match="should be a path within the folder"):
            dictionaries.load("hub:org/name", inside=inside)
    assert snapshot.is_dir()
