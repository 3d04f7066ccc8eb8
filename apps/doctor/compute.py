"""PyTorch on this machine: threads, kernels, precision and GPU."""

import math
import os
import platform
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from apps.doctor.finding import Finding, as_expected, failure, warning

QUOTA = Path("/sys/fs/cgroup/cpu.max")
DRIVER = Path("/proc/driver/nvidia/version")
THREADS, TF32 = "OMP_NUM_THREADS", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"
X86 = ("x86_64", "amd64")
FEW = 0.5
"""Least number of threads per core; a half, since PyTorch uses one of two hardware threads."""
CUDA_BUILD = (
    "Install a build of torch for CUDA that this driver supports: "
    "https://pytorch.org/get-started/locally"
)


@dataclass(frozen=True)
class Gpu:
    """A GPU as PyTorch sees it.

    Attributes:
        name: the name of the device.
        free: free memory in bytes.
        total: total memory in bytes.
    """

    name: str
    free: int
    total: int


def import_failure() -> Finding | None:
    """The failure to import torch; ``None`` if it can be imported."""
    try:
        import_module("torch")
    except Exception as error:  # from torch, or from a library that it loads
        return failure(
            "torch",
            f"can't be imported: {type(error).__name__}: {error}",
            "Reinstall it: pip install --force-reinstall torch",
        )
    return None


def compute() -> Iterator[Finding]:
    """The findings of this module's checks, from what PyTorch reports."""
    import torch  # noqa: PLC0415

    from interp.kernels import is_available  # noqa: PLC0415

    yield threads(torch.get_num_threads(), usable_cores(), os.environ.get(THREADS))
    yield instructions(torch.backends.cpu.get_cpu_capability(), platform.machine())
    yield attention(fused_kernels())
    yield products(has_onednn=torch.backends.mkldnn.is_available(), has_packed=is_available())
    yield precision(float32_precision(), os.environ.get(TF32))
    yield gpu(gpus(), torch.version.cuda or torch.version.hip, driver(DRIVER), reason_for_none())


def usable_cores() -> int:
    """The cores that this process may use, from its affinity and its container's quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min(cores, math.ceil(quota(QUOTA) or cores)))


def quota(file: Path) -> float | None:
    """The cores that a container's quota allows; ``None`` without a quota."""
    try:
        allowed, period = file.read_text(encoding="ascii").split()
        return None if allowed == "max" else int(allowed) / int(period)
    except (OSError, ValueError):
        return None


def threads(used: int, cores: int, setting: str | None) -> Finding:
    """Whether PyTorch uses as many threads as there are usable cores.

    Args:
        used: number of threads that PyTorch uses.
        cores: number of cores that this process may use.
        setting: the value of ``OMP_NUM_THREADS``; ``None`` if it is not set.
    """
    state = f"PyTorch uses {used} on {cores} usable core{'s' * (cores > 1)}"
    state += "" if setting is None else f" ({THREADS}={setting})"
    if used > cores:
        advice = f"Threads that share a core can be many times slower: set {THREADS}={cores}."
        return warning("threads", state, advice)
    if used < FEW * cores:
        advice = f"Unset {THREADS}" if setting else f"Set {THREADS}={cores}"
        return warning("threads", state, f"{advice} to use all cores for a large model.")
    return as_expected("threads", state)


def instructions(capability: str, machine: str) -> Finding:
    """Whether PyTorch's CPU kernels use vector instructions.

    Args:
        capability: the instructions, as PyTorch names them.
        machine: the architecture, such as ``x86_64``.
    """
    if capability.upper() in ("DEFAULT", "NO AVX") and machine.lower() in X86:
        return warning(
            "processor",
            f"{machine}, without the vector instructions that PyTorch uses",
            "Results are correct, but computing them is slow. If ATEN_CPU_CAPABILITY is set, unset "
            "it.",
        )
    return as_expected("processor", f"{machine}, {capability}")


def fused_kernels() -> list[str]:
    """The fused kernels that ``scaled_dot_product_attention`` may choose from on this machine."""
    import torch  # noqa: PLC0415

    backend = torch.backends.cuda  # whose setting of the flash kernel also applies to CPUs
    enabled = {"flash": backend.flash_sdp_enabled()}
    if torch.cuda.is_available():
        enabled["memory-efficient"] = backend.mem_efficient_sdp_enabled()
        enabled["cuDNN"] = backend.cudnn_sdp_enabled()
    return [name for name, is_enabled in enabled.items() if is_enabled]


def attention(kernels: Sequence[str]) -> Finding:
    """Which kernels compute attention."""
    if not kernels:
        return warning(
            "attention",
            "all fused kernels are disabled, so every attention pattern is computed explicitly",
            "Enable them: torch.backends.cuda.enable_flash_sdp(True)",
        )
    return as_expected(
        "attention",
        f"fused kernels are available (scaled_dot_product_attention: {', '.join(kernels)}); "
        "patterns are computed explicitly only where scores or patterns are edited",
    )


def products(*, has_onednn: bool, has_packed: bool) -> Finding:
    """Which kernels for products with weights are available."""
    if has_packed:
        return as_expected(
            "products",
            "PyTorch's own kernels; packed ones (oneDNN) are available with interp.packed(model), "
            "and commands take them for large models if they are faster on this machine",
        )
    lacking = "the operation for packed weights" if has_onednn else "oneDNN"
    return warning(
        "products",
        f"PyTorch's own kernels; this build of PyTorch lacks {lacking}, so interp.packed does not "
        "work",
        "Nothing else needs it. Builds of torch from PyPI for x86-64 have it.",
    )


def float32_precision() -> str:
    """The rounding of float32 products on a GPU: ``ieee``, ``tf32`` or ``none`` (not set)."""
    import torch  # noqa: PLC0415

    return str(torch.backends.cuda.matmul.fp32_precision)


def precision(setting: str, variable: str | None) -> Finding:
    """Whether float32 products are computed in full precision.

    Args:
        setting: see :func:`float32_precision`.
        variable: the value of ``TORCH_ALLOW_TF32_CUBLAS_OVERRIDE``; ``None`` if it is not set.
    """
    if setting in ("tf32", "bf16"):
        call = 'Call torch.set_float32_matmul_precision("highest")'
        advice = f"Unset {TF32}." if variable else call
        return warning("precision", f"float32 products on a GPU are rounded to {setting}", advice)
    return as_expected("precision", "float32 products are computed in float32")


def gpus() -> list[Gpu]:
    """The GPUs that PyTorch can use."""
    import torch  # noqa: PLC0415

    with warnings.catch_warnings(action="ignore"):  # reason_for_none reports the reason
        if not torch.cuda.is_available():
            return []
    devices = range(torch.cuda.device_count())
    return [Gpu(torch.cuda.get_device_name(i), *torch.cuda.mem_get_info(i)) for i in devices]


def reason_for_none() -> str | None:
    """Why a GPU build of PyTorch can't use a GPU; ``None`` if it can, or is for CPUs only."""
    import torch  # noqa: PLC0415

    if not (torch.version.cuda or torch.version.hip):
        return None
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return str(error).split("\n")[0]
    return None


def driver(file: Path) -> str | None:
    """The version of the NVIDIA driver; ``None`` if there is no driver."""
    try:
        words = file.read_text(encoding="ascii", errors="replace").split()
    except OSError:
        return None
    numbers = [word for word in words if word[:1].isdigit() and "." in word]
    return numbers[0] if numbers else "unknown"


def gpu(
    usable_gpus: Sequence[Gpu],
    build: str | None,
    driver_version: str | None,
    reason: str | None = None,
) -> Finding:
    """Whether there is a GPU, and whether this PyTorch can use it.

    Args:
        usable_gpus: the GPUs that PyTorch can use.
        build: the version of CUDA or ROCm that PyTorch was built for; ``None`` for CPUs only.
        driver_version: the version of NVIDIA's driver; ``None`` if there is no driver.
        reason: why PyTorch can't use a GPU; ``None`` if that is not known.
    """
    if usable_gpus:
        devices = ", ".join(
            f"{device.name} ({device.free / 2**30:.0f} of {device.total / 2**30:.0f} GiB free)"
            for device in usable_gpus
        )
        version = f", driver {driver_version}" if driver_version else ""
        return as_expected(
            "GPU", f"{devices}, torch built for {build}{version}; --device cuda uses it"
        )
    if driver_version is not None and build is None:
        problem = f"driver {driver_version} is installed, but this torch is built for CPUs only"
        return warning("GPU", problem, CUDA_BUILD)
    if driver_version is not None:
        why = reason or "no device"
        problem = f"driver {driver_version} is installed, but PyTorch can't use it: {why}"
        advice = "Check nvidia-smi and CUDA_VISIBLE_DEVICES. "
        return warning("GPU", problem, advice + CUDA_BUILD)
    return as_expected("GPU", "none found; models run on the CPU")
