"""How much memory does a piece of work need at its worst, beyond what was held before it?

On a GPU torch keeps count. On Linux the kernel does: what was freed is given back first, the
high-water mark of the resident set is reset (``/proc/self/clear_refs``), the work is done, and the
mark is read. Elsewhere it can't be told without a process for each work, and isn't.
"""

import ctypes
import gc
import re
from pathlib import Path

import torch

from benchmarks.timing import Absent, Work

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_HIGH_WATER = "5"


def peak(work: Work, device: torch.device) -> int:
    """Bytes.

    Raises:
        Absent: this system does not tell.
    """
    with torch.no_grad():
        work()  # what stays for good, such as packed weights, is there before the count begins
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


def _peak_resident(work: Work) -> int:
    try:
        ctypes.CDLL(None).malloc_trim(0)
        CLEAR.write_text(RESET_HIGH_WATER, encoding="ascii")
    except (OSError, AttributeError) as error:
        raise Absent("peak memory can be read on Linux with glibc alone") from error
    before = _resident("VmRSS")
    result = work()
    most = _resident("VmHWM") - before
    del result
    return most


def _resident(which: str) -> int:
    found = re.search(rf"^{which}:\s+(\d+) kB", STATUS.read_text(encoding="ascii"), re.MULTILINE)
    if found is None:
        raise Absent(f"{STATUS} does not tell {which}")
    return int(found[1]) * 1024
