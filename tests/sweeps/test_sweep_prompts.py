"""Prompts of a sweep are batched so that least is padded; rows are in the user's order."""

import pytest
import torch
from architectures import assert_close, assert_identical, build, padded, tokens_of
from torch import Tensor

import interp
from interp import PAD, edits, metrics, run, sweep
from interp.errors import InvalidInput
from interp.metrics import measure

MODEL = build("gpt2")
HEADS = [edits.zero("z", layer=layer, head=head) for layer in range(2) for head in range(3)]
LENGTHS = [3, 12, 1, 11, 12, 4]
ROWS = [row[:n] for row, n in zip(tokens_of("gpt2", batch=6, pos=12)[0], LENGTHS, strict=True)]
TARGETS = metrics.logit((1, 2, 3, 4, 5, 6))


class Companies:
    """An executor that notes which prompts are run together, and how they are laid."""

    def __init__(self) -> None:
        self.jobs = []

    def __call__(self, jobs, work):
        for job in jobs:
            self.jobs.append(job)
            yield from work(job)

    @property
    def rows(self) -> list[tuple[int, ...]]:
        return [job.rows for job in self.jobs]


def brute_force(model, tokens: Tensor, made: list, metric, mask=None) -> Tensor:
    forwards = [run(model, tokens, mask=mask, edits=[edit]) for edit in made]
    return torch.stack([measure(metric, f.logits, f.batch).double() for f in forwards])


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("side", ["left", "right"])
def test_prompts_of_nearly_one_length_go_together(side):
    """Padded on the right, and hardly; and the table is in the order that was given."""
    tokens, companies = padded(ROWS, side, extra=2), Companies()
    table = sweep(MODEL, tokens, HEADS, TARGETS, executor=companies)
    assert companies.rows == [(1, 4, 3), (5,), (0,), (2,)]
    for job in companies.jobs:
        (batch,) = job.batches
        assert bool(batch.is_real[:, 0].all())
        assert batch.ids.shape[1] == max(LENGTHS[row] for row in job.rows)
        assert job.metric.target == tuple(row + 1 for row in job.rows)
    assert_close(table.values, brute_force(MODEL, tokens, HEADS, TARGETS))
    for number, row in enumerate(ROWS):
        alone = sweep(MODEL, row, HEADS, metrics.logit(number + 1))
        assert_close(table.values[:, number], alone.values[:, 0])
        assert_close(table.baseline[number], alone.baseline[0])


@pytest.mark.parametrize(
    ("made", "metric"),
    [
        (edits.zero("z", layer=0, batch=(1, 2)), TARGETS),
        (edits.mean("z", layer=0), TARGETS),
        (edits.apply("z", lambda z, hook: z.flip(0), layer=0), TARGETS),
        (HEADS[0], lambda logits: logits[:, -1].max(-1).values),
    ],
    ids=["rows", "mean", "function", "function-metric"],
)
def test_what_reads_the_batch_is_given_the_batch(made, metric):
    """The converse: nothing is taken apart that does not say how."""
    tokens, companies = padded(ROWS, "left"), Companies()
    table = sweep(MODEL, tokens, made, metric, executor=companies)
    assert companies.rows == [(0, 1, 2, 3, 4, 5)]
    assert_identical(companies.jobs[0].batches[0].tokens, tokens)
    assert_close(table.values, brute_force(MODEL, tokens, [made], metric))


@pytest.mark.parametrize(
    "fn",
    [
        lambda logits, batch: logits[range(len(logits)), batch.is_real.cumsum(1).argmax(1), 3],
        lambda logits, batch: logits[..., 3].where(batch.is_real, -torch.inf).amax(-1),
    ],
    ids=["last", "highest"],
)
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_function_that_takes_the_batch_measures_what_each_prompt_gives_alone(side, fn):
    tokens = padded(ROWS, side)
    table = sweep(MODEL, tokens, HEADS, fn)
    assert table.notes == ()
    for number, row in enumerate(ROWS):
        alone = sweep(MODEL, row, HEADS, fn)
        assert_close(table.values[:, number], alone.values[:, 0])


def test_a_function_of_logits_alone_gives_no_number_of_padding():
    """One that reads padding on the right is refused; where it does not, a note names it."""

    def at_the_end(logits: Tensor) -> Tensor:
        return logits[:, -1, 3]

    with pytest.raises(InvalidInput, match=r"prompt 0: .*padding.*fn\(logits, batch\)"):
        sweep(MODEL, padded(ROWS, "right"), HEADS, at_the_end)
    table = sweep(MODEL, padded(ROWS, "left"), HEADS, at_the_end)
    (note,) = table.notes
    assert "at_the_end" in note
    assert "at padding it got NaN" in note
    assert_close(table.values, sweep(MODEL, padded(ROWS, "left"), HEADS, metrics.logit(3)).values)
    assert sweep(MODEL, ROWS[1], HEADS, at_the_end).notes == ()


@pytest.mark.parametrize("side", ["left", "right"])
def test_values_that_are_laid_along_prompts_and_columns_go_with_them(side):
    """As a donor's activations are; also if memory takes the prompts apart."""
    tokens, donor = padded(ROWS, side), drawn(6, 12, 3, 4)
    made = [edits.resample("z", donor[:, :, head], layer=1, head=head) for head in range(3)]
    made += [edits.add("resid_pre", drawn(6, 1, 12), layer=1), edits.replace("v", donor, layer=0)]
    made += [edits.replace("mlp_out", drawn(6, 12), layer=0, pos=0)]
    brute, companies = brute_force(MODEL, tokens, made, TARGETS), Companies()
    assert_close(sweep(MODEL, tokens, made, TARGETS).values, brute)
    few = sweep(MODEL, tokens, made, TARGETS, memory=60_000, executor=companies)
    assert max(map(len, companies.rows)) < 6
    assert_close(few.values, brute)


def test_edits_at_positions_count_the_tokens_of_each_prompt():
    tokens = padded([row for row in ROWS if len(row) > 2], "left")
    made = [edits.scale("resid_pre", 0.0, layer=1, pos=p) for p in (0, 2, -1, -2, (0, -1))]
    metric = metrics.logit(3)
    table = sweep(MODEL, tokens, made, metric)
    assert_close(table.values, brute_force(MODEL, tokens, made, metric))


def test_a_single_prompt_needs_no_batch():
    row = ROWS[1]
    assert_identical(
        sweep(MODEL, row, HEADS, metrics.loss()).values,
        sweep(MODEL, row[None].tolist(), HEADS, metrics.loss()).values,
    )
    assert sweep(MODEL, row, HEADS, metrics.loss()).values.shape == (6, 1)


def test_a_function_of_one_prompt_may_give_a_scalar():
    table = sweep(MODEL, ROWS[1], HEADS, lambda logits: logits[0, -1, 3])
    assert_close(table.values, sweep(MODEL, ROWS[1], HEADS, metrics.logit(3)).values)


def test_prompts_of_a_single_token():
    tokens = torch.tensor([[3], [1]])
    table = sweep(MODEL, tokens, HEADS, metrics.logit(3))
    assert_close(table.values, brute_force(MODEL, tokens, HEADS, metrics.logit(3)))


def test_texts_are_prompts():
    model = interp.load("induction-by-hand")
    texts = ["abcabc", "xyzzyxyzzy", "ab"]
    made = [edits.zero("z", layer=1, head=head) for head in range(4)]
    table = sweep(model, texts, made, metrics.loss())
    assert_identical(
        table.values, sweep(model, model.to_tokens(texts), made, metrics.loss()).values
    )
    assert table.values.shape == (4, 3)


def test_a_mask_sets_what_is_padding():
    """In between, too."""
    tokens = tokens_of("gpt2", batch=3, pos=6)[0]
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 1, 1, 0, 1, 1], [1, 1, 0, 0, 0, 0]])
    marked = tokens.where(mask.bool(), PAD)
    table = sweep(MODEL, tokens, HEADS, metrics.loss(), mask=mask)
    assert_close(table.values, sweep(MODEL, marked, HEADS, metrics.loss()).values)
    assert_close(table.values, brute_force(MODEL, tokens, HEADS, metrics.loss(), mask))
    assert not torch.allclose(table.values, sweep(MODEL, tokens, HEADS, metrics.loss()).values)


def test_half_precision_is_measured_in_float32():
    model, tokens = build("gpt2", dtype=torch.bfloat16), padded(ROWS[:2], "left")
    for metric in (metrics.loss(), metrics.logit_diff(1, 2), metrics.prob(2)):
        table = sweep(model, tokens, HEADS, metric)
        brute = brute_force(model, tokens, HEADS, metric)
        assert table.values.dtype == torch.float64
        assert_close(table.values, brute, 0.05)
    seen: list[torch.dtype] = []

    def noting(logits: Tensor) -> Tensor:
        seen.append(logits.dtype)
        return logits[:, -1, 0]

    sweep(model, tokens, HEADS[0], noting)
    assert set(seen) == {torch.float32}


def test_packed_products_give_the_same():
    model, tokens = build("gpt2", dtype=torch.float32), padded(ROWS, "left")
    fast = interp.packed(model)
    for metric in (metrics.logit_diff(1, 2), metrics.prob(2)):
        table = sweep(fast, tokens, HEADS, metric)
        assert_close(table.values, sweep(model, tokens, HEADS, metric).values, 1e-5)
        assert table.provenance.products != "default"


class Range(metrics.AtPosition):
    """How far apart the logits of a token are over the batch, at a position of each row."""

    kind = "range"
    name = "range"

    @property
    def reads_other_rows(self) -> bool:
        return True

    def read_columns(self, batch):
        return torch.arange(len(batch.ids)) % 3

    def compute(self, logits):
        return (logits[:, 1].max() - logits[:, 1].min()).expand(len(logits))


def test_prompts_stay_together_where_the_metric_is_of_the_whole_batch():
    tokens, companies = tokens_of("gpt2", batch=5, pos=6)[0], Companies()
    table = sweep(MODEL, tokens, HEADS, Range(), executor=companies)
    assert companies.rows == [(0, 1, 2, 3, 4)]
    assert_close(table.values, brute_force(MODEL, tokens, HEADS, Range()))
