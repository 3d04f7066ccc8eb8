"""A stream of prompts takes the memory of a window of them, however many there are."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import torch
from analyses import attention_statistics
from benchmarks.memory import high_water
from interp import AttentionConfig, Config, MLPConfig, StackConfig, Transformer

n = int(sys.argv[1])
torch.manual_seed(0)
stack = StackConfig(2, AttentionConfig(3, 4), MLPConfig(10))
model = Transformer(Config(12, 13, 64, decoder=stack))
prompts = ([(k + i) % 13 for i in range(20 + k % 40)] for k in range(n))
result = attention_statistics(model, prompts)
assert result.n_prompts == n, result.n_prompts
print(high_water())
"""


def peak(n: int) -> int:
    """The most bytes that a process held, which read ``n`` prompts."""
    words = [sys.executable, "-c", PROGRAM, str(n)]
    return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


@pytest.mark.slow
def test_memory_does_not_depend_on_the_number_of_prompts():
    """Two windows against twenty: the same peak within 5 %."""
    few, many = peak(2048), peak(20_480)
    assert many < 1.05 * few
