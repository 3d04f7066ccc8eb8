"""A logit as a sum of terms of features: they are those of the output that a dictionary is of."""

from dataclasses import replace
from importlib import import_module

import pytest
import torch
from architectures import assert_close, build, tokens_of
from test_attached import drawn
from test_feature_graphs import AFTER_NORM, SKIP, transcoded

import interp
from analyses import direct_logit_attribution
from interp import Place, Point, edits, run
from interp.dictionaries import Dictionary, DictionaryTransformer
from interp.errors import InvalidInput

cross_layer = import_module("tests.dictionaries.test_cross_layer")
BOUND = 1e-10
ANSWERS = {"target": 3, "distractor": 5}


def of_attention(name: str, point: Point) -> DictionaryTransformer:
    """A model with an autoencoder of what each attention writes, or of its z."""
    model = build(name)
    made: list[Dictionary] = []
    for layer, step in model.stacks[0].branches():
        if step.part == "attn":
            place = Place(step.f.points.z if point is Point.Z else step.points.writes, layer)
            made.append(drawn(model, place, place))
    return interp.with_dictionaries(model, made)


VIEWS = [
    *((name, ()) for name in ("gpt2", "llama", "neox", "gemma2", "set-encoder")),
    ("neox", (SKIP,)),
    ("gemma2", (AFTER_NORM,)),
    ("gemma2", (SKIP, AFTER_NORM)),
    *((name, Point.Z) for name in ("gpt2", "llama", "gemma2")),
    *((name, Point.ATTN_OUT) for name in ("gpt2", "gemma2")),
]


@pytest.mark.parametrize(("name", "of"), VIEWS, ids=str)
def test_terms_of_features_replace_those_of_the_output(name, of):
    """Per layer and prompt, both sides of a difference and its control included."""
    view = transcoded(name, of) if isinstance(of, tuple) else of_attention(name, of)
    tokens = tokens_of(name)
    by_head = direct_logit_attribution(view, *tokens, by="head", **ANSWERS)
    result = direct_logit_attribution(view, *tokens, by="feature", **ANSWERS)
    assert result.error < BOUND
    assert_close(result.value, by_head.value)
    names = [part.name for part in result.parts]
    assert len({*names}) == len(names)
    features = [part for part in result.parts if part.kind == "feature"]
    assert features
    assert features == sorted(features, key=lambda part: (part.layer, part.unit))
    same = {part.name for part in by_head.parts} & {*names}
    for quantity in ("effect", "of_target", "control"):
        for layer in range(len(view.stacks[0].blocks)):
            sums = [
                sum(
                    value
                    for part, value in zip(each.parts, getattr(each, quantity), strict=True)
                    if part.layer == layer and part.name not in same
                )
                for each in (result, by_head)
            ]
            assert_close(sums[0], sums[1], BOUND)
            assert float(sums[0].abs().max()) > 1e-4


def test_a_term_is_what_a_feature_writes_along_the_direction_of_the_logits():
    """With divisors fixed there is no other way to the logits from the last layer."""
    view, (tokens,) = transcoded("gpt2"), tokens_of("gpt2")[0:1]
    result = direct_logit_attribution(view, tokens, by="feature", target=3)
    last = len(view.stacks[0].blocks) - 1
    part = next(part for part in result.parts if part.kind == "feature" and part.layer == last)
    term = result.effect[result.parts.index(part)]
    plain = run(view, tokens, record=["final_scale"])
    removed = edits.zero(("features", last), unit=part.unit)
    scale = edits.replace("final_scale", plain.cache["final_scale"])
    logits = run(view, tokens, edits=[removed, scale]).logits
    real = view.batches(tokens)[0].is_real
    column = real.shape[1] - 1 - real.flip(1).int().argmax(1)
    rows = torch.arange(len(column))
    assert_close(term, (plain.logits - logits)[rows, column, 3], BOUND)


STREAM = [
    *((name, Place(Point.RESID_POST, 0)) for name in ("gpt2", "llama", "bert", "gemma2")),
    ("gpt2", Place(Point.RESID_MID, 1)),
    ("neox", Place(Point.RESID_PRE, 1)),
    ("gpt2", Place(Point.RESID_POST, 1)),
    ("gpt2", Place(Point.RESID_PRE, 0)),
]


@pytest.mark.parametrize(("name", "place"), STREAM, ids=str)
def test_features_of_the_stream_replace_what_was_written_before_it(name, place):
    """What later blocks write keeps its terms; without the error they do not sum to the logit."""
    model, tokens = build(name), tokens_of(name)
    view = interp.with_dictionaries(model, drawn(model, place, place))
    by_head = direct_logit_attribution(model, *tokens, by="head", **ANSWERS)
    result = direct_logit_attribution(view, *tokens, by="feature", **ANSWERS)
    assert result.error < BOUND
    assert_close(result.value, by_head.value)
    of_dictionary = [
        part for part in result.parts if part.kind in {"feature", "error"} or "b_dec" in part.name
    ]
    later = {part: row for row, part in enumerate(result.parts) if part not in of_dictionary}
    before = [row for row, part in enumerate(by_head.parts) if part not in later]
    for quantity in ("effect", "of_target", "control"):
        mine, theirs = (getattr(each, quantity) for each in (result, by_head))
        for part, row in later.items():
            assert_close(mine[row], theirs[by_head.parts.index(part)], BOUND)
        rows = [result.parts.index(part) for part in of_dictionary]
        assert_close(mine[rows].sum(0), theirs[before].sum(0), BOUND)
    errors = [row for row, part in enumerate(result.parts) if part.kind == "error"]
    assert result.effect[errors].abs().max() > 1e-3
    assert any(part.kind == "feature" for part in result.parts)


def test_of_several_dictionaries_of_the_stream_the_last_is_read():
    model, (tokens,) = build("gpt2"), tokens_of("gpt2")
    places = [Place(Point.RESID_POST, layer) for layer in range(2)]
    view = interp.with_dictionaries(model, [drawn(model, place, place) for place in places])
    result = direct_logit_attribution(view, tokens, by="feature", target=3)
    assert {part.layer for part in result.parts if part.kind == "error"} == {1}
    assert 'a dictionary of the stream comes after them: ("resid_post", 0)' in result.summary()


@pytest.mark.parametrize(("name", "options"), [*cross_layer.VARIANTS, ("gemma3", ())], ids=str)
def test_terms_of_features_that_write_several_layers_sum_to_the_logit(name, options):
    """Heads keep their terms; each MLP has an error, which is what its transcoder leaves out."""
    transcoder, tokens = cross_layer.drawn(name, options), tokens_of(name)
    d, layers = build(name).d_model, transcoder.n_layers
    skip = torch.randn(layers, d, d, dtype=torch.float64) if name == "gemma3" else None
    view = interp.with_dictionaries(build(name), replace(transcoder, w_skip=skip))
    by_head = direct_logit_attribution(build(name), *tokens, by="head", **ANSWERS)
    result = direct_logit_attribution(view, *tokens, by="feature", **ANSWERS)
    assert result.error < BOUND
    assert_close(result.value, by_head.value)
    names = [part.name for part in result.parts]
    assert len({*names}) == len(names)
    for row, part in enumerate(by_head.parts):
        if part.kind == "head":
            assert_close(result.effect[names.index(part.name)], by_head.effect[row], BOUND)
    features = [part for part in result.parts if part.kind == "feature"]
    assert {part.layer for part in features} == {*range(layers)}
    assert features == sorted(features, key=lambda part: (part.layer, part.unit))
    for kind in ("error", "feature"):
        rows = [row for row, part in enumerate(result.parts) if part.kind == kind]
        assert result.effect[rows].abs().max() > 1e-3
    assert any(" skip" in name for name in names) == (skip is not None)


def test_the_term_of_a_feature_is_that_of_all_its_decoders():
    """Σ_m a W_dec,l→m through the final norm; its own layer's alone is another number."""
    transcoder, model, (ids,) = cross_layer.drawn("gpt2"), build("gpt2"), tokens_of("gpt2")
    tokens = ids[:1]
    view = interp.with_dictionaries(model, transcoder)
    result = direct_logit_attribution(view, tokens, by="feature", target=3)
    done = run(view, tokens, record=["features", "final_scale"]).cache
    column = int(view.batch(tokens).is_real[0].sum()) - 1
    seen = 0
    for part, term in zip(result.parts, result.effect, strict=True):
        if part.kind != "feature" or part.layer:
            continue
        a = done["features", 0][0, column, part.unit]
        decoders = a * transcoder.w_dec[0][part.unit]
        norm, scale = model.stacks[0].final_norm, done["final_scale"][0, column]
        read = norm.centred(decoders) / scale * norm.gain @ model.unembed.W_U[:, 3]
        assert_close(term[0], read.sum().detach(), BOUND)
        assert abs(term[0] - read[0]) > 1e-4
        seen += 1
    assert seen > 1


def test_what_can_not_be_split_is_refused():
    model, view, tokens = build("gpt2"), transcoded("gpt2"), tokens_of("gpt2")[0][:1]
    post_norm, read = build("gemma2"), Place(Point.MLP_IN, 0)
    outputs = [Place(point, 0) for point in (Point.MLP_OUT, Point.MLP_RAW)]
    twice = [drawn(post_norm, output, output) for output in outputs]
    for of, message in [
        (model, "takes a model with dictionaries"),
        (
            interp.with_dictionaries(model, drawn(model, read, read)),
            r"one is of \(\"mlp_in\", 0\), which is neither",
        ),
        (
            interp.with_dictionaries(post_norm, twice),
            "Two dictionaries are of what one sub-layer writes",
        ),
    ]:
        with pytest.raises(InvalidInput, match=message):
            direct_logit_attribution(of, tokens, by="feature", target=3)
    assert "L0F" in direct_logit_attribution(view, tokens, by="feature", target=3).summary()
