"""Training translators: what is minimized, in which order, stopped and continued."""

from dataclasses import replace

import pytest
import torch
from architectures import assert_close, assert_identical, build, build_new, padded, tokens_of

from analyses import TunedLens, logit_lens
from analyses.methods.lens.decode import decode
from analyses.train_lens.training import Settings, lens_divergence, train
from interp import run
from interp.errors import InvalidInput

SETTINGS = Settings(steps=6, rows=3, lr=1e-2, seed=0)


def batches_of(name, rows=8):
    return build(name).check(*tokens_of(name, batch=rows))


@pytest.mark.parametrize("name", ["gpt2", "t5", "bert-types"])
def test_the_divergence_falls_on_other_prompts(name):
    """At every layer, from that of the logit lens, which is the one before the first step."""
    model, batches = build(name), batches_of(name, 40)
    held_out = model.check(*tokens_of(name, batch=20, seed=1))
    training = train(model, batches, replace(SETTINGS, steps=60, rows=8))
    before, after = (
        lens_divergence(model, lens, held_out, SETTINGS)
        for lens in (TunedLens.untrained(model), training.lens)
    )
    assert (after.mean(-1) < 0.9 * before.mean(-1)).all()
    prompts = tokens_of(name, batch=20, seed=1)
    plain = logit_lens(model, prompts if len(prompts) > 1 else prompts[0])
    assert_close(before, plain.kl[:-1].mean(-1))


def test_the_first_step_is_along_the_gradient_of_the_divergence():
    """Adam's first step is −lr · g / (|g| + 1e-8), g that of Σ_l mean KL at A = b = 0."""
    model, (batch,) = build("gpt2"), batches_of("gpt2", 3)
    training = train(model, [batch], replace(SETTINGS, steps=1))
    done = run(model, batch, record="resid_pre")
    A, b = (
        torch.zeros_like(tensor).requires_grad_() for tensor in (training.lens.A, training.lens.b)
    )
    p, kl = done.logits.softmax(-1), []
    for layer in range(2):
        x = done.cache["resid_pre", layer]
        q = decode(model, x + x @ A[layer] + b[layer]).softmax(-1)
        kl.append((p * (p / q).log()).sum(-1).mean())
    assert_close(training.kl[0], torch.stack(kl))
    for moved, g in zip(
        (training.lens.A, training.lens.b), torch.autograd.grad(sum(kl), (A, b)), strict=True
    ):
        assert_close(moved, -SETTINGS.lr * g / (g.abs() + 1e-8), 1e-9)


def test_a_layer_behind_which_nothing_is_written_needs_no_translation():
    model = build_new("gpt2")
    with torch.no_grad():
        for part in (model.blocks[1].attn, model.blocks[1].mlp):
            for weight in part.parameters():
                weight.zero_()
    training = train(model, model.check(*tokens_of("gpt2")), replace(SETTINGS, steps=1))
    assert training.kl[0, 1].abs() < 1e-12
    assert training.kl[0, 0] > 1e-3


def test_padding_changes_nothing():
    """Up to rounding, which Adam's quotient g / (|g| + 1e-8) enlarges where g is small."""
    model, rows = build("llama"), [torch.tensor(row) for row in ([1, 2, 3, 4], [5, 6], [7, 8, 9])]
    left, right = (
        train(model, model.check(padded(rows, side, extra=1)), SETTINGS).lens
        for side in ("left", "right")
    )
    assert_close(left.A, right.A, 1e-9)
    assert_close(left.b, right.b, 1e-9)


def test_the_model_stays_as_it_is():
    model = build_new("gpt2")
    before = [weight.clone() for weight in model.parameters()]
    train(model, batches_of("gpt2"), SETTINGS)
    for weight, old in zip(model.parameters(), before, strict=True):
        assert_identical(weight, old)
        assert weight.grad is None
        assert weight.requires_grad


def test_a_seed_gives_the_same_lens():
    model, batches = build("gpt2"), batches_of("gpt2")
    first, same = (train(model, batches, SETTINGS) for _ in range(2))
    other = train(model, batches, replace(SETTINGS, seed=1))
    assert_identical(first.lens.A, same.lens.A)
    assert not torch.equal(first.lens.A, other.lens.A)


def test_a_training_that_was_stopped_resumes_bit_identically():
    """From one that was stopped, as often as wanted: it stays as it is."""
    model, batches = build("gpt2"), batches_of("gpt2")
    whole, steps = train(model, batches, SETTINGS), []
    stopped = train(
        model,
        batches,
        SETTINGS,
        progress=lambda done, total: steps.append((done, total)),
        cancelled=lambda: len(steps) == 2,
    )
    assert steps == [(1, 6), (2, 6)]
    assert_identical(stopped.kl, whole.kl[:2])
    for _ in range(2):
        resumed = train(model, batches, SETTINGS, resume=stopped)
        assert_identical(resumed.lens.A, whole.lens.A)
        assert_identical(resumed.lens.b, whole.lens.b)
        assert_identical(resumed.kl, whole.kl)
    assert_identical(train(model, batches, SETTINGS, resume=whole).lens.A, whole.lens.A)


def test_the_training_of_another_call_is_not_resumed():
    model, batches = build("gpt2"), batches_of("gpt2")
    stopped = train(model, batches, SETTINGS, cancelled=lambda: True)
    for wrong, settings, what in (
        (batches_of("gpt2", 7), SETTINGS, "tokens"),
        (batches, replace(SETTINGS, lr=1e-3), "lr"),
        (batches, replace(SETTINGS, seed=1), "seed"),
    ):
        with pytest.raises(InvalidInput, match=f"from a call with other {what};"):
            train(model, wrong, settings, resume=stopped)
    with pytest.raises(InvalidInput, match="from a call with other weights;"):
        train(build_new("gpt2", seed=1), batches, SETTINGS, resume=stopped)


@pytest.mark.parametrize(("n", "rows"), [(5, 2), (2, 5), (3, 3)])
def test_each_pass_takes_every_prompt_once(n, rows):
    steps = list(replace(SETTINGS, steps=3 * n, rows=rows).prompts_of_steps(n))
    assert [len(prompts) for prompts in steps] == [rows] * (3 * n)
    taken = torch.cat(steps)
    passes = taken[: len(taken) // n * n].view(-1, n)
    assert (passes.sort(-1).values == torch.arange(n)).all()
    assert not (passes == passes[0]).all()


@pytest.mark.parametrize(
    ("name", "value"),
    [("steps", 0), ("rows", -1), ("lr", 0.0), ("lr", float("nan"))],
)
def test_settings_that_cannot_be_used_are_refused(name, value):
    settings = Settings(**{**vars(SETTINGS), name: value})
    with pytest.raises(InvalidInput, match=f"{name}="):
        settings.checked()


def test_a_training_that_diverges_is_refused():
    model, settings = build_new("gpt2"), replace(SETTINGS, lr=1e300)
    prompts = model.check(torch.tensor([[3, 1, 2]]))
    with pytest.raises(InvalidInput, match="The KL of step 2 is not finite"):
        train(model, prompts, settings)
    with torch.no_grad():
        model.W_E[3] = torch.nan
    with pytest.raises(InvalidInput, match='NaN on these prompts, first at "embed"'):
        train(model, prompts, SETTINGS)
