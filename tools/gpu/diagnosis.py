"""Where time is spent on a GPU: waits of the host for the device, and the device's busy time."""

import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import torch
from torch.autograd import DeviceType  # pyright: ignore[reportPrivateImportUsage] - in no __all__
from torch.profiler import ProfilerActivity, profile

from benchmarks.bench import Bench
from benchmarks.forwards import plain, recorded
from benchmarks.precision import Precision
from benchmarks.sweeps import metric, swept
from benchmarks.table import Row
from benchmarks.timing import Absent, Work, once
from interp import edits
from tools.gpu.facts import ROOT
from tools.gpu.measurement import Measurement

N_PLACES = 5
PROFILE_ROWS = 40
MICROSECONDS = 1e6


def works(bench: Bench) -> dict[str, Work]:
    """A plain forward, a recorded one, and the sweep over every head."""
    setting = bench.setting
    tokens = setting.tokens(*setting.prompts)
    every = product(range(setting.shape.n_layers), range(setting.shape.n_heads))
    zeroed = [edits.zero("z", layer=layer, head=head) for layer, head in every]
    return {
        "plain forward": plain(bench, "default", tokens),
        "all recorded": recorded(bench, "default", tokens),
        f"{len(zeroed)} heads zeroed": swept(bench.ours.default, tokens, zeroed, metric()),
    }


def waits(bench: Bench, precision: Precision) -> Iterator[Measurement]:
    """How often the host waits for the device in each work, and at which lines.

    Torch reports each wait as a warning (``torch.cuda.set_sync_debug_mode``). After a wait, the
    device is idle until the host issues more work.
    """
    for name, work in works(bench).items():
        row = Row(section="waits", work=f"waits of the host, {name}", kernel="default", unit="")
        try:
            places = _waits(work, bench.setting.device)
        except Absent as reason:
            row = replace(row, why=str(reason))
        else:
            lines = [f"{place} ({n})" for place, n in places.most_common(N_PLACES)]
            row = replace(row, ours=float(places.total()), note=", ".join(lines))
        yield Measurement(precision=precision.name, row=row)


@torch.no_grad()
def _waits(work: Work, device: torch.device) -> Counter[str]:
    if device.type != "cuda":
        raise Absent("a CPU has none")
    work()
    torch.cuda.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            work()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    synchronizations = [warning for warning in caught if "synchroniz" in str(warning.message)]
    return Counter(
        f"{_short(Path(warning.filename))}:{warning.lineno}" for warning in synchronizations
    )


def _short(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def profiled(bench: Bench, precision: Precision, folder: Path) -> Iterator[Measurement]:
    """The time that the device is busy in each work, against the total time of the work.

    The operations of each work, sorted by their time on the device, are written to ``folder``.
    """
    device = bench.setting.device
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * bench.on_cuda
    for name, work in works(bench).items():
        with torch.no_grad():
            work()
            seconds = once(work, device)
            with profile(activities=activities) as profiler:
                work()
                if bench.on_cuda:
                    torch.cuda.synchronize()
        averages = profiler.key_averages()
        kernels = [event for event in averages if event.device_type != DeviceType.CPU]
        busy = sum(event.self_device_time_total for event in kernels) / MICROSECONDS
        order = "self_cuda_time_total" if bench.on_cuda else "self_cpu_time_total"
        path = folder / f"profile-{name.replace(' ', '-')}.txt"
        path.write_text(averages.table(sort_by=order, row_limit=PROFILE_ROWS), encoding="utf-8")
        row = Row(
            section="profile",
            work=f"device busy, {name}",
            kernel="default",
            against="the time of the work",
            note=f"operations in {path.name}",
        )
        if bench.on_cuda:
            row = replace(row, ours=busy, theirs=seconds, ratio=busy / seconds)
        else:
            row = replace(row, why="a CPU is not profiled as a device")
        yield Measurement(precision=precision.name, row=row)
