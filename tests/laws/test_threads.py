"""Threads that run different edits on one model do not affect each other."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from architectures import assert_identical, build, build_new, tokens_of

from interp import InterpError, edits, metrics, run

ROUNDS = 6


@pytest.mark.parametrize("name", ["gpt2", "llama", "uneven-pair"])
def test_runs_at_the_same_time_are_as_each_alone(name):
    """With different edits, kernels, recorded places and gradients, on a model not used before."""
    tokens = tokens_of(name)
    stack = build(name).stacks[-1].name
    jobs = [
        {"edits": [edits.zero(("z", 0, stack), head=0)], "record": "all"},
        {"edits": [edits.scale(("pattern", 0, stack), 2.0)], "record": ["z"]},
        {"record": "all", "kernel": "explicit"},
        {"record": ["resid_post"], "gradients_of": metrics.loss()},
    ]
    expected = [run(build_new(name), *tokens, **job) for job in jobs]
    model, start = build_new(name), Barrier(len(jobs))

    def work(index: int) -> None:
        start.wait()
        for _ in range(ROUNDS):
            done = run(model, *tokens, **jobs[index])
            assert_identical(done.logits, expected[index].logits)
            assert list(done.cache) == list(expected[index].cache)
            for place, value in done.cache.items():
                assert_identical(value, expected[index].cache[place])

    with ThreadPoolExecutor(len(jobs)) as pool:
        list(pool.map(work, range(len(jobs))))


def test_a_thread_whose_hook_raises_disturbs_no_other():
    model, tokens = build_new("gpt2"), tokens_of("gpt2")
    expected, start = run(model, *tokens).logits, Barrier(2)

    def broken(tensor, hook):
        raise RuntimeError(hook.name)

    def failing() -> None:
        start.wait()
        for _ in range(ROUNDS):
            with pytest.raises(InterpError, match="hook_z"):
                model.run_with_hooks(*tokens, fwd_hooks=[("blocks.0.attn.hook_z", broken)])

    def running() -> None:
        start.wait()
        for _ in range(ROUNDS):
            assert_identical(run(model, *tokens).logits, expected)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(failing), pool.submit(running)]:
            done.result()


def test_two_generations_at_the_same_time_are_as_each_alone():
    model, (ids,) = build_new("llama"), tokens_of("llama")
    changes = [[], [edits.scale("z", -2.0, layer=0)]]
    expected = [model.generate(ids, max_new_tokens=8, edits=change) for change in changes]
    assert not torch.equal(*expected)
    start = Barrier(2)

    def work(index: int) -> None:
        start.wait()
        for _ in range(3):
            assert_identical(
                model.generate(ids, max_new_tokens=8, edits=changes[index]), expected[index]
            )

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))
