"""What a run depends on besides its settings: the code, the machine, the kernels that ran."""

import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import interp
from analyses.results import FEWEST, LEVEL
from interp.executors import current_name, current_threads
from interp.kernels import processor
from interp.tensor_parallel import ShardedTransformer

PACKAGES = ("numpy", "pandas", "plotly", "scipy", "tokenizers")
GIT_SECONDS = 10


def environment(model: interp.Transformer, kernels: Sequence[str]) -> dict[str, Any]:
    """Code, machine, kernels and the settings of intervals, as plain data.

    Args:
        model: the model that was run.
        kernels: the operations that :class:`interp.kernels.OperationLog` recorded.
    """
    return {
        "code": code(),
        "device": _device_name(model.device),
        "executor": _executor(model),
        "threads": current_threads(),
        "kernels": [*kernels],
        "intervals": {
            "method": "Student's t, corrected for skewness",
            "level": 1 - LEVEL,
            "fewest prompts": FEWEST,
        },
        "versions": {name: _version(name) for name in PACKAGES},
    }


def _device_name(device: torch.device) -> str:
    """The name of a GPU, or of the processor."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else processor()


def _executor(model: interp.Transformer) -> str:
    """What runs the forwards: this process, workers, or processes that hold the model together."""
    if isinstance(model, ShardedTransformer):
        return f"{model.ranks.size} ranks"
    return current_name()


def code() -> dict[str, Any]:
    """The version of this package, its commit, and whether files differ from that commit.

    ``commit`` and ``changed`` are ``None`` if the package does not run from a git repository.
    """
    root = Path(interp.__file__).parent.parent
    commit = _git(root, "rev-parse", "HEAD") if (root / ".git").exists() else None
    packages = ("interp", "analyses", "apps")
    status = None if commit is None else _git(root, "status", "--porcelain", "--", *packages)
    return {
        "version": interp.__version__,
        "commit": commit,
        "changed": None if status is None else bool(status),
    }


def _git(root: Path, *words: str) -> str | None:
    """The output of a git command; ``None`` if it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *words],
            capture_output=True,
            text=True,
            timeout=GIT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
