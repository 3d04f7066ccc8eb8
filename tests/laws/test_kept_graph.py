"""A run that keeps its graph has the gradients of plain torch, for values, functions and weights.

The reference runs the model's own modules one after another, without taps, and is differentiated by
autograd alone. Converse: if no graph is kept, values that require gradients are refused.
"""

import pickle
from collections.abc import Callable

import pytest
import torch
from architectures import (
    D_MODEL,
    as_where,
    assert_close,
    assert_identical,
    build,
    build_new,
    covering,
    tokens_of,
)
from torch import Tensor
from torch.func import functional_call, jvp

from interp import Transformer, edits, metrics, run, sweep
from interp.errors import InvalidEdit, InvalidInput
from interp.io.tensor_data import TensorData

LAYER = 1


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def wanted(*shape: int) -> Tensor:
    return drawn(*shape).mul(0.1).requires_grad_()


def loss(logits: Tensor) -> Tensor:
    return logits.log_softmax(-1)[..., 3].square().mean()


def by_hand(
    model: Transformer, tokens: tuple[Tensor, ...], change: Callable[[Tensor], Tensor]
) -> Tensor:
    """Logits of a model with one stack whose stream is changed before block ``LAYER``."""
    (batch,), (stack,) = model.check(*tokens), model.stacks
    (context,) = model.contexts([batch])
    x = stack.embed(batch, context)
    for layer, block in enumerate(stack.blocks):
        x = block(change(x) if layer == LAYER else x, context)
    return model.unembed(stack.final_norm(x))


NAMES = ["gpt2", "llama", "gemma2", "mixtral", "bert-types", "post-final"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["add", "replace", "apply"])
def test_gradients_by_a_vector_and_by_weights_are_those_of_plain_torch(name, kind):
    model, tokens = build_new(name), tokens_of(name)
    w, shape = wanted(D_MODEL), (*tokens[0].shape, D_MODEL)
    changes = {"add": lambda x: x + w, "replace": lambda x: w.expand(shape)}
    change = changes.get(kind, lambda x: x * w)
    weights = dict(model.named_parameters())
    expected = torch.autograd.grad(
        loss(by_hand(model, tokens, change)), [w, *weights.values()], materialize_grads=True
    )
    value = (lambda x, hook: change(x)) if kind == "apply" else w
    edit = getattr(edits, kind)("resid_pre", value, layer=LAYER)
    done = run(model, *tokens, edits=[edit], keep_graph=True)
    gradients = torch.autograd.grad(
        loss(done.logits), [w, *weights.values()], materialize_grads=True
    )
    for label, gradient, other in zip(["w", *weights], gradients, expected, strict=True):
        assert_close(gradient, other, what=label)
    assert bool((gradients[0] != 0).any())


def test_a_steering_vector_is_learned_as_in_plain_torch():
    model, tokens = build("gpt2"), tokens_of("gpt2")
    ours, theirs = wanted(D_MODEL), wanted(D_MODEL)
    losses = []
    for _ in range(5):
        edit = edits.add("resid_pre", ours, layer=LAYER)
        edited_loss = loss(run(model, *tokens, edits=[edit], keep_graph=True).logits)
        expected = loss(by_hand(model, tokens, lambda x: x + theirs))
        losses.append(float(edited_loss.detach()))
        for w, value in ((ours, edited_loss), (theirs, expected)):
            (gradient,) = torch.autograd.grad(value, [w])
            with torch.no_grad():
                w.sub_(0.5 * gradient)
        assert_close(ours, theirs)
    assert losses[-1] < losses[0]


def test_a_rotation_is_learned_as_in_plain_torch():
    """Orthogonal, as the exponential of an antisymmetric matrix; of some positions alone."""
    model, tokens = build("gpt2"), tokens_of("gpt2")
    a = wanted(D_MODEL, D_MODEL)

    def rotated(x: Tensor) -> Tensor:
        return x @ torch.matrix_exp(a - a.mT)

    def by_hand_at_last(x: Tensor) -> Tensor:
        return torch.cat([x[:, :-1], rotated(x[:, -1:])], dim=1)

    edit = edits.apply("resid_pre", lambda x, hook: rotated(x), layer=LAYER, pos=-1)
    edited_loss = loss(run(model, *tokens, edits=[edit], keep_graph=True).logits)
    expected = loss(by_hand(model, tokens, by_hand_at_last))
    assert_close(edited_loss, expected)
    gradients = [torch.autograd.grad(value, [a])[0] for value in (edited_loss, expected)]
    assert_close(*gradients)
    assert bool((gradients[0] != 0).any())


def test_functions_given_as_hooks_keep_what_they_capture():
    model, tokens, w = build("gpt2"), tokens_of("gpt2"), wanted(D_MODEL)
    hooked = model.run_with_hooks(
        *tokens, fwd_hooks=[(f"blocks.{LAYER}.hook_resid_pre", lambda x, hook: x + w)]
    )
    expected = by_hand(model, tokens, lambda x: x + w)
    assert_close(*(torch.autograd.grad(loss(logits), [w])[0] for logits in (hooked, expected)))


# The cache and the stream.


@pytest.mark.parametrize("name", covering([*NAMES, "t5", "bloom"], ["gemma2", "t5"]))
def test_every_place_of_the_cache_has_the_slope_of_what_it_holds(name):
    """Stored or derived: ⟨∂(Σ u·place)/∂w, d⟩ is the difference quotient of Σ u·place along d."""
    model, tokens = build(name), tokens_of(name, pos=4)
    first = next(iter(model.names))
    d, step = drawn(D_MODEL, seed=1), 1e-5
    w = torch.zeros(D_MODEL, dtype=torch.float64, requires_grad=True)

    def recorded(values: Tensor, *, keep_graph: bool = False):
        edit = edits.add(as_where(first), values)
        return run(model, *tokens, record="all", edits=[edit], keep_graph=keep_graph).cache

    def weighed(x: Tensor) -> Tensor:
        return (x.masked_fill(x.isinf(), 0.0) * drawn(*x.shape)).sum()

    with torch.no_grad():
        sides = [recorded(sign * step * d) for sign in (1, -1)]
    wrong, cache = {}, recorded(w, keep_graph=True)
    for place in cache:
        expected = float(weighed(sides[0][place]) - weighed(sides[1][place])) / (2 * step)
        value = weighed(cache[place])
        if value.requires_grad:
            (gradient,) = torch.autograd.grad(value, [w], retain_graph=True, materialize_grads=True)
            slope = float((gradient @ d).detach())
        else:
            slope = 0.0
        if abs(slope - expected) > 1e-6 * max(1.0, abs(expected)):
            wrong[str(place)] = slope, expected
    assert not wrong


def test_what_is_derived_is_differentiated_as_often_as_it_is_read():
    """Also after a first reading without gradients, which shares nothing with the second."""
    model, tokens = build("t5"), tokens_of("t5")
    cache = run(model, *tokens, record="all", keep_graph=True).cache
    place = ("pattern", 0, "encoder")
    with torch.no_grad():
        assert not cache[place].requires_grad
    table = model.get_submodule("encoder.ranges").weight
    first, second = (torch.autograd.grad(cache[place].square().sum(), [table])[0] for _ in range(2))
    assert_identical(first, second)
    assert bool((first != 0).any())


def test_a_stopped_run_keeps_the_graph_of_its_stream():
    model, tokens, w = build("gpt2"), tokens_of("gpt2"), wanted(D_MODEL)
    edit = edits.add("embed", w)
    stream = run(model, *tokens, edits=[edit], stop_at_layer=1, keep_graph=True).stream
    (gradient,) = torch.autograd.grad(stream.sum(), [w])
    assert bool((gradient != 0).any())


def test_gradients_by_places_leave_a_kept_graph_usable():
    model, tokens, w = build("gpt2"), tokens_of("gpt2"), wanted(D_MODEL)
    made = {"record": ["z"], "gradients_of": metrics.loss()}
    both = run(model, *tokens, edits=[edits.add("embed", w)], keep_graph=True, **made)
    alone = run(model, *tokens, edits=[edits.add("embed", w.detach())], **made)
    assert_identical(both.cache["z_grad", 0], alone.cache["z_grad", 0])
    both.logits.sum().backward()
    assert w.grad is not None


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
def test_numbers_are_those_of_a_run_without_a_graph(mode):
    model, tokens = build("gpt2"), tokens_of("gpt2")
    with mode():
        with_graph, plain = (run(model, *tokens, record="all", keep_graph=k) for k in (True, False))
    assert with_graph.logits.requires_grad
    assert not plain.logits.requires_grad
    assert_close(with_graph.logits, plain.logits)
    for place, value in plain.cache.items():
        assert not value.requires_grad
        assert_close(with_graph.cache[place], value)


def test_a_kept_cache_is_moved_saved_and_pickled_as_any_other(tmp_path):
    model, tokens = build("gpt2"), tokens_of("gpt2")
    done = run(model, *tokens, record="all", keep_graph=True)
    assert done.cache.to(torch.float32)["z", 0].requires_grad
    done.cache.save(tmp_path / "run.cache")
    again = pickle.loads(pickle.dumps(done.cache))
    assert not again["z", 0].requires_grad
    assert_identical(again["pattern", 0], done.cache["pattern", 0].detach())


# Where no gradient is recorded.


@pytest.mark.parametrize("kind", ["add", "replace", "mean", "resample"])
def test_values_that_want_a_gradient_are_refused_where_it_would_be_lost(kind):
    model, (tokens,) = build("gpt2"), tokens_of("gpt2")
    edit = getattr(edits, kind)("resid_pre", wanted(D_MODEL), layer=LAYER)
    attempts = [
        lambda: run(model, tokens, edits=[edit]),
        lambda: run(model, tokens, record=["z"], edits=[edit], gradients_of=metrics.loss()),
        lambda: sweep(model, tokens, [edit], metrics.logit(1)),
        lambda: model.generate(tokens, max_new_tokens=1, edits=[edit]),
    ]
    for attempt in attempts:
        with pytest.raises(InvalidEdit, match=rf"edits\.{kind}.*keep_graph=True.*detach"):
            attempt()
        with torch.no_grad():
            attempt()


def test_values_changed_after_the_edit_was_made_are_refused():
    """Otherwise the gradient would be that of other values."""
    model, tokens, w = build("gpt2"), tokens_of("gpt2"), wanted(D_MODEL)
    edit = edits.add("resid_pre", w, layer=LAYER)
    with torch.no_grad():
        w += 1
    with pytest.raises(InvalidEdit, match="changed in place after the edit was created"):
        run(model, *tokens, edits=[edit], keep_graph=True)


def test_an_edit_with_a_gradient_is_data_as_any_other():
    w = wanted(D_MODEL)
    edit, other = (edits.add("resid_pre", v, layer=LAYER) for v in (w, w.detach()))
    assert edit == other
    assert edit.digest == other.digest
    assert edits.from_dict(edit.to_dict()) == edit
    again = pickle.loads(pickle.dumps(edit))
    assert again == edit
    assert not again.values.wants_gradient


def test_the_data_of_a_metric_holds_no_graph():
    """It would keep all activations of the reference in memory."""
    reference = build("gpt2")(*tokens_of("gpt2"))
    assert reference.requires_grad
    assert not metrics.kl(reference).reference.wants_gradient
    assert TensorData(reference).wants_gradient


@pytest.mark.parametrize("option", [{"keep_graph": True}, {"gradients_of": metrics.loss()}])
def test_there_is_no_graph_in_inference_mode(option):
    with torch.inference_mode(), pytest.raises(InvalidInput, match="inference_mode"):
        run(build("gpt2"), *tokens_of("gpt2"), record="z", **option)


# Forward mode.


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")  # torch's own jvp
@pytest.mark.parametrize("name", covering([*NAMES, "t5", "bloom"], ["gpt2", "t5"]))
def test_forward_mode_is_the_directional_derivative_of_backward_mode(name):
    """⟨J u, v⟩ = ⟨u, Jᵀ v⟩ by all weights; the fused kernel has no forward mode."""
    model, tokens = build_new(name), tokens_of(name)
    weights = dict(model.named_parameters())
    u = {key: drawn(*weight.shape, seed=n) for n, (key, weight) in enumerate(weights.items())}

    def logits(parameters: dict[str, Tensor]) -> Tensor:
        return functional_call(model, parameters, tokens)

    _, forward = jvp(logits, (weights,), (u,))
    out = logits(weights)
    v = drawn(*out.shape)
    back = torch.autograd.grad((out * v).sum(), list(weights.values()), materialize_grads=True)
    expected = sum((gradient * u[key]).sum() for gradient, key in zip(back, weights, strict=True))
    assert_close((forward * v).sum().detach(), expected)


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")  # torch's own jvp
def test_forward_mode_through_a_run_and_its_edit():
    model, tokens, w, u = build("gpt2"), tokens_of("gpt2"), drawn(D_MODEL), drawn(D_MODEL, seed=1)

    def steered(values: Tensor) -> Tensor:
        edit = edits.add("resid_pre", values, layer=LAYER)
        return run(model, *tokens, edits=[edit], keep_graph=True).logits

    def plain(values: Tensor) -> Tensor:
        return by_hand(model, tokens, lambda x: x + values)

    (_, tangent), (_, expected) = (jvp(f, (w,), (u,)) for f in (steered, plain))
    assert_close(tangent.detach(), expected.detach())
    assert bool((tangent != 0).any())
    with pytest.raises(InvalidInput, match=r"fused.*forward-mode"):
        jvp(lambda x: run(model, *tokens, kernel="fused").logits * x, (w[0],), (u[0],))
