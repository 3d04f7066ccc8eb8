"""A logit as a sum of terms of features: they are those of the output that a dictionary is of."""

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


def test_what_can_not_be_split_is_refused():
    model, view, tokens = build("gpt2"), transcoded("gpt2"), tokens_of("gpt2")[0][:1]
    post_norm, stream = build("gemma2"), Place(Point.RESID_POST, 0)
    outputs = [Place(point, 0) for point in (Point.MLP_OUT, Point.MLP_RAW)]
    twice = [drawn(post_norm, output, output) for output in outputs]
    for of, message in [
        (model, "takes a model with dictionaries"),
        (
            interp.with_dictionaries(model, drawn(model, stream, stream)),
            "which is no term of the stream",
        ),
        (
            interp.with_dictionaries(post_norm, twice),
            "Two dictionaries are of what one sub-layer writes",
        ),
    ]:
        with pytest.raises(InvalidInput, match=message):
            direct_logit_attribution(of, tokens, by="feature", target=3)
    assert "L0F" in direct_logit_attribution(view, tokens, by="feature", target=3).summary()
