"""A sweep fills one table: in the user's order, as far as it got, and again from there."""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from threading import Barrier

import pandas as pd
import pytest
import torch
from architectures import (
    assert_close,
    assert_identical,
    build,
    build_new,
    padded,
    tokens_of,
)
from torch import Tensor

from interp import Interrupted, Sweep, edits, metrics, run, sweep
from interp.errors import HookFailed, InvalidInput
from interp.metrics import measure
from interp.sweeps.worker import local

MODEL = build("gpt2")
TOKENS = tokens_of("gpt2", batch=3, pos=5)[0]
RAGGED = padded([TOKENS[0], TOKENS[1][:2], TOKENS[2][:3]], "left")
METRIC = metrics.logit_diff((1, 2, 3), 0)
HEADS = [edits.zero("z", layer=layer, head=head) for layer in range(2) for head in range(3)]
ONE_AT_A_TIME = 30_000
"""Bytes for one edited forward of the three prompts."""
CELLS = len(HEADS) * len(TOKENS)


def brute_force(model, tokens: Tensor, made: list, metric, mask=None) -> Tensor:
    forwards = [run(model, tokens, mask=mask, edits=[edit]) for edit in made]
    return torch.stack([measure(metric, f.logits, f.batch).double() for f in forwards])


def assert_same(actual: Sweep, expected: Sweep) -> None:
    assert_close(actual.values, expected.values)
    assert_close(actual.baseline, expected.baseline)
    assert_identical(actual.done, expected.done)


class Counting:
    """An executor that counts the cells that it has computed."""

    def __init__(self) -> None:
        self.cells = 0

    def __call__(self, jobs, work):
        for job in jobs:
            for outcome in work(job):
                self.cells += outcome.values.numel()
                yield outcome


def stopped_after(forwards: int) -> Callable[[], bool]:
    asked: list[None] = []

    def cancelled() -> bool:
        asked.append(None)
        return len(asked) == forwards

    return cancelled


# Progress, and stopping.


def test_progress_counts_cells_up_to_all_of_them():
    reports: list[tuple[int, int]] = []
    sweep(
        MODEL,
        TOKENS,
        HEADS,
        METRIC,
        memory=ONE_AT_A_TIME,
        progress=lambda *report: reports.append(report),
    )
    assert reports == [(done, CELLS) for done in range(3, CELLS + 1, 3)]


@pytest.mark.parametrize("tokens", [TOKENS, RAGGED])
def test_a_cancelled_sweep_keeps_what_it_has(tokens):
    whole = sweep(MODEL, tokens, HEADS, METRIC)
    part = sweep(MODEL, tokens, HEADS, METRIC, memory=ONE_AT_A_TIME, cancelled=stopped_after(4))
    assert whole.complete
    assert not part.complete
    assert 0 < part.done.sum() < CELLS
    assert_identical(part.values.isnan(), ~part.done)
    assert_close(part.values[part.done], whole.values[part.done])
    assert_identical(part.baseline.isnan(), ~part.done.any(0))
    assert len(list(part.rows())) == part.done.sum()


def test_a_sweep_that_is_not_cancelled_is_asked_after_each_forward():
    asked: list[bool] = []
    table = sweep(
        MODEL,
        TOKENS,
        HEADS,
        METRIC,
        memory=ONE_AT_A_TIME,
        cancelled=lambda: bool(asked.append(False)),
    )
    assert table.complete
    assert len(asked) == len(HEADS)


def test_ctrl_c_keeps_what_was_done():
    def stop(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        sweep(MODEL, TOKENS, HEADS, METRIC, memory=ONE_AT_A_TIME, progress=stop)
    assert isinstance(caught.value, Interrupted)
    assert f"12 of {CELLS}" in str(caught.value)
    assert caught.value.result.done.sum() == 12
    again = sweep(MODEL, TOKENS, HEADS, METRIC, resume=caught.value.result)
    assert_same(again, sweep(MODEL, TOKENS, HEADS, METRIC))


def test_an_error_of_a_users_function_keeps_what_was_done():
    def fails(done: int, total: int) -> None:
        if done > total // 2:
            raise ConnectionError("the notebook's widget is gone")

    with pytest.raises(ConnectionError, match="widget") as caught:
        sweep(MODEL, TOKENS, HEADS, METRIC, memory=ONE_AT_A_TIME, progress=fails)
    assert caught.value.result.done.sum() == 12
    again = sweep(MODEL, TOKENS, HEADS, METRIC, resume=caught.value.result)
    assert_same(again, sweep(MODEL, TOKENS, HEADS, METRIC))


def test_ctrl_c_inside_a_forward():
    """What was done before is kept, and taken up again; the model holds nothing of it."""
    calls: list[int] = []

    def once(z, hook):
        calls.append(len(calls))
        if len(calls) == 1:
            raise KeyboardInterrupt
        return z * 0.5

    made = [*HEADS[:2], edits.apply("z", once, layer=1)]
    with pytest.raises(Interrupted) as caught:
        sweep(MODEL, RAGGED, made, METRIC)
    result = sweep(MODEL, RAGGED, made, METRIC, resume=caught.value.result)
    expected = [*HEADS[:2], edits.scale("z", 0.5, layer=1)]
    assert_close(result.values, brute_force(MODEL, RAGGED, expected, METRIC))


# Resuming.


@pytest.mark.parametrize("tokens", [TOKENS, RAGGED])
@pytest.mark.parametrize("forwards", [1, 4, 9])
def test_only_what_is_left_is_run(tokens, forwards):
    """Of single cells too: prompts of other lengths are other forwards."""
    whole = sweep(MODEL, tokens, HEADS, METRIC)
    few = {"memory": ONE_AT_A_TIME}
    part = sweep(MODEL, tokens, HEADS, METRIC, cancelled=stopped_after(forwards), **few)
    counting = Counting()
    rest = sweep(MODEL, tokens, HEADS, METRIC, resume=part, executor=counting, **few)
    assert counting.cells == (~part.done).sum()
    assert_same(rest, whole)


@pytest.mark.parametrize("tokens", [TOKENS, RAGGED])
@pytest.mark.parametrize("forwards", [1, 2, 5])
def test_a_resumed_sweep_has_the_bits_of_one_that_was_not_stopped(tokens, forwards):
    """Edits of patterns form attention matrices: whether any is left must not choose the kernel."""
    model = build_new("gpt2", dtype=torch.float32)
    patterns = [edits.scale("pattern", 0.5, layer=layer, head=0) for layer in range(2)]
    made, few = [*patterns, *HEADS, *(HEADS[:2], HEADS[2:5])], {"memory": 40_000}
    whole = sweep(model, tokens, made, METRIC, **few)
    part = sweep(model, tokens, made, METRIC, cancelled=stopped_after(forwards), **few)
    assert not part.complete
    rest = sweep(model, tokens, made, METRIC, resume=part, **few)
    assert_identical(rest.values, whole.values)
    assert_identical(rest.baseline, whole.baseline)


def test_of_what_is_complete_nothing_is_run():
    whole, counting = sweep(MODEL, TOKENS, HEADS, METRIC), Counting()
    again = sweep(MODEL, TOKENS, HEADS, METRIC, resume=whole, executor=counting)
    assert counting.cells == 0
    assert_same(again, whole)


def test_what_is_resumed_is_left_as_it_is():
    part = sweep(MODEL, RAGGED, HEADS, METRIC, cancelled=stopped_after(1))
    before = part.values.clone()
    sweep(MODEL, RAGGED, HEADS, METRIC, resume=part)
    assert_identical(part.values, before)
    assert not part.complete


def other_weights():
    model = build_new("gpt2")
    with torch.no_grad():
        model.blocks[0].attn.weight_o[0, 0] += 1e-9
    return model


@pytest.mark.parametrize(
    "other",
    [
        lambda: (MODEL, TOKENS.flip(0), HEADS, METRIC),
        lambda: (MODEL, TOKENS, HEADS[::-1], METRIC),
        lambda: (MODEL, TOKENS, [HEADS], METRIC),
        lambda: (MODEL, TOKENS, HEADS, metrics.logit_diff((1, 2, 3), 4)),
        lambda: (MODEL, TOKENS, HEADS, metrics.logit_diff((1, 2, 3), 0, pos=1)),
        lambda: (MODEL, TOKENS, HEADS, metrics.logit(1)),
        lambda: (MODEL, TOKENS, HEADS, lambda logits: logits[:, -1, 1]),
        lambda: (other_weights(), TOKENS, HEADS, METRIC),
    ],
    ids=["tokens", "order", "groups", "target", "position", "metric", "function", "weights"],
)
def test_another_sweep_is_not_resumed(other):
    part = sweep(MODEL, TOKENS, HEADS, METRIC, cancelled=stopped_after(1))
    with pytest.raises(InvalidInput, match="resume="):
        sweep(*other(), resume=part)


@pytest.mark.parametrize("earlier", [{}, "table", torch.zeros(6, 3)])
def test_only_a_sweep_is_resumed(earlier):
    with pytest.raises(InvalidInput, match=r"resume=.*interp\.Sweep\.load\(path\)"):
        getattr(sweep, "__wrapped__", sweep)(MODEL, TOKENS, HEADS, METRIC, resume=earlier)


# Executors.


def reversed_order(jobs, work):
    """All forwards are run in reverse order, and all outcomes are yielded at the end."""
    yield from reversed(list(chain.from_iterable(work(job) for job in reversed(jobs))))


def in_threads(jobs, work):
    with ThreadPoolExecutor(2) as pool:
        yield from chain.from_iterable(pool.map(lambda job: list(work(job)), jobs))


@pytest.mark.parametrize("executor", [reversed_order, in_threads, local])
def test_where_and_in_which_order_forwards_are_run_does_not_matter(executor):
    made = [*HEADS, edits.mean("z", layer=0), edits.scale("scale", 2.0, layer=1, norm="ln1")]
    expected = sweep(MODEL, RAGGED, made, METRIC)
    few = {"memory": ONE_AT_A_TIME}
    assert_same(sweep(MODEL, RAGGED, made, METRIC, executor=executor, **few), expected)


@pytest.mark.parametrize("executor", ["cluster", None, 3])
def test_an_unknown_executor_is_refused(executor):
    with pytest.raises(InvalidInput, match=r"executor=.*local"):
        sweep(MODEL, TOKENS, HEADS, METRIC, executor=executor)


def test_an_executor_that_stops_early_leaves_the_rest_undone():
    def first_only(jobs, work):
        yield next(iter(work(jobs[0])))

    table = sweep(MODEL, RAGGED, HEADS, METRIC, executor=first_only)
    assert 0 < table.done.sum() < CELLS


# What a sweep leaves unchanged.


def test_a_sweep_leaves_the_model_alone():
    model = build_new("gpt2").train()
    assert len(model.names) > 0  # made once, when first asked for
    plain = model(TOKENS).detach()  # its parts are searched for hooks once
    attached = {key: dict(vars(module)) for key, module in model.named_modules()}
    weights = {name: weight.clone() for name, weight in model.named_parameters()}

    def broken(z, hook):
        z.zero_()
        raise ValueError("no")

    sweep(model, RAGGED, HEADS, METRIC)
    with pytest.raises(HookFailed, match=r"hook_z.*ValueError: no"):
        sweep(model, RAGGED, [*HEADS, edits.apply("z", broken, layer=0)], METRIC)
    assert model.training
    for key, module in model.named_modules():
        assert dict(vars(module)) == attached[key]
    for name, weight in model.named_parameters():
        assert weight.grad is None
        assert weight.requires_grad
        assert_identical(weight, weights[name])
    assert_identical(model(TOKENS).detach(), plain)


def test_what_is_given_is_left_as_it_is():
    tokens, values = RAGGED.clone(), torch.randn(3, 5, 4, dtype=torch.float64)
    before = values.clone()
    sweep(MODEL, tokens, edits.resample("z", values, layer=0, head=1), METRIC)
    assert_identical(tokens, RAGGED)
    assert_identical(values, before)


def test_threads_may_sweep_at_once():
    expected = [sweep(MODEL, TOKENS, HEADS[n::2], METRIC) for n in range(2)]
    model, start = build_new("gpt2"), Barrier(2)

    def work(number: int) -> None:
        start.wait()
        for _ in range(2):
            assert_close(
                sweep(model, TOKENS, HEADS[number::2], METRIC).values, expected[number].values
            )

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))


# The result.


def test_effect_is_edited_less_clean():
    table = sweep(MODEL, RAGGED, HEADS, METRIC)
    assert_identical(table.effect, table.values - table.baseline)
    clean = run(MODEL, RAGGED)
    assert_close(table.baseline, measure(METRIC, clean.logits, clean.batch))
    assert table.values.dtype == torch.float64


def test_each_cell_has_a_row():
    made = [HEADS[1], [HEADS[0], edits.add("logits", 0.5, unit=2)]]
    table = sweep(MODEL, TOKENS, made, METRIC)
    rows = list(table.rows())
    assert [(row["edit"], row["prompt"]) for row in rows] == [
        (e, p) for e in (0, 1) for p in (0, 1, 2)
    ]
    assert rows[1]["kind"] == "zero"
    assert rows[1]["where"] == "z,0"
    assert rows[5]["kind"] == "zero + add"
    assert rows[5]["where"] == "z,0 + logits"
    assert rows[5]["baseline"] == table.baseline[2].item()
    assert rows[5]["value"] == table.values[1, 2].item()
    assert rows[5]["effect"] == table.effect[1, 2].item()


def test_rows_have_what_is_selected_where():
    made = [
        edits.scale("blocks.1.attn.hook_z", 0.5, head=(0, 2), pos=-1),
        edits.scale("scale", 2.0, layer=-1, norm="ln2", batch=1),
        [HEADS[0], edits.add("logits", 0.5, unit=2)],
    ]
    first, second, third = (
        row for row in sweep(MODEL, TOKENS, made, METRIC).rows() if row["prompt"] == 1
    )
    assert (first["point"], first["layer"], first["head"], first["pos"]) == ("z", 1, (0, 2), -1)
    assert (second["layer"], second["norm"], second["batch"]) == (1, "ln2", 1)
    assert second["head"] is None
    assert third["point"] == "z + logits"
    assert (third["layer"], third["head"], third["unit"]) == ("0 + -", "0 + -", "- + 2")


def test_a_frame_holds_the_rows_in_columns():
    table = sweep(MODEL, TOKENS, [*HEADS, edits.zero("resid_pre", layer=1, pos=2)], METRIC)
    frame, rows = table.to_frame(), list(table.rows())
    assert list(frame.columns) == [
        *("edit", "kind", "where", "point", "layer", "head", "pos"),
        *("prompt", "baseline", "value", "effect"),
    ]
    assert len(frame) == len(rows) == 21
    for name in frame.columns:
        assert [None if pd.isna(x) else x for x in frame[name]] == [row[name] for row in rows]
    assert frame.groupby(["layer", "head"])["effect"].mean()[1, 2] == pytest.approx(
        table.effect[5].mean().item(), abs=1e-12
    )
    assert str(frame["pos"].dtype) == "Int64"


def test_a_frame_needs_pandas(monkeypatch):
    table = sweep(MODEL, TOKENS, HEADS[0], METRIC)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InvalidInput, match=r"pip install .interp.analyses.*rows\(\)"):
        table.to_frame()


def test_a_result_records_where_it_comes_from():
    made = [HEADS[0], [HEADS[1], HEADS[2]]]
    table = sweep(MODEL, TOKENS, made, METRIC)
    assert table.edits == ((HEADS[0],), (HEADS[1], HEADS[2]))
    assert table.provenance.edits == tuple(edit.digest for edit in HEADS[:3])
    assert table.provenance.dtype == "float64"
    assert (table.metric, table.unit, table.measured) == ("logit difference", "logits", METRIC)
    other = sweep(MODEL, TOKENS.flip(0), made, METRIC)
    assert other.provenance.tokens != table.provenance.tokens
    assert other.provenance.weights == table.provenance.weights


def test_a_result_is_shown_in_a_line():
    values = torch.zeros(12, dtype=torch.float64)
    made = [edits.add("resid_pre", values, layer=0, pos=p) for p in range(5)] * 9
    assert repr(sweep(MODEL, TOKENS, made, METRIC)) == (
        "Sweep(logit difference under 45 edits of 3 prompts)"
    )
    part = sweep(MODEL, RAGGED, HEADS, METRIC, cancelled=stopped_after(1))
    assert f"{(~part.done).sum()} cells not done" in repr(part)


def test_an_edit_alone_is_a_sweep_of_one_row():
    table = sweep(MODEL, TOKENS, HEADS[0], METRIC)
    assert_identical(table.values, sweep(MODEL, TOKENS, [[HEADS[0]]], METRIC).values)
    assert table.values.shape == (1, 3)
