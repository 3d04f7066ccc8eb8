"""``interp repeat``: does a saved run give the same numbers when it is repeated?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.options import DTypeName, KernelName
from apps.terminal import print_stdout, progress
from apps.torchrun import is_first

if TYPE_CHECKING:
    from apps.commands.analysis_run import AnalysisRun

Run = Annotated[Path, typer.Argument(help="A run.json, or the folder that contains it.")]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Output folder of the new run, created if missing.", show_default="not written"
    ),
]
Device = Annotated[
    str | None,
    typer.Option(help="Device: cpu, cuda, cuda:1, …", show_default="that of the run"),
]
DType = Annotated[
    DTypeName | None,
    typer.Option(help="Data type to compute in.", show_default="that of the run"),
]


Kernel = Annotated[
    KernelName | None,
    typer.Option(help="Kernel of products without gradients.", show_default="that of the run"),
]


def repeat(
    run: Run,
    *,
    out: Out = None,
    device: Device = None,
    dtype: DType = None,
    kernel: Kernel = None,
) -> None:
    """Repeat a saved run and compare its tables with the saved ones.

    The exit code is 1 if any number differs.
    """
    from apps.commands.written_run import read_run, what_differs  # noqa: PLC0415

    written = read_run(run)
    with progress(f"Repeating {written.name}") as tick:
        again = written.again(tick, device=device, dtype=dtype, kernel=kernel)
    if not is_first():
        return
    if out is not None:
        _write(again, out)
    same = True
    for name, verdict, is_same in written.compared(again):
        print_stdout(f"{name}: {verdict}")
        same = same and is_same
    differences = what_differs(written.contents, again)
    for name, (then, now) in differences.items():
        print_stdout(f"{name} was {then}, is {now}")
    if not same:
        raise typer.Exit(1)


def _write(run: "AnalysisRun", out: Path) -> None:
    from apps.commands.outputs import write_files  # noqa: PLC0415
    from interp.io import atomic_folder  # noqa: PLC0415

    with atomic_folder(out) as temporary:
        write_files(run, temporary)
