"""Cross-layer transcoders: files, what they compute, edits, graphs, and what they explain."""

import json
import shutil
from dataclasses import replace
from functools import cache
from importlib import import_module
from inspect import unwrap
from pathlib import Path

import pytest
import torch
from architectures import assert_close, assert_identical, build, tokens_of
from safetensors.torch import load_file, save_file

import interp
from analyses import attribution_graph, check_dictionaries, scale_units
from analyses.attribution_graph import filling
from analyses.attribution_graph.cross_layer import cross_layer_units
from interp import Place, Point, dictionaries, edits, metrics, run, sweep
from interp.dictionaries import (
    CrossLayerTranscoder,
    JumpReLU,
    ReLU,
    TopK,
    feature_edits,
    reconstruction_edits,
)
from interp.errors import InvalidInput, ModelLoadError

REFERENCES = Path(__file__).with_name("references")
KINDS = {"relu": ReLU, "jumprelu": JumpReLU}
N_FEATURES = 7
IN_FLOAT32 = 1e-6
"""Of differences in float32, relative to the largest number."""
EVERYTHING = {"max_nodes": 10**6, "node_share": 1.0, "edge_share": 1.0}


# ---- files --------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a transcoder with thresholds."""
    source = REFERENCES / "circuit_tracer-cross-layer-jumprelu"
    return Path(shutil.copytree(source, tmp_path / "transcoder"))


def folder_of(kind: str) -> Path:
    return REFERENCES / f"circuit_tracer-cross-layer-{kind}"


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_it_computes_what_circuit_tracer_computes(kind, lazy):
    reference = load_file(folder_of(kind) / "reference.safetensors")
    transcoder = dictionaries.load_cross_layer(folder_of(kind), lazy=lazy)
    features = transcoder.encode(reference["x"])
    assert_close(features, reference["features"], IN_FLOAT32)
    assert_close(transcoder.reconstruct(reference["x"]), reference["written"], IN_FLOAT32)
    assert {type(each) for each in transcoder.activation} == {KINDS[kind]}
    assert 0 < (features != 0).float().mean() < 1
    assert transcoder.reads[2] == "blocks.2.hook_resid_mid"
    assert transcoder.writes[2] == "blocks.2.hook_mlp_out"


def test_a_feature_that_writes_its_own_layer_alone_is_another_function():
    """The faults of some readers: decoders summed over targets, and those of later layers lost."""
    reference = load_file(folder_of("relu") / "reference.safetensors")
    transcoder = dictionaries.load_cross_layer(folder_of("relu"))
    summed = [w_dec[:].sum(1, keepdim=True) for w_dec in transcoder.w_dec]
    own = [w_dec[:][:, :1] for w_dec in transcoder.w_dec]
    for decoders in (summed, own):
        written = torch.stack(
            [f @ w[:, 0] for f, w in zip(reference["features"], decoders, strict=True)]
        )
        assert (written + transcoder.b_dec[:, None] - reference["written"]).abs().max() > 0.1


def test_decoders_that_stay_on_disk_are_read_when_they_are_used(folder):
    x = load_file(folder / "reference.safetensors")["x"]
    lazy = dictionaries.load_cross_layer(folder, lazy=True)
    whole = dictionaries.load_cross_layer(folder)
    assert_identical(lazy.reconstruct(x), whole.reconstruct(x))
    doubled = lazy.to(x.device, torch.float64)
    assert_close(doubled.reconstruct(x.double()).float(), whole.reconstruct(x), IN_FLOAT32)
    without = torch.full_like(x, -1e3)
    assert_identical(lazy.reconstruct(without), whole.reconstruct(without))
    path = folder / "W_dec_1.safetensors"
    tensors = load_file(path)
    save_file({"W_dec_1": torch.full_like(tensors["W_dec_1"], torch.inf)}, path)
    with pytest.raises(ModelLoadError, match="not finite"):
        lazy.reconstruct(x)
    path.unlink()
    with pytest.raises(ModelLoadError, match=r"W_dec_1.safetensors can't be read"):
        lazy.reconstruct(x)


@pytest.mark.parametrize("lazy", [False, True])
def test_files_are_checked(folder, lazy):
    """Each change makes it another function, or none; without it the folder is read."""
    dictionaries.load_cross_layer(folder, lazy=lazy)
    enc, dec = load_file(folder / "W_enc_1.safetensors"), load_file(folder / "W_dec_1.safetensors")
    wrong = [
        ("enc", enc | {"threshold_1": enc["threshold_1"] - 9}, "keeps negative features"),
        ("enc", {k: x for k, x in enc.items() if k != "threshold_1"}, "missing: threshold"),
        ("enc", enc | {"W_skip_1": torch.zeros(6, 6)}, r"unknown: \['W_skip'\]"),
        ("enc", enc | {"b_dec_1": torch.full((6,), torch.nan)}, "not finite"),
        ("enc", enc | {"b_enc_1": enc["b_enc_1"][:3]}, r"b_enc has the shape \[3\]"),
        ("enc", {f"{k[:-2]}_2": x for k, x in enc.items()}, "should have the tensors"),
        ("dec", {"W_dec_1": dec["W_dec_1"][:, :1].contiguous()}, r"expected \[16, 2, 6\]"),
        ("dec", dec | {"more": torch.zeros(1)}, r"unknown: \['more'\]"),
        ("dec", {"W_dec_0": dec["W_dec_1"]}, "missing: W_dec_1"),
    ]
    for part, tensors, message in wrong:
        path = folder / f"W_{part}_1.safetensors"
        save_file(tensors, path)
        with pytest.raises(ModelLoadError, match=message):
            dictionaries.load_cross_layer(folder, lazy=lazy)
        save_file({"enc": enc, "dec": dec}[part], path)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ModelLoadError, match="can't be read"):
        dictionaries.load_cross_layer(folder, lazy=lazy)


def test_a_folder_that_lacks_files_is_refused(folder):
    for name in ("W_dec_2", "W_enc_1", "W_enc_0"):
        path = folder / f"{name}.safetensors"
        path.rename(folder / "elsewhere")
        with pytest.raises(ModelLoadError, match=r"missing: \["):
            dictionaries.load_cross_layer(folder)
        (folder / "elsewhere").rename(path)
    shutil.copy(folder / "W_dec_2.safetensors", folder / "W_dec_3.safetensors")
    with pytest.raises(ModelLoadError, match=r"unexpected: \['W_dec_3.safetensors'\]"):
        dictionaries.load_cross_layer(folder)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("model_kind: transcoder_set", "cross_layer_transcoder' was expected"),
        ("transcoders: ['hf://google/gemma-scope-2/params_layer_0.safetensors']", "another format"),
        ("activation: relu", "has thresholds, for which circuit-tracer computes jumprelu"),
        ("activation: topk", "whatever the settings say"),
        ("feature_input_hook: ln2.hook_normalized", "before the gain of an RMS norm"),
        ("feature_input_hook: [a]", "a name within a layer was expected"),
    ],
)
def test_settings_that_mean_something_else_are_refused(folder, line, message):
    path = folder / "config.yaml"
    name = line.split(":")[0]
    rest = [x for x in path.read_text().splitlines() if not x.startswith(name)]
    path.write_text("\n".join([line, *rest]))
    with pytest.raises(ModelLoadError, match=message):
        dictionaries.load_cross_layer(folder)


def test_other_readers_refer_to_this_one(folder):
    for load in (dictionaries.load, dictionaries.load_set):
        with pytest.raises(ModelLoadError, match=r"interp.dictionaries.load_cross_layer"):
            load(folder)
    named = dictionaries.load_cross_layer(folder, reads="hook_mlp_in", writes="mlp.hook_out")
    assert (named.reads[1], named.writes[1]) == ("blocks.1.hook_mlp_in", "blocks.1.mlp.hook_out")


# ---- features of a run -------------------------------------------------------------------------


STREAM, AFTER_NORM, TOP_K = "stream", "after norm", "top k"
VARIANTS = [
    *((name, ()) for name in ("gpt2", "llama", "neox", "gemma2")),
    ("gpt2", (STREAM,)),
    ("neox", (STREAM,)),
    ("gemma2", (AFTER_NORM, TOP_K)),
]
"""Models, and what their transcoders read, write and compute."""


@cache
def drawn(name: str, options: tuple[str, ...] = ()) -> CrossLayerTranscoder:
    """A transcoder of a model of the architecture."""
    return drawn_for(build(name), options)


def drawn_for(model: interp.Transformer, options: tuple[str, ...] = ()) -> CrossLayerTranscoder:
    """A transcoder with random weights, of which about half of the features are active."""
    generator = torch.Generator().manual_seed(5)
    draw = lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)  # noqa: E731
    mlps = [(n, step) for n, step in model.stacks[0].branches() if step.part == "mlp"]
    d, n = model.d_model, len(mlps)
    reads = [step.points.reads if STREAM in options else step.source() for _, step in mlps]
    reads = [Place(x) if isinstance(x, Point) else x for x in reads]
    writes = [step.points.writes if AFTER_NORM in options else step.f.out for _, step in mlps]
    hook = model.names.hooks
    jump = [JumpReLU(draw(N_FEATURES).abs() / 9) for _ in mlps]
    return CrossLayerTranscoder(
        w_enc=draw(n, d, N_FEATURES),
        b_enc=draw(n, N_FEATURES),
        w_dec=tuple(draw(N_FEATURES, n - layer, d) for layer in range(n)),
        b_dec=draw(n, d),
        activation=tuple([TopK(3)] * n if TOP_K in options else jump),
        reads=tuple(hook[replace(x, layer=layer)] for layer, x in enumerate(reads)),
        writes=tuple(hook[Place(x, layer)] for layer, x in enumerate(writes)),
    )


def state(name: str, transcoder: CrossLayerTranscoder, *changes) -> tuple[torch.Tensor, ...]:
    """Logits, what all layers read, and what they write."""
    pairs = transcoder.places(build(name))
    done = run(build(name), *tokens_of(name), record=[x for p in pairs for x in p], edits=changes)
    of_layers = [torch.stack([done.cache[x] for x in each]) for each in zip(*pairs, strict=True)]
    return done.logits, *of_layers


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=str)
def test_a_scaled_feature_changes_every_layer_that_it_writes(name, options):
    """y_m changes by (f′ − f) W_dec at m = l; later features see it through the stream."""
    transcoder = drawn(name, options)
    logits, x, y = state(name, transcoder)
    features = transcoder.encode(x)
    layer, last = 0, transcoder.n_layers - 1
    feature = int(features[layer].sum((0, 1)).argmax())
    of = feature_edits(transcoder, layer, feature, factor=3.0)
    assert len(of) == transcoder.n_layers
    edited, x_edited, y_edited = state(name, transcoder, *of)
    which = torch.tensor([feature])
    change = 2.0 * features[layer][..., [feature]]
    assert_close(y_edited[0] - y[0], change @ transcoder.writers(layer, which, 0))
    assert_identical(x_edited[0], x[0])
    # The MLP of a later layer, run on the changed stream, and the decoder to that layer.
    own_alone, x_own, y_own = state(name, transcoder, *of[:-1])
    assert_identical(x_own[last], x_edited[last])
    added = y_edited[last] - y_own[last]
    assert_close(added, change @ transcoder.writers(layer, which, last))
    assert (edited - own_alone).abs().max() > 1e-3
    assert (edited - logits).abs().max() > 1e-3


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=str)
def test_an_edit_that_changes_nothing_changes_no_bit(name, options):
    transcoder = drawn(name, options)
    inert = feature_edits(transcoder, 0, 2, factor=1.0)
    logits, *_ = state(name, transcoder)
    assert_identical(state(name, transcoder, *inert)[0], logits)
    set_to = feature_edits(transcoder, 0, 2, value=0.0)
    off = feature_edits(transcoder, 0, 2)
    zeroed, value = (state(name, transcoder, *each)[0] for each in (off, set_to))
    assert_close(zeroed, value)
    assert (zeroed - logits).abs().max() > 1e-3


def test_edits_of_several_features_add_up_and_have_positions():
    transcoder = drawn("gpt2")
    _, x, y = state("gpt2", transcoder)
    features = transcoder.encode(x)
    first, second = features[0].sum((0, 1)).topk(2).indices.tolist()
    both = [feature_edits(transcoder, 0, unit, pos=[1, -1]) for unit in (first, second)]
    _, _, changed = state("gpt2", transcoder, *both[0], *both[1])
    which = torch.tensor([first, second])
    expected = -features[0][..., which] @ transcoder.writers(0, which, 0)
    expected[:, [n for n in range(expected.shape[1]) if n not in (1, expected.shape[1] - 1)]] = 0
    assert_close(changed[0] - y[0], expected)


@pytest.mark.parametrize("name", ["gpt2", "neox"])
def test_sweeps_of_feature_edits_are_whole_forwards(name):
    transcoder, (ids,) = drawn(name), tokens_of(name)
    cases = [
        feature_edits(transcoder, layer, unit, pos=pos, factor=factor)
        for layer in range(transcoder.n_layers)
        for unit, pos, factor in ((1, None, 0.0), (4, -1, 2.0), (6, 2, -1.0))
    ]
    cases += [reconstruction_edits(transcoder), reconstruction_edits(transcoder, [1])]
    cases += [reconstruction_edits(transcoder, factor=2.0, pos=-1)]
    for metric in (metrics.loss(), metrics.logit(3, pos=-1)):
        swept = sweep(build(name), ids, cases, metric=metric).values
        for values, case in zip(swept, cases, strict=True):
            done = sweep(build(name), ids, [case], metric=metric).values[0]
            assert_close(values, done)
    whole = torch.stack([run(build(name), ids, edits=case).logits[:, -1, 3] for case in cases])
    assert_close(swept, whole.to(swept))
    assert len(swept.unique(dim=0)) > len(cases) // 2


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=str)
def test_reconstructions_in_place_of_outputs(name, options):
    """ŷ of every layer is computed from the stream in which the others are replaced too."""
    transcoder = drawn(name, options)
    _, x, y = state(name, transcoder, *reconstruction_edits(transcoder))
    assert_close(y, transcoder.reconstruct(x))
    _, _, y_last = state(name, transcoder, *reconstruction_edits(transcoder, [1]))
    _, x_plain, y_plain = state(name, transcoder)
    assert_close(y_last[1], transcoder.reconstruct(x_plain)[1])
    assert_identical(y_last[0], y_plain[0])
    assert (y_last[1] - y[1]).abs().max() > 1e-3
    assert_close(transcoder.error(x_plain, y_plain) + transcoder.reconstruct(x_plain), y_plain)


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=str)
def test_errors_are_scaled_at_positions(name, options):
    """y changes by (factor − 1) ε there, and at no other position; features are as they were."""
    transcoder = drawn(name, options)
    _, x, y = state(name, transcoder)
    error = transcoder.error(x, y)[1]
    of = reconstruction_edits(transcoder, [1], factor=3.0, pos=1)
    _, x_scaled, y_scaled = state(name, transcoder, *of)
    assert_close(y_scaled[1][:, 1] - y[1][:, 1], 2.0 * error[:, 1])
    assert error[:, 1].abs().max() > 1e-3
    assert_identical(y_scaled[1][:, [0, 2]], y[1][:, [0, 2]])
    assert_identical(x_scaled[1], x[1])
    _, _, same = state(name, transcoder, *reconstruction_edits(transcoder, factor=1.0))
    assert_close(same, y)
    with pytest.raises(InvalidInput, match="factor=nan should be a finite number"):
        reconstruction_edits(transcoder, factor=float("nan"))


def test_edits_are_data_with_a_hash_of_their_own():
    transcoder = drawn("gpt2")
    (edit, other), (same, _) = (feature_edits(transcoder, 0, unit) for unit in (1, 1))
    more = [feature_edits(transcoder, 0, 2)[0], feature_edits(transcoder, 0, 1, factor=0.5)[0]]
    of_other = feature_edits(replace(transcoder, b_enc=transcoder.b_enc + 1), 0, 1)[0]
    assert edit == same
    assert edit.digest == same.digest
    assert len({each.digest for each in (edit, other, *more, of_other)}) == 5
    assert json.dumps(edit.to_dict())
    for wrong in ((2, 0), (-1, 0), (0, 7), (0, True)):
        with pytest.raises(InvalidInput, match="should be a whole number from 0 to"):
            feature_edits(transcoder, *wrong)
    for wrong in ({"factor": float("nan")}, {"value": float("inf")}):
        with pytest.raises(InvalidInput, match="should be a finite number"):
            feature_edits(transcoder, 0, 0, **wrong)


def test_a_transcoder_of_another_model_is_refused():
    model, transcoder = build("gpt2"), drawn("gpt2")
    shifted = replace(transcoder, reads=transcoder.writes, writes=transcoder.reads)
    swapped = replace(transcoder, reads=transcoder.reads[::-1], writes=transcoder.writes[::-1])
    first_layer = dictionaries.CrossLayerTranscoder(
        w_enc=transcoder.w_enc[:1],
        b_enc=transcoder.b_enc[:1],
        w_dec=transcoder.w_dec[1:],
        b_dec=transcoder.b_dec[:1],
        activation=transcoder.activation[:1],
        reads=transcoder.reads[:1],
        writes=transcoder.writes[:1],
    )
    narrow = replace(transcoder, w_enc=transcoder.w_enc[:, :3])
    for wrong, message in (
        (shifted, "the former before the latter"),
        (swapped, "both should be in this layer"),
        (first_layer, "of a model with one stack of 1 layers"),
        (narrow, "another model"),
    ):
        with pytest.raises(InvalidInput, match=message):
            wrong.places(model)
    with pytest.raises(InvalidInput, match="another model"):
        interp.with_dictionaries(model, narrow)
    for changes in ({"w_dec": transcoder.w_dec[::-1]}, {"reads": transcoder.reads[:1]}):
        with pytest.raises(InvalidInput, match=r"w_dec has the shapes .* one for each layer"):
            replace(transcoder, **changes)
    with pytest.raises(InvalidInput, match="layers 1 to 1"):
        transcoder.writers(1, torch.tensor([0]), 0)


# ---- graphs --------------------------------------------------------------------------------------


LAWS = ["test_rows_sum_to_what_neurons_and_logits_read", "test_heads_and_bypass_sum_to_each_edge"]


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=str)
@pytest.mark.parametrize("law", LAWS)
def test_the_laws_of_graphs_hold(law, name, options, monkeypatch):
    graphs = import_module("tests.analyses.test_attribution_graph")
    model, transcoder = build(name), drawn(name, options)
    of_run = graphs.places_of_run
    places = [place for pair in transcoder.places(model) for place in pair]
    monkeypatch.setattr(graphs, "places_of_run", lambda m: [*{*of_run(m), *places}])
    monkeypatch.setattr(
        graphs, "neurons_of", lambda frozen: cross_layer_units(model, frozen, transcoder)
    )
    getattr(graphs, law)(name)


@pytest.mark.parametrize("law", LAWS)
def test_the_laws_hold_where_a_feature_writes_four_layers(law, monkeypatch):
    graphs = import_module("tests.analyses.test_attribution_graph")
    model = interp.load("python-4l").double()
    transcoder, of_run = drawn_for(model, (STREAM,)), graphs.places_of_run
    places = [place for pair in transcoder.places(model) for place in pair]
    monkeypatch.setattr(graphs, "build", lambda _: model)
    monkeypatch.setattr(graphs, "places_of_run", lambda m: [*{*of_run(m), *places}])
    monkeypatch.setattr(
        graphs, "neurons_of", lambda frozen: cross_layer_units(model, frozen, transcoder)
    )
    getattr(graphs, law)("gpt2")  # its tokens are tokens of this model too


def test_an_edge_is_the_sum_over_all_layers_that_a_feature_writes():
    """Without the decoder to a later layer, edges into the logits are others."""
    tokens, transcoder = tokens_of("gpt2")[0][:1], drawn("gpt2")
    first, last = transcoder.w_dec
    first = torch.cat([first[:, :1], 0 * first[:, 1:]], 1)
    own = replace(transcoder, w_dec=(first, last))
    graphs = [
        attribution_graph(build("gpt2"), tokens, targets=3, units=each, check=0, **EVERYTHING)
        for each in (transcoder, own)
    ]
    whole, less = (dict(zip(graph.edges, graph.effect.tolist(), strict=True)) for graph in graphs)
    model = build("gpt2")
    cache_ = run(model, tokens, record="all").cache
    x = torch.stack([cache_[read] for read, _ in transcoder.places(model)])
    f = transcoder.encode(x)[0, 0, -1]
    unit = int(f.argmax())
    edge = (f"L0F{unit}@{tokens.shape[1] - 1}", next(b for _, b in whole if b.startswith("logit")))
    scale = cache_["final_scale"][0, -1]
    direction = model.unembed.W_U[:, 3] - model.unembed.W_U.mean(1)
    norm = model.stacks[0].final_norm
    pulled, _ = norm.pull_back(direction[None], scale[None])
    vector = f[unit] * transcoder.writers(0, torch.tensor([unit]), 1)[0]
    # What it writes to the last MLP reaches the last position's logits through the norm alone.
    expected = float((pulled[0] @ vector).detach())
    assert whole[edge] - less.get(edge, 0.0) == pytest.approx(expected, abs=1e-9)
    assert abs(expected) > 1e-3


def test_paths_from_heads_through_features_sum_to_what_each_head_contributes(monkeypatch):
    """Features write several layers; edges from heads to the logits alone don't sum to it."""
    monkeypatch.setattr(filling, "STORED", 0.0)
    units = ["heads", drawn("gpt2")]
    tokens, settings = tokens_of("gpt2")[0][:1], {"targets": 3, "check": 0, **EVERYTHING}
    graph = attribution_graph(build("gpt2"), tokens, units=units, **settings)
    pairs = zip(graph.edges, graph.effect.tolist(), strict=True)
    direct = {writer: x for (writer, reader), x in pairs if reader.startswith("logit")}
    heads = [node for node in graph.nodes if node.kind == "head"]
    assert len(heads) > 5
    for node in heads:
        assert node.effect == pytest.approx(node.value, abs=1e-9)
    assert max(abs(direct.get(node.name, 0.0) - node.value) for node in heads) > 1e-3


@pytest.mark.parametrize("name", ["gpt2", "gemma2"])
def test_transcoders_of_one_layer_each_have_the_graph_of_their_view(name):
    """With decoders to later layers that are 0, all edges are those of per-layer transcoders."""
    of_view = import_module("tests.dictionaries.test_feature_graphs")
    model, tokens = build(name), tokens_of(name)[0][:1]
    several = []
    for layer, step in model.stacks[0].branches():
        if step.part == "mlp":
            places = replace(step.source(), layer=layer), Place(step.f.out, layer)
            names = [model.names.hooks[place] for place in places]
            made = of_view.transcoder(model.d_model, *names, layer, skip=False)
            zeros = torch.zeros_like(made.b_in)
            several.append(replace(made, activation=ReLU(), b_in=zeros))
    view, transcoder = interp.with_dictionaries(model, several), CrossLayerTranscoder.of(several)
    settings = {"targets": [3, 5], "check": 3, **EVERYTHING}
    expected = attribution_graph(view, tokens, units="features", **settings)
    graph = attribution_graph(model, tokens, units=transcoder, **settings)
    assert graph.edges == expected.edges
    assert_close(graph.effect, expected.effect, 1e-9)
    assert_close(graph.terms, expected.terms, 1e-9)
    for node, other in zip(graph.nodes, expected.nodes, strict=True):
        assert (node.name, node.promoted_tokens) == (other.name, other.promoted_tokens)
        assert node.exact == pytest.approx(other.exact, abs=1e-9, nan_ok=True)
    with pytest.raises(InvalidInput, match="should be one of each layer"):
        CrossLayerTranscoder.of([replace(each, b_in=each.b_in + 1) for each in several])


def test_removals_of_features_are_measured():
    """What the answer loses is what it loses by the edits of the feature in all layers."""
    model, tokens, transcoder = build("gpt2"), tokens_of("gpt2")[0][:1], drawn("gpt2")
    graph = attribution_graph(model, tokens, units=transcoder, targets=3, check=4, node_share=1.0)
    measured = [node for node in graph.nodes if node.exact == node.exact]
    assert measured
    assert {"feature", "error"} <= {node.kind for node in graph.nodes}
    for node in measured:
        off = feature_edits(transcoder, node.layer, node.neuron, pos=node.pos)
        logits = torch.stack([run(model, tokens, edits=e).logits[0, -1] for e in ([], off)])
        answer = logits[:, 3] - logits.mean(-1)
        assert float(answer[0] - answer[1]) == pytest.approx(node.exact, abs=1e-9)


def test_features_are_scaled_together_as_a_graph_names_them():
    """Measured by the edits of all of them in one forward, the later of which see the earlier."""
    model, tokens, transcoder = build("gpt2"), tokens_of("gpt2")[0][:1], drawn("gpt2")
    graph = attribution_graph(model, tokens, units=transcoder, targets=3, check=0, node_share=1.0)
    units = [node for node in graph.nodes if node.kind == "feature"]
    some = [next(node for node in units if node.layer == layer) for layer in (0, 1)]
    scaled = scale_units(
        model, tokens, [x.name for x in some], factor=2.5, targets=3, transcoder=transcoder
    )
    of = [feature_edits(transcoder, x.layer, x.neuron, factor=2.5, pos=x.pos) for x in some]
    logits = torch.stack(
        [run(model, tokens, edits=e).logits[0, -1] for e in ([], [*of[0], *of[1]])]
    )
    centred = logits[:, 3] - logits.mean(-1)
    assert float(scaled.effect[0]) == pytest.approx(float(centred[1] - centred[0]), abs=1e-9)
    assert abs(float(scaled.effect[0])) > 1e-3
    with pytest.raises(InvalidInput, match="layers of this model with features of an MLP: none"):
        scale_units(model, tokens, [some[0].name])


def test_transcoders_that_a_graph_can_not_take_are_refused():
    model, tokens, transcoder = build("gpt2"), tokens_of("gpt2")[0][:1], drawn("gpt2")
    before = tuple(f"blocks.{layer}.hook_resid_pre" for layer in range(2))
    after = tuple(f"blocks.{layer}.hook_resid_post" for layer in range(2))
    for wrong, message in (
        (replace(transcoder, reads=before), "the stream before its norm; this one reads"),
        (replace(transcoder, writes=after), "writes what MLPs write; this one writes"),
        ("experts", 'should be "neurons", "features", "mlps" or a cross-layer transcoder'),
    ):
        with pytest.raises(InvalidInput, match=message):
            unwrap(attribution_graph)(model, tokens, units=wrong)


# ---- what it explains ---------------------------------------------------------------------------


def rows_of(check) -> list[dict]:
    return check.to_frame().to_dict("records")


def test_figures_of_each_layer_and_of_all_are_those_of_their_definitions():
    model, (ids,), transcoder = build("gpt2"), tokens_of("gpt2"), drawn("gpt2")
    rows = rows_of(check_dictionaries(model, ids, transcoder=transcoder, rows=1))
    _, x, y = state("gpt2", transcoder)
    features, error = transcoder.encode(x), transcoder.error(x, y)
    centred = y - y.mean((1, 2), keepdim=True)

    def loss(*changes) -> float:
        logits = run(model, ids, edits=changes).logits
        return float(metrics.loss()(logits, model.batch(ids)).mean())

    writes = [write for _, write in transcoder.places(model)]
    means = [edits.mean(write, y[n].mean((0, 1))) for n, write in enumerate(writes)]
    of_layers = [*((n, slice(n, n + 1)) for n in range(transcoder.n_layers)), (None, slice(None))]
    assert [row["place"] for row in rows] == ['("mlp_out", 0)', '("mlp_out", 1)', "all layers"]
    for row, (layer, part) in zip(rows, of_layers, strict=True):
        spliced = loss(*reconstruction_edits(transcoder, None if layer is None else [layer]))
        ablated, plain = loss(*means[part]), loss()
        fvu = error[part].square().sum() / centred[part].square().sum()
        assert row["fvu"] == pytest.approx(float(fvu), rel=1e-9)
        assert row["l0"] == pytest.approx(float((features[part] > 0).sum((0, -1)).double().mean()))
        active = (features[part] > 0).flatten(1, 2).any(1)
        assert row["dead"] == pytest.approx(float((~active).double().mean()))
        assert row["spliced"] == pytest.approx(spliced, abs=1e-9)
        assert row["ablated"] == pytest.approx(ablated, abs=1e-9)
        assert row["effect"] == pytest.approx(spliced - plain, abs=1e-9)
    # Replaced together is not the sum of each replaced alone.
    assert abs(rows[2]["effect"] - rows[0]["effect"] - rows[1]["effect"]) > 1e-6


def test_one_layer_each_is_checked_as_its_view():
    """Per layer, the figures are those of the per-layer transcoders; splicing all is one more."""
    model = interp.load("python-4l")
    several = [dictionaries.load(f"python-4l/mlp-{layer}") for layer in range(4)]
    texts = ["def f(x):\n    return x", "class A(B):\n    pass"]
    view = interp.with_dictionaries(model, several)
    expected = rows_of(check_dictionaries(view, texts))
    transcoder = CrossLayerTranscoder.of(several)
    check = check_dictionaries(model, texts, transcoder=transcoder)
    *rows, whole = rows_of(check)
    for row, other in zip(rows, expected, strict=True):
        assert row["place"] == other["place"]
        for name in ("n_features", "fvu", "l0", "dead", "spliced", "ablated", "recovered"):
            assert row[name] == pytest.approx(other[name], rel=1e-3)
    assert whole["place"] == "all layers"
    assert whole["n_features"] == 4 * 2048
    assert "cross-layer transcoder of 4 layers" in check.headline()
    with pytest.raises(InvalidInput, match="a model without dictionaries"):
        check_dictionaries(view, texts, transcoder=transcoder)
