"""Sets of transcoders of circuit-tracer: one dictionary for each layer, at its places."""

import shutil
from pathlib import Path

import pytest
import torch
from architectures import assert_close, build
from safetensors.torch import load_file, save_file

import interp
from interp import Place, Point, dictionaries
from interp.dictionaries import JumpReLU, ReLU, SkipDictionary, TopK
from interp.errors import ModelLoadError
from interp.model.context import Context

REFERENCES = Path(__file__).with_name("references")
KINDS = {"jumprelu": JumpReLU, "relu": ReLU, "topk": TopK}
BOUND = 1e-6
"""Of differences in float32, relative to the largest number."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a set with thresholds."""
    return Path(shutil.copytree(REFERENCES / "circuit_tracer-jumprelu", tmp_path / "set"))


def settings(folder: Path, text: str) -> Path:
    """The same folder, with lines in front of its settings; a later one of a name is removed."""
    path = folder / "config.yaml"
    names = {line.split(":")[0] for line in text.splitlines()}
    rest = [x for x in path.read_text().splitlines() if x.split(":")[0] not in names]
    path.write_text("\n".join([text, *rest]))
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_each_layer_computes_what_circuit_tracer_computes(kind):
    path = REFERENCES / f"circuit_tracer-{kind}"
    reference = load_file(path / "reference.safetensors")
    transcoders = dictionaries.load_set(path)
    assert len(transcoders) == len(reference["x"]) == 2
    for layer, transcoder in enumerate(transcoders):
        x, features = reference["x"][layer], reference["features"][layer]
        assert type(transcoder.activation) is KINDS[kind]
        assert isinstance(transcoder, SkipDictionary) == (kind == "relu")
        assert_close(transcoder.encode(x), features, BOUND)
        assert_close(transcoder.reconstruct(x), reference["written"][layer], BOUND)
        assert 0 < (features != 0).float().mean() < 1
        assert (features < 0).any() == (kind == "topk")
        assert transcoder.reads == f"blocks.{layer}.mlp.hook_in"
        assert transcoder.writes == f"blocks.{layer}.mlp.hook_out"


@pytest.mark.parametrize(
    ("architecture", "reads", "writes"),
    [
        ("gpt2", Place(Point.NORMALIZED, 1, "ln2"), Place(Point.MLP_OUT, 1)),
        ("gemma3", Place(Point.NORMALIZED, 1, "ln2"), Place(Point.MLP_RAW, 1)),
        ("olmo2", Place(Point.MLP_IN, 1), Place(Point.MLP_RAW, 1)),
        ("bert", Place(Point.MLP_IN, 1), Place(Point.MLP_OUT, 1)),
    ],
)
def test_places_are_the_input_and_output_of_the_mlp_itself(tmp_path, architecture, reads, writes):
    model = build(architecture)
    width = model.config.d_model
    shapes = {"W_enc": (8, width), "W_dec": (8, width), "b_enc": (8,), "b_dec": (width,)}
    shutil.copy(REFERENCES / "circuit_tracer-relu" / "config.yaml", tmp_path)
    for layer in range(2):
        tensors = {name: torch.randn(shape) for name, shape in shapes.items()}
        save_file(tensors, tmp_path / f"layer_{layer}.safetensors")
    transcoders = dictionaries.load_set(tmp_path, dtype=model.dtype)
    assert transcoders[1].places(model) == (reads, writes)
    tokens = torch.tensor([[1, 2, 3]])
    plain = interp.run(model, tokens, record=[reads, writes])
    error = transcoders[1].error(plain.cache[reads], plain.cache[writes])
    view = interp.with_dictionaries(model, transcoders)
    run = interp.run(view, tokens, record=["features_error"])
    assert torch.equal(run.logits, plain.logits)
    assert_close(run.cache["features_error", 1], error, 1e-12)
    mlp = model.stacks[-1].block(1).mlp
    context = Context(torch.arange(3)[None])
    assert_close(mlp(plain.cache[reads], context), plain.cache[writes], 1e-12)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model_kind: cross_layer_transcoder", "'cross_layer_transcoder', whose features write to"),
        ("model_kind: other", "model_kind is 'other'; 'transcoder_set' was expected"),
        ("feature_input_hook: [1]", r"feature_input_hook is \[1\]; a name within a layer"),
        ("feature_input_hook: ln2.hook_normalized", "before the gain of an RMS norm .*pass reads="),
        ("activation: gelu", "activation is 'gelu', and layer_0.safetensors has the tensor"),
        ("activation: topk\nk: 3", "activation is 'topk', and layer_0.safetensors has the tensor"),
        ("transcoders: hf://org/name/a.safetensors", "transcoders is 'hf.*; a list of files was"),
        ("transcoders: [a.safetensors]", "a.safetensors can't be read"),
        ("transcoders: [../a.safetensors]", r"unexpected: \['layer_1.safetensors'\]"),
        ("scan: &a [x]\nmore: [*a, *a]", r"can't be read: it has references \(\*name\)"),
        ("scan: !!python/object/apply:os.getcwd []", "config.yaml can't be read"),
        ("scan: [", "config.yaml can't be read"),
        ("scan: " + "[" * 50_000, "it is nested deeper than 8 levels"),
        ("scan: " + "x" * 2**17, "config.yaml can't be read: it is larger"),
    ],
)
def test_settings_of_a_set_are_checked(folder, text, message):
    with pytest.raises(ModelLoadError, match=message):
        dictionaries.load_set(settings(folder, text))


@pytest.mark.parametrize("k", ["0", "17", "true", "three", "null"])
def test_k_is_a_number_of_features(tmp_path, k):
    path = Path(shutil.copytree(REFERENCES / "circuit_tracer-topk", tmp_path / "set"))
    with pytest.raises(ModelLoadError, match=r"k is .*; an integer from 1 to 16 was expected"):
        dictionaries.load_set(settings(path, f"k: {k}"))


def test_files_of_other_repositories_are_stored_first(folder):
    uris = [f"hf://org/name/layer_{layer}.safetensors?revision=main" for layer in range(2)]
    listed = settings(folder, f"transcoders: {uris}")
    assert len(dictionaries.load_set(listed)) == 2
    (folder / "layer_1.safetensors").rename(folder / "last.safetensors")
    with pytest.raises(ModelLoadError, match=r"missing: \['layer_1.safetensors'\]"):
        dictionaries.load_set(folder)
    (folder / "layer_0.safetensors").rename(folder / "first.safetensors")
    with pytest.raises(ModelLoadError, match=r"lists 'hf://org/name/layer_0.*Download them first"):
        dictionaries.load_set(folder)
    named = settings(folder, "transcoders: [last.safetensors, first.safetensors]")
    expected = load_file(folder / "last.safetensors")["W_enc"].T
    assert torch.equal(dictionaries.load_set(named)[0].w_enc, expected)


def test_a_norm_without_gain_is_read_on_request(folder):
    settings(folder, "feature_input_hook: ln2.hook_normalized")
    (first, _) = dictionaries.load_set(folder, reads="ln2.hook_normalized")
    assert first.reads == "blocks.0.ln2.hook_normalized"
    assert first.writes == "blocks.0.mlp.hook_out"


def test_layers_of_a_set_are_checked(folder):
    path = folder / "layer_1.safetensors"
    tensors = load_file(path)
    negative = tensors["activation_function.threshold"] - 9
    for changed, message in (
        ({"activation_function.threshold": negative}, "keeps negative features"),
        ({"log_thresholds": torch.zeros(16)}, r"unknown: \['log_thresholds'\]"),
        ({"W_skip": torch.zeros(6, 5)}, r"W_skip has the shape \[6, 5\]; expected \[6, 6\]"),
        ({"b_dec": torch.full((6,), torch.inf)}, "b_dec has values that are not finite"),
        ({name: x[:8] for name, x in tensors.items() if name != "b_dec"}, "should have the same s"),
    ):
        save_file({name: x.contiguous() for name, x in (tensors | changed).items()}, path)
        with pytest.raises(ModelLoadError, match=message):
            dictionaries.load_set(folder)


def test_load_of_a_set_refers_to_load_set(folder):
    with pytest.raises(ModelLoadError, match=r"it is a set .*read it with .*dictionaries.load_set"):
        dictionaries.load(folder)
    with pytest.raises(ModelLoadError, match=r"config.yaml can't be read: No such file"):
        dictionaries.load_set(REFERENCES)
