"""Every place that can be read can be edited with effect: no edit is a silent no-op."""

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    PAIRS,
    VARIED,
    as_where,
    assert_close,
    assert_identical,
    build,
    covering,
    distance,
    padded,
    tokens_of,
)

from interp import PAD, InterpError, Place, Point, Start, Transformer, edits, run
from interp.edits import Edit

BOUND = 1e-12
DEEP = [
    name for name, config in ARCHITECTURES.items() if list(config.stacks.values())[-1].n_layers > 1
]


def noise(like: torch.Tensor, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(like.shape, generator=generator, dtype=like.dtype)


def disturbed(place: Place, value: torch.Tensor) -> Edit:
    return edits.add(as_where(place), noise(value))


def edited(model: Transformer, tokens: tuple[torch.Tensor, ...], *changes: Edit) -> torch.Tensor:
    logits = run(model, *tokens, edits=changes).logits
    assert logits is not None
    return logits


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_an_edit_of_any_place_changes_the_logits(name):
    model, tokens = build(name), tokens_of(name)
    done = run(model, *tokens, record="all")
    for place, value in done.cache.items():
        changed = edited(model, tokens, disturbed(place, value))
        assert bool(changed.isfinite().all()), place
        assert distance(changed, done.logits) > 1e-6, place


@pytest.mark.parametrize("name", VARIED)
def test_a_hook_does_the_same_as_an_edit(name):
    model, tokens = build(name), tokens_of(name)
    cache = run(model, *tokens, record="all").cache
    for place, hook in model.names.hooks.items():
        more = noise(cache[place])
        hooked = model.run_with_hooks(*tokens, fwd_hooks=[(hook, lambda x, hook, m=more: x + m)])
        assert_identical(hooked.detach(), edited(model, tokens, edits.add(as_where(place), more)))


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "uneven-pair"])
def test_edits_of_one_place_happen_in_the_order_given(name):
    """(x + 1) · 2 is not x · 2 + 1."""
    model, tokens = build(name), tokens_of(name)
    where = ("z", 0, model.stacks[-1].name)
    add, double = edits.add(where, 1.0), edits.scale(where, 2.0)
    both = edits.apply(where, lambda x, hook: (x + 1.0) * 2.0)
    assert_close(edited(model, tokens, add, double), edited(model, tokens, both), BOUND)
    other = edited(model, tokens, double, add)
    assert distance(other, edited(model, tokens, both)) > 1e-3


def test_edits_in_the_order_of_the_forward_may_be_given_in_any():
    model, tokens = build("gpt2"), tokens_of("gpt2")
    early, late = edits.scale("embed", 2.0), edits.scale("z", 0.5, layer=1)
    assert_identical(edited(model, tokens, early, late), edited(model, tokens, late, early))


# Against a computation by hand.


@pytest.mark.parametrize("name", ["seed", "biased-seed", "gpt2", "llama", "gptj", "alibi-odd"])
def test_a_head_zeroed_is_missing_from_what_attention_writes(name):
    """attn_out without head h is attn_out − z_h W_O."""
    model, tokens = build(name), tokens_of(name)
    before = run(model, *tokens, record="all").cache
    after = run(model, *tokens, record=["attn_out"], edits=[edits.zero("z", layer=0, head=1)]).cache
    missing = before["z", 0][:, :, 1] @ model.blocks[0].attn.W_O[1]
    assert_close(after["attn_out", 0], before["attn_out", 0] - missing, BOUND)
    for place in ("z", "result"):
        computed, expected = (
            edited(model, tokens, edits.zero(p, layer=0, head=1)) for p in (place, "z")
        )
        assert_close(computed, expected, BOUND)


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert"])
def test_an_even_pattern_averages_the_values(name):
    model, (ids,) = build(name), tokens_of(name)
    n = ids.shape[1]
    even = torch.full((n, n), 1.0 / n, dtype=torch.float64)
    cache = run(
        model, ids, record=["v", "z"], edits=[edits.replace("pattern", even, layer=0)]
    ).cache
    v, z = cache["v", 0], cache["z", 0]
    mean = v.mean(1, keepdim=True).repeat_interleave(z.shape[2] // v.shape[2], dim=2)
    assert_close(z, mean.expand_as(z), BOUND)


@pytest.mark.parametrize("name", ["gpt2", "llama", "normed-set-encoder", "post-final"])
def test_a_scale_edited_is_what_the_norm_divides_by(name):
    model, tokens = build(name), tokens_of(name)
    norm = model.blocks[0].ln1
    edit = edits.replace(("scale", 0, "ln1"), 2.0)
    post = next(iter(model.config.stacks.values())).norm.placement == "post"
    cache = run(model, *tokens, record="all", edits=[edit]).cache
    x = cache["resid_post" if post and ("mlp_in" not in labels(model)) else "attn_in", 0]
    x = x - x.mean(-1, keepdim=True) if type(norm).__name__ == "LayerNorm" else x
    expected = x / 2.0 * (1.0 if norm.gain is None else norm.gain)
    expected = expected + (0.0 if norm.bias is None else norm.bias)
    assert_close(cache["normalized", 0, "ln1"], expected, BOUND)
    assert_identical(cache["scale", 0, "ln1"], torch.full_like(x[..., :1], 2.0))


def labels(model: Transformer) -> set[str]:
    return {place.point.label for place in model.names}


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "opt-post"])
def test_another_prompts_stream_gives_that_prompts_logits(name):
    """With resid_pre replaced at any layer, the rest of the run is that of the other prompt."""
    model, (ids,), (other,) = build(name), tokens_of(name), tokens_of(name, seed=1)
    donor = run(model, other, record="all")
    for layer in range(2):
        edit = edits.replace("resid_pre", donor.cache["resid_pre", layer], layer=layer)
        assert_close(edited(model, (ids,), edit), donor.logits, BOUND)


@pytest.mark.parametrize("name", PAIRS)
def test_another_sources_keys_and_values_give_that_sources_logits(name):
    """cross_k and cross_v are all that a decoder sees of its source."""
    model, (source, target), (other, _) = build(name), tokens_of(name), tokens_of(name, seed=1)
    donor = run(model, other, target, record=["cross_k", "cross_v"])
    swaps = [edits.replace(as_where(place), value) for place, value in donor.cache.items()]
    assert_close(edited(model, (source, target), *swaps), donor.logits, BOUND)


# What is masked.


@pytest.mark.parametrize("name", ["gpt2", "llama", "bloom", "opt-post"])
def test_scores_that_are_masked_stay_masked_whatever_is_written_there(name):
    """With all scores equal, the pattern is uniform over visible keys, and zero elsewhere."""
    model, tokens = build(name), tokens_of(name)
    edit = edits.replace("scores", 3.0, layer=0)
    A = run(model, *tokens, record="all", edits=[edit]).cache["pattern", 0]
    n = A.shape[-1]
    even = torch.ones(n, n, dtype=A.dtype).tril() / torch.arange(1, n + 1, dtype=A.dtype)[:, None]
    assert_close(A, even.expand_as(A), BOUND)


def test_scores_at_padding_stay_masked_whatever_is_written_there():
    model = build("bert")
    ids = padded([torch.tensor([1, 2, 3]), torch.tensor([4])], "right")
    edit = edits.replace("scores", 3.0, layer=0)
    A = run(model, ids, record="all", edits=[edit]).cache["pattern", 0]
    real = (ids != PAD).to(A.dtype)
    even = (real / real.sum(-1, keepdim=True))[:, None, None, :].expand_as(A)
    assert_close(A[0], even[0], BOUND)
    assert_close(A[1, :, :1], even[1, :, :1], BOUND)


def test_scores_at_a_padded_source_stay_masked_whatever_is_written_there():
    model = build("marian")
    source = padded([torch.tensor([1, 2, 3]), torch.tensor([4])], "left")
    edit = edits.replace("cross_scores", 3.0, layer=0)
    A = run(model, source, [[1, 2], [3, 4]], record="all", edits=[edit]).cache["cross_pattern", 0]
    real = (source != PAD).to(A.dtype)
    assert_close(A, (real / real.sum(-1, keepdim=True))[:, None, None, :].expand_as(A), BOUND)


# What is not run can't be edited.


@pytest.mark.parametrize("name", DEEP)
def test_an_edit_outside_what_is_run_is_refused(name):
    model, tokens = build(name), tokens_of(name)
    stack = model.stacks[-1].name
    with pytest.raises(InterpError, match='"z", 1'):
        run(model, *tokens, edits=[edits.zero(("z", 1, stack))], stop_at_layer=1)
    with pytest.raises(InterpError, match="logits"):
        run(model, *tokens, edits=[edits.zero(Point.LOGITS)], stop_at_layer=1)
    x = run(model, *tokens, stop_at_layer=1).stream
    for where in (("z", 0, stack), ("embed", stack)):
        with pytest.raises(InterpError, match=where[0]):
            run(model, *tokens, edits=[edits.zero(where)], start=Start(1, x))
