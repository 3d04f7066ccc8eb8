"""The environment of a measurement: versions, processor, threads, dtype, kernels."""

import os
import platform
from typing import Any

import torch

from benchmarks.models import Ours, Setting, kernel_ran
from benchmarks.peers import PACKAGES, version
from benchmarks.timing import Absent
from interp.kernels import processor


def load_average() -> str:
    """Average number of runnable processes over the last minute; ``unknown`` if not reported.

    Other processes make the figures unreliable: threads that wait for one another can make a
    forward ten times slower.
    """
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"


def environment(setting: Setting, ours: Ours) -> dict[str, Any]:
    """The facts about machine and software on which the figures depend, by name."""
    on_cuda = setting.device.type == "cuda"
    names: dict[str, Any] = {
        "processor": processor(),
        "device": torch.cuda.get_device_name(setting.device) if on_cuda else "cpu",
        "system": platform.system(),
        "threads": setting.threads,
        "dtype": str(setting.dtype).removeprefix("torch."),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    if on_cuda:
        names["tf32"] = "off" if torch.get_float32_matmul_precision() == "highest" else "on"
    names |= {package: version(package) or "not installed" for package in PACKAGES}
    for kernel in setting.kernels:
        try:
            names[f"{kernel} kernel"] = kernel_ran(ours[kernel])
        except Absent as reason:
            names[f"{kernel} kernel"] = f"none ({reason})"
    return names
