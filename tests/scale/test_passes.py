"""Passes over texts in processes: the numbers of a local pass, whatever becomes of a worker."""

import itertools
import os
import re
import signal
import sys
import time

import pytest
import torch
from architectures import assert_close, assert_identical, build
from scaled import HEADS, METRIC, MODEL, ONE_AT_A_TIME, TOKENS, is_gone, norm_of, pids

import interp
from analyses import attention_statistics, neurons, scan_heads, top_texts
from interp import metrics, sweep
from interp.errors import InvalidInput, InvalidTokens, WorkerFailed
from interp.executors import Processes, dispatch, map_batches, passes, transfer
from interp.executors.worker_server import PartWorker
from interp.sweeps import Budget, RestartMap

pytestmark = pytest.mark.timeout(120)
DRIVER = os.getpid()


@pytest.fixture(scope="module")
def pool():
    with Processes(2, threads=1) as processes:
        processes.prepare(MODEL)
        yield processes


@pytest.fixture(scope="module")
def impatient():
    """Workers that must answer within a second."""
    with Processes(2, threads=1, job_timeout=1) as processes:
        yield processes


def rows(n: int = 24) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    lengths = (2 + (5 * number) % 11 for number in range(n))
    return [torch.randint(MODEL.d_vocab, (length,), generator=generator) for length in lengths]


def numbers(n: int):
    """Batches that are numbers, labelled."""
    return ((f"batch {number}", number) for number in range(n))


def mapped(pool, function, batches):
    with interp.use(executor=pool):
        return list(map_batches(MODEL, function, batches))


def until_error(pool, function, batches) -> tuple[list[object], Exception]:
    """The results before an error, and the error."""
    results = []
    try:
        with interp.use(executor=pool):
            for _, result in map_batches(MODEL, function, batches):
                results.append(result)
    except interp.InterpError as error:
        return results, error
    pytest.fail("no error was raised")


def square(number: int) -> int:
    return number * number


PASSES = {
    "scan_heads": lambda model, texts: scan_heads(model, texts, rows=4, sample=10),
    "top_texts": lambda model, texts: top_texts(model, texts, of="L1H1", rows=4),
    "a stream": attention_statistics,
    "neurons": lambda model, texts: neurons(
        model, texts, layer=0, neurons=[0, 2], rows=4, ablate=0
    ),
}
MANY = {
    "scan_heads.corpus_pass": "POOL",
    "methods.corpus.stream": "POOL",
    "attention_statistics": "WINDOW",
}
"""The numbers of texts in memory at a time, by module."""


# The numbers.


@pytest.mark.parametrize("name", PASSES)
def test_the_numbers_are_those_of_a_local_pass(pool, name, monkeypatch):
    """Bit for bit with as many threads, also where texts are read in several pools."""
    for module, number in MANY.items():
        monkeypatch.setattr(sys.modules[f"analyses.{module}"], number, 10)
    expected = PASSES[name](MODEL, iter(rows()))
    with interp.use(executor=pool):
        actual = PASSES[name](MODEL, iter(rows()))
        other = PASSES[name](build("gpt2", seed=3), iter(rows()))
    assert other.payload() != expected.payload()
    if torch.get_num_threads() == 1:
        assert actual.payload() == expected.payload()
    else:
        assert actual.summary() == expected.summary()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t5", "bert", "gemma2"])
def test_the_numbers_of_other_architectures_are_those_of_a_local_pass(pool, name):
    model = build(name)
    generator = torch.Generator().manual_seed(0)
    texts = [torch.randint(5, 11, (1, 6), generator=generator) for _ in range(12)]
    pairs = [(text, text) if len(model.stacks) > 1 else text[0] for text in texts]
    expected = scan_heads(model, iter(pairs), rows=4, sample=10)
    with interp.use(executor=pool):
        actual = scan_heads(model, iter(pairs), rows=4, sample=10)
    assert actual.payload() == expected.payload()


def test_a_prompt_list_is_measured_on_workers_too(pool):
    expected = attention_statistics(MODEL, TOKENS)
    with interp.use(executor=pool):
        actual = attention_statistics(MODEL, TOKENS)
    assert_identical(actual.value, expected.value)


def test_a_stopped_scan_goes_on_with_any_number_of_workers(pool):
    """Stopped locally and on two workers in turn, it has the bytes of one that was not stopped."""
    settings = {"rows": 2, "sample": 10}
    whole = scan_heads(MODEL, iter(rows()), **settings)
    partial = None
    for executor in ("local", pool, "local", pool):
        calls = itertools.count()
        with interp.use(executor=executor):
            part = scan_heads(
                MODEL,
                iter(rows()),
                **settings,
                resume=partial,
                cancelled=lambda calls=calls: next(calls) == 1,
            )
        assert part.partial is not None
        assert partial is None or part.partial.n_texts > partial.n_texts
        partial = part.partial
    with interp.use(executor=pool):
        resumed = scan_heads(MODEL, iter(rows()), **settings, resume=partial)
    assert resumed.payload() == whole.payload()
    other = [row.flip(0) for row in rows()]
    with interp.use(executor=pool), pytest.raises(InvalidInput, match="scan of other texts"):
        scan_heads(MODEL, iter(other), **settings, resume=partial)


# What is sent.


def test_the_model_of_a_function_is_that_of_the_worker(pool):
    """Its parts are sent as names, not as bytes."""
    model, block = MODEL, MODEL.blocks[1]
    weight = next(model.parameters())

    def function(ids):
        assert block is model.blocks[1]
        assert weight is next(model.parameters())
        return os.getpid(), model(ids).sum()

    ids = TOKENS[:1]
    ((_, (pid, total)),) = mapped(pool, function, [("a", ids)])
    assert pid != DRIVER
    assert_identical(total, model(ids).sum())
    sizes = [len(transfer.dumps(function, which)) for which in (model, None)]
    assert sizes[0] * 3 < sizes[1]


def test_results_come_in_order_and_batches_are_read_as_they_are_needed(pool):
    """Also if the first batch takes longest: then others wait, and no more are read."""
    n_read = 0

    def batches():
        nonlocal n_read
        for label, number in numbers(40):
            n_read += 1
            yield label, number

    def function(number):
        time.sleep(0.3 if number == 0 else 0.0)
        return number * number

    ahead = []
    with interp.use(executor=pool):
        for number, (label, result) in enumerate(map_batches(MODEL, function, batches())):
            assert (label, result) == (f"batch {number}", number * number)
            ahead.append(n_read - number)
    assert len(ahead) == 40
    assert 2 < max(ahead) <= passes.AHEAD * 2 + 1
    assert mapped("local", square, numbers(3)) == mapped(pool, square, numbers(3))


def test_a_pass_that_goes_on_takes_what_workers_had_done(pool, tmp_path):
    """A pass that was stopped leaves its results; the same batches are not run again."""

    def function(number):
        (tmp_path / f"{number}-{time.monotonic_ns()}").touch()
        return number

    with interp.use(executor=pool):
        first = map_batches(MODEL, function, numbers(6))
        assert next(first)[1] == 0
        first.close()
        rest = ((label, number) for label, number in numbers(6) if number)
        assert [result for _, result in map_batches(MODEL, function, rest)] == [1, 2, 3, 4, 5]
    assert len(list(tmp_path.iterdir())) == 6


def test_other_code_is_refused(monkeypatch):
    """A function of a package whose code differs from the driver's."""
    worker = PartWorker(RestartMap(MODEL), Budget.of(MODEL, None))
    sent = passes.SentFunction.of(scan_heads)
    assert sent.package == "analyses"
    with pytest.raises(InvalidInput, match=r"The code of analyses is .* but other in the driver"):
        passes.SentFunction(sent.function, sent.package, "other").opened(worker)
    assert sent.opened(worker) is sent
    monkeypatch.setattr(square, "__module__", "of_no_file")
    assert passes.SentFunction.of(square).digest == ""  # it travels by value


# Errors, in the order of a local pass.


def test_an_error_comes_after_the_results_before_it(pool):
    def function(number):
        if number == 3:
            raise InvalidInput("no such number")
        time.sleep(0.05 if number == 1 else 0)
        return number

    results, error = until_error(pool, function, numbers(9))
    assert type(error) is InvalidInput
    assert re.search(r"no such number .*worker \d+, process", str(error))
    assert results == [0, 1, 2]


def test_a_text_that_can_not_be_read_is_named_after_those_before_it(pool):
    texts = [*rows(12), torch.tensor([MODEL.d_vocab + 5])]
    messages = []
    for executor in ("local", pool):
        with interp.use(executor=executor), pytest.raises(InvalidTokens) as caught:
            scan_heads(MODEL, iter(texts), rows=4, sample=10)
        messages.append(str(caught.value))
        assert caught.value.result.n_texts == 0  # its pool is not whole
    assert messages[0] == messages[1]


def test_a_sweep_inside_of_a_pass_is_refused(pool):
    def progress(done, total):
        sweep(MODEL, TOKENS, HEADS[:1], METRIC)

    with interp.use(executor=pool), pytest.raises(InvalidInput, match="executor='local'"):
        top_texts(MODEL, iter(rows()), of="L1H1", progress=progress)
    assert len(mapped(pool, square, numbers(3))) == 3


# Workers that end, and workers that do not answer.


@pytest.mark.slow
def test_a_worker_that_is_killed_in_a_scan_is_replaced(pool):
    before, progress = pids(pool), []

    def kill_one(done, total):
        progress.append(done)
        if len(progress) == 2:
            os.kill(before[0], signal.SIGKILL)

    expected = scan_heads(MODEL, iter(rows()), rows=2, sample=10)
    with interp.use(executor=pool):
        actual = scan_heads(MODEL, iter(rows()), rows=2, sample=10, progress=kill_one)
    assert actual.payload() == expected.payload()
    assert before[0] not in pids(pool)


@pytest.mark.slow
def test_a_batch_that_ends_three_workers_is_named(pool, tmp_path):
    def function(number):
        if number == 4:
            (tmp_path / f"{time.monotonic_ns()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    results, error = until_error(pool, function, numbers(9))
    assert type(error) is WorkerFailed
    message = r"A batch ended 3 workers: batch 4\. The last worker, \d+ \(process .* signal 9"
    assert re.search(message, str(error))
    assert results == [0, 1, 2, 3]
    assert len(list(tmp_path.iterdir())) == dispatch.TRIES


def sleeps_at(case: int, folder, times: int):
    """A metric that does not return for a case, at most so many times."""
    is_case = norm_of(case)

    def metric(logits, batch):
        n_before = len(list(folder.iterdir()))
        if os.getpid() != DRIVER and n_before < times and is_case(logits):
            (folder / str(n_before)).touch()
            time.sleep(600)
        return logits.double().square().mean((1, 2))

    return metric


@pytest.mark.slow
def test_a_worker_that_does_not_answer_is_replaced(impatient, tmp_path):
    """One that sleeps in a sweep; its job is run again by another."""
    metric = sleeps_at(3, tmp_path, times=1)
    begin, before = time.monotonic(), pids(impatient)
    table = sweep(MODEL, TOKENS, HEADS, metric, executor=impatient, memory=ONE_AT_A_TIME)
    assert_close(table.values, sweep(MODEL, TOKENS, HEADS, metric).values)
    assert len(list(tmp_path.iterdir())) == 1
    assert [is_gone(pid) for pid in before].count(True) == 1
    assert time.monotonic() - begin < 60


@pytest.mark.slow
def test_a_worker_that_is_stopped_is_replaced(impatient):
    """Also if it reads nothing of a batch that is larger than the buffer of its connection."""
    large = [(label, torch.ones(10**6) * number) for label, number in numbers(6)]
    before = pids(impatient)
    os.kill(before[0], signal.SIGSTOP)
    results = mapped(impatient, torch.sum, large)
    assert [int(total) for _, total in results] == [10**6 * number for number in range(6)]
    assert is_gone(before[0])


@pytest.mark.slow
def test_a_case_and_a_batch_that_are_never_answered_are_named(impatient, tmp_path):
    folders = [tmp_path / name for name in ("sweep", "pass")]
    for folder in folders:
        folder.mkdir()

    def function(number):
        if number == 2:
            (folders[1] / str(time.monotonic_ns())).touch()
            time.sleep(600)
        return number

    metric, late = sleeps_at(4, folders[0], times=9), r"process \d+ on .*did not answer within 1 s"
    with pytest.raises(WorkerFailed, match=rf"ended 3 workers.*Edit 4 \(zero.*{late}") as caught:
        sweep(MODEL, TOKENS, HEADS, metric, executor=impatient, memory=ONE_AT_A_TIME)
    done = caught.value.result.done
    assert done.all(1).tolist() == [case != 4 for case in range(len(HEADS))]
    with pytest.raises(WorkerFailed, match=rf"ended 3 workers: batch 2\..*{late}"):
        mapped(impatient, function, numbers(5))
    assert [len(list(folder.iterdir())) for folder in folders] == [dispatch.TRIES] * 2


def test_a_job_timeout_that_can_not_be_used_is_refused():
    for seconds in (0, "long", -1, True):
        with pytest.raises(InvalidInput, match="job_timeout="):
            Processes(1, job_timeout=seconds)
    assert Processes(1, job_timeout=None).job_timeout is None
    assert Processes(1).job_timeout == 3600


@pytest.mark.slow
def test_metrics_of_a_sweep_after_a_pass_are_those_of_a_local_one(pool):
    """Workers that have run a pass open the job of a sweep anew."""
    mapped(pool, square, numbers(4))
    table = sweep(MODEL, TOKENS, HEADS, metrics.loss(), executor=pool)
    assert_identical(table.values, sweep(MODEL, TOKENS, HEADS, metrics.loss()).values)
