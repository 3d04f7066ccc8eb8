"""Build a bundled model into a folder by its recipe, with checkpoints to resume from.

Checkpoint and model are written into ``.training-NAME`` inside the folder. When the model is
complete, its files are copied into the folder and ``.training-NAME`` is removed.
"""

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from interp.errors import InvalidInput, OutOfResources
from interp.files import is_aside, write_whole
from interp.loading import load
from interp.loading.folder import CONFIG, STEPS, TOKENIZER
from interp.loading.source import INDEX, WEIGHTS
from interp.zoo.access import history
from interp.zoo.card import FILE as CARD
from interp.zoo.card import README, Card
from interp.zoo.history import FILE as HISTORY
from interp.zoo.training.checkpoint import FILE
from interp.zoo.training.loop import Report, report_nothing
from interp.zoo.training.recipes import CARDS, RECIPES
from interp.zoo.training.training_run import MODEL, BuiltModel, TrainingRun

MODEL_FILES = (README, CARD, CONFIG, HISTORY, WEIGHTS, TOKENIZER)
"""Names of the files of a bundled model, besides those of saved steps."""


def build_model(
    name: str,
    folder: Path,
    *,
    report: Report,
    steps: int | None = None,
    device: str | torch.device = "cpu",
    anew: bool = False,
) -> Path:
    """Build a bundled model by its recipe, resuming from a checkpoint if the folder has one.

    Args:
        name: of the bundled model.
        folder: receives the model; created if need be.
        report: called after each step with (done, total, loss in nats).
        steps: number of training steps; ``None`` for as many as the bundled model had.
        device: where to train. The same CPU with the same number of threads gives the same
            weights each time; a GPU need not.
        anew: discard a checkpoint in the folder and start at step 0.

    Returns:
        The folder.

    Raises:
        InvalidInput: there is no such recipe, the corpus is not on this machine, the folder holds
            files that belong to no bundled model, or its checkpoint is of a training with other
            settings.
        OutOfResources: the folder can't be written.
    """
    recipe = _recipe(name, steps)
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    working = _working_folder(name, folder)
    if not working.exists():
        _check_replaceable(folder)
    try:
        if anew or not has_checkpoint(name, folder):
            shutil.rmtree(working, ignore_errors=True)
        working.mkdir(parents=True, exist_ok=True)
        built = recipe(TrainingRun(report, steps, torch.device(device), working))
        built.write(working / MODEL)
        _install(working / MODEL, folder)
        shutil.rmtree(working)
    except KeyboardInterrupt as error:
        if not has_checkpoint(name, folder):
            raise
        raise KeyboardInterrupt(
            f"Interrupted; {folder} holds a checkpoint. The same command resumes from it."
        ) from error
    except OSError as error:
        raise OutOfResources(f"{folder} can't be written: {error.strerror or error}.") from error
    finally:
        if not has_checkpoint(name, folder):
            shutil.rmtree(working, ignore_errors=True)
        with suppress(OSError):  # raised by the first folder that is not empty
            for path in created:
                path.rmdir()
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
    """Whether the folder holds a checkpoint of an interrupted training of this model."""
    return (_working_folder(name, folder) / FILE).exists()


def _working_folder(name: str, folder: Path) -> Path:
    return folder / f".training-{name}"


def _recipe(name: str, steps: int | None) -> Callable[[TrainingRun], BuiltModel]:
    if name not in RECIPES:
        raise InvalidInput(f"There is no recipe {name!r}; there are {', '.join(RECIPES)}.")
    if steps is not None and steps < 1:
        raise InvalidInput(f"steps={steps} must be at least 1.")
    return RECIPES[name]


def _check_replaceable(folder: Path) -> None:
    """Refuse a folder with a user's own files; those of another bundled model may be replaced.

    Raises:
        InvalidInput: a file that belongs to no bundled model would be replaced.
    """
    existing = [path for name in MODEL_FILES if (path := folder / name).exists()]
    if existing and not (folder / CARD).exists():
        raise InvalidInput(
            f"{folder} holds a {existing[0].name} that belongs to no bundled model and would be "
            "replaced: choose another folder."
        )


def _install(model: Path, folder: Path) -> None:
    """Copy a complete model into its folder, replacing one that may be there.

    ``config.json`` is removed first and copied last. Without it no folder is a model, so a
    partial copy is never loaded.
    """
    complete = (path for path in model.rglob("*") if path.is_file() and not is_aside(path))
    wanted = {path.relative_to(model) for path in complete}
    (folder / CONFIG).unlink(missing_ok=True)
    for stale in {Path(HISTORY), Path(INDEX), *_steps(folder)} - wanted:
        (folder / stale).unlink(missing_ok=True)
    for file in sorted(wanted, key=lambda path: path.name == CONFIG):
        (folder / file).parent.mkdir(exist_ok=True)
        source = model / file
        write_whole(folder / file, lambda aside, source=source: shutil.copyfile(source, aside))


def _steps(folder: Path) -> set[Path]:
    files = (folder / STEPS).glob("*.safetensors")
    return {path.relative_to(folder) for path in files if path.stem.isdecimal()}
