"""Sweeps in processes: the values of a local sweep, whatever becomes of a worker."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import pytest
import torch
from architectures import assert_close, assert_identical, build
from scaled import (
    HEADS,
    LITTLE,
    METRIC,
    MODEL,
    OF_DIVERGENCE,
    ONE_AT_A_TIME,
    TOKENS,
    end_within,
    ends_worker_at,
    is_gone,
    norm_of,
    pids,
    swept,
)

import interp
from interp import edits, metrics, sweep
from interp.errors import HookFailed, InvalidInput, OutOfResources, WorkerFailed
from interp.executors import Processes, dispatch, worker_server
from interp.sweeps import CURRENT, local

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def pool():
    with Processes(2, threads=1) as processes:
        processes.prepare(MODEL)
        yield processes


# The values.


@pytest.mark.parametrize(
    "name",
    [
        "gpt2",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("gemma2", "bert", "t5", "bart", "mixtral", "bloom", "modernbert")
        ),
    ],
)
def test_values_are_those_of_a_local_sweep(pool, name):
    """Within rounding; with as many threads, bit for bit."""
    *arguments, metric = swept(name)
    arguments += [metrics.kl()] if name in OF_DIVERGENCE else [metric]
    expected = sweep(*arguments, memory=LITTLE)
    actual = sweep(*arguments, memory=LITTLE, executor=pool)
    assert actual.complete
    assert_close(actual.values, expected.values)
    assert_close(actual.baseline, expected.baseline)
    if torch.get_num_threads() == 1:
        assert_identical(actual.values, expected.values)


@pytest.mark.slow
def test_the_values_do_not_depend_on_the_number_of_workers(pool):
    arguments = swept("gpt2")
    with Processes(1, threads=1) as single:
        alone = sweep(*arguments, memory=LITTLE, executor=single)
    assert_identical(sweep(*arguments, memory=LITTLE, executor=pool).values, alone.values)


def test_workers_stay_for_the_next_sweep_and_take_another_model(pool):
    before, other = pids(pool), build("gpt2", seed=7)
    values = sweep(other, TOKENS, HEADS, METRIC, executor=pool).values
    assert_close(values, sweep(other, TOKENS, HEADS, METRIC).values)
    assert_close(
        sweep(MODEL, TOKENS, HEADS, METRIC, executor=pool).values,
        sweep(MODEL, TOKENS, HEADS, METRIC).values,
    )
    assert pids(pool) == before


def test_workers_get_weights_that_have_changed(pool):
    model = build("gpt2", seed=5)
    sweep(model, TOKENS, HEADS, METRIC, executor=pool)
    with torch.no_grad():
        next(model.parameters()).mul_(2.0)
    assert_close(
        sweep(model, TOKENS, HEADS, METRIC, executor=pool).values,
        sweep(model, TOKENS, HEADS, METRIC).values,
    )


def test_a_function_of_this_scope_is_a_metric(pool):
    power = 3

    def metric(logits):
        return logits.double().abs().pow(power).mean((1, 2))

    actual = sweep(MODEL, TOKENS, HEADS, metric, executor=pool)
    assert_close(actual.values, sweep(MODEL, TOKENS, HEADS, metric).values)


def test_a_stopped_sweep_ends_with_the_same_bits(pool):
    """What workers had begun when it was stopped is not computed twice."""
    arguments = swept("gpt2")
    whole = sweep(*arguments, memory=LITTLE, executor=pool)
    part = sweep(*arguments, memory=LITTLE, executor=pool, cancelled=lambda: True)
    assert not part.complete
    assert_identical(part.values[part.done], whole.values[part.done])
    pool._started.drain()
    assert pool._started.unclaimed
    again = sweep(*arguments, memory=LITTLE, executor=pool, resume=part)
    assert_identical(again.values, whole.values)
    assert not pool._started.unclaimed


# Workers that end.


def test_a_worker_that_is_killed_is_replaced(pool, tmp_path):
    metric = ends_worker_at(norm_of(3), tmp_path)
    before = pids(pool)
    table = sweep(MODEL, TOKENS, HEADS, metric, executor=pool, memory=ONE_AT_A_TIME)
    assert table.complete
    assert_close(table.values, sweep(MODEL, TOKENS, HEADS, metric).values)
    assert len(list(tmp_path.iterdir())) == 1
    assert [is_gone(pid) for pid in before].count(True) == 1


@pytest.mark.slow
def test_a_job_that_ends_three_workers_is_named_and_the_others_finish(pool, tmp_path):
    metric = ends_worker_at(norm_of(4), tmp_path, times=9)
    with pytest.raises(WorkerFailed, match=r"ended 3 workers.*Edit 4 \(zero.*signal 9") as caught:
        sweep(MODEL, TOKENS, HEADS, metric, executor=pool, memory=ONE_AT_A_TIME)
    done = caught.value.result.done
    assert done.all(1).tolist() == [case != 4 for case in range(len(HEADS))]
    assert len(list(tmp_path.iterdir())) == dispatch.TRIES


def test_an_idle_worker_that_is_killed_is_replaced(pool):
    os.kill(pids(pool)[0], signal.SIGKILL)
    table = sweep(MODEL, TOKENS, HEADS, METRIC, executor=pool)
    assert_close(table.values, sweep(MODEL, TOKENS, HEADS, METRIC).values)


def test_workers_that_never_start_are_an_error(monkeypatch, capfd):
    monkeypatch.setattr("interp.executors.processes.START", "raise SystemExit(3)")
    with Processes(2) as broken, pytest.raises(WorkerFailed, match="exit code 3"):
        sweep(MODEL, TOKENS, HEADS, METRIC, executor=broken)


def test_workers_that_take_too_long_are_an_error(monkeypatch):
    monkeypatch.setattr("interp.executors.processes.START", "import time; time.sleep(60)")
    monkeypatch.setattr("interp.executors.processes.GRACE", 0.1)
    begin = time.monotonic()
    with (
        Processes(1, timeout=0.5) as slow,
        pytest.raises(OutOfResources, match=r"No worker was ready within \d+ s.*timeout="),
    ):
        sweep(MODEL, TOKENS, HEADS, METRIC, executor=slow)
    assert time.monotonic() - begin < 10


DRIVER = """
import sys
import interp
from architectures import build, tokens_of
from interp import edits, metrics
from interp.executors import Processes

model, tokens = build("gpt2"), tokens_of("gpt2", batch=3, pos=5)[0]
heads = [edits.zero("z", layer=0, head=0)] * 3
pool = Processes(2, threads=1)

def progress(done, total):
    print(*(state.facts.pid for state in pool._started.states.values() if state.facts), flush=True)
    sys.stdin.readline()

def slow(logits):
    import time
    time.sleep(0.5)
    return logits.sum((1, 2))

interp.sweep(model, tokens, heads, slow, executor=pool, progress=progress, memory=30_000)
"""


@pytest.mark.slow
def test_no_worker_is_left_when_the_driver_is_killed():
    words = [sys.executable, "-c", DRIVER]
    with subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as driver:
        workers = [int(pid) for pid in driver.stdout.readline().split()]
        assert workers
        driver.kill()
    assert end_within(workers)


# Errors that are raised on a worker.


def test_an_exception_in_a_metric_names_the_worker_and_the_case(pool):
    is_fourth = norm_of(4)

    def metric(logits):
        if is_fourth(logits):
            raise KeyError("no such thing")
        return logits.sum((1, 2))

    with pytest.raises(WorkerFailed, match=r"Edit 4 .*no such thing.*worker \d+, process \d+ on"):
        sweep(MODEL, TOKENS, HEADS, metric, executor=pool)


def test_an_exception_without_an_edit_says_so(pool):
    def metric(logits):
        raise KeyError("no such thing")

    with pytest.raises(WorkerFailed, match=r"Without an edit: KeyError.*worker"):
        sweep(MODEL, TOKENS, HEADS, metric, executor=pool)


def test_an_exception_in_an_edit_names_the_worker_and_the_case(pool):
    def change(x, hook=None):
        raise KeyError("no such thing")

    made = [*HEADS, edits.apply("z", change, layer=0)]
    with pytest.raises(HookFailed, match=r"Edit 6 .*no such thing.*worker"):
        sweep(MODEL, TOKENS, made, METRIC, executor=pool)


def test_errors_of_this_package_keep_their_class(pool):
    def metric(logits):
        return logits.sum((1, 2)) * torch.nan

    with pytest.raises(InvalidInput, match=r"NaN for prompt 0.*worker"):
        sweep(MODEL, TOKENS, HEADS, metric, executor=pool)


def test_the_driver_goes_on_after_an_error(pool):
    table = sweep(MODEL, TOKENS, HEADS, METRIC, executor=pool)
    assert_close(table.values, sweep(MODEL, TOKENS, HEADS, METRIC).values)


def test_what_can_not_be_sent_is_refused(pool):
    lock = threading.Lock()

    def metric(logits):
        with lock:
            return logits.sum((1, 2))

    with pytest.raises(InvalidInput, match=r"can't be sent to workers.*lock"):
        sweep(MODEL, TOKENS, HEADS, metric, executor=pool)


# Bad input.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": 0}, "workers=0 must be an integer of at least 1"),
        ({"workers": True}, "workers=True"),
        ({"workers": 2, "threads": 0}, "threads=0"),
        ({"memory": -1}, "memory=-1"),
        ({"devices": ()}, "devices="),
        ({"devices": ["cpu", "cuda:0"]}, "one kind of device"),
        ({"devices": ["no such device"]}, "devices="),
        ({"timeout": 0}, "timeout=0 should be a positive number"),
        ({"timeout": "long"}, "timeout='long'"),
    ],
)
def test_options_that_can_not_be_used_are_refused(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        Processes(**arguments)


def test_devices_of_another_kind_than_the_model_are_refused():
    with Processes(devices=["cuda:0"]) as pool, pytest.raises(InvalidInput, match="on cpu"):
        sweep(MODEL, TOKENS, HEADS, METRIC, executor=pool)


def test_a_name_that_is_misspelt_is_refused():
    with pytest.raises(InvalidInput, match=r"local, processes, ray.*Nearest: processes"):
        sweep(MODEL, TOKENS, HEADS, METRIC, executor="process")


@pytest.mark.slow
def test_another_version_is_refused(pool, monkeypatch):
    versions = {**worker_server.Facts.here().versions, "interp": "0.0.9"}
    facts = worker_server.Facts(versions, "elsewhere", 1)
    monkeypatch.setattr(worker_server.Facts, "here", classmethod(lambda cls: facts))
    with (
        Processes(1) as other,
        pytest.raises(InvalidInput, match=r"Worker 0 .* has interp .* but 0.0.9 in the driver"),
    ):
        sweep(MODEL, TOKENS, HEADS, METRIC, executor=other)


@pytest.mark.slow
def test_other_weights_are_refused():
    model = interp.load("rasp-duplicates")
    with torch.no_grad():
        next(model.parameters()).mul_(2.0)
    zero = edits.zero("z", layer=0, head=0)
    with (
        Processes(1, source="rasp-duplicates") as pool,
        pytest.raises(InvalidInput, match=r"Worker 0 .* loaded weights with the hash"),
    ):
        sweep(model, [[1, 2, 3]], [zero], metrics.loss(), executor=pool)


@pytest.mark.slow
def test_a_source_that_a_worker_does_not_have_is_refused():
    with (
        Processes(1, source="no-such-model") as pool,
        pytest.raises(interp.InterpError, match=r"no-such-model.*worker 0"),
    ):
        sweep(MODEL, TOKENS, HEADS, METRIC, executor=pool)


@pytest.mark.slow
def test_workers_load_a_source_by_themselves():
    model = interp.load("rasp-duplicates")
    made = [edits.zero("z", layer=0, head=0)]
    with Processes(1, source="rasp-duplicates") as pool:
        table = sweep(model, [[1, 2, 3]], made, metrics.loss(), executor=pool)
    assert_close(table.values, sweep(model, [[1, 2, 3]], made, metrics.loss()).values, 1e-5)


@pytest.mark.slow
def test_only_as_many_workers_run_as_there_is_memory_for(pool):
    with Processes(2, threads=1, memory=1) as little, pytest.warns(ResourceWarning, match="1 of 2"):
        table = sweep(MODEL, TOKENS, HEADS, METRIC, executor=little)
    assert table.complete


def test_a_sweep_inside_of_a_sweep_is_refused(pool):
    def progress(done, total):
        sweep(MODEL, TOKENS, HEADS, METRIC, executor=pool)

    with pytest.raises(InvalidInput, match="executor='local'"):
        sweep(MODEL, TOKENS, HEADS, METRIC, executor=pool, progress=progress)


def test_threads_use_a_pool_one_after_the_other(pool):
    expected, tables = sweep(MODEL, TOKENS, HEADS, METRIC).values, []

    def run():
        tables.append(sweep(MODEL, TOKENS, HEADS, METRIC, executor=pool).values)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tables) == 3
    for values in tables:
        assert_close(values, expected)


# interp.use.


class Counting:
    """An executor that counts its sweeps."""

    def __init__(self) -> None:
        self.sweeps = 0

    def __call__(self, jobs, work):
        self.sweeps += 1
        yield from local(jobs, work)


def one_sweep(**how):
    return sweep(MODEL, TOKENS, HEADS[:1], METRIC, **how)


def test_sweeps_of_a_block_use_its_executor():
    first, second = Counting(), Counting()
    with interp.use(executor=first) as chosen:
        assert chosen is first
        one_sweep()
        with interp.use(executor=second):
            one_sweep()
            with interp.use(executor="local"):
                one_sweep()
        one_sweep()
        one_sweep(executor="local")
    one_sweep()
    assert (first.sweeps, second.sweeps) == (2, 1)


def test_a_block_that_raises_ends_the_use():
    counting = Counting()
    with pytest.raises(KeyError), interp.use(executor=counting):
        raise KeyError
    one_sweep()
    assert counting.sweeps == 0
    assert CURRENT.get() == "local"


def test_other_threads_are_not_affected():
    counting = Counting()
    with interp.use(executor=counting):
        thread = threading.Thread(target=one_sweep)
        thread.start()
        thread.join()
        assert counting.sweeps == 0
        one_sweep()
    assert counting.sweeps == 1


def test_two_threads_use_two_executors():
    counts, both = [Counting(), Counting()], threading.Barrier(2, timeout=30)

    def run(counting):
        with interp.use(executor=counting):
            both.wait()
            one_sweep()
            both.wait()

    threads = [threading.Thread(target=run, args=[counting]) for counting in counts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [counting.sweeps for counting in counts] == [1, 1]


@pytest.mark.parametrize("executor", ["cluster", None, 3, "current"])
def test_what_is_no_executor_is_not_used(executor):
    with pytest.raises(InvalidInput, match="executor="), interp.use(executor=executor):
        pass


@pytest.mark.slow
def test_workers_of_a_named_executor_end_with_the_block():
    with interp.use(executor="processes") as named:
        assert_close(one_sweep().values, one_sweep(executor="local").values)
        workers = pids(named)
    assert workers
    assert all(map(is_gone, workers))


def children() -> set[str]:
    words = ["pgrep", "-P", str(os.getpid()), "-f", "executors.process_worker"]
    return {*subprocess.run(words, capture_output=True, text=True, check=False).stdout.split()}


@pytest.mark.slow
def test_a_named_executor_of_one_sweep_leaves_no_worker():
    before = children()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = one_sweep(executor="processes")
    assert_close(table.values, one_sweep().values)
    assert children() <= before


@pytest.mark.slow
def test_a_pool_that_is_no_longer_referenced_ends_its_workers():
    lost = Processes(1, threads=1)
    sweep(MODEL, TOKENS, HEADS, METRIC, executor=lost)
    workers = pids(lost)
    del lost
    assert all(map(is_gone, workers))
