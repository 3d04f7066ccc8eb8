"""Features of a cross-layer transcoder are activations, whose edits reach all later layers.

The laws of ``tests/laws`` hold for views with one, as for those of ``test_attached.py``; and edits
of features are those of :func:`interp.dictionaries.feature_edits`, which are tested by themselves.
"""

import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
import torch
from architectures import as_where, assert_close, assert_identical, build, tokens_of

import analyses
import interp
from interp import Place, Point, dictionaries, edits, metrics, run, sweep
from interp.dictionaries import CrossLayerTranscoder, DictionaryTransformer, feature_edits
from interp.errors import InvalidEdit, InvalidInput
from interp.model import weight_hash

attached = import_module("tests.dictionaries.test_attached")
cross_layer = import_module("tests.dictionaries.test_cross_layer")
VARIANTS, drawn, N_FEATURES = cross_layer.VARIANTS, cross_layer.drawn, cross_layer.N_FEATURES
FIRST = 3
"""Number of the variants with which laws are tested before each commit."""
DEEP = 4
"""Layers of a model in which changes pass layers without edits."""


@cache
def viewed(name: str, options: tuple[str, ...] = ()) -> DictionaryTransformer:
    """A view of a model of the architecture."""
    return interp.with_dictionaries(build(name), drawn(name, options))


@cache
def deep() -> tuple[DictionaryTransformer, CrossLayerTranscoder, torch.Tensor]:
    """A view of a model of four layers, its transcoder, and tokens."""
    model = interp.load("python-4l").double()
    transcoder = cross_layer.drawn_for(model, (cross_layer.STREAM,))
    tokens = torch.randint(500, (3, 6), generator=torch.Generator().manual_seed(0))
    return interp.with_dictionaries(model, transcoder), transcoder, tokens


# ---- the laws of activations --------------------------------------------------------------------


def in_turn() -> list[object]:
    """Every law on every view: on one of the first, in turn, before each commit; on another that
    is slow.
    """
    others = len(VARIANTS) - FIRST

    def marks(turn: int, n: int) -> list[pytest.MarkDecorator]:
        if turn < FIRST:
            return [] if turn == n % FIRST else [pytest.mark.nightly]
        return [pytest.mark.slow if turn - FIRST == n % others else pytest.mark.nightly]

    return [
        pytest.param(law, rest, variant, marks=marks(turn, n))
        for n, (law, rest) in enumerate(attached.CASES)
        for turn, variant in enumerate(VARIANTS)
    ]


@pytest.mark.parametrize(("law", "rest", "variant"), in_turn(), ids=str)
def test_the_laws_of_activations_hold_for_features(law, rest, variant, monkeypatch):
    laws, holds = attached.law_of(law)
    monkeypatch.setattr(laws, "build", lambda _: viewed(*variant))
    holds(variant[0], *rest)


# ---- what edits do ------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=str)
def test_recorded_features_are_those_of_the_transcoder(name, options):
    view, transcoder, tokens = viewed(name, options), drawn(name, options), tokens_of(name)
    pairs = transcoder.places(build(name))
    cache_ = run(view, *tokens, record=["features", *(read for read, _ in pairs)]).cache
    x = torch.stack([cache_[read] for read, _ in pairs])
    features = torch.stack([cache_["features", layer] for layer in range(transcoder.n_layers)])
    assert_identical(features, transcoder.encode(x))
    assert_identical(view(*tokens), build(name)(*tokens))


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=str)
def test_recorded_errors_are_those_of_the_transcoder(name, options):
    """All, one of a later layer alone, and with features edited, which stay out of the error."""
    view, transcoder, tokens = viewed(name, options), drawn(name, options), tokens_of(name)
    pairs = transcoder.places(build(name))
    plain = run(build(name), *tokens, record=[place for pair in pairs for place in pair]).cache
    x, y = (torch.stack([plain[place] for place in each]) for each in zip(*pairs, strict=True))
    errors, last = transcoder.error(x, y), transcoder.n_layers - 1
    of_view = run(view, *tokens, record="features_error")
    for layer, error in enumerate(errors):
        assert_close(of_view.cache["features_error", layer], error)
    assert_identical(of_view.logits, build(name)(*tokens))
    alone = run(view, *tokens, record=("features_error", last)).cache["features_error", last]
    assert_identical(alone, of_view.cache["features_error", last])
    off = [edits.zero("features", layer=last)]
    edited = run(view, *tokens, record=("features_error", last), edits=off).cache
    assert_identical(edited["features_error", last], alone)
    assert alone.abs().max() > 1e-3


@pytest.mark.parametrize(("layers", "factor", "pos"), [(None, 0.0, None), ([1, 3], 3.0, [1, -1])])
def test_edits_of_errors_are_reconstructions(layers, factor, pos):
    """In the forward, swept, and in text that is generated; beside an edit of a feature."""
    view, transcoder, tokens = deep()
    of_outputs = dictionaries.reconstruction_edits(transcoder, layers, factor=factor, pos=pos)
    chosen = range(DEEP) if layers is None else layers
    places = [edits.scale("features_error", factor, layer=layer, pos=pos) for layer in chosen]
    expected = run(view, tokens, edits=of_outputs).logits
    logits = run(view, tokens, edits=places).logits
    assert_close(logits, expected)
    assert (logits - view(tokens)).abs().max() > 1e-3
    (swept,) = sweep(view, tokens, [places], metric=metrics.loss()).values
    assert_close(swept, metrics.measure(metrics.loss(), expected, view.batch(tokens)))
    if pos is None:
        text = view.generate(tokens, max_new_tokens=3, edits=places, stop=())
        again = run(view, text[:, :-1], edits=places).logits[:, tokens.shape[1] - 1 :].argmax(-1)
        assert_identical(text[:, tokens.shape[1] :], again)
        assert not torch.equal(text, view.generate(tokens, max_new_tokens=3))


def test_an_error_stays_where_features_of_earlier_layers_are_edited():
    """y_m changes by what they write to it and by what the MLP makes of the stream, no more."""
    view, transcoder, tokens = deep()
    pairs = transcoder.places(view)
    places = [place for pair in pairs for place in pair]
    off = [edits.zero("features", layer=0, unit=1), edits.scale("features", 2.0, layer=1, unit=3)]
    edited = run(view, tokens, record=[*places, "features", "features_error"], edits=off).cache
    x, y = (torch.stack([edited[place] for place in each]) for each in zip(*pairs, strict=True))
    features = torch.stack([edited["features", layer] for layer in range(DEEP)])
    errors = torch.stack([edited["features_error", layer] for layer in range(DEEP)])
    assert not torch.equal(features[:2], transcoder.encode(x)[:2])
    assert_close(transcoder.decode(features) + errors, y)


def test_an_error_needs_a_forward_of_all_layers_before_it():
    """One that begins at a later layer does not have it; one that begins at the first does."""
    view, _, tokens = deep()
    whole = run(view, tokens, record=["resid_pre", "features_error"]).cache
    first = interp.Start(0, whole["resid_pre", 0])
    again = run(view, tokens, record="features_error", start=first).cache
    assert_close(again["features_error", 3], whole["features_error", 3])
    later = interp.Start(1, whole["resid_pre", 1])
    assert ("features", 3) in run(view, tokens, record="all", start=later).cache
    assert ("features_error", 3) not in run(view, tokens, record="all", start=later).cache
    with pytest.raises(InvalidInput, match="does not compute it"):
        run(view, tokens, record=("features_error", 3), start=later)
    with pytest.raises(InvalidEdit, match="not in the part"):
        run(view, tokens, edits=[edits.zero("features_error", layer=3)], start=later)


def test_a_forward_that_forms_no_error_encodes_no_layer(monkeypatch):
    view, _, tokens = deep()
    expected = view(tokens)
    layer_type = import_module("interp.dictionaries.attached_layer").AttachedLayer
    monkeypatch.setattr(layer_type, "encode", None)
    assert_identical(run(view, tokens, record=["resid_post", "mlp_out"]).logits, expected)
    with pytest.raises(TypeError):
        run(view, tokens, record=("features_error", 3))


@pytest.mark.parametrize("layer", range(DEEP))
def test_an_edit_is_the_edits_of_all_layers_that_it_writes(layer):
    """Of one feature, of several at positions, and set to a value."""
    view, transcoder, tokens = deep()
    features = run(view, tokens, record="features").cache["features", layer]
    first, second = features.sum((0, 1)).topk(2).indices.tolist()
    here = {"layer": layer}
    pairs = [
        (
            [edits.zero("features", unit=first, **here)],
            feature_edits(transcoder, layer, first),
        ),
        (
            [edits.replace("features", 2.5, unit=second, pos=[1, -1], **here)],
            feature_edits(transcoder, layer, second, value=2.5, pos=[1, -1]),
        ),
        (
            [edits.scale("features", 3.0, unit=(first, second), **here)],
            [
                *feature_edits(transcoder, layer, first, factor=3.0),
                *feature_edits(transcoder, layer, second, factor=3.0),
            ],
        ),
    ]
    plain = run(view, tokens).logits
    for places, of_outputs in pairs:
        logits = run(view, tokens, edits=places).logits
        assert_close(logits, run(view, tokens, edits=of_outputs).logits)
        assert (logits - plain).abs().max() > 1e-3
        sent = [edits.from_dict(edit.to_dict()) for edit in places]
        assert_identical(run(view, tokens, edits=sent).logits, logits)


def test_edits_of_several_layers_add_up_at_the_layers_that_both_write():
    view, transcoder, tokens = deep()
    both = [edits.zero("features", layer=0, unit=1), edits.scale("features", 2.0, layer=2, unit=3)]
    of_outputs = [
        *feature_edits(transcoder, 0, 1),
        *feature_edits(transcoder, 2, 3, factor=2.0),
    ]
    logits = run(view, tokens, edits=both).logits
    assert_close(logits, run(view, tokens, edits=of_outputs).logits)
    alone = [run(view, tokens, edits=[edit]).logits for edit in both]
    assert min(float((logits - each).abs().max()) for each in alone) > 1e-3


@pytest.mark.parametrize("layer", range(DEEP))
def test_an_edit_changes_its_own_and_later_layers_alone(layer):
    """At each later layer y_m has the decoder's part, beside what its MLP makes of the stream."""
    view, transcoder, tokens = deep()
    pairs = transcoder.places(view)
    everything = [place for pair in pairs for place in pair]
    before = run(view, tokens, record=[*everything, "features"]).cache
    unit = int(before["features", layer].sum((0, 1)).argmax())
    off = edits.zero("features", layer=layer, unit=unit)
    after = run(view, tokens, record=everything, edits=[off]).cache
    change = -before["features", layer][..., [unit]]
    for target, (_, written) in enumerate(pairs):
        if target < layer:
            assert_identical(after[written], before[written])
            continue
        rest = [edits.replace(as_where(p), after[p]) for _, p in pairs[:target]]
        of_mlp = run(view, tokens, record=[written], edits=rest).cache[written]
        decoder = transcoder.writers(layer, torch.tensor([unit]), target)
        assert_close(after[written] - of_mlp, change @ decoder)
        assert (change @ decoder).abs().max() > 1e-3


def test_an_inert_edit_changes_no_bit_and_no_later_place():
    view, _, tokens = deep()
    recorded = ["features", "resid_mid", "mlp_out", "resid_post"]
    plain = run(view, tokens, record=recorded)
    for layer in range(DEEP):
        for inert in (
            edits.scale("features", 1.0, layer=layer),
            edits.add("features", 0.0, layer=layer),
            edits.replace("features", plain.cache["features", layer], layer=layer),
        ):
            done = run(view, tokens, record=recorded, edits=[inert])
            assert_identical(done.logits, plain.logits)
            for place in plain.cache:
                assert_identical(done.cache[place], plain.cache[place])


def test_text_is_generated_with_edits_of_features():
    """With keys and values of earlier tokens stored, as by whole forwards; the text is another."""
    view, _, tokens = deep()
    changes = [edits.scale("features", 4.0, layer=1)]
    text = tokens
    for _ in range(4):
        following = run(view, text, edits=changes).logits[:, -1].argmax(-1, keepdim=True)
        text = torch.cat([text, following], 1)
    assert_identical(view.generate(tokens, max_new_tokens=4, edits=changes, stop=()), text)
    assert not torch.equal(view.generate(tokens, max_new_tokens=4), text)


# ---- sweeps -------------------------------------------------------------------------------------


@pytest.mark.parametrize("large_block", [0, 2**40], ids=["cases join", "cases do not join"])
@pytest.mark.parametrize("read", ["all", "last"])
def test_a_sweep_is_whole_forwards(read, large_block, monkeypatch):
    """Also where cases of other layers join a forward, and where the last block is cut."""
    schedule = import_module("interp.sweeps.schedule")
    monkeypatch.setattr(schedule, "LARGE_BLOCK", large_block)
    view, transcoder, tokens = deep()
    metric = metrics.loss() if read == "all" else metrics.logit(3, pos=-1)
    cases = [
        edits.scale("features", factor, layer=layer, unit=unit, pos=pos)
        for layer in range(DEEP)
        for unit, pos, factor in ((1, None, 0.0), (4, -1, 2.0), ((2, 6), 2, -1.0))
    ]
    cases += [edits.zero("features_error", layer=layer, pos=layer - 4) for layer in range(DEEP)]
    cases += [[edits.zero("features", layer=0, unit=1), edits.zero("features_error", layer=2)]]
    cases += [edits.zero("z", layer=layer, head=1) for layer in range(DEEP)]
    cases += [[edits.zero("features", layer=1), edits.zero("z", layer=3, head=0)]]
    cases += [feature_edits(transcoder, 1, 2)]
    table = sweep(view, tokens, cases, metric=metric)
    for values, case in zip(table.values, cases, strict=True):
        several = case if isinstance(case, list) else [case]
        logits = run(view, tokens, edits=several).logits
        assert_close(values, metrics.measure(metric, logits, view.batch(tokens)))
    # Of feature 2 at layer 1, by its places too, in the forward of the others.
    (values,) = sweep(view, tokens, [edits.zero("features", layer=1, unit=2)], metric=metric).values
    assert_close(values, table.values[-1])
    assert len(table.values.unique(dim=0)) > len(cases) // 2


def test_forwards_with_different_edits_do_not_mix():
    view, _, tokens = deep()
    cases = [[edits.scale("features", float(n), layer=n % DEEP)] for n in range(8)]
    alone = [run(view, tokens, edits=case).logits for case in cases]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda case: run(view, tokens, edits=case).logits, cases * 3))
    for n, logits in enumerate(together):
        assert_identical(logits, alone[n % len(cases)])
    assert_identical(run(view, tokens).logits, view(tokens))


# ---- the view -----------------------------------------------------------------------------------


def test_a_view_is_pickled_moved_and_hashed_with_its_transcoder():
    view, transcoder, (ids,) = viewed("gpt2"), drawn("gpt2"), tokens_of("gpt2")
    off = [edits.zero("features", layer=0)]
    expected = run(view, ids, edits=off).logits
    assert_identical(run(pickle.loads(pickle.dumps(view)), ids, edits=off).logits, expected)
    again = view.transcoder()
    assert again.digest == transcoder.digest
    assert weight_hash(view) != weight_hash(build("gpt2"))
    assert not view.dictionaries()
    single = pickle.loads(pickle.dumps(view)).to(torch.float32)
    assert_close(run(single, ids, edits=off).logits.double(), expected, 1e-4)
    assert single.transcoder().w_dec[0].dtype == torch.float32
    copied = interp.with_dictionaries(build("gpt2"), again)
    assert_identical(run(copied, ids, edits=off).logits, expected)


def test_decoders_that_stay_on_disk_give_the_same_edits(tmp_path: Path):
    """Only those of the features that change are read, and their file is in the hash."""
    model, (ids,) = build("gpt2").to(torch.float64), tokens_of("gpt2")
    transcoder = drawn("gpt2")
    dictionaries.save_cross_layer(transcoder, tmp_path / "clt")
    views = [
        interp.with_dictionaries(
            model,
            dictionaries.load_cross_layer(tmp_path / "clt", dtype=torch.float64, lazy=lazy),
        )
        for lazy in (False, True)
    ]
    for change in (edits.zero("features", layer=0, unit=2), edits.scale("features", 2.0, layer=0)):
        whole, lazy = (run(view, ids, edits=[change]).logits for view in views)
        assert_close(lazy, whole)
    assert weight_hash(views[0]) != weight_hash(views[1])
    estimates = [interp.estimate(view, ids, edits=[change]).kept for view in views]
    assert estimates[0] == estimates[1]
    gradients = [
        run(view, ids, record="features", gradients_of=metrics.loss()).cache["features_grad", 0]
        for view in views
    ]
    assert_close(*gradients)
    errors = [run(view, ids, record="features_error").cache["features_error", 1] for view in views]
    assert_close(*errors)
    estimates = [interp.estimate(view, ids, record="features_error").kept for view in views]
    assert estimates[0] == estimates[1] > 0
    (tmp_path / "clt" / "W_dec_0.safetensors").unlink()
    assert_identical(run(views[1], ids).logits, model(ids))
    inert = [edits.scale("features", 1.0, layer=0)]
    assert_identical(run(views[1], ids, edits=inert).logits, model(ids))


def test_a_view_has_one_transcoder_beside_other_dictionaries():
    model, transcoder = build("gpt2"), drawn("gpt2")
    stream, heads, of_mlp = attached.dictionaries_of(model)
    view = interp.with_dictionaries(model, [transcoder, stream, heads])
    assert len(view.dictionaries()) == 2
    where = Place(Point.FEATURES, 1, "mlp_out")
    (ids,) = tokens_of("gpt2")
    off = [edits.zero(as_where(where), unit=1), edits.zero(("features", 0, "resid_post"))]
    assert not torch.equal(run(view, ids, edits=off).logits, model(ids))
    for wrong, message in (
        ([transcoder, transcoder], "one cross-layer transcoder"),
        ([transcoder, of_mlp], "Two dictionaries write mlp_out of layer 1"),
    ):
        with pytest.raises(InvalidInput, match=message):
            interp.with_dictionaries(model, wrong)


# ---- analyses -----------------------------------------------------------------------------------


def test_features_are_components_of_analyses():
    view, transcoder = viewed("gpt2"), drawn("gpt2")
    (ids,) = tokens_of("gpt2", batch=5)
    features = run(view, ids, record="features").cache
    ablation = analyses.ablate(view, ids, units="features", method="zero")
    effects = ablation.to_frame().set_index("name")["effect"]
    names = [f"L{layer}F{unit}" for layer in range(2) for unit in range(N_FEATURES)]
    cases = [feature_edits(transcoder, layer, u) for layer in range(2) for u in range(N_FEATURES)]
    table = sweep(build("gpt2"), ids, cases, metric=metrics.loss())
    for name, effect in zip(names, table.effect.mean(1).tolist(), strict=True):
        assert effects[name] == pytest.approx(effect, abs=1e-12)
    assert float(table.effect.abs().max()) > 1e-3
    unit = int(features["features", 1].amax((0, 1)).argmax())
    largest = analyses.top_texts(view, ids, of=f"L1F{unit}", bos=True)
    highest = float(features["features", 1][..., unit].max())
    assert float(largest.value[0]) == pytest.approx(highest)


def test_features_are_patched_probed_and_have_gradients():
    """A patched cell is the run with that layer's features of the other prompts."""
    view, _, tokens = deep()
    other, metric = (tokens + 7) % 500, metrics.logit_diff(3, 5, pos=-1)
    patched = analyses.patch_activations(
        view, other, tokens, metric=metric, at="features", over=("layer",)
    )
    donors = run(view, other, record="features").cache
    for layer in range(DEEP):
        whole = edits.replace("features", donors["features", layer], layer=layer)
        logits = run(view, tokens, edits=[whole]).logits
        expected = metrics.measure(metric, logits, view.batch(tokens))
        assert_close(patched.patched[0, layer], expected)
        assert (expected - patched.corrupt).abs().max() > 1e-3
    assert len(analyses.probe(view, torch.cat([tokens] * 4), [0, 1] * 6, at="features").layers)
    with pytest.raises(InvalidInput, match="a vector is added at"):
        analyses.steer(view, tokens, layer=1, vector=torch.ones(N_FEATURES), at="features")


def test_graphs_checks_and_scaled_units_are_those_of_the_transcoder():
    view, transcoder, model = viewed("gpt2"), drawn("gpt2"), build("gpt2")
    tokens = tokens_of("gpt2")[0]
    graphs = [
        analyses.attribution_graph(of, tokens[:1], units=units, targets=3, check=2)
        for of, units in ((view, "features"), (model, transcoder))
    ]
    assert graphs[0].edges == graphs[1].edges
    assert_close(graphs[0].effect, graphs[1].effect)
    checks = [
        analyses.check_dictionaries(view, tokens),
        analyses.check_dictionaries(model, tokens, transcoder=transcoder),
    ]
    assert checks[0].places == checks[1].places
    assert_close(checks[0].spliced, checks[1].spliced)
    units = [node.name for node in graphs[0].nodes if node.kind == "feature"]
    scaled = [
        analyses.scale_units(view, tokens[:1], units, targets=3),
        analyses.scale_units(model, tokens[:1], units, targets=3, transcoder=transcoder),
    ]
    assert_close(scaled[0].effect, scaled[1].effect)
    assert float(scaled[0].effect.abs().max()) > 1e-3


@pytest.mark.parametrize("across", [True, False])
def test_a_text_is_steered_by_raising_a_feature_in_every_layer_that_it_writes(across):
    """The texts and divergences are those with its activation raised; of heads, likewise."""
    if across:
        (view, _, tokens), name = deep(), "L1F3"
        where = ("features", 1)
    else:
        view, (tokens,), name = attached.viewed("gpt2"), tokens_of("gpt2"), "L1F2:z"
        where = ("features", 1, "z")
    settings = {"strengths": (0.0, 6.0), "new_tokens": 3}
    steering = analyses.steer(view, tokens, feature=name, **settings)
    raised = [edits.add(where, 6.0, unit=int(name[3]))]
    text = view.generate(tokens, max_new_tokens=3, edits=raised)
    assert torch.equal(steering.steered[1], text[:, tokens.shape[1] :])
    whole = torch.cat([tokens, steering.plain], 1)
    before, after = (
        run(view, whole, edits=each).logits.log_softmax(-1)[:, tokens.shape[1] - 1 : -1]
        for each in ([], raised)
    )
    assert_close(steering.kl[1], (before.exp() * (before - after)).sum(-1))
    assert float(steering.kl[1].min()) > 1e-6
    assert not steering.kl[0].any()
    assert float((steering.control[1] - steering.kl[1]).abs().max()) > 1e-6
    assert f"steering along {name}" in steering.summary()
    for wrong in ({"feature": "L0H1"}, {"feature": name, "layer": 1}):
        with pytest.raises(InvalidInput, match="feature="):
            analyses.steer(view, tokens, **wrong)


def test_a_check_takes_a_cross_layer_transcoder_alone():
    (ids,) = tokens_of("gpt2")
    mixed = interp.with_dictionaries(
        build("gpt2"), [drawn("gpt2"), attached.dictionaries_of(build("gpt2"))[0]]
    )
    with pytest.raises(InvalidInput, match="measures a cross-layer transcoder alone"):
        analyses.check_dictionaries(mixed, ids)
