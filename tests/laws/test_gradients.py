"""A recorded gradient is the slope of the metric as that place is edited: ⟨∂m/∂p, u⟩ = dm/dε."""

import pytest
import torch
from architectures import (
    VARIED,
    as_where,
    assert_close,
    assert_identical,
    build,
    build_new,
    covering,
    padded,
    tokens_of,
)

from interp import InterpError, Place, Point, Start, Transformer, edits, metrics, run
from interp.execution.run import run_measured
from interp.metrics import measure

STEP, BOUND = 1e-4, 1e-6


def metric(logits: torch.Tensor) -> torch.Tensor:
    """A nonlinear function of all logits."""
    weights = torch.linspace(-1, 1, logits[0].numel(), dtype=logits.dtype).reshape(logits[0].shape)
    return (logits.tanh() * weights.sin()).sum((1, 2))


def direction(like: torch.Tensor) -> torch.Tensor:
    u = torch.randn(like.shape, generator=torch.Generator().manual_seed(1), dtype=like.dtype)
    return u / u.norm()


def slope(
    model: Transformer, tokens: tuple[torch.Tensor, ...], place: Place, u: torch.Tensor
) -> float:
    """Central difference of the metric as the place is moved along ``u``, to fourth order."""

    def moved(step: float) -> float:
        edit = edits.add(as_where(place), step * u)
        return float(metric(run(model, *tokens, edits=[edit]).logits).sum())

    near, far = moved(STEP) - moved(-STEP), moved(2 * STEP) - moved(-2 * STEP)
    return (8 * near - far) / (12 * STEP)


@pytest.mark.parametrize("name", covering(["seed", "gptj", *VARIED], ["gptj", "post-final"]))
def test_a_gradient_is_the_slope_along_any_direction(name):
    """For every place, including those that fused kernels never form."""
    model, tokens = build(name), tokens_of(name, pos=4)
    cache = run(model, *tokens, record="all", gradients_of=metric).cache
    wrong = {}
    for place in cache:
        gradient = cache[(f"{place.point.label}_grad", *as_where(place)[1:])]
        u = direction(gradient)
        expected = slope(model, tokens, place, u)
        off = abs(float((gradient * u).sum()) - expected)
        if not off <= BOUND * max(1.0, abs(expected)):
            wrong[str(place)] = (float((gradient * u).sum()), expected)
    assert not wrong


@pytest.mark.parametrize("name", covering(["llama", "uneven-pair"], ["uneven-pair"]))
def test_a_gradient_recorded_alone_is_the_one_among_all(name):
    model, tokens = build(name), tokens_of(name, pos=4)
    everything = run(model, *tokens, record="all", gradients_of=metric).cache
    for place in model.names:
        name_of_gradient = (f"{place.point.label}_grad", *as_where(place)[1:])
        alone = run(model, *tokens, record=[place], gradients_of=metric).cache[name_of_gradient]
        torch.testing.assert_close(alone, everything[name_of_gradient], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["gpt2", "gemma2", "bert", "uneven-pair"])
def test_a_metric_has_the_same_gradients_without_the_logits_that_it_does_not_read(name):
    model, tokens = build(name), tokens_of(name)
    reference = torch.zeros_like(model(*tokens))
    for read in (
        metrics.logit_diff(1, (2, 3), pos=1),
        metrics.prob((4, 5)),
        metrics.kl(reference, pos=0),
        metrics.kl(reference),
    ):
        done = run(model, *tokens, record=["q", "resid_post"], gradients_of=read)
        values, cache = run_measured(model, *tokens, metric=read, record=["q", "resid_post"])
        assert_close(values, measure(read, done.logits, done.batch))
        for place in cache:
            gradient = (f"{place.point.label}_grad", *as_where(place)[1:])
            assert_close(cache[gradient], done.cache[gradient])


@pytest.mark.parametrize(
    "wrong", [metrics.logit(10**6), metrics.logit((1, 2, 3)), metrics.logit(1, pos=9)]
)
def test_a_metric_that_does_not_fit_is_refused_without_the_logits_too(wrong):
    with pytest.raises(InterpError):
        run_measured(build("gpt2"), *tokens_of("gpt2"), metric=wrong, record=["q"])


@pytest.mark.parametrize("name", ["gpt2", "bert", "uneven-pair"])
def test_gradients_leave_logits_weights_and_their_gradients_alone(name):
    model, tokens = build_new(name), tokens_of(name)
    plain = run(model, *tokens, record=["z", "resid_post"])
    marks = {key: torch.full_like(p, 7.0) for key, p in model.named_parameters()}
    for key, parameter in model.named_parameters():
        parameter.grad = marks[key].clone()
    done = run(model, *tokens, record=["z", "resid_post"], gradients_of=metrics.loss())
    assert_identical(done.logits, plain.logits)
    assert not done.logits.requires_grad
    for key, parameter in model.named_parameters():
        assert_identical(parameter.grad, marks[key])
    for place, value in done.cache.items():
        assert_identical(value, plain.cache[place])
        assert not value.requires_grad


def test_gradients_need_no_trainable_weights():
    frozen = build_new("gpt2").requires_grad_(requires_grad=False)
    record = {"record": ["embed", ("z", 0)], "gradients_of": metric}
    expected = run(build("gpt2"), *tokens_of("gpt2"), **record).cache
    cache = run(frozen, *tokens_of("gpt2"), **record).cache
    assert_identical(cache["embed_grad"], expected["embed_grad"])
    assert_identical(cache["z_grad", 0], expected["z_grad", 0])


def test_gradients_are_taken_with_the_callers_grad_mode_off():
    model, tokens = build("gpt2"), tokens_of("gpt2")
    with torch.no_grad():
        cache = run(model, *tokens, record=["z"], gradients_of=metric).cache
        assert not torch.is_grad_enabled()
    assert bool((cache["z_grad", 0] != 0).any())


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("side", ["none", "right", "left"])
def test_run_with_cache_differentiates_the_mean_over_all_predictions(rows, side):
    """As in TransformerLens and in a training step: autograd of the cross-entropy alone."""
    model, (ids,) = build("gpt2"), tokens_of("gpt2", batch=3, pos=6)
    texts = [ids[0], ids[1][:4], ids[2][:1]] if side != "none" else list(ids)
    tokens = padded(texts[:rows], side)
    (batch,) = model.check(tokens)
    (context,) = model.contexts([batch])
    embed = model.stacks[0].embed(batch, context).detach().requires_grad_()
    x = embed
    for block in model.blocks:
        x = block(x, context)
    logits = model.unembed(model.stacks[0].final_norm(x))
    pairs = [
        (logits[row, batch.is_real[row]][:-1], text[1:]) for row, text in enumerate(texts[:rows])
    ]
    predictions, targets = (torch.cat(each) for each in zip(*pairs, strict=True))
    loss = torch.nn.functional.cross_entropy(predictions, targets)
    (expected,) = torch.autograd.grad(loss, [embed])
    _, cache = model.run_with_cache(tokens, incl_bwd=True)
    assert_close(cache["resid_pre_grad", 0], expected)
    assert_identical(cache["blocks.0.hook_resid_pre_grad"], cache["resid_pre_grad", 0])


def test_the_gradients_of_a_metric_are_those_of_its_sum_over_prompts():
    """The converse: for n prompts of one length, it is n times the gradient of the mean."""
    model, tokens = build("gpt2"), tokens_of("gpt2")
    _, mean = model.run_with_cache(*tokens, incl_bwd=True)
    total = run(model, *tokens, record="all", gradients_of=metrics.loss()).cache
    assert_close(total["z_grad", 0], mean["z_grad", 0] * len(tokens[0]))


def test_a_batch_without_a_prediction_has_no_loss():
    with pytest.raises(InterpError, match="single token"):
        build("gpt2").run_with_cache(torch.tensor([[1], [2]]), incl_bwd=True)


def test_a_place_on_which_nothing_depends_has_a_zero_gradient():
    """Later positions, for a metric that reads the first."""
    model, tokens = build("gpt2"), tokens_of("gpt2")
    first = metrics.logit(3, pos=0)
    gradient = run(model, *tokens, record=["resid_pre"], gradients_of=first).cache[
        "resid_pre_grad", 0
    ]
    assert bool((gradient[:, 1:] == 0).all())
    assert bool((gradient[:, 0] != 0).any())


def test_gradients_can_not_be_had_without_logits_or_places():
    model, tokens = build("gpt2"), tokens_of("gpt2")
    with pytest.raises(InterpError, match="this run has none"):
        run(model, *tokens, record=["z"], gradients_of=metric, stop_at_layer=1)
    with pytest.raises(InterpError, match="record="):
        run(model, *tokens, gradients_of=metric)
    with pytest.raises(InterpError, match="gradients_of"):
        run(model, *tokens, record=["z"]).cache["z_grad", 0]


def test_hooks_keep_the_callers_graph():
    """run_with_hooks under grad mode: backward reaches the weights, as in an ordinary forward."""
    model, tokens = build_new("gpt2"), tokens_of("gpt2")
    model.run_with_hooks(
        *tokens, fwd_hooks=[("blocks.0.attn.hook_z", lambda z, hook: z * 2)]
    ).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    with torch.no_grad():
        assert not model.run_with_hooks(*tokens).requires_grad


def test_the_gradient_by_an_experts_weight_is_there_for_those_not_chosen():
    """d metric / d w of every expert, by finite differences, whatever else is recorded."""
    model, (ids,) = build("mixtral"), tokens_of("mixtral", batch=1)
    where, metric, step = ("expert_weights", 0), metrics.logit(3), 1e-6
    done = run(model, ids, record=["expert_weights"], gradients_of=metric)
    gradient = done.cache["expert_weights_grad", 0][0, -1]
    for expert in range(4):
        sides = [
            run(model, ids, edits=[edits.add(where, sign * step, pos=-1, expert=expert)])
            for sign in (1, -1)
        ]
        more, less = (metric(side.logits, side.batch) for side in sides)
        assert float(((more - less) / (2 * step) - gradient[expert]).abs()) < 1e-6
    assert bool((gradient != 0).all())


@pytest.mark.parametrize("name", covering(["gpt2", "t5", "uneven-pair"], ["gpt2", "uneven-pair"]))
def test_a_run_from_a_stream_has_the_same_gradients_behind_it(name):
    """Also in the decoder of an encoder–decoder, whose source is given."""
    model, tokens = build(name), tokens_of(name)
    layer, stack = len(model.stacks[-1].blocks) - 1, model.stacks[-1].name
    where = Place(Point.RESID_PRE, layer, stack=stack if len(model.stacks) > 1 else None)
    behind = [place for place in model.layout if place.stack == where.stack]
    behind = behind[behind.index(where) :]
    whole = run(model, *tokens, record=behind, gradients_of=metric).cache
    start = Start(layer, whole[where])
    part = run(model, *tokens, record=behind, start=start, gradients_of=metric).cache
    for place in behind:
        gradient = (f"{place.point.label}_grad", *as_where(place)[1:])
        assert_close(part[gradient], whole[gradient], 1e-12, place)
