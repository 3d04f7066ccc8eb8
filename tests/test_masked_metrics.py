"""Where a prompt holds a mask token, a metric reads what the model predicts there."""

from dataclasses import replace

import pytest
import torch
from architectures import ARCHITECTURES, assert_close, assert_identical, build_new, padded
from tables import each
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

import interp
from interp import InterpError, TokensConfig, edits, metrics, run, sweep
from interp.metrics import AtPosition, measure

MASK = 7


def with_mask_token(name: str, mask: int = MASK) -> interp.Transformer:
    return build_new(replace(ARCHITECTURES[name], tokens=TokensConfig(mask=mask)))


MODEL = with_mask_token("bert")
ROWS = [torch.tensor(row) for row in ([1, MASK, 3, 4, 5], [6, 2, MASK], [MASK, 1], [1, 2, 3, 4])]
MASKED = ROWS[:3]
PLAIN = ROWS[3]
ALL = [
    metrics.logit,
    metrics.prob,
    metrics.accuracy,
    lambda target, pos=None: metrics.logit_diff(target, 2, pos),
]


def column(row: torch.Tensor) -> int:
    return int((row == MASK).nonzero()[0])


@pytest.mark.parametrize("pos", [None, "mask"])
@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("side", ["left", "right"])
def test_the_mask_token_is_where_a_metric_reads(make, side, pos):
    """By default too; the mask token of each prompt, wherever padding puts it."""
    together = run(MODEL, padded(MASKED, side, extra=1))
    values = measure(make(3, pos=pos), together.logits, together.batch)
    for row, tokens in enumerate(MASKED):
        alone = run(MODEL, tokens)
        assert_close(values[row], measure(make(3, column(tokens)), alone.logits, alone.batch)[0])


def test_a_mask_token_of_id_zero_is_not_padding():
    model = with_mask_token("bert", 0)
    together = run(model, padded([torch.tensor([1, 0, 3, 4]), torch.tensor([2, 0])], "right"))
    values = measure(metrics.logit(3, "mask"), together.logits, together.batch)
    assert_identical(values, together.logits[:, 1, 3])


def test_other_prompts_are_read_at_their_last_token():
    """The default is decided prompt by prompt, so that company changes no number."""
    together = run(MODEL, padded(ROWS, "right"))
    values = measure(metrics.logit(3), together.logits, together.batch)
    assert_identical(values[3], together.logits[3, 3, 3])
    assert_identical(values[0], together.logits[0, 1, 3])


def test_a_decoder_reads_its_last_token_whatever_it_is():
    decoder = with_mask_token("gpt2")
    done = run(decoder, ROWS[0])
    values = measure(metrics.logit(3), done.logits, done.batch)
    assert_identical(values, done.logits[:, -1, 3])
    with pytest.raises(InterpError, match=r"not an encoder with a mask token.*pos=-1"):
        measure(metrics.logit(3, "mask"), done.logits, done.batch)


@each("pos", [None, "mask"])
def test_several_mask_tokens_are_refused(pos):
    done = run(MODEL, torch.tensor([[1, MASK, 2], [MASK, 3, MASK]]))
    with pytest.raises(InterpError, match=r"Prompt 1 holds 2 mask tokens.*masked_loss"):
        measure(metrics.logit(3, pos), done.logits, done.batch)
    with pytest.raises(InterpError, match="Prompt 1 holds 2 mask tokens"):
        sweep(MODEL, torch.tensor([[1, MASK, 2], [MASK, 3, MASK]]), HEADS, metrics.logit(3, pos))
    measure(metrics.logit(3, -1), done.logits, done.batch)


def test_none_is_refused_if_it_is_asked_for():
    done = run(MODEL, PLAIN)
    with pytest.raises(InterpError, match="Prompt 0 holds 0 mask tokens"):
        measure(metrics.logit(3, "mask"), done.logits, done.batch)


def test_a_divergence_may_be_taken_at_the_mask_token():
    done = run(MODEL, MASKED[0])
    reference = done.logits.roll(1, -1)
    values = measure(metrics.kl(reference, "mask"), done.logits, done.batch)
    expected = measure(metrics.kl(reference, 1), done.logits, done.batch)
    assert_identical(values, expected)


HEADS = [edits.zero("z", layer=layer, head=head) for layer in range(2) for head in range(3)]
TRUE = [row.where(row != MASK, 11 - row[-1] % 2) for row in MASKED]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("memory", [None, 60_000])
def test_a_sweep_reads_there_as_well(side, memory):
    ids = padded(MASKED, side)
    for metric in (
        metrics.logit_diff(3, (1, 2, 4)),
        metrics.prob(3, "mask"),
        metrics.masked_loss(padded(TRUE, side)),
    ):
        table = sweep(MODEL, ids, HEADS, metric, memory=memory)
        for row, edit in enumerate(HEADS):
            forward = run(MODEL, ids, edits=[edit])
            assert_close(table.values[row], measure(metric, forward.logits, forward.batch))


def test_the_masked_loss_is_the_cross_entropy_of_the_hidden_tokens():
    ids = torch.tensor([[1, MASK, 3, MASK, 5], [2, 2, MASK, 4, 6]])
    true = torch.tensor([[1, 4, 3, 9, 5], [2, 2, 12, 4, 6]])
    done = run(MODEL, ids)
    losses = F.cross_entropy(done.logits.mT, true, reduction="none")
    expected = torch.stack([losses[0, [1, 3]].mean(), losses[1, 2]])
    assert_close(measure(metrics.masked_loss(true), done.logits, done.batch), expected)
    other = true.where(ids == MASK, 0)
    assert_close(measure(metrics.masked_loss(other), done.logits, done.batch), expected)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_has_no_part_in_the_masked_loss(side):
    together = run(MODEL, padded(MASKED, side))
    values = measure(metrics.masked_loss(padded(TRUE, side)), together.logits, together.batch)
    for row, (tokens, true) in enumerate(zip(MASKED, TRUE, strict=True)):
        alone = run(MODEL, tokens)
        assert_close(values[row], measure(metrics.masked_loss(true), alone.logits, alone.batch)[0])


@each(
    ("true", "ids", "message"),
    [
        (ROWS[0][:3], ROWS[0], r"\(1, 5\); got \(1, 3\)"),
        (ROWS[0].where(ROWS[0] != MASK, 13), ROWS[0], "outside the vocabulary"),
        (PLAIN, PLAIN, "Prompt 0 holds no mask token"),
    ],
)
def test_a_masked_loss_that_can_not_be_taken(true, ids, message):
    done = run(MODEL, ids)
    with pytest.raises(InterpError, match=message):
        measure(metrics.masked_loss(true), done.logits, done.batch)
    with pytest.raises(InterpError, match=message):
        sweep(MODEL, ids, HEADS, metrics.masked_loss(true))


@each("tokens", [[1.5], torch.ones(2, 2, dtype=torch.bool), 5, "text", torch.ones(1, 1, 1).long()])
def test_what_are_no_tokens(tokens):
    make = getattr(metrics.masked_loss, "__wrapped__", metrics.masked_loss)
    with pytest.raises(InterpError, match="masked_loss takes token ids"):
        make(tokens)


def test_the_bundled_encoder_knows_its_mask_token():
    model = interp.load("python-mlm")
    prompt = next(p for p in interp.read_prompts("python-masked") if p.text.endswith("<|mask|>"))
    target, text = model.to_single_token(prompt.target), prompt.text + " name"
    done = run(model, text)
    at_mask = int((done.batch.ids[0] == model.config.tokens.mask).nonzero()[0])
    assert at_mask < done.batch.ids.shape[1] - 1
    values = measure(metrics.logit(target), done.logits, done.batch)
    assert_identical(values, done.logits[:, at_mask, target])


def test_every_metric_of_one_position_has_this_default():
    for kind in AtPosition.__subclasses__():
        assert kind().pos is None
