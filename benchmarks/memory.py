"""Peak memory of a work in addition to the memory allocated before it.

On a GPU, it is the peak of torch's allocator. On a CPU under Linux, it is the high-water mark of
the resident set, which is reset before the work (``/proc/self/clear_refs``) after free memory is
returned to the system. Other systems are not supported: they would need a process for each work.
"""

import gc
import re
from pathlib import Path

import torch

from benchmarks.timing import Absent, Work
from interp.io import return_freed_memory

CLEAR = Path("/proc/self/clear_refs")
RESET_HIGH_WATER = "5"


def peak(work: Work, device: torch.device) -> int:
    """Peak memory of ``work``, in bytes.

    Raises:
        Absent: this system does not report it.
    """
    with torch.no_grad():
        work()  # one-time allocations, such as packed weights, are not counted
        gc.collect()
        return _peak_on_cuda(work) if device.type == "cuda" else _peak_resident(work)


def _peak_on_cuda(work: Work) -> int:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = work()
    torch.cuda.synchronize()
    most = torch.cuda.max_memory_allocated() - before
    del result
    return most


def reset_high_water() -> int:
    """Return free memory to the system, and reset the high-water mark.

    Returns:
        The size of the resident set, in bytes.

    Raises:
        Absent: this system does not report it.
    """
    absent = Absent("peak memory can be read only on Linux with glibc")
    if not return_freed_memory():
        raise absent
    try:
        CLEAR.write_text(RESET_HIGH_WATER, encoding="ascii")
    except OSError as error:
        raise absent from error
    return resident()


def resident(pid: int | str = "self") -> int:
    """Size of the resident set of a process, in bytes.

    Raises:
        Absent: this system does not report it.
    """
    return _status(pid, "VmRSS")


def high_water(pid: int | str = "self") -> int:
    """Largest size of the resident set of a process since :func:`reset_high_water`, in bytes.

    Raises:
        Absent: this system does not report it.
    """
    return _status(pid, "VmHWM")


def _peak_resident(work: Work) -> int:
    before = reset_high_water()
    result = work()
    most = high_water() - before
    del result
    return most


def _status(pid: int | str, field: str) -> int:
    """A field of a process's status, in bytes."""
    path = Path(f"/proc/{pid}/status")
    line = re.search(rf"^{field}:\s+(\d+) kB", path.read_text(encoding="utf-8"), re.MULTILINE)
    if line is None:
        raise Absent(f"{path} has no {field}")
    return int(line[1]) * 1024
