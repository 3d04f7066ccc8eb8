"""A metric is its formula, reads what it declares, and takes each row alone."""

import json

import pytest
import torch
from architectures import D_VOCAB, assert_close, assert_identical, build, padded, tokens_of
from tables import each
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

import analyses
import interp
from interp import PAD, InterpError, metrics, run
from interp.errors import InvalidInput, InvalidTokens
from interp.metrics import measure
from interp.metrics.measuring import measure_prompts
from interp.metrics.position import as_targets
from interp.model.batch import Batch

N_CTX = 16
MODEL = build("gpt2")
(TOKENS,) = tokens_of("gpt2", batch=3, pos=5)
LOGITS = run(MODEL, TOKENS).logits
BATCH = Batch.of(TOKENS, D_VOCAB, N_CTX)
ROWS = [TOKENS[0], TOKENS[1][:3], TOKENS[2][:2]]


def kl_to_zero() -> metrics.KL:
    return metrics.kl(torch.zeros_like(LOGITS))


def all_metrics() -> dict[str, metrics.Metric]:
    return {
        "loss": metrics.loss(),
        "logit": metrics.logit(3, pos=-1),
        "logit-of-each": metrics.logit((1, 2, 3), pos=1),
        "logit-diff": metrics.logit_diff(4, 7, pos=0),
        "logit-diff-of-each": metrics.logit_diff(torch.tensor([4, 5, 6]), (0, 1, 2)),
        "prob": metrics.prob(2),
        "accuracy": metrics.accuracy(11, pos=-2),
    }


def test_the_loss_is_the_mean_cross_entropy_of_the_next_token_in_nats():
    expected = F.cross_entropy(LOGITS[:, :-1].mT, TOKENS[:, 1:], reduction="none").mean(-1)
    assert_close(metrics.loss()(LOGITS, BATCH), expected)


def test_a_model_that_knows_nothing_loses_the_logarithm_of_its_vocabulary():
    assert_close(
        metrics.loss()(torch.zeros_like(LOGITS), BATCH),
        torch.full((3,), D_VOCAB, dtype=torch.float64).log(),
    )


def test_logits_and_their_differences_are_read_at_a_position():
    assert_identical(metrics.logit(3)(LOGITS, BATCH), LOGITS[:, -1, 3])
    assert_identical(metrics.logit(3, pos=1)(LOGITS, BATCH), LOGITS[:, 1, 3])
    diff = metrics.logit_diff(3, 5, pos=-2)(LOGITS, BATCH)
    assert_identical(diff, LOGITS[:, -2, 3] - LOGITS[:, -2, 5])


@pytest.mark.parametrize("target", [[1, 4, 2], (1, 4, 2), torch.tensor([1, 4, 2])])
def test_every_prompt_may_have_a_target_of_its_own(target):
    rows = torch.arange(3)
    expected = LOGITS[rows, -1, torch.tensor([1, 4, 2])]
    assert_identical(metrics.logit(target)(LOGITS, BATCH), expected)
    assert_identical(metrics.logit_diff(target, 0)(LOGITS, BATCH), expected - LOGITS[:, -1, 0])
    probability = LOGITS[:, -1].softmax(-1)[rows, torch.tensor([1, 4, 2])]
    assert_identical(metrics.prob(target)(LOGITS, BATCH), probability)


def test_probabilities_sum_to_one_and_accuracies_to_one_hit():
    total = sum(metrics.prob(t)(LOGITS, BATCH) for t in range(D_VOCAB))
    assert_close(total, torch.ones(3, dtype=torch.float64))
    hits = sum(metrics.accuracy(t)(LOGITS, BATCH) for t in range(D_VOCAB))
    assert_identical(hits, torch.ones(3, dtype=torch.float64))
    best = LOGITS[:, -1].argmax(-1)
    assert_identical(metrics.accuracy(best)(LOGITS, BATCH), torch.ones(3, dtype=torch.float64))


def test_the_divergence_is_the_expected_difference_of_logarithms():
    """KL(reference ‖ model) in nats, mean over positions or at one; zero for the same, ≥ 0 else."""
    reference = LOGITS.flip(0)
    p, q = reference.log_softmax(-1), LOGITS.log_softmax(-1)
    expected = (p.exp() * (p - q)).sum(-1)
    assert_close(metrics.kl(reference)(LOGITS, BATCH), expected.mean(-1))
    assert_close(metrics.kl(reference, pos=1)(LOGITS, BATCH), expected[:, 1])
    assert_close(metrics.kl(LOGITS)(LOGITS, BATCH), torch.zeros(3, dtype=torch.float64))
    assert bool((metrics.kl(reference)(LOGITS, BATCH)[[0, 2]] > 0).all())
    assert_close(metrics.kl(LOGITS + 5.0)(LOGITS, BATCH), torch.zeros(3, dtype=torch.float64))


@pytest.mark.parametrize("name", all_metrics())
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_row_measures_the_same_padded_as_alone(name, side):
    metric = all_metrics()[name]
    ids = padded(ROWS, side)
    together = run(MODEL, ids)
    measured = measure(metric, together.logits, together.batch)
    for row, tokens in enumerate(ROWS):
        row_metric = metric
        if name.endswith("of-each"):
            picked = {"target": metric.target[row]}
            if name.startswith("logit-diff"):
                picked["distractor"] = metric.distractor[row]
            make = metrics.logit_diff if "distractor" in picked else metrics.logit
            row_metric = make(**picked, pos=metric.pos)
        alone = run(MODEL, tokens)
        assert_close(measured[row], measure(row_metric, alone.logits, alone.batch)[0])


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_divergence_measures_real_positions_alone(side):
    together = run(MODEL, padded(ROWS, side))
    reference = torch.zeros_like(together.logits)
    for pos in (None, -1, 0):
        measured = metrics.kl(reference, pos)(together.logits, together.batch)
        for row, tokens in enumerate(ROWS):
            alone = run(MODEL, tokens)
            row_metric = metrics.kl(torch.zeros_like(alone.logits), pos)
            assert_close(measured[row], row_metric(alone.logits, alone.batch)[0])


@pytest.mark.parametrize("name", all_metrics())
def test_a_metric_depends_on_no_column_and_position_that_it_does_not_name(name):
    """All that it does not declare to read may be changed."""
    metric = all_metrics()[name]
    expected = metric(LOGITS, BATCH)
    if metric.pos is not None:
        other = torch.full_like(LOGITS, 1e3)
        other[:, metric.pos] = LOGITS[:, metric.pos]
        assert_identical(metric(other, BATCH), expected)
    if metric.columns is not None:
        columns = list(metric.columns)
        other = torch.full_like(LOGITS, 1e3)
        other[..., columns] = LOGITS[..., columns]
        assert_identical(metric(other, BATCH), expected)


@pytest.mark.parametrize("name", ["loss", "prob", "accuracy"])
def test_a_metric_that_normalizes_reads_every_column(name):
    """The converse: a softmax or an argmax needs the others."""
    assert all_metrics()[name].columns is None


def test_permuting_the_batch_permutes_what_is_measured():
    order = torch.tensor([2, 0, 1])
    moved = Batch.of(TOKENS[order], D_VOCAB, N_CTX)
    for metric in (metrics.loss(), metrics.logit(3), metrics.prob(2), metrics.accuracy(11)):
        assert_identical(metric(LOGITS[order], moved), metric(LOGITS, BATCH)[order])


def test_a_metric_is_data():
    for name, metric in all_metrics().items():
        again = all_metrics()[name]
        assert metric == again
        assert hash(metric) == hash(again)
        assert metric.name
    assert kl_to_zero() == kl_to_zero()
    assert hash(kl_to_zero()) == hash(kl_to_zero())
    assert metrics.logit(3) != metrics.logit(4)
    assert metrics.kl(LOGITS) != kl_to_zero()


# What is not a metric.


def test_a_plain_function_may_give_a_number_a_prompt_or_one():
    assert_identical(measure(lambda x: x[:, -1, 0], LOGITS, BATCH), LOGITS[:, -1, 0])
    assert_identical(measure(lambda x: x.mean(), LOGITS, BATCH), LOGITS.mean())
    for wrong in (lambda x: x, lambda x: x[:, -1], lambda x: x[0, :2, 0]):
        with pytest.raises(InterpError, match=r"one number per prompt, \[3\].*shape"):
            measure(wrong, LOGITS, BATCH)


FUNCTIONS = {
    "last": lambda logits: logits[:, -1, 3] - logits[:, -1, 4],
    "mean": lambda logits: logits[..., 2].mean(-1),
    "highest": lambda logits: logits[..., 1].max(-1).values,
    "log-probability": lambda logits: logits[:, 0].log_softmax(-1)[:, 5],
    "default": lambda logits, target=7: logits[:, -1, target],
    "spread": lambda logits: logits.flatten(1).std(-1),
}


READ_TOKENS_ALONE = {("last", "left"), ("default", "left"), ("log-probability", "right")}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_function_of_logits_gives_what_each_prompt_gives_alone_or_is_refused(name, side):
    """Never a number that padding went into."""
    fn, together = FUNCTIONS[name], run(MODEL, padded(ROWS, side))
    if (name, side) not in READ_TOKENS_ALONE:
        with pytest.raises(InterpError, match=r"NaN at padding.*fn\(logits, batch\)"):
            measure(fn, together.logits, together.batch)
        return
    alone = torch.stack([measure(fn, run(MODEL, row).logits, BATCH)[0] for row in ROWS])
    assert_close(measure(fn, together.logits, together.batch), alone)


def test_a_function_may_take_the_batch():
    def last_loss(logits, batch):
        ends = batch.is_real.int().cumsum(-1).argmax(-1)
        return logits[torch.arange(len(ends)), ends].logsumexp(-1)

    for side in ("left", "right"):
        together = run(MODEL, padded(ROWS, side))
        losses = measure(last_loss, together.logits, together.batch)
        for row, tokens in enumerate(ROWS):
            assert_close(losses[row], run(MODEL, tokens).logits[0, -1].logsumexp(-1))
    with pytest.raises(InterpError, match="the logits hold NaN"):
        measure(last_loss, together.logits * torch.nan, together.batch)


def test_what_is_no_number_is_refused():
    with pytest.raises(InterpError, match="NaN"):
        measure(metrics.loss(), LOGITS * torch.nan, BATCH)


def test_a_single_token_has_no_loss():
    done = run(MODEL, padded([TOKENS[0], TOKENS[1][:1]], "left"))
    with pytest.raises(InterpError, match="Prompt 1 is a single token"):
        measure(metrics.loss(), done.logits, done.batch)


@each("pos", [5, -6])
def test_a_position_that_a_prompt_lacks_is_refused(pos):
    for metric in (metrics.logit(0, pos), metrics.kl(LOGITS, pos), metrics.prob(0, pos)):
        with pytest.raises(InterpError, match=f"{pos} in prompt 0.*5 tokens"):
            measure(metric, LOGITS, BATCH)
    done = run(MODEL, padded(ROWS, "right"))
    with pytest.raises(InterpError, match=r"position 2 in prompt 2.*2 tokens"):
        measure(metrics.logit(0, pos=2), done.logits, done.batch)


@each("make", [metrics.logit, metrics.prob, metrics.accuracy])
def test_as_many_targets_as_prompts_are_needed(make):
    with pytest.raises(InterpError, match=r"2 targets.*3 prompts"):
        measure(make((1, 2)), LOGITS, BATCH)
    with pytest.raises(InterpError, match=r"2 targets.*3 prompts"):
        measure(metrics.logit_diff(0, (1, 2)), LOGITS, BATCH)


@each("make", [metrics.logit, metrics.prob, metrics.accuracy])
@each("target", [D_VOCAB, -1, (0, D_VOCAB, 1), (0, 1, -1)])
def test_a_target_outside_the_vocabulary_is_refused(make, target):
    with pytest.raises(InterpError, match="vocabulary"):
        measure(make(target), LOGITS, BATCH)


def test_a_reference_of_another_shape_is_refused():
    with pytest.raises(InterpError, match=r"reference is \(3, 4, 13\).*logits \(3, 5, 13\)"):
        measure(metrics.kl(LOGITS[:, :-1]), LOGITS, BATCH)


def test_the_loss_passes_over_padding_within_a_row():
    model, row = build("gpt2"), [1, 2, 3, 4]
    whole = run(model, torch.tensor([row]))
    broken = run(model, torch.tensor([[1, 2, PAD, 3, 4]]))
    loss, expected = (measure(metrics.loss(), r.logits, r.batch) for r in (broken, whole))
    assert_close(loss, expected, 1e-12)


def test_half_precision_logits_are_measured_in_float32():
    logits = LOGITS.bfloat16()
    assert_close(
        measure(metrics.loss(), logits, BATCH),
        measure(metrics.loss(), logits.float(), BATCH),
        0.0,
    )


@each("target", [3.5, [3.7, 2.2, 1.0], ["a", None]])
def test_a_target_that_is_neither_id_nor_text_is_refused(target):
    with pytest.raises(InterpError, match="token ids"):
        as_targets(target)


def test_a_complex_metric_is_refused():
    """Its imaginary part would be lost."""
    with pytest.raises(InterpError, match=r"real numbers.*complex128"):
        measure(lambda logits: logits[:, -1, 0] * 1j, LOGITS, BATCH)


@each("target", [True, [True, False, True], torch.tensor([True, False, True])])
def test_a_mask_is_no_target(target):
    with pytest.raises(InterpError, match="token ids"):
        as_targets(target)


@each("pos", [True, 1.0, "last", [1], torch.tensor(True)])
def test_a_position_that_is_none_is_refused(pos):
    make = getattr(metrics.logit, "__wrapped__", metrics.logit)
    with pytest.raises(InterpError, match="pos="):
        make(3, pos)


def test_a_metric_that_returns_no_tensor_is_refused():
    with pytest.raises(InterpError, match="returns a tensor"):
        measure(lambda logits: 1.0, LOGITS, BATCH)


def test_a_metric_without_a_gradient_is_refused():
    with pytest.raises(InterpError, match="no gradient"):
        run(build("gpt2"), torch.tensor([[1, 2]]), record="z", gradients_of=metrics.accuracy(3))


@pytest.mark.parametrize("name", ["loss", "logit-of-each", "logit-diff-of-each"])
def test_prompts_are_measured_in_parts(monkeypatch, name):
    metric, batch = all_metrics()[name], MODEL.batch(padded(ROWS, "left"))
    metric = metrics.logit((1, 2, 3)) if name == "logit-of-each" else metric
    whole = measure(metric, MODEL(batch), batch)
    monkeypatch.setattr("interp.metrics.metric.AT_A_TIME", 1)
    assert_close(measure_prompts(metric, MODEL, [batch]), whole)


def test_prompts_may_be_measured_with_the_tokens_of_others():
    """The loss, which reads tokens, differs; a logit, which reads none, does not."""
    batch, other = MODEL.batch(TOKENS), MODEL.batch((TOKENS + 1) % D_VOCAB)
    loss, logit = metrics.loss(), metrics.logit(3)
    expected = loss(MODEL(batch), other)
    assert_close(measure_prompts(loss, MODEL, [batch], other), expected)
    assert not torch.allclose(measure_prompts(loss, MODEL, [batch]), expected)
    assert_identical(
        measure_prompts(logit, MODEL, [batch], other), measure_prompts(logit, MODEL, [batch])
    )


# ---- targets that are texts ------------------------------------------------------------------


ZEROED = [interp.edits.zero("z", layer=1, head=0)]


def uses_of_a_metric():
    """Each function that takes a metric, as a function of the model, prompts and the metric."""
    pairs = interp.read_prompts("python-2l-pairs")[:2]
    clean, corrupt = [pair.text for pair in pairs], [pair.corrupt for pair in pairs]
    return {
        "sweep": lambda model, m: interp.sweep(model, clean, ZEROED, metric=m).values,
        "run": lambda model, m: interp.run(model, clean, record="z", gradients_of=m).cache[
            "z_grad", 0
        ],
        "circuits": lambda model, m: analyses.run_circuits(model, clean, [[]], 0.0, m),
        "estimate": lambda model, m: interp.estimate_sweep(model, clean, ZEROED, metric=m).peak,
        "ablate_heads": lambda model, m: analyses.ablate_heads(model, clean, metric=m).effect,
        "patch": lambda model, m: (
            analyses.patch_activations(model, clean, corrupt, metric=m, over=("layer",)).effect
        ),
        "edges": lambda model, m: analyses.attribute_edges(model, clean, corrupt, metric=m).effect,
    }


@pytest.mark.parametrize("use", uses_of_a_metric())
def test_a_target_may_be_a_text_of_one_token(use):
    """It stands for its id, alone or one per prompt."""
    model, measured = interp.load("python-2l"), uses_of_a_metric()[use]
    ids = [model.to_single_token(text) for text in (" in", " self")]
    by_id = measured(model, metrics.logit_diff(ids[0], [ids[1], ids[0] + 1]))
    texts = [" self", ids[0] + 1]
    assert torch.equal(
        torch.as_tensor(measured(model, metrics.logit_diff(" in", texts))), torch.as_tensor(by_id)
    )


def test_a_target_that_is_not_one_token_is_refused_with_its_tokens():
    model = interp.load("python-2l")
    with pytest.raises(InvalidTokens, match="is 4 tokens"):
        interp.sweep(model, "def", ZEROED, metric=metrics.logit(" selfxyz"))


def test_a_text_needs_a_tokenizer():
    with pytest.raises(InvalidInput, match="tokenizer"):
        interp.sweep(MODEL, TOKENS, ZEROED, metric=metrics.logit(" self"))
    with pytest.raises(InvalidInput, match="with_ids"):
        metrics.logit(" self").columns  # noqa: B018 - the property raises


def test_a_metric_of_texts_survives_json():
    metric = metrics.logit_diff([" in", 3], " self")
    assert metrics.from_dict(json.loads(json.dumps(metric.to_dict()))) == metric
