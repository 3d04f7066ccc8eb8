"""A model is a stack of steps: it can be stopped at any layer, and run again from the stream."""

from contextlib import contextmanager

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    D_MODEL,
    as_where,
    assert_identical,
    build,
    build_new,
    covering,
    tokens_of,
)

from interp import InterpError, Point, Start, Transformer, edits, run
from interp.model.block import Block


def depth(model: Transformer) -> int:
    return len(model.stacks[-1].blocks)


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch):
    """The blocks that are run, in order."""
    ran: list[Block] = []
    forward = Block.forward

    def counting(self, *args, **kwargs):
        ran.append(self)
        return forward(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Block, "forward", counting)
        yield ran


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_the_stream_where_a_run_stops_is_the_one_that_enters_the_next_layer(name):
    model, tokens = build(name), tokens_of(name)
    cache = run(model, *tokens, record="all").cache
    for layer in range(depth(model)):
        done = run(model, *tokens, stop_at_layer=layer, record="all")
        assert done.logits is None
        assert_identical(done.stream, cache["resid_pre", layer, model.stacks[-1].name])
        for place, value in done.cache.items():
            assert_identical(value, cache[place])


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_a_run_from_the_stream_gives_the_same_logits(name):
    """At every layer, also at the end of the last one; and for every later activation."""
    model, tokens = build(name), tokens_of(name)
    whole = run(model, *tokens, record="all")
    for layer in range(depth(model)):
        x = whole.cache["resid_pre", layer, model.stacks[-1].name]
        done = run(model, *tokens, start=Start(layer, x), record="all")
        assert_identical(done.logits, whole.logits)
        for place, value in done.cache.items():
            assert_identical(value, whole.cache[place])
    end = run(model, *tokens, stop_at_layer=depth(model)).stream
    assert_identical(run(model, *tokens, start=Start(depth(model), end)).logits, whole.logits)


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_from_a_layer_to_a_layer_is_that_part_of_the_whole(name):
    model, tokens = build(name), tokens_of(name)
    n = depth(model)
    for start in range(n + 1):
        x = run(model, *tokens, stop_at_layer=start).stream
        for stop in range(start, n + 1):
            part = run(model, *tokens, start=Start(start, x), stop_at_layer=stop).stream
            assert_identical(part, run(model, *tokens, stop_at_layer=stop).stream)


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_blocks_outside_the_span_are_not_run(name, monkeypatch):
    model, tokens = build(name), tokens_of(name)
    n, blocks = depth(model), list(model.stacks[-1].blocks)
    before = [block for stack in model.stacks[:-1] for block in stack.blocks]
    for start in range(n + 1):
        x = run(model, *tokens, stop_at_layer=start).stream
        for stop in range(start, n + 1):
            with counted(monkeypatch) as ran:
                run(model, *tokens, start=Start(start, x), stop_at_layer=stop, record="all")
            assert ran == before + blocks[start:stop]
    with counted(monkeypatch) as ran:
        run(model, *tokens, record="all")
    assert ran == before + blocks


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "attention-pair"])
def test_weights_outside_the_span_may_be_poison(name):
    """Parts that are not run have no effect: every block and entry left out is set to NaN."""
    model, tokens = build_new(name), tokens_of(name)
    x, expected = run(model, *tokens, stop_at_layer=1).stream, run(model, *tokens).logits
    with torch.no_grad():
        for parameter in model.stacks[-1].blocks[0].parameters():
            parameter.fill_(torch.nan)
    assert_identical(run(model, *tokens, start=Start(1, x)).logits, expected)
    assert bool(run(model, *tokens).logits.isnan().any())


@pytest.mark.parametrize("name", ["gpt2", "rotary-only", "bert", "marian"])
def test_an_edit_within_the_span_is_the_same_edit(name):
    model, tokens = build(name), tokens_of(name)
    stack = model.stacks[-1].name
    edit = edits.scale(("z", 1, stack), 0.5, head=0)
    x = run(model, *tokens, stop_at_layer=1).stream
    expected = run(model, *tokens, edits=[edit]).logits
    assert_identical(run(model, *tokens, edits=[edit], start=Start(1, x)).logits, expected)


def test_layers_count_from_the_end_too():
    model, tokens = build("gpt2"), tokens_of("gpt2")
    x = run(model, *tokens, stop_at_layer=-1).stream
    assert_identical(x, run(model, *tokens, stop_at_layer=1).stream)
    assert_identical(run(model, *tokens, start=Start(-1, x)).logits, run(model, *tokens).logits)
    stopped, cache = model.run_with_cache(*tokens, stop_at_layer=-1)
    assert_identical(stopped, x)
    assert {place.layer for place in cache} == {None, 0}


@pytest.mark.parametrize("stop", [3, -3, 99])
def test_a_layer_that_is_not_there_is_refused(stop):
    model, tokens = build("gpt2"), tokens_of("gpt2")
    x = torch.zeros(2, 5, D_MODEL, dtype=torch.float64)
    with pytest.raises(InterpError, match=str(stop)):
        run(model, *tokens, stop_at_layer=stop)
    with pytest.raises(InterpError, match=r"start at layer"):
        run(model, *tokens, start=Start(stop, x))
    with pytest.raises(InterpError, match=r"start at layer 1 and stop before layer 0"):
        run(model, *tokens, start=Start(1, x), stop_at_layer=0)


@pytest.mark.parametrize(
    "x",
    [
        torch.zeros(2, 4, D_MODEL, dtype=torch.float64),
        torch.zeros(1, 5, D_MODEL, dtype=torch.float64),
        torch.zeros(2, 5, D_MODEL + 1, dtype=torch.float64),
        torch.zeros(2, 5, D_MODEL, dtype=torch.float32),
    ],
)
def test_a_stream_that_does_not_fit_is_refused(x):
    with pytest.raises(InterpError, match="stream to start from"):
        run(build("gpt2"), *tokens_of("gpt2"), start=Start(1, x))


@pytest.mark.parametrize("name", [("z", 1), "blocks.1.hook_resid_post", "blocks.1.attn.hook_q"])
def test_a_place_outside_the_span_can_not_be_recorded(name):
    """Alone, or beside one that can."""
    model, tokens = build("gpt2"), tokens_of("gpt2")
    for beside in ([], [("z", 0)], ["resid_post"]):
        with pytest.raises(InterpError, match="can't be recorded"):
            run(model, *tokens, record=[*beside, name], stop_at_layer=1)


@pytest.mark.parametrize("label", ["logits", "final_scale", Point.LOGITS])
def test_a_label_that_nothing_in_the_span_has_can_not_be_recorded(label):
    model, tokens = build("gpt2"), tokens_of("gpt2")
    with pytest.raises(InterpError, match="can't be recorded"):
        run(model, *tokens, record=[label], stop_at_layer=1)


def test_a_bare_label_means_the_layers_that_are_run():
    """The converse: "every layer" means every layer in the span, which is not refused."""
    model, tokens = build("gpt2"), tokens_of("gpt2")
    cache = run(model, *tokens, record=["z", "resid_pre"], stop_at_layer=1).cache
    assert [as_where(place) for place in cache] == [("resid_pre", 0), ("z", 0)]
