"""Time of a sweep on workers against the same sweep in this process, and what a driver can take.

With one worker of as many threads, all that is added is to send jobs and rows of numbers. With many
workers on few cores, a tiny model and a Ray cluster, the driver is what limits: how many forwards
it hands out a second, and how much memory that takes.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product

import torch

import interp
from benchmarks.bench import Bench, Makers
from benchmarks.memory import resident
from benchmarks.models import Shape, config_of
from benchmarks.peers import imported
from benchmarks.table import Mark, Row
from benchmarks.timing import Work
from interp import edits
from interp.executors import Processes, Ray, WorkerPool

OVERHEAD = Mark(1.15)
MANY = 64
"""Number of workers that one driver serves."""
PROMPTS = 1000
"""Number of prompts that they sweep."""
QUICKLY = (2, 4)
"""Both, to try the command."""
TINY = Shape(n_layers=4, n_heads=4, d_model=16, d_vocab=50, n_ctx=64)


def scale(bench: Bench) -> Iterator[Row]:
    """A sweep on one worker against a local one, and many workers of a tiny model."""
    threads, device = bench.setting.threads, str(bench.setting.device)
    with Processes(1, threads=threads, devices=[device]) as workers:
        yield _overhead(bench, "processes", workers)
    with _cluster():
        with Ray(1, threads=threads) as workers:
            yield _overhead(bench, "ray", workers)
        if not bench.on_cuda:
            yield from _many(bench)


@contextmanager
def _cluster() -> Iterator[None]:
    """A Ray cluster on this machine, which all executors of the block use: one takes seconds.

    Raises:
        Absent: Ray is not installed.
    """
    ray = imported("ray", "ray")
    ray.init(address="local", include_dashboard=False, logging_level="warning")
    try:
        yield
    finally:
        ray.shutdown()


def _overhead(bench: Bench, name: str, workers: WorkerPool) -> Row:
    setting, model = bench.setting, bench.ours.default
    tokens = setting.tokens(*setting.prompts)
    heads = product(range(setting.shape.n_layers), range(setting.shape.n_heads))
    made = [edits.zero("z", layer=layer, head=head) for layer, head in heads]
    metric = interp.metrics.logit(1)

    def sweeping(executor: object) -> Work:
        if isinstance(executor, WorkerPool):
            executor.prepare(model)
        return lambda: interp.sweep(model, tokens, made, metric, executor=executor).values

    makers: Makers = {"local": partial(sweeping, "local"), name: partial(sweeping, workers)}
    timed = bench.timed(makers, rounds=setting.long_rounds, warmup=min(1, setting.warmup))
    row = Row(
        section="scale",
        work=f"{len(made)} heads on one worker, {name}",
        kernel="default",
        against="the same sweep in this process",
        mark=bench.mark(cpu=OVERHEAD, cuda=OVERHEAD),
    )
    return bench.row(row, timed, name, "local")


def _many(bench: Bench) -> Iterator[Row]:
    """Forwards a second, and memory of the driver, with many workers of a tiny model."""
    n, prompts = QUICKLY if bench.setting.quick else (MANY, PROMPTS)
    torch.manual_seed(0)
    model = interp.Transformer(config_of(TINY)).eval()
    tokens = torch.randint(TINY.d_vocab, (prompts, 8), generator=torch.Generator().manual_seed(0))
    heads = product(range(TINY.n_layers), range(TINY.n_heads))
    made = [edits.zero("z", layer=layer, head=head) for layer, head in heads]
    metric, memory = interp.metrics.logit(1), [0]
    # So little that each forward is of one edit of one prompt.
    single = 2.0 * interp.estimate_sweep(model, tokens[:1], made[:1], metric).peak

    def progress(done: int, total: int) -> None:  # noqa: ARG001 - as a sweep calls it
        memory.append(resident())

    with Ray(n, cpus=1 / n, threads=1) as workers:
        workers.prepare(model, every=True)
        before, begin, cpu = resident(), time.perf_counter(), time.process_time()
        interp.sweep(
            model, tokens, made, metric, memory=single, executor=workers, progress=progress
        )
        seconds, forwards = time.perf_counter() - begin, len(memory) - 1
        cpu = time.process_time() - cpu
    row = partial(Row, section="scale", kernel="default", note=f"{n} workers, {prompts} prompts")
    yield row(work="forwards that a driver hands out", ours=forwards / seconds, unit="1/s")
    yield row(work="forwards in a second of its CPU time", ours=forwards / cpu, unit="1/s")
    yield row(work="memory that it takes for that", ours=(max(memory) - before) / 1e6, unit="MB")
