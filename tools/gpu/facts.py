"""The device and the software of a run: name, memory, driver, versions, commit."""

import platform
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from benchmarks.peers import version
from interp.kernels import processor

ROOT = Path(__file__).parents[2]
PACKAGES = ("transformers", "safetensors", "tokenizers", "numpy", "pandas", "einops", "jaxtyping")
PACKAGES += ("pytest", "hypothesis", "beartype")
SECONDS_OF_A_QUERY = 20


def device_facts(device: torch.device) -> dict[str, Any]:
    """The name, memory, driver and CUDA version of ``device``; for a CPU, only its name."""
    if device.type != "cuda":
        return {"type": device.type, "name": processor()}
    properties = torch.cuda.get_device_properties(device)
    return {
        "type": device.type,
        "name": properties.name,
        "memory bytes": properties.total_memory,
        "compute capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "driver": _printed("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
    }


def software_facts(commit: str | None) -> dict[str, Any]:
    """Date, versions and the git commit.

    Args:
        commit: the commit, if the folder is a copy without its history; ``None`` to ask git.
    """
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit or _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        **{package: version(package) for package in PACKAGES},
    }


def _commit() -> str | None:
    """The commit of this folder, with ``+`` if files have changed since; ``None`` without git."""
    commit = _printed("git", "-C", str(ROOT), "rev-parse", "HEAD")
    changed = _printed("git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no")
    return f"{commit}+" if commit and changed else commit


def _printed(program: str, *arguments: str) -> str | None:
    """The first line that a program prints; ``None`` if it is missing, fails or prints nothing."""
    path = shutil.which(program)
    if path is None:
        return None
    try:
        done = subprocess.run(
            [path, *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=SECONDS_OF_A_QUERY,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(done.stdout.splitlines()), None)
