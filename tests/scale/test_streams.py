"""Streams of prompts, and means over them, take memory that does not depend on their number."""

import subprocess
import sys

import pytest

STATISTICS = """
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
MEANS = """
import sys
import torch
from analyses.methods.components import Replacements, components_of
from benchmarks.memory import high_water
from interp import AttentionConfig, Config, StackConfig, Transformer

torch.manual_seed(0)
model = Transformer(Config(64, 13, 64, decoder=StackConfig(4, AttentionConfig(4, 16), None)))
ids = torch.arange(int(sys.argv[1]) * 64).view(-1, 64) % 13
Replacements(model, model.batches(ids), "mean").edits(components_of(model).heads)
print(high_water())
"""


def peak(program: str, n: int) -> int:
    """The most bytes that a process held, which read ``n`` prompts."""
    words = [sys.executable, "-c", program, str(n)]
    return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "few", "many"),
    [(STATISTICS, 2048, 20_480), (MEANS, 256, 2560)],
    ids=["statistics", "means"],
)
def test_memory_does_not_depend_on_the_number_of_prompts(program, few, many):
    """Ten times as many prompts: the same peak within 5 %."""
    assert peak(program, many) < 1.05 * peak(program, few)
