"""What a run depends on beside its settings: the code, the machine, the kernels taken."""

import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import interp
from analyses.statistics import FEWEST, LEVEL
from interp.execution.machine import device_name, operations_of_forward

PACKAGES = ("numpy", "pandas", "plotly", "tokenizers")
GIT_SECONDS = 10


def environment(model: interp.Transformer) -> dict[str, Any]:
    """Code, machine, kernels and the settings of intervals, as plain data."""
    return {
        "code": code(),
        "device": device_name(model.device),
        "threads": torch.get_num_threads(),
        "kernels": kernels(model),
        "intervals": {"method": "Hall 1992", "level": 1 - LEVEL, "fewest prompts": FEWEST},
        "versions": {name: _version(name) for name in PACKAGES},
    }


def code() -> dict[str, Any]:
    """The version of this package; its commit, and whether files differ from it.

    ``commit`` and ``changed`` are ``None`` where the package does not run from a git repository.
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


def kernels(model: interp.Transformer) -> list[str]:
    """The operations of torch in a plain forward of two tokens; none of a model that reads images.

    A forward whose attention patterns are read or edited forms them explicitly instead.
    """
    if any(stack.embedding.patches is not None for stack in model.config.stacks.values()):
        return []
    return [*operations_of_forward(model)]


def _git(root: Path, *words: str) -> str | None:
    """What git says; ``None`` where it can't be asked."""
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
