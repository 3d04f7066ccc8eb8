"""Build a bundled model into a folder by its recipe, with checkpoints to resume from.

The checkpoint and the weights saved during training are written into ``.FOLDER.training-NAME``
beside the folder. When the model is complete, its files replace those of the folder, and then the
checkpoint is removed.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import torch

from interp.errors import InvalidInput, OutOfResources
from interp.io import replacement, sole_writer
from interp.loading import load
from interp.saved import STEPS
from interp.zoo import Card, history
from training.checkpoint import FILE
from training.loop import Report, report_nothing
from training.recipes import CARDS, RECIPES
from training.training_run import BuiltModel, TrainingRun

TEMPORARY = shutil.ignore_patterns(".*")
"""Ignores incomplete files of a killed process."""


def build_model(
    name: str,
    folder: Path,
    *,
    report: Report,
    steps: int | None = None,
    device: str | torch.device = "cpu",
    anew: bool = False,
) -> Path:
    """Build a bundled model by its recipe, resuming from a checkpoint if there is one.

    Args:
        name: name of the bundled model.
        folder: the folder of the new model; created if missing.
        report: called after each step with (done, total, loss in nats).
        steps: number of training steps; ``None`` for as many as the bundled model had.
        device: where to train. The same CPU with the same number of threads gives the same
            weights each time; a GPU need not.
        anew: discard a checkpoint and start at step 0.

    Returns:
        The folder.

    Raises:
        InvalidInput: there is no such recipe, the corpus is not on this machine, the folder holds
            files that this package did not write, or its checkpoint is of a training run with other
            settings.
        OutOfResources: the folder can't be written, or another process is writing it.
    """
    recipe = _recipe(name, steps)
    working = _working_folder(name, folder)
    with sole_writer(folder) as place:
        try:
            if anew or not has_checkpoint(name, folder):
                _discard(working)
            working.mkdir(exist_ok=True)
            built = recipe(TrainingRun(report, steps, torch.device(device), working))
            with replacement(place) as new:
                built.write(new)
                if (working / STEPS).exists():
                    shutil.copytree(working / STEPS, new / STEPS, ignore=TEMPORARY)
            _discard(working)
        except KeyboardInterrupt as error:
            if not has_checkpoint(name, folder):
                raise
            raise KeyboardInterrupt(
                f"Interrupted; {working} holds a checkpoint. The same command resumes from it."
            ) from error
        except OSError as error:
            reason = error.strerror or error
            raise OutOfResources(f"{folder} can't be written: {reason}.") from error
        finally:
            if not has_checkpoint(name, folder):
                shutil.rmtree(working, ignore_errors=True)
    return folder


def remeasure(name: str) -> Card:
    """The card of a bundled model, with every figure measured again on its stored weights.

    Raises:
        InvalidInput: there is no such recipe, or the corpus is not on this machine.
    """
    if name in CARDS:
        return CARDS[name](load(name), history(name))
    return _recipe(name, None)(TrainingRun(report_nothing)).card


def has_checkpoint(name: str, folder: Path) -> bool:
    """Whether there is a checkpoint of an interrupted run for this model beside the folder."""
    return (_working_folder(name, folder) / FILE).exists()


def _working_folder(name: str, folder: Path) -> Path:
    folder = folder.resolve()
    return folder.with_name(f".{folder.name}.training-{name}")


def _discard(working: Path) -> None:
    """Remove a checkpoint, then its other files, so that no run resumes from an incomplete one."""
    (working / FILE).unlink(missing_ok=True)
    shutil.rmtree(working, ignore_errors=True)


def _recipe(name: str, steps: int | None) -> Callable[[TrainingRun], BuiltModel]:
    if name not in RECIPES:
        raise InvalidInput(f"There is no recipe {name!r}; there are {', '.join(RECIPES)}.")
    if steps is not None and steps < 1:
        raise InvalidInput(f"steps={steps} must be at least 1.")
    return RECIPES[name]
