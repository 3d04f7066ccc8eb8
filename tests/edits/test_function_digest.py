"""The hash of a function is that of its code and data, in every process."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from interp import edits
from interp.edits.function import function_digest

SOURCE = """
from functools import partial
import torch
from interp import edits

class Steer:
    def __call__(self, z, hook):
        return z + 1
    def halve(self, z, hook):
        return z / 2

def made(k, direction):
    def inside(z, hook, names={"a", "b", "c"}, scale=0.5, *, other=(1, object())):
        if hook.name in {"blocks.0.hook_z", "blocks.1.hook_z", "another", "fourth"}:
            return [k * row + direction for row in z]
        return (lambda x: x @ direction)(z)
    return inside

bound = partial(made(3, torch.ones(2)), scale=2)
fns = [made(2, torch.ones(3)), Steer(), Steer().halve, bound, print]
print([edits.apply("z", fn, layer=0).digest for fn in fns])
"""


@pytest.mark.slow
def test_a_digest_is_the_same_in_every_process():
    """Neither an address in memory nor the order of a set goes into it."""
    digests = {
        subprocess.run(
            [sys.executable, "-c", SOURCE],
            env={"PYTHONHASHSEED": seed, "PATH": "", "PYTHONPATH": str(Path(__file__).parents[2])},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1
    assert len(set(eval(digests.pop()))) == 5


def capturing(value: object):
    return lambda z, hook: z * value


def defaulting(value: object):
    return lambda z, hook, by=value: z * by


VALUES = [
    *(2, 3, 2.0, True, "2", None, (2, 3), (2, (3,)), b"2", 2j),
    *(torch.ones(2), torch.ones(2).double(), torch.zeros(2), np.ones(2), frozenset({2, 3})),
    *(np.int64(2), np.float32(2), np.array([{}]), torch.ones(2, device="meta")),
    *(len, str, str.upper, lambda x: x, lambda x: -x, [].append),
]


@pytest.mark.parametrize("captures", [capturing, defaulting, lambda v: partial(capturing(1), v)])
def test_what_a_function_captures_is_part_of_it(captures):
    digests = [function_digest(captures(value)) for value in VALUES]
    assert len(set(digests)) == len(VALUES)
    assert digests == [function_digest(captures(value)) for value in VALUES]


def test_what_it_fills_is_not():
    """A hook that counts its calls is the same hook afterwards."""
    calls: list[int] = []
    hook = capturing(calls)
    before = function_digest(hook)
    calls.append(1)
    assert function_digest(hook) == before


def test_code_inside_is_part_of_it():
    first, second = (lambda z, _: [x + 1 for x in z]), (lambda z, _: [x + 2 for x in z])
    assert edits.apply("z", first, layer=0).digest != edits.apply("z", second, layer=0).digest


def test_a_function_may_capture_itself():
    def itself(z, hook):
        return z if hook is None else itself(z, None)

    assert function_digest(itself) == function_digest(itself)
