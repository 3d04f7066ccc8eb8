"""A program: the bytes that runs and analyses leave to the garbage collector, by name, as JSON."""

import gc
import json
import sys
from collections.abc import Callable
from functools import partial

import torch
from architectures import ARCHITECTURES, build, tokens_of
from declared import declarations
from torch import Tensor

import interp

RECORDED = ("all", ["pattern"], ["z", "resid_post"])


def unfreed(work: Callable[[], object]) -> int:
    """Bytes of the tensors of some work that are left after it, for the garbage collector."""
    work()  # what is computed once and kept is not counted
    gc.freeze()  # and neither is what exists already
    gc.disable()
    try:
        work()
        return sum(thing.nbytes for thing in gc.get_objects() if type(thing) is Tensor)
    finally:
        gc.enable()
        gc.unfreeze()


def run_and_read(name: str) -> None:
    """Run an architecture and read every place that was recorded."""
    model, tokens = build(name), tokens_of(name)
    for record in RECORDED:
        cache = interp.run(model, *tokens, record=record).cache
        for place in cache:
            cache[place]


def in_a_cycle() -> None:
    """A function that calls itself outlives the call, with the tensors in its scope."""
    activations = torch.zeros(1000)

    def again(n: int) -> Tensor:
        return again(n - 1) if n else activations

    again(2)


def main() -> None:
    """Print the bytes of all works, those of a cycle under its name."""
    torch.set_num_threads(1)
    works: dict[str, Callable[[], object]] = {"a cycle": in_a_cycle}
    works |= {f"run of {name}": partial(run_and_read, name) for name in ARCHITECTURES}
    works |= {name: declared.result_of_call for name, declared in declarations().items()}
    json.dump({name: unfreed(work) for name, work in works.items()}, sys.stdout)


if __name__ == "__main__":
    main()
