"""How is a bundled model made again? By its recipe, in a folder that survives being killed.

Everything is written into ``.unfinished`` inside the folder, and moved out when it is whole.
"""

import shutil
from contextlib import suppress
from pathlib import Path

import torch

from interp.errors import InvalidInput, OutOfResources
from interp.loading.folder import STEPS
from interp.zoo.recipes import RECIPES
from interp.zoo.training import Report
from interp.zoo.unfinished import FILE
from interp.zoo.workshop import Workshop

UNFINISHED = ".unfinished"


def make(
    name: str,
    folder: Path,
    *,
    report: Report,
    steps: int | None = None,
    device: str | torch.device = "cpu",
    anew: bool = False,
) -> Path:
    """Make a bundled model again, from nothing, or from where a killed training was kept.

    Args:
        name: which one.
        folder: where it goes.
        report: called with steps done, of how many, and the loss in nats.
        steps: of training; ``None`` means as many as the bundled model had.
        device: where to train. A CPU gives the same weights each time; a GPU need not.
        anew: forget what is unfinished in the folder.

    Raises:
        InvalidInput: there is no such recipe, the corpus is not on this machine, or what is
            unfinished in the folder is another training.
        OutOfResources: the folder can't be written.
    """
    if name not in RECIPES:
        raise InvalidInput(f"There is no recipe {name!r}; there are {', '.join(RECIPES)}.")
    if steps is not None and steps < 1:
        raise InvalidInput(f"steps={steps} must be at least 1.")
    made_here = [path for path in (folder, *folder.parents) if not path.exists()]
    unfinished = folder / UNFINISHED
    try:
        if anew:
            shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True, exist_ok=True)
        made = RECIPES[name](Workshop(report, steps, torch.device(device), unfinished))
        made.write(unfinished)
        _move_out(unfinished, folder)
    except OSError as error:
        raise OutOfResources(f"{folder} can't be written: {error.strerror or error}.") from error
    finally:
        with suppress(OSError):  # as soon as one is not empty
            for path in (unfinished, *made_here):
                path.rmdir()
    return folder


def is_unfinished(folder: Path) -> bool:
    """Whether a training in this folder was left in the middle."""
    return (folder / UNFINISHED / FILE).exists()


def _move_out(unfinished: Path, folder: Path) -> None:
    """Move a whole model to its place; what was kept for going on is not needed any more."""
    (unfinished / FILE).unlink(missing_ok=True)
    shutil.rmtree(folder / STEPS, ignore_errors=True)
    for path in sorted(unfinished.iterdir()):
        path.replace(folder / path.name)
