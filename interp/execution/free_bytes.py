"""Free memory of a device."""

from pathlib import Path

import torch

CGROUP = Path("/sys/fs/cgroup")
UNKNOWN = 4 * 2**30
"""Free memory that is assumed if the system does not report it."""
TEN_MEGABYTES = 10 * 2**20


_FIXED: dict[str, int] = {}
"""Free memory of each type of device, if it was fixed."""


def fix_free_bytes(device: torch.device, nbytes: int) -> None:
    """Let :func:`free_bytes` return this number: processes that share a model must plan alike."""
    _FIXED[device.type] = nbytes


def free_bytes(device: torch.device) -> int:
    """Free memory of a device, in bytes; or the number that it was fixed to."""
    return _FIXED.get(device.type) or measured_free_bytes(device)


def measured_free_bytes(device: torch.device) -> int:
    """Free memory of a device now, in bytes."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + unused
    reported = [_free_in_system(), _free_in_container()]
    return min((free for free in reported if free is not None), default=UNKNOWN)


def _free_in_system() -> int | None:
    """Memory available without swapping, as the system reports it."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    available = [line.split() for line in lines if line.startswith("MemAvailable")]
    return int(available[0][1]) * 1024 if available else None


def _free_in_container() -> int | None:
    """Memory that remains within the limit of a container, if there is one.

    The file cache counts as used in the system's report, but is freed when memory is needed.
    """
    try:
        limit, used, report = (
            (CGROUP / name).read_text(encoding="ascii").strip()
            for name in ("memory.max", "memory.current", "memory.stat")
        )
    except OSError:
        return None
    stat = dict(line.split() for line in report.splitlines())
    file_cache = int(stat.get("inactive_file", 0))
    return None if limit == "max" else max(0, int(limit) - int(used) + file_cache)


def size_of(nbytes: int) -> str:
    """A number of bytes as text, in MiB, or in KiB below ten megabytes."""
    return f"{nbytes / 2**20:,.0f} MiB" if nbytes >= TEN_MEGABYTES else f"{nbytes / 2**10:,.1f} KiB"
