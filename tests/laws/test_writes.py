"""The final stream is the sum of everything that was written into it, by name."""

import pytest
import torch
from architectures import ARCHITECTURES, assert_close, build, build_new, covering, tokens_of

from analyses.methods.attribution.logit_terms import logit_direction, logit_terms
from interp import Place, Point, load_cache, run
from interp.errors import InvalidInput, NotRecorded, StaleCache

BOUND = 1e-12


def placed(*placements: str) -> list[str]:
    """The architectures in which the norms of all stacks are placed like this."""
    return [
        name
        for name, config in ARCHITECTURES.items()
        if all(stack.norm.placement in placements for stack in config.stacks.values())
    ]


BEFORE = [
    name
    for name in placed("pre", "parallel", "parallel_tied")
    if ARCHITECTURES[name].head is None
    and not any(stack.residual_scale for stack in ARCHITECTURES[name].stacks.values())
]
ADDING = placed("pre", "parallel", "parallel_tied", "sandwich", "write")
CHANGED = [name for name in ARCHITECTURES if name not in ADDING]


def recorded(model):
    return run(model, *tokens_of(model.config), record="all")


@pytest.mark.parametrize("name", ADDING)
def test_the_final_stream_is_the_sum_of_all_writes(name):
    """x_end = Σ writes in each stack, and no term can be left out."""
    model = build(name)
    cache = recorded(model).cache
    for stack in model.stacks:
        stack_name = stack.name if len(model.stacks) > 1 else None
        writes = cache.writes(stack_name)
        final = cache[Place(Point.RESID_POST, len(stack.blocks) - 1, None, stack_name)]
        assert_close(sum(writes.values()), final, BOUND)
        for left_out, term in writes.items():
            assert term.shape == final.shape
            assert term.abs().max() > 1e-6, left_out
    assert list(cache.writes()) == list(writes)


@pytest.mark.parametrize("name", covering(BEFORE))
def test_writes_along_the_direction_of_a_logit_are_its_terms(name):
    """write·w′ = the term of the same name, where w′ is w before the final norm."""
    model = build(name)
    done = recorded(model)
    rows, last = done.logits.shape[0], done.logits.shape[1] - 1
    column, stack = torch.full((rows,), last), model.stacks[-1]
    w, _ = logit_direction(model.unembed, torch.full((rows,), 3))
    terms = {part.name: x for part, x in logit_terms(model, done.cache, w, column).items()}
    scale = Place(Point.FINAL_SCALE, stack=stack.name if len(model.stacks) > 1 else None)
    if scale in set(done.cache):
        w, _ = stack.final_norm.pull_back(w, done.cache[scale][:, last])
    writes = done.cache.writes()
    assert [term for term in terms if "ln_final" not in term] == list(writes)
    for term, written in writes.items():
        assert_close((written[:, last] * w).sum(-1), terms[term], what=term)


def test_each_bias_is_apart_by_its_name():
    model = build("gpt2")
    writes = recorded(model).cache.writes()
    assert list(writes)[:8] == [
        *("embed", "pos_embed", "L0H0", "L0H1", "L0H2", "L0.b_O", "L0MLP", "L0.b_out"),
    ]
    b_out = model.blocks[0].mlp.b_out
    assert torch.equal(writes["L0.b_out"], b_out.expand_as(writes["embed"]))
    assert not torch.allclose(writes["L0MLP"], recorded(model).cache["mlp_out", 0])


@pytest.mark.parametrize("name", CHANGED)
def test_a_stream_that_norms_change_is_refused(name):
    with pytest.raises(InvalidInput, match="is not a sum of"):
        recorded(build(name)).cache.writes()


def test_what_is_returned_is_no_part_of_the_model_or_the_cache():
    model = build_new("gpt2")
    cache = recorded(model).cache
    before = cache.writes()
    spoilt = cache.writes()
    for name in ("embed", "L0H1", "L0MLP", "L0.b_O"):
        spoilt[name][0, 0] = 0.0
    for name, again in cache.writes().items():
        assert torch.equal(again, before[name])


def test_the_dtype_is_that_of_the_cache():
    cache = recorded(build("gpt2")).cache.to(torch.float32)
    assert {written.dtype for written in cache.writes().values()} == {torch.float32}


def test_writes_need_what_was_recorded_and_the_weights_of_the_run(tmp_path):
    model = build_new("gpt2")
    with pytest.raises(NotRecorded, match="result"):
        run(model, *tokens_of("gpt2"), record=["embed", "pos_embed"]).cache.writes()
    cache = recorded(model).cache.keep("all")
    cache.save(tmp_path / "cache.safetensors")
    with pytest.raises(NotRecorded, match="loaded without them"):
        load_cache(tmp_path / "cache.safetensors").writes()
    with torch.no_grad():
        model.blocks[0].attn.b_O.add_(1)
    with pytest.raises(StaleCache, match="b_O is derived from the model"):
        cache.writes()
