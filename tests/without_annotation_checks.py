"""Runs a program in a process of its own, in which no annotation is checked, as users run it.

Tests check annotations: there, what is of another type never reaches an annotated function.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def printed_by(program: Path) -> str:
    """What a program prints, which must succeed."""
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "tests"))),
            "OMP_NUM_THREADS": "1",
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()
