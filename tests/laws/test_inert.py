"""Recording, and edits that change nothing, do not change the logits.

They are bit-identical on the same kernel, and equal to within rounding where an edit makes the
forward form a tensor that fused kernels do not form (scores, pattern, result, scale).
"""

from collections.abc import Sequence

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    HALF,
    PAIRS,
    VARIED,
    as_where,
    assert_close,
    assert_identical,
    build,
    build_new,
    covering,
    in_turn,
    padded,
    tokens_of,
)

from interp import Place, Transformer, edits, run
from interp.edits import Edit

BOUND = 1e-12
LAYOUTS = ["full", "padded"]


def inputs(name: str, layout: str) -> tuple[torch.Tensor, ...]:
    tokens = tokens_of(name)
    if layout == "full":
        return tokens
    return tuple(padded([ids[0], ids[1][:3]], "left") for ids in tokens)


def plain(model: Transformer, tokens: tuple[torch.Tensor, ...]) -> torch.Tensor:
    with torch.no_grad():
        return model(*tokens)


def forces_a_kernel(model: Transformer, place: Place) -> bool:
    """Whether a forward forms this place only if it is edited."""
    return model.layout[place].absent_when_fused


def do_nothing(place: Place) -> Sequence[Edit]:
    where = as_where(place)
    return [
        edits.scale(where, 1.0),
        edits.add(where, 0.0),
        edits.apply(where, lambda tensor, hook: None),
        edits.apply(where, lambda tensor, hook: tensor),
        edits.scale(where, 1.0, batch=0),
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_recording_everything_changes_no_bit(name, layout):
    model, tokens = build(name), inputs(name, layout)
    assert_identical(run(model, *tokens, record="all").logits, plain(model, tokens))
    assert_identical(run(model, *tokens).logits, plain(model, tokens))
    assert_identical(model.run_with_cache(*tokens)[0], plain(model, tokens))
    # With gradients on, some attention takes another kernel; hooks leave that as it is.
    assert_identical(model.run_with_hooks(*tokens), model(*tokens))


@pytest.mark.parametrize("name", VARIED)
def test_recording_any_one_place_changes_no_bit(name):
    model, tokens = build(name), tokens_of(name)
    expected = plain(model, tokens)
    for place in model.names:
        assert_identical(run(model, *tokens, record=[place]).logits, expected)


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_recording_changes_no_bit_on_the_explicit_kernel(name):
    model, tokens = build(name), tokens_of(name)
    explicit = run(model, *tokens, kernel="explicit").logits
    assert_identical(run(model, *tokens, record="all", kernel="explicit").logits, explicit)
    assert_close(explicit, plain(model, tokens), BOUND)


@pytest.mark.parametrize(("name", "layout"), in_turn(ARCHITECTURES, LAYOUTS, HALF, 1))
def test_an_edit_that_changes_nothing_changes_no_bit(name, layout):
    """Bit by bit where the same kernel is used; elsewhere to within rounding."""
    model, tokens = build(name), inputs(name, layout)
    expected = plain(model, tokens)
    for place in model.names:
        bound = BOUND if forces_a_kernel(model, place) else 0.0
        assert_close(run(model, *tokens, edits=do_nothing(place)).logits, expected, bound)


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_all_such_edits_at_once_change_nothing(name):
    model, tokens = build(name), tokens_of(name)
    nothing = [edit for place in model.names for edit in do_nothing(place)]
    assert_close(run(model, *tokens, edits=nothing).logits, plain(model, tokens), BOUND)


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_a_run_leaves_the_model_as_it_was(name):
    """No hook is registered, no weight is changed, and no gradient is left."""
    model, tokens = build_new(name), tokens_of(name)
    before = {key: weight.clone() for key, weight in model.state_dict().items()}
    attributes = {key: set(vars(module)) for key, module in model.named_modules()}
    run(model, *tokens, record="all", edits=[edits.zero(("resid_pre", 0, last(model)))])
    model.run_with_hooks(*tokens, fwd_hooks=[(lambda name: True, lambda tensor, hook: tensor * 2)])
    for key, weight in model.state_dict().items():
        assert_identical(weight, before[key])
    for key, module in model.named_modules():
        assert set(vars(module)) == attributes[key]
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
    assert all(p.grad is None for p in model.parameters())


def last(model: Transformer) -> str:
    return model.stacks[-1].name


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", *PAIRS])
def test_an_edit_that_changes_something_is_not_inert(name):
    """The converse."""
    model, tokens = build(name), tokens_of(name)
    edit = edits.scale(("z", 0, last(model)), 1.1)
    assert not torch.equal(run(model, *tokens, edits=[edit]).logits, plain(model, tokens))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_recording_and_idle_edits_change_no_bit_on_a_gpu(name, dtype):
    model, tokens = build_new(name, dtype=dtype).cuda(), tokens_of(name)
    expected = plain(model, tokens)
    assert_identical(run(model, *tokens, record="all").logits, expected)
    for place in model.names:
        if not forces_a_kernel(model, place):
            idle = edits.scale(as_where(place), 1.0)
            assert_identical(run(model, *tokens, edits=[idle]).logits, expected)
