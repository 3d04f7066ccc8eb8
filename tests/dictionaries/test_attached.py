"""The features of dictionaries are activations like any other: all laws of activations hold.

The laws are those of ``tests/laws``, for views of models with three kinds of dictionary: one that
reads and writes the residual stream, one of the heads, and a transcoder of an MLP.
"""

import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib import import_module

import pytest
import torch
from architectures import (
    as_where,
    assert_close,
    assert_identical,
    build,
    build_new,
    tokens_of,
)

import interp
from analyses import ablate, top_texts
from interp import Place, Point, Transformer, edits, metrics, run, sweep
from interp.dictionaries import Dictionary, DictionaryTransformer, JumpReLU, ReLU, SkipDictionary
from interp.errors import InvalidInput, UnknownPlace
from interp.model import weight_hash

N_FEATURES = 7
VIEWED = ["gpt2", "neox", "bert", "gemma2", "mixtral", "uneven-pair"]
"""Blocks with norms before, beside, after and around; experts; two stacks."""


def drawn(model: Transformer, reads: Place, writes: Place, kind: type = Dictionary) -> Dictionary:
    """A dictionary with random weights, of which about half of the features are active."""
    generator = torch.Generator().manual_seed(7)
    draw = lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)  # noqa: E731
    d_in, d_out = width(model, reads), width(model, writes)
    skip = {"w_skip": draw(d_in, d_out)} if kind is SkipDictionary else {}
    return kind(
        w_enc=draw(d_in, N_FEATURES),
        b_enc=draw(N_FEATURES),
        b_in=draw(d_in),
        w_dec=draw(N_FEATURES, d_out),
        b_dec=draw(d_out),
        activation=JumpReLU(draw(N_FEATURES).abs() / 9) if skip else ReLU(),
        reads=model.names.hooks[reads],
        writes=model.names.hooks[writes],
        **skip,
    )


def width(model: Transformer, place: Place) -> int:
    """The numbers of a token at a place."""
    sizes = model.fixed_axes(place)
    heads = sizes["head"] * sizes["d_head"]
    return heads if "head" in place.point.axes else sizes[place.point.axes[-1]]


def dictionaries_of(model: Transformer) -> list[Dictionary]:
    """Of the last stack: the stream after layer 0, the heads and the MLP of the last layer."""
    last = model.stacks[-1]
    layer, stack = len(last.blocks) - 1, last.name_in_places
    stream, heads = Place(Point.RESID_POST, 0, None, stack), Place(Point.Z, layer, None, stack)
    inside = [place for place in model.layout if (place.layer, place.stack) == (layer, stack)]
    neurons = next(n for n, place in enumerate(inside) if place.point.label.endswith("post"))
    before = [p for p in inside[:neurons] if p.point in (Point.MLP_IN, Point.NORMALIZED)]
    writes = next(p for p in inside[neurons:] if p.point in (Point.MLP_OUT, Point.MLP_RAW))
    return [
        drawn(model, stream, stream),
        drawn(model, heads, heads),
        drawn(model, before[-1], writes, SkipDictionary),
    ]


@cache
def viewed(name: str) -> DictionaryTransformer:
    """The view of a model."""
    model = build(name)
    return interp.with_dictionaries(model, dictionaries_of(model))


# ---- the laws of activations -------------------------------------------------------------------

LAWS: dict[str, tuple[tuple[object, ...], ...]] = {
    "test_inert.test_recording_everything_changes_no_bit": (("full",), ("padded",)),
    "test_inert.test_recording_any_one_place_changes_no_bit": ((),),
    "test_inert.test_an_edit_that_changes_nothing_changes_no_bit": (("padded",),),
    "test_inert.test_an_edit_that_changes_something_is_not_inert": ((),),
    "test_derived.test_everything_derived_is_what_the_forward_forms": (("left",),),
    "test_derived.test_with_any_place_edited_every_place_is_what_the_forward_saw": ((),),
    "test_derived.test_deriving_leaves_what_it_reads_as_it_was": ((),),
    "test_editable.test_an_edit_of_any_place_changes_the_logits": ((),),
    "test_gradients.test_a_gradient_is_the_slope_along_any_direction": ((),),
    "test_kept_graph.test_every_place_of_the_cache_has_the_slope_of_what_it_holds": ((),),
    "test_padding.test_padding_does_not_change_an_activation": (("left",),),
    "test_restart.test_a_block_continued_from_any_state_ends_in_the_same_stream": ((),),
    "test_restart.test_restart_points_come_in_the_order_of_the_forward": ((),),
    "test_span.test_from_a_layer_to_a_layer_is_that_part_of_the_whole": ((),),
    "test_sweep.test_reuse_is_brute_force": (("none",), ("left",)),
    "test_threads.test_runs_at_the_same_time_are_as_each_alone": ((),),
}
"""Laws, and what each takes besides the name of an architecture."""
CASES = [(law, rest) for law, several in LAWS.items() for rest in several]


WHEN = ([], [pytest.mark.slow], *[[pytest.mark.nightly]] * (len(VIEWED) - 2))


def in_turn() -> list[object]:
    """Every law on every view: on one, in turn, before each commit; on another that is slow."""
    return [
        pytest.param(law, rest, name, marks=WHEN[(turn - n) % len(VIEWED)])
        for n, (law, rest) in enumerate(CASES)
        for turn, name in enumerate(VIEWED)
    ]


def law_of(name: str) -> tuple[object, Callable[..., None]]:
    """The module and the function of a law."""
    module, _, function = name.partition(".")
    laws = import_module(f"tests.laws.{module}")
    return laws, getattr(laws, function)


@pytest.mark.parametrize(
    ("law", "rest", "name"), in_turn(), ids=lambda part: str(part).rpartition(".")[2]
)
def test_the_laws_of_activations_hold_for_features(law, rest, name, monkeypatch):
    laws, holds = law_of(law)
    monkeypatch.setattr(laws, "build", viewed)
    holds(name, *rest)


# ---- what the features are ---------------------------------------------------------------------


@pytest.mark.parametrize("name", VIEWED)
def test_what_is_written_is_what_the_dictionary_explains_and_its_error(name):
    """y = x̂ + ε; features are those of what is read, and without the error y is x̂."""
    model, view, tokens = build(name), viewed(name), tokens_of(name)
    cache = run(model, *tokens, record="all").cache
    of_view = run(view, *tokens, record="all").cache
    for place, dictionary in view.dictionaries().items():
        reads, writes = dictionary.places(model)
        read, written = (cache[p].flatten(2) for p in (reads, writes))
        error = of_view[replace(place, point=Point.FEATURES_ERROR)]
        assert_close(of_view[place], dictionary.encode(read))
        assert_close(dictionary.reconstruct(read) + error, written)
        spliced = edits.zero(as_where(replace(place, point=Point.FEATURES_ERROR)))
        reconstructed = dictionary.reconstruct(read).view_as(cache[writes])
        expected = run(model, *tokens, edits=[edits.replace(as_where(writes), reconstructed)])
        assert_close(run(view, *tokens, edits=[spliced]).logits, expected.logits)


@pytest.mark.parametrize("name", ["gpt2", "uneven-pair"])
def test_a_feature_that_is_set_to_zero_takes_its_direction_out(name):
    """The error stays: y changes by −f W_dec of this feature alone."""
    model, view, tokens = build(name), viewed(name), tokens_of(name)
    for place, dictionary in view.dictionaries().items():
        _, writes = dictionary.places(model)
        whole = run(view, *tokens, record=[place, writes]).cache
        features = whole[place]
        unit = int(features.abs().sum((0, 1)).argmax())
        edited = run(
            view, *tokens, record=[writes], edits=[edits.zero(as_where(place), unit=unit)]
        ).cache
        change = (edited[writes] - whole[writes]).flatten(2)
        assert_close(change, -features[..., unit, None] * dictionary.w_dec[unit])


def test_a_plain_forward_of_a_view_encodes_nothing(monkeypatch):
    view, tokens = viewed("gpt2"), tokens_of("gpt2")
    monkeypatch.setattr(Dictionary, "encode", lambda *_: pytest.fail("encoded"))
    view(*tokens)
    cache = run(view, *tokens, record="all").cache
    with pytest.raises(pytest.fail.Exception):
        cache["features", 0]


def test_a_view_shares_the_weights_of_its_model_and_leaves_it_alone():
    model = build_new("gpt2")
    view = interp.with_dictionaries(model, dictionaries_of(model))
    weights = dict(view.named_parameters())
    assert all(weights[name] is weight for name, weight in model.named_parameters())
    assert len(model.layout) == len(view.layout) - 2 * len(view.dictionaries())
    assert "dictionaries" not in dict(model.named_modules())
    with pytest.raises(UnknownPlace, match=r"interp\.with_dictionaries"):
        run(model, *tokens_of("gpt2"), record="features")


def test_a_view_can_be_pickled_and_its_hash_counts_its_dictionaries():
    model, view = build("gpt2"), viewed("gpt2")
    sent = pickle.loads(pickle.dumps(view))
    (ids,) = tokens_of("gpt2")
    cases = [edits.zero("features", layer=0, unit=unit) for unit in range(N_FEATURES)]
    expected = sweep(view, ids, cases, metric=metrics.loss())
    assert_identical(sweep(sent, ids, cases, metric=metrics.loss()).values, expected.values)
    assert weight_hash(sent) == weight_hash(view) != weight_hash(model)
    fewer = interp.with_dictionaries(model, dictionaries_of(model)[:1])
    assert weight_hash(fewer) not in {weight_hash(view), weight_hash(model)}


def test_a_cache_of_a_view_is_saved_and_read(tmp_path):
    view, (ids,) = viewed("gpt2"), tokens_of("gpt2")
    cache = run(view, ids, record="all").cache
    cache.save(tmp_path / "cache")
    read = interp.load_cache(tmp_path / "cache", model=view)
    for place in view.layout:
        assert_identical(read[place], cache[place])


def test_the_estimate_of_a_run_counts_features_that_are_formed():
    view, (ids,) = viewed("gpt2"), tokens_of("gpt2")
    plain = interp.estimate(view, ids, record="all")
    edited = interp.estimate(view, ids, record="all", edits=[edits.zero("features", layer=0)])
    assert plain == interp.estimate(build("gpt2"), ids, record="all")
    assert edited.kept > plain.kept


# ---- refusals ----------------------------------------------------------------------------------


def test_dictionaries_that_can_not_be_attached_are_refused():
    model = build("gpt2")
    stream = dictionaries_of(model)[0]
    late, early = ("blocks.1.hook_resid_post", "blocks.0.hook_resid_post")
    wrong = [
        ([], "should be one or several"),
        (["features"], "should be one or several"),
        (iter([stream, "features"]), "should be one or several"),
        ([stream, stream], "Two dictionaries write resid_post of layer 0"),
        ([replace(stream, reads=early, writes=late)], "both should be in one layer"),
        ([replace(stream, reads=early, writes="blocks.0.hook_resid_pre")], "which is before"),
        ([replace(stream, reads="", writes="")], "does not say what it reads"),
        ([replace(stream, reads="hook_embed", writes="hook_embed")], "in one layer"),
    ]
    for dictionaries, message in wrong:
        with pytest.raises(InvalidInput, match=message):
            interp.with_dictionaries(model, dictionaries)
    narrow = replace(stream, w_enc=stream.w_enc[:5], b_in=stream.b_in[:5])
    with pytest.raises(InvalidInput, match="another model"):
        interp.with_dictionaries(model, narrow)
    view = viewed("gpt2")
    with pytest.raises(InvalidInput, match="takes a Transformer"):
        interp.with_dictionaries(view, stream)
    for changes in (view.processed, lambda: view.without(mask=True), lambda: view.save("x")):
        with pytest.raises(InvalidInput, match="view of a model with dictionaries"):
            changes()


# ---- features as components of analyses --------------------------------------------------------


def test_features_are_components_of_analyses():
    """``L0F3`` is ablated, and its largest activations are found, as its place and unit are."""
    view, (ids,) = viewed("gpt2"), tokens_of("gpt2", batch=5)
    features = run(view, ids, record="features").cache["features", 0]
    ablation = ablate(view, ids, units="features", layers=[0], method="zero")
    effects = ablation.to_frame().set_index("name")["effect"]
    assert len(effects) == N_FEATURES
    cases = [edits.zero("features", layer=0, unit=unit) for unit in range(N_FEATURES)]
    table = sweep(view, ids, cases, metric=metrics.loss())
    for unit, effect in enumerate(table.effect.mean(1).tolist()):
        assert effects[f"L0F{unit}"] == pytest.approx(effect, abs=1e-12)
    unit = int(features.amax((0, 1)).argmax())
    found = top_texts(view, ids, of=f"L0F{unit}", bos=True)
    assert float(found.value[0]) == pytest.approx(float(features[..., unit].max()))
    groups = ablate(view, ids, units={"both": ["L1F2:z", "L1F3:mlp_out"]}, method="zero")
    together = [
        edits.zero(("features", 1, "z"), unit=2),
        edits.zero(("features", 1, "mlp_out"), unit=3),
    ]
    expected = sweep(view, ids, [together], metric=metrics.loss()).effect.mean()
    assert float(groups.to_frame()["effect"].iloc[0]) == pytest.approx(float(expected), abs=1e-12)
    for wrong in ("L0F7", "L1F2", "L1F2:mlp_in"):
        with pytest.raises(UnknownPlace, match="no component"):
            ablate(view, ids, units={"x": [wrong]})
