"""Dictionaries compute what the libraries that wrote them compute, or are refused.

``references`` has small dictionaries with random weights, written by SAELens 6.54.12, sparsify
1.3.3, dictionary-learning 0.1.0 and circuit-tracer 0.5.0, and what these compute with them;
``tools/dictionary_references.py`` wrote it.
"""

import json
import shutil
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from architectures import assert_close, build
from safetensors.torch import load_file, save_file

import interp
from interp import Place, Point, dictionaries
from interp.dictionaries import Dictionary, Gated, GroupMax, JumpReLU, ReLU, SkipDictionary, TopK
from interp.errors import InvalidInput, ModelLoadError

REFERENCES = Path(__file__).with_name("references")
FOLDERS = {
    path.relative_to(REFERENCES).parts[0]: path.parent
    for path in sorted(REFERENCES.rglob("reference.safetensors"))
    if not (path.parent / "config.yaml").exists()
}
"""Of one dictionary each; sets are those of ``test_sets.py``."""
BOUND = 1e-6
"""Of differences in float32, relative to the largest number."""
SAELENS, SPARSIFY = FOLDERS["saelens-jumprelu"], FOLDERS["sparsify-topk"]

STREAM = "blocks.0.hook_resid_post"
AROUND = ("blocks.0.hook_mlp_in", "blocks.0.hook_mlp_out")
ACTIVATIONS = [
    ReLU(),
    JumpReLU(torch.linspace(0, 1, 16, dtype=torch.float64)),
    TopK(3),
    TopK(3, keeps_negative=True),
    GroupMax(4),
]


def drawn(activation, *, d_in=6, n_features=16, d_out=6, b_in=True) -> Dictionary:
    """A dictionary with random weights in float64."""
    torch.manual_seed(1)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64)  # noqa: E731
    b_dec = draw(d_out)
    return Dictionary(
        w_enc=draw(d_in, n_features),
        b_enc=draw(n_features),
        b_in=b_dec if b_in else torch.zeros(d_in, dtype=torch.float64),
        w_dec=draw(n_features, d_out),
        b_dec=b_dec,
        activation=activation,
    )


def copied(folder: Path, tmp_path: Path, **settings) -> Path:
    """A copy of a folder with other settings."""
    into = tmp_path / folder.name
    shutil.copytree(folder, into)
    changed = json.loads((into / "cfg.json").read_text()) | settings
    (into / "cfg.json").write_text(json.dumps(changed))
    return into


# ---- agreement ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FOLDERS)
def test_a_dictionary_computes_what_its_library_computes(name):
    dictionary = dictionaries.load(FOLDERS[name])
    reference = load_file(FOLDERS[name] / "reference.safetensors")
    features = dictionary.encode(reference["x"])
    written = dictionary.reconstruct(reference["x"])
    assert_close(features, reference["features"], BOUND)
    assert_close(written, reference["written"], BOUND)
    assert 0 < (features > 0).float().mean() < 1
    assert (features - reference["features"].roll(1, -1)).abs().max() > 0.1


@pytest.mark.parametrize("reads_and_writes", [(STREAM, STREAM), AROUND], ids=["stream", "mlp"])
@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.parametrize("subtracts", ["b_dec", "nothing", "another vector"])
@pytest.mark.parametrize(
    "activation", ACTIVATIONS, ids=["relu", "jumprelu", "topk", "topk-signed", "groupmax"]
)
def test_a_saved_dictionary_is_the_same_or_refused(
    activation, subtracts, skips, reads_and_writes, tmp_path
):
    """Reading gives the same function at the same places, whatever SAELens has a name for."""
    reads, writes = reads_and_writes
    dictionary = replace(drawn(activation, b_in=subtracts == "b_dec"), reads=reads, writes=writes)
    if subtracts == "another vector":
        dictionary = replace(dictionary, b_in=dictionary.b_dec + 1)
    if skips:
        parts = {field.name: getattr(dictionary, field.name) for field in fields(dictionary)}
        dictionary = SkipDictionary(**parts, w_skip=dictionary.w_enc[:, :6])
    is_transcoder = skips or reads != writes
    has_name = isinstance(activation, ReLU | JumpReLU) or (
        isinstance(activation, TopK) and not activation.keeps_negative and not is_transcoder
    )
    subtracts_what_it_may = subtracts == "nothing" or (subtracts == "b_dec" and not is_transcoder)
    if not (has_name and subtracts_what_it_may):
        with pytest.raises(InvalidInput, match="SAELens has no"):
            dictionaries.save(dictionary, tmp_path / "saved")
        assert not (tmp_path / "saved").exists()
        return
    dictionaries.save(dictionary, tmp_path / "saved")
    read = dictionaries.load(tmp_path / "saved", dtype=torch.float64)
    assert (read.reads, read.writes) == (reads, writes)
    x = torch.randn(9, 6, dtype=torch.float64)
    assert torch.equal(read.encode(x), dictionary.encode(x))
    assert_close(read.reconstruct(x), dictionary.reconstruct(x), 1e-14)  # W_skip is transposed


def test_every_kind_is_compared():
    kinds = {type(dictionaries.load(folder).activation) for folder in FOLDERS.values()}
    assert kinds == {ReLU, JumpReLU, TopK, GroupMax, Gated}
    assert sum(isinstance(dictionaries.load(x), SkipDictionary) for x in FOLDERS.values()) == 3


def test_gemma_scope_subtracts_nothing_from_the_input(tmp_path):
    dictionary = drawn(JumpReLU(torch.rand(16, dtype=torch.float64)), b_in=False)
    names = {"W_enc": "w_enc", "W_dec": "w_dec", "b_enc": "b_enc", "b_dec": "b_dec"}
    arrays = {name: getattr(dictionary, field).numpy() for name, field in names.items()}
    arrays["threshold"] = dictionary.activation.threshold.numpy()
    np.savez(tmp_path / "params.npz", **arrays)
    read = dictionaries.load(tmp_path, reads="blocks.1.hook_resid_post", dtype=torch.float64)
    x = torch.randn(5, 6, dtype=torch.float64)
    h = x @ read.w_enc + read.b_enc
    expected = torch.where(h > torch.from_numpy(arrays["threshold"]), h.clamp(min=0), 0)
    assert torch.equal(read.encode(x), expected)
    assert read.writes == "blocks.1.hook_resid_post"
    np.savez(tmp_path / "params.npz", **arrays, scaling_factor=np.ones(1))
    with pytest.raises(ModelLoadError, match=r"unknown: \['scaling_factor'\]"):
        dictionaries.load(tmp_path)


# ---- laws --------------------------------------------------------------------------------------


def test_topk_keeps_the_largest_and_only_what_is_above_zero():
    x = torch.randn(50, 6, dtype=torch.float64)
    dictionary = drawn(TopK(3))
    h = (x - dictionary.b_in) @ dictionary.w_enc + dictionary.b_enc
    features = dictionary.encode(x)
    assert ((features > 0).sum(-1) <= 3).all()
    third = h.topk(3).values[:, 2:]
    assert torch.equal(features, torch.where(h >= third, h, 0).clamp(min=0))
    below = Dictionary(**vars(dictionary) | {"b_enc": dictionary.b_enc - 100})
    assert torch.equal(below.encode(x), torch.zeros_like(h))


def test_error_and_reconstruction_are_the_target():
    x, target = torch.randn(2, 5, 6, dtype=torch.float64), torch.randn(2, 5, 6).double()
    plain = drawn(ReLU())
    skip = SkipDictionary(**vars(plain), w_skip=torch.randn(6, 6, dtype=torch.float64))
    for dictionary in (plain, skip):
        whole = dictionary.reconstruct(x) + dictionary.error(x, target)
        assert_close(whole, target, 1e-12)
    assert_close(skip.reconstruct(x) - plain.reconstruct(x), x @ skip.w_skip, 1e-12)
    assert (skip.decode(skip.encode(x)) - skip.reconstruct(x)).abs().max() > 0.1


def test_what_features_write_is_a_sum_over_features():
    dictionary = drawn(Gated(*torch.randn(3, 16, dtype=torch.float64)))
    features = dictionary.encode(torch.randn(4, 6, dtype=torch.float64))
    each = features[..., None] * dictionary.w_dec
    assert_close(each.sum(-2) + dictionary.b_dec, dictionary.decode(features), 1e-12)


# ---- places ------------------------------------------------------------------------------------


def test_places_are_those_of_a_model_of_the_same_width(tmp_path):
    model = build("gpt2")
    width = model.config.d_model
    dictionary = drawn(ReLU(), d_in=width, d_out=width)
    at = Dictionary(**vars(dictionary) | {"reads": "blocks.0.hook_resid_post", "writes": "embed"})
    assert at.places(model) == (Place(Point.RESID_POST, 0), Place(Point.EMBED))
    at_heads = dict.fromkeys(("reads", "writes"), "blocks.1.attn.hook_z")
    heads = Dictionary(**vars(dictionary) | at_heads)
    assert heads.places(model)[0] == Place(Point.Z, 1)
    cache = interp.run(model, torch.tensor([[1, 2, 3]]), record=["z", "resid_post"]).cache
    assert heads.encode(cache["z", 1].flatten(-2)).shape == (1, 3, 16)
    with pytest.raises(
        InvalidInput, match=r"reads 6 numbers a token at .* in this model they are 12"
    ):
        dictionaries.load(SAELENS).places(model)
    with pytest.raises(InvalidInput, match="does not say what it reads; pass reads="):
        dictionary.places(model)
    assert dictionaries.load(SPARSIFY).reads == "blocks.0.hook_mlp_out"
    transcoder = dictionaries.load(FOLDERS["sparsify-transcoder"])
    assert transcoder.reads == "blocks.0.ln2.hook_normalized"
    assert "TopK, 6 → 6, blocks.0.ln2.hook_normalized → blocks.0.hook_mlp_out" in repr(transcoder)


# ---- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"architecture": "temporal"}, "architecture 'temporal' are not read; those that are"),
        ({"normalize_activations": "layer_norm"}, "normalize_activations is 'layer_norm', which"),
        ({"normalize_activations": True}, "normalize_activations is 'expected_average_only_in'"),
        ({"activation_fn": "tanh-relu"}, "activation_fn is 'tanh-relu', which changes"),
        (
            {"architecture": "gated"},
            r"missing: b_gate, b_mag, r_mag, unknown: \['b_enc', 'threshold'\]",
        ),
        ({"metadata": {"hook_head_index": 3}}, "hook_head_index is 3, which changes"),
    ],
)
def test_what_would_be_computed_otherwise_is_refused(tmp_path, settings, message):
    with pytest.raises(ModelLoadError, match=message):
        dictionaries.load(copied(SAELENS, tmp_path, **settings))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"activation": "relu"}, "'relu' is unknown"),
        ({"k": 99}, "k is 99; an integer from 1 to 16 was expected"),
    ],
)
def test_settings_of_sparsify_are_checked(tmp_path, settings, message):
    with pytest.raises(ModelLoadError, match=message):
        dictionaries.load(copied(SPARSIFY, tmp_path, **settings))


def test_files_of_versions_before_6_have_other_names(tmp_path):
    folder = copied(FOLDERS["saelens-topk"], tmp_path)
    old = {"hook_point": "blocks.0.hook_mlp_out", "activation_fn_str": "topk"}
    old |= {"activation_fn_kwargs": {"k": 3}, "normalize_activations": False}
    (folder / "cfg.json").write_text(json.dumps(old))
    read, expected = dictionaries.load(folder), dictionaries.load(FOLDERS["saelens-topk"])
    x = torch.randn(4, 6)
    assert torch.equal(read.encode(x), expected.encode(x))
    assert read.reads == read.writes == "blocks.0.hook_mlp_out"


def test_damaged_files_are_refused(tmp_path):
    folder = copied(SAELENS, tmp_path)
    weights = folder / "sae_weights.safetensors"
    tensors = load_file(weights)
    for changed, message in (
        ({"W_dec": tensors["W_dec"].T.contiguous()}, r"W_dec has the shape \[6, 16\]; expected"),
        ({"b_enc": tensors["b_enc"] * torch.nan}, "b_enc has values that are not finite numbers"),
        ({"W_enc": tensors["W_enc"].int()}, "W_enc has the dtype torch.int32"),
    ):
        save_file(tensors | changed, weights)
        with pytest.raises(ModelLoadError, match=message):
            dictionaries.load(folder)
    save_file(tensors | {"b_enc": tensors["b_enc"] + 1e6}, weights)
    assert dictionaries.load(folder).b_enc.max() > 1e5
    with pytest.raises(ModelLoadError, match="not finite numbers in float16"):
        dictionaries.load(folder, dtype=torch.float16)
    weights.write_bytes(b"\0" * 100)
    with pytest.raises(ModelLoadError, match="can't be read"):
        dictionaries.load(folder)


def test_nothing_is_unpickled(tmp_path):
    np.savez(tmp_path / "params.npz", W_enc=np.array([{}], dtype=object))
    with pytest.raises(ModelLoadError, match="can't be read"):
        dictionaries.load(tmp_path)
    (tmp_path / "params.npz").rename(tmp_path / "ae.bin")
    with pytest.raises(ModelLoadError, match="it has none of them"):
        dictionaries.load(tmp_path)
    with pytest.raises(InvalidInput, match="should be a floating-point dtype"):
        dictionaries.load(SAELENS, dtype=torch.int8)
