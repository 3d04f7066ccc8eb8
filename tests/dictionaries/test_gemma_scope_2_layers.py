"""Cross-layer transcoders of Gemma Scope 2 compute the published formula, or are refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from architectures import assert_close, assert_identical, build, tokens_of
from safetensors.torch import load_file, save_file

import analyses
import interp
from interp import dictionaries, run
from interp.dictionaries import CrossLayerTranscoder, SkipDictionary, reconstruction_edits
from interp.errors import InvalidInput, ModelLoadError

N_FEATURES, SKIP = 5, "affine_skip_connection"
SETTINGS = {
    "hf_hook_point_in": "model.layers.{all}.pre_feedforward_layernorm.output",
    "hf_hook_point_out": "model.layers.{all}.post_feedforward_layernorm.output",
    "width": 262080,
    "model_name": "google/gemma-3-270m-pt",
    "architecture": "jump_relu",
    "l0": 150,
    "affine_connection": False,
    "type": "clt",
}
"""The configuration of clt/width_262k_l0_big of google/gemma-scope-2-270m-pt."""
Layers = list[dict[str, torch.Tensor]]


def written(folder: Path, *, affine: bool) -> Layers:
    """Files of a transcoder of the test model of Gemma 3, and their tensors."""
    model, generator = build("gemma3"), torch.Generator().manual_seed(3)
    draw = lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)  # noqa: E731
    d, n = model.d_model, model.n_layers
    layers: Layers = []
    for layer in range(n):
        tensors = {
            "w_enc": draw(d, N_FEATURES),
            "b_enc": draw(N_FEATURES),
            "threshold": draw(N_FEATURES).abs() / 9,
            "w_dec": draw(N_FEATURES, n, d),
            "b_dec": draw(d),
            **({SKIP: draw(d, d)} if affine else {}),
        }
        tensors["w_dec"][:, :layer] = 0
        save_file(tensors, folder / f"params_layer_{layer}.safetensors")
        layers.append(tensors)
    (folder / "config.json").write_text(json.dumps(SETTINGS | {"affine_connection": affine}))
    return layers


def published(layers: Layers, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Features and output of JumpReLUMultiLayerSAE of the tutorial; x is [layer … d_model]."""
    of = {name: torch.stack([tensors[name] for tensors in layers]) for name in layers[0]}
    h = torch.einsum("l...d,ldf->l...f", x, of["w_enc"]) + expand(of["b_enc"], x)
    f = h.relu() * (h > expand(of["threshold"], x))
    y = torch.einsum("l...f,lfmd->m...d", f, of["w_dec"]) + expand(of["b_dec"], x)
    return f, y + (torch.einsum("l...d,lde->l...e", x, of[SKIP]) if SKIP in of else 0.0)


def expand(vectors: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return vectors.view(len(vectors), *[1] * (x.ndim - 2), -1)


def load(folder: Path, **options: bool) -> CrossLayerTranscoder:
    return dictionaries.load_cross_layer(folder, dtype=torch.float64, **options)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("affine", [False, True])
def test_it_computes_the_published_formula_in_the_model(tmp_path, affine, lazy):
    """On what the MLPs of Gemma 3 read; without its skip, or with it transposed, it does not."""
    layers, transcoder = written(tmp_path, affine=affine), load(tmp_path, lazy=lazy)
    model, tokens = build("gemma3"), tokens_of("gemma3")
    pairs = transcoder.places(model)
    cache = run(model, *tokens, record=[place for pair in pairs for place in pair]).cache
    x = torch.stack([cache[read] for read, _ in pairs])
    features, y = published(layers, x)
    assert_close(transcoder.encode(x), features)
    assert_close(transcoder.reconstruct(x), y)
    assert 0 < (features != 0).double().mean() < 1
    assert (transcoder.w_skip is not None) == affine
    if affine:
        for skip in (None, transcoder.w_skip.mT):
            other = replace(transcoder, w_skip=skip)
            assert (other.reconstruct(x) - y).abs().max() > 0.1
    spliced = run(
        model,
        *tokens,
        record=[written for _, written in pairs],
        edits=reconstruction_edits(transcoder, [0]),
    )
    assert_close(spliced.cache[pairs[0][1]], y[0])
    view = interp.with_dictionaries(model, transcoder)
    assert_identical(view(*tokens), model(*tokens))
    assert_close(view.transcoder().reconstruct(x), y)
    assert transcoder.facts["model_name"] == "google/gemma-3-270m-pt"


def test_a_folder_is_opened_with_decoders_on_disk(tmp_path):
    written(tmp_path, affine=False)
    opened = dictionaries.load_any(tmp_path)
    assert isinstance(opened, CrossLayerTranscoder)
    assert not torch.is_tensor(opened.w_dec[0])
    for other in (dictionaries.load, dictionaries.load_set):
        with pytest.raises(ModelLoadError):
            other(tmp_path)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"type": "crosscoder"}, "type is 'crosscoder'; 'clt' was expected"),
        ({"architecture": "topk"}, "architecture is 'topk'; 'jump_relu' was expected"),
        ({"affine_connection": True}, "missing: affine_skip_connection"),
        ({"affine_connection": 1}, "true or false was expected"),
        ({"hf_hook_point_in": "model.layers.{5,9}.output"}, "a module of all layers was expected"),
        ({"hf_hook_point_out": None}, "hf_hook_point_out is None; a module of all layers"),
    ],
)
def test_a_configuration_that_means_something_else_is_refused(tmp_path, changed, message):
    written(tmp_path, affine=False)
    (tmp_path / "config.json").write_text(json.dumps(SETTINGS | changed))
    with pytest.raises(ModelLoadError, match=message):
        load(tmp_path)
    places = {"reads": "ln2.hook_normalized", "writes": "hook_mlp_out"}
    if "hf_hook" in next(iter(changed)):
        named = dictionaries.load_cross_layer(tmp_path, **places)
        assert named.reads[1] == "blocks.1.ln2.hook_normalized"


@pytest.mark.parametrize("lazy", [False, True])
def test_decoders_to_earlier_layers_are_refused(tmp_path, lazy):
    """The published formula sums over them; no forward can write them."""
    layers, model = written(tmp_path, affine=False), build("gemma3")
    path = tmp_path / "params_layer_1.safetensors"
    layers[1]["w_dec"][3, 0, 2] = 1e-3
    save_file(layers[1], path)
    x = torch.ones(model.n_layers, 4, model.d_model, dtype=torch.float64)
    layers[1]["w_enc"], layers[1]["b_enc"] = layers[1]["w_enc"] * 0, layers[1]["b_enc"] * 0 + 9
    save_file(layers[1], path)
    with pytest.raises(ModelLoadError, match="decoders to layers before that of their features"):
        load(tmp_path, lazy=lazy).reconstruct(x)


def test_files_are_checked(tmp_path):
    layers = written(tmp_path, affine=True)
    path, last = tmp_path / "params_layer_0.safetensors", len(layers) - 1
    path.with_name(f"params_layer_{last}.safetensors").rename(tmp_path / "elsewhere")
    with pytest.raises(ModelLoadError, match=rf"missing: \['params_layer_{last}.safetensors'\]"):
        load(tmp_path)
    (tmp_path / "elsewhere").rename(tmp_path / f"params_layer_{last}.safetensors")
    whole = load_file(path)
    wrong = [
        ({k: x for k, x in whole.items() if k != "threshold"}, "missing: threshold"),
        (whole | {"more": torch.zeros(1)}, "unknown: 'more'|unknown: .'more'"),
        (whole | {"w_dec": whole["w_dec"][:, 0].contiguous()}, "with the axes .feature layer"),
        (whole | {"b_enc": torch.full_like(whole["b_enc"], torch.nan)}, "not finite"),
    ]
    for tensors, message in wrong:
        save_file(tensors, path)
        with pytest.raises(ModelLoadError, match=message):
            load(tmp_path)


def test_a_graph_and_a_check_take_the_skip(tmp_path):
    """Of transcoders that write one layer each, they are those of a view with these."""
    written(tmp_path, affine=True)
    model, (tokens,) = build("gemma3"), tokens_of("gemma3")
    loaded = load(tmp_path)
    several = [
        SkipDictionary(
            w_enc=loaded.w_enc[layer],
            b_enc=loaded.b_enc[layer],
            b_in=torch.zeros_like(loaded.b_dec[layer]),
            w_dec=loaded.w_dec[layer][:, 0],
            b_dec=loaded.b_dec[layer],
            activation=loaded.activation[layer],
            reads=loaded.reads[layer],
            writes=loaded.writes[layer],
            w_skip=loaded.w_skip[layer],
        )
        for layer in range(model.n_layers)
    ]
    across, view = CrossLayerTranscoder.of(several), interp.with_dictionaries(model, several)
    options = {"targets": 3, "max_nodes": 10**6, "node_share": 1.0, "edge_share": 1.0}
    graph = analyses.attribution_graph(model, tokens[:1], units=across, **options)
    other = analyses.attribution_graph(view, tokens[:1], units="features", **options)
    assert {node.name for node in graph.nodes} == {node.name for node in other.nodes}
    assert graph.carriers == other.carriers
    skips = [number for number, name in enumerate(graph.carriers) if name.endswith(" skip")]
    assert float(graph.terms[:, skips].abs().max()) > 1e-3
    parts = [dict(zip(each.edges, each.terms, strict=True)) for each in (graph, other)]
    assert parts[0].keys() == parts[1].keys()
    for edge, terms in parts[0].items():
        assert_close(terms, parts[1][edge])
    checks = [
        analyses.check_dictionaries(model, tokens, transcoder=across),
        analyses.check_dictionaries(view, tokens),
    ]
    assert_close(checks[0].spliced[: len(several)], checks[1].spliced)
    assert_close(checks[0].unexplained[: len(several)], checks[1].unexplained)
    with pytest.raises(InvalidInput, match="have no skip"):
        dictionaries.save_cross_layer(across, tmp_path / "saved")
    assert analyses.attribution_graph(model, tokens[:1], units=loaded, **options).edges
