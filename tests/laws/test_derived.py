"""What a cache derives is what the forward formed: the same numbers, by the same functions."""

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    OTHER_HALF,
    VARIED,
    as_where,
    assert_close,
    assert_identical,
    build,
    covering,
    padded,
    tokens_of,
)

from interp import Place, Point, Transformer, edits, run
from interp.cache.derive import required_places
from interp.edits import Apply, Edit

BOUND = 1e-12
Seen = dict[Place, torch.Tensor]


def watch(place: Place, seen: Seen) -> Apply:
    """An edit that only records the tensor, after any other edits of the place."""

    def note(tensor: torch.Tensor, hook: object) -> None:
        seen[place] = tensor.clone()

    return edits.apply(as_where(place), note)


def seen_in_forward(
    model: Transformer, tokens: tuple[torch.Tensor, ...], *changes: Edit
) -> dict[Place, torch.Tensor]:
    """Every tensor as the forward pass itself forms it, all from one run."""
    seen: Seen = {}
    run(model, *tokens, edits=[*changes, *(watch(place, seen) for place in model.names)])
    return seen


def disturbed(place: Place, like: torch.Tensor) -> Edit:
    generator = torch.Generator().manual_seed(3)
    noise = torch.randn(like.shape, generator=generator, dtype=like.dtype)
    return edits.add(as_where(place), noise)


def inputs(name: str, layout: str) -> tuple[torch.Tensor, ...]:
    if layout == "full":
        return tokens_of(name)
    return tuple(padded([ids[0], ids[1][:3]], layout) for ids in tokens_of(name))


@pytest.mark.parametrize("layout", ["full", "left"])
@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_everything_derived_is_what_the_forward_forms(name, layout):
    model, tokens = build(name), inputs(name, layout)
    cache = run(model, *tokens, record="all").cache
    formed = seen_in_forward(model, tokens)
    assert list(formed) == list(cache) == list(model.names)
    for place, value in cache.items():
        assert_close(value, formed[place], BOUND)


@pytest.mark.parametrize("name", covering(ARCHITECTURES, OTHER_HALF))
def test_each_place_derived_is_bit_identical_to_the_one_formed(name):
    """Where what comes before was computed by the same kernels."""
    model, tokens = build(name), tokens_of(name)
    cache = run(model, *tokens, record="all").cache
    for place in cache:
        if place not in cache.stored:
            seen: Seen = {}
            run(model, *tokens, edits=[watch(place, seen)])
            assert_identical(cache[place], seen[place])


@pytest.mark.parametrize("name", VARIED)
def test_a_place_recorded_alone_is_bit_identical_to_it_among_all(name):
    model, tokens = build(name), tokens_of(name)
    everything = run(model, *tokens, record="all").cache
    for place in everything:
        assert_identical(run(model, *tokens, record=[place]).cache[place], everything[place])


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_on_the_explicit_kernel_the_derived_pattern_gives_the_z_that_was_formed(name):
    """z = A v, bit by bit, from the derived A."""
    model, tokens = build(name), tokens_of(name)
    cache = run(model, *tokens, record="all", kernel="explicit").cache
    for prefix, part in (("", "attn"), ("cross_", "cross_attn")):
        for place in [p for p in cache if p.point.label == f"{prefix}z"]:
            attention = getattr(model.stack(place.stack).block(place.layer), part)
            where = (place.layer, place.stack)
            A, v = cache[(f"{prefix}pattern", *where)], cache[(f"{prefix}v", *where)]
            assert_identical(attention.weigh(A, v), cache[place])


@pytest.mark.parametrize("name", covering(["llama", "opt-post", "attention-pair"], ["llama"]))
def test_with_any_place_edited_every_place_is_what_the_forward_saw(name):
    """With an edit anywhere, the edited tensor and all later ones are those of the forward pass."""
    model, tokens = build(name), tokens_of(name)
    plain = run(model, *tokens, record="all").cache
    for edited in model.names:
        edit = disturbed(edited, plain[edited])
        cache = run(model, *tokens, record="all", edits=[edit]).cache
        formed = seen_in_forward(model, tokens, edit)
        for place, value in cache.items():
            assert_close(value, formed[place], BOUND, f"at {place}, {edited} edited")


@pytest.mark.parametrize("name", covering(VARIED, ["gpt2", "post-final", "uneven-pair"]))
def test_with_a_source_edited_what_derives_from_it_is_what_the_forward_saw(name):
    """Also if recorded alone: pattern with scores edited, result with z edited, and so on."""
    model, tokens = build(name), tokens_of(name)
    plain = run(model, *tokens, record="all").cache
    layout = model.layout
    for place, recipe in layout.items():
        for need in recipe.needs:
            edited = Place(need.point, place.layer, need.norm, place.stack)
            if edited not in layout:
                continue  # an exit reads the last block
            edit, seen = disturbed(edited, plain[edited]), {}
            alone = run(model, *tokens, record=[place], edits=[edit]).cache[place]
            run(model, *tokens, edits=[edit, watch(place, seen)])
            assert_close(alone, seen[place], BOUND, f"at {place}, {edited} edited")


@pytest.mark.parametrize("layout", ["full", "left"])
@pytest.mark.parametrize("name", ["gpt2", "bloom"])
def test_an_edited_score_of_a_masked_key_stays_masked(name, layout):
    """In the forward and when the pattern is derived from what was edited; the rest changes."""
    model, tokens = build(name), inputs(name, layout)
    plain = run(model, *tokens, record="pattern").cache["pattern", 0]
    raised = torch.rand(plain.shape, dtype=plain.dtype)
    edit, seen = edits.replace(("scores", 0), raised), {}
    cache = run(model, *tokens, record="all", edits=[edit]).cache
    run(model, *tokens, edits=[edit, watch(Place(Point.PATTERN, 0), seen)])
    assert_identical(cache["pattern", 0], seen[Place(Point.PATTERN, 0)])
    masked = plain == 0
    assert masked.any()
    assert not cache["pattern", 0][masked].any()
    assert not torch.allclose(cache["pattern", 0], plain)
    assert_identical(cache["scores", 0], raised)


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_deriving_leaves_what_it_reads_as_it_was(name):
    """Twice, in either order, and from what was formed before: the same numbers."""
    model, tokens = build(name), tokens_of(name)
    cache = run(model, *tokens, record="all").cache
    first = dict(cache.items())
    for place in reversed(list(cache)):
        assert_identical(cache[place], first[place])
    formed = run(model, *tokens, record="all").cache
    formed.keep([place for place in formed if "scores" in place.point.label])
    for place in formed:
        assert_identical(formed[place], first[place])


def test_deriving_is_not_recording():
    """The converse: a cache of everything stores only a part, from which the rest is derived."""
    model = build("gpt2")
    cache = run(model, *tokens_of("gpt2"), record="all").cache
    derived = set(cache) - set(cache.stored)
    assert {place.point.label for place in derived} >= {"pattern", "scores", "result", "scale"}
    for place in derived:
        assert required_places(model, place, edited=()) - {place} <= set(cache)
