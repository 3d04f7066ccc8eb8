"""Memory that was freed is returned to the system."""

import subprocess
import sys

import pytest

RETURNED = """
from benchmarks.memory import resident
from interp.io import return_freed_memory

blocks = [bytearray(100_000) for _ in range(2000)]
for block in blocks:
    block[::4096] = bytes(len(block[::4096]))
used = blocks[::50]
del blocks, block
before = resident()
return_freed_memory()
print(before - resident())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_freed_memory_is_returned_to_the_system():
    """Blocks that are in use lie among 200 MB that were freed."""
    words = [sys.executable, "-c", RETURNED]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) > 100e6
