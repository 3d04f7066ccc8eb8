"""The memory that the circuits of a head take with many tokens, in a process of their own."""

import subprocess
import sys
from pathlib import Path

import pytest

GROWTH = 250e6
"""Bytes; a matrix of all pairs would take 2.4 times as many with 12,288 tokens, 38 with 49,152."""
PROGRAM = """
import sys
from pathlib import Path
import interp
from analyses import ov, qk

def resident(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(own.split()[1]) for own in lines if own.startswith(name))

attention, mlp = interp.AttentionConfig(9, 16), interp.MLPConfig(288)
stack = interp.StackConfig(2, attention, mlp)
model = interp.Transformer(interp.Config(144, int(sys.argv[1]), 64, decoder=stack))
before = resident("VmRSS")
for circuit in (ov, qk):
    circuit(model, 1, 0)
    print(resident("VmHWM") - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
@pytest.mark.parametrize(
    "n_tokens",
    [
        pytest.param(12_288, marks=pytest.mark.slow),
        pytest.param(49_152, marks=pytest.mark.nightly),
    ],
)
def test_the_search_of_a_large_vocabulary_takes_bounded_memory(n_tokens):
    """OV, and then OV and QK."""
    command = [sys.executable, "-c", PROGRAM, str(n_tokens)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    grown = [int(line) for line in ran.stdout.split()]
    assert len(grown) == 2
    assert max(grown) < GROWTH
