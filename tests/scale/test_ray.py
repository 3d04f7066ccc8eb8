"""Sweeps on a real Ray cluster of this machine, with two workers."""

import os
import signal
import socket
import sys
import threading
import time

import pytest
import torch
from architectures import assert_close, assert_identical
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
    norm_of,
    pids,
    swept,
)

import interp
from analyses import scan_heads
from interp import metrics, sweep
from interp.errors import InvalidInput, OutOfResources, WorkerFailed
from interp.executors import Processes, Ray, ray_cluster

pytest.importorskip("ray")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.xdist_group("ray"),
    # Ray leaves the pipes and files of the processes that it starts to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
]


@pytest.fixture(scope="module")
def pool():
    with Ray(2, cpus=0.5, threads=1) as workers:
        workers.prepare(MODEL, every=True)
        yield workers


@pytest.mark.parametrize("name", ["gpt2", "t5", "bert", "gemma2"])
def test_values_are_those_of_a_local_sweep(pool, name):
    *arguments, metric = swept(name)
    arguments += [metrics.kl()] if name in OF_DIVERGENCE else [metric]
    expected = sweep(*arguments, memory=LITTLE)
    actual = sweep(*arguments, memory=LITTLE, executor=pool)
    assert actual.complete
    assert_close(actual.values, expected.values)
    assert_close(actual.baseline, expected.baseline)


def test_values_are_those_of_processes_bit_for_bit(pool):
    arguments = swept("gpt2")
    with Processes(1, threads=1) as single:
        alone = sweep(*arguments, memory=LITTLE, executor=single)
    assert_identical(sweep(*arguments, memory=LITTLE, executor=pool).values, alone.values)


def test_a_worker_that_is_killed_is_replaced(pool, tmp_path):
    metric = ends_worker_at(norm_of(3), tmp_path)
    before = pids(pool)
    table = sweep(MODEL, TOKENS, HEADS, metric, executor=pool, memory=ONE_AT_A_TIME)
    assert table.complete
    assert_close(table.values, sweep(MODEL, TOKENS, HEADS, metric).values)
    assert len(list(tmp_path.iterdir())) == 1
    assert end_within(before, least=1)


def test_a_pass_has_the_numbers_of_a_local_one_also_if_a_worker_is_killed(pool):
    generator = torch.Generator().manual_seed(0)
    texts = [torch.randint(MODEL.d_vocab, (3 + n % 5,), generator=generator) for n in range(24)]
    settings, before, steps = {"rows": 2, "sample": 10}, pids(pool), []

    def kill_one(done, total):
        steps.append(done)
        if len(steps) == 2:
            os.kill(before[0], signal.SIGKILL)

    expected = scan_heads(MODEL, iter(texts), **settings)
    with interp.use(executor=pool):
        actual = scan_heads(MODEL, iter(texts), **settings, progress=kill_one)
    assert actual.payload() == expected.payload()
    assert end_within(before, least=1)


@pytest.mark.nightly  # Processes does the same in test_passes.py
def test_a_worker_that_does_not_answer_is_replaced(pool, tmp_path):
    driver = os.getpid()

    def function(number):
        if number == 2 and os.getpid() != driver and not list(tmp_path.iterdir()):
            (tmp_path / "slept").touch()
            time.sleep(600)
        return number

    pool.prepare(MODEL, every=True)
    pool._started.job_timeout = 2.0
    try:
        results = [*pool.map(MODEL, function, ((str(n), n) for n in range(6)))]
    finally:
        pool._started.job_timeout = pool.job_timeout
    assert [result for _, result in results] == [*range(6)]
    assert (tmp_path / "slept").exists()


@pytest.mark.nightly  # Processes does the same in test_processes.py
def test_a_job_that_ends_three_workers_is_named_and_the_others_finish(pool, tmp_path):
    metric = ends_worker_at(norm_of(4), tmp_path, times=9)
    with pytest.raises(WorkerFailed, match=r"ended 3 workers.*Edit 4 \(zero") as caught:
        sweep(MODEL, TOKENS, HEADS, metric, executor=pool, memory=ONE_AT_A_TIME)
    done = caught.value.result.done
    assert done.all(1).tolist() == [case != 4 for case in range(len(HEADS))]


def test_a_plain_function_is_a_metric_and_its_error_names_the_case(pool):
    power, is_fourth = 3, norm_of(4)

    def metric(logits):
        return logits.double().abs().pow(power).mean((1, 2))

    def failing(logits):
        if is_fourth(logits):
            raise KeyError("no such thing")
        return metric(logits)

    table = sweep(MODEL, TOKENS, HEADS, metric, executor=pool)
    assert_close(table.values, sweep(MODEL, TOKENS, HEADS, metric).values)
    with pytest.raises(WorkerFailed, match=r"Edit 4 .*no such thing.*worker \d+, process \d+ on"):
        sweep(MODEL, TOKENS, HEADS, failing, executor=pool)


def test_a_stopped_sweep_ends_with_the_same_bits(pool):
    arguments = swept("gpt2")
    whole = sweep(*arguments, memory=LITTLE, executor=pool)
    part = sweep(*arguments, memory=LITTLE, executor=pool, cancelled=lambda: True)
    assert not part.complete
    again = sweep(*arguments, memory=LITTLE, executor=pool, resume=part)
    assert_identical(again.values, whole.values)


def test_a_connection_that_the_program_has_made_is_used_and_left(pool):
    import ray  # noqa: PLC0415 - may be missing

    with Ray(1, cpus=0.5, threads=1) as another:
        table = sweep(MODEL, TOKENS, HEADS, METRIC, executor=another)
        workers = pids(another)
    assert_close(table.values, sweep(MODEL, TOKENS, HEADS, METRIC).values)
    assert ray.is_initialized()
    assert end_within(workers)


def test_more_than_the_cluster_has_is_an_error_in_time(pool):
    with (
        Ray(1, cpus=10**4, timeout=2) as greedy,
        pytest.raises(OutOfResources, match=r"No worker was ready.*the cluster has.*cpus="),
    ):
        sweep(MODEL, TOKENS, HEADS, METRIC, executor=greedy)


def test_the_driver_goes_on_after_an_idle_worker_was_killed(pool):
    os.kill(pids(pool)[0], signal.SIGKILL)
    table = sweep(MODEL, TOKENS, HEADS, METRIC, executor=pool)
    assert_close(table.values, sweep(MODEL, TOKENS, HEADS, METRIC).values)


# Addresses and options.


@pytest.fixture
def unconnected(monkeypatch):
    """As in a program that has not connected to a cluster."""
    import ray  # noqa: PLC0415 - may be missing

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray_cluster, "REACH", 2.0)


def refused(address: str, message: str) -> None:
    begin = time.monotonic()
    with Ray(1, address=address) as pool, pytest.raises(InvalidInput, match=message):
        sweep(MODEL, TOKENS, HEADS, METRIC, executor=pool)
    assert time.monotonic() - begin < 30


def test_an_address_where_nothing_listens_is_refused(unconnected):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    refused(f"127.0.0.1:{port}", rf"127.0.0.1:{port}.*refused.*ray start --head")


def test_a_port_that_never_answers_is_refused(unconnected):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        refused(f"127.0.0.1:{silent.getsockname()[1]}", "not a Ray cluster")


@pytest.mark.nightly
def test_a_server_that_closes_connections_is_refused(unconnected):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def close_all():
            try:
                while True:
                    server.accept()[0].close()
            except OSError:
                return

        threading.Thread(target=close_all, daemon=True).start()
        refused(f"127.0.0.1:{server.getsockname()[1]}", "not a Ray cluster")
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": 0}, "workers=0 must be an integer of at least 1"),
        ({"address": "somewhere"}, "address='somewhere' should be 'auto', host:port"),
        ({"address": "host:port"}, "address='host:port'"),
        ({"address": "host:99999"}, "address='host:99999'"),
        ({"address": 3}, "address=3"),
        ({"cpus": 0}, "cpus=0 should be a positive number"),
        ({"gpus": -1}, "gpus=-1"),
        ({"memory": float("nan")}, "memory=nan"),
        ({"threads": 0}, "threads=0"),
    ],
)
def test_options_that_can_not_be_used_are_refused(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        Ray(**arguments)


def test_without_ray_the_error_has_the_line_to_type(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    for name in (Ray, lambda: sweep(MODEL, TOKENS, HEADS, METRIC, executor="ray")):
        with pytest.raises(InvalidInput, match=r"pip install 'interp\[ray\]'"):
            name()
