"""How is a bundled model made again? By its recipe, in a folder that survives being killed.

Everything is written into ``.unfinished-NAME`` inside the folder, and brought to its place when it
is whole.
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
from interp.zoo.access import history as told_history
from interp.zoo.card import FILE as CARD
from interp.zoo.card import README, Card
from interp.zoo.history import FILE as HISTORY
from interp.zoo.training.checkpoint import FILE
from interp.zoo.training.loop import Report, report_nothing
from interp.zoo.training.recipes import CARDS, RECIPES
from interp.zoo.training.training_run import MODEL, Made, Workshop

WRITTEN = (README, CARD, CONFIG, HISTORY, WEIGHTS, TOKENIZER)
"""The files of a bundled model."""


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
        device: where to train. The same CPU, with as many threads, gives the same
            weights each time; a GPU need not.
        anew: forget what is unfinished in the folder.

    Raises:
        InvalidInput: there is no such recipe, the corpus is not on this machine, the folder holds
            files that are no bundled model's, or what is unfinished in it is another training.
        OutOfResources: the folder can't be written.
    """
    recipe = _recipe(name, steps)
    made_here = [path for path in (folder, *folder.parents) if not path.exists()]
    unfinished = _unfinished(name, folder)
    if not unfinished.exists():
        _check_is_ours(folder)
    try:
        if anew or not is_unfinished(name, folder):
            shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True, exist_ok=True)
        made = recipe(Workshop(report, steps, torch.device(device), unfinished))
        made.write(unfinished / MODEL)
        _bring(unfinished / MODEL, folder)
        shutil.rmtree(unfinished)
    except KeyboardInterrupt as error:
        if not is_unfinished(name, folder):
            raise
        raise KeyboardInterrupt(
            f"Interrupted; what was trained is kept in {folder}, and goes on with the same command."
        ) from error
    except OSError as error:
        raise OutOfResources(f"{folder} can't be written: {error.strerror or error}.") from error
    finally:
        if not is_unfinished(name, folder):
            shutil.rmtree(unfinished, ignore_errors=True)
        with suppress(OSError):  # as soon as one is not empty
            for path in made_here:
                path.rmdir()
    return folder


def _recipe(name: str, steps: int | None) -> Callable[[Workshop], Made]:
    if name not in RECIPES:
        raise InvalidInput(f"There is no recipe {name!r}; there are {', '.join(RECIPES)}.")
    if steps is not None and steps < 1:
        raise InvalidInput(f"steps={steps} must be at least 1.")
    return RECIPES[name]


def _check_is_ours(folder: Path) -> None:
    """A folder may hold a model of this kind already, but none of a user's own files is replaced.

    Raises:
        InvalidInput: one would be.
    """
    at_stake = [path for name in WRITTEN if (path := folder / name).exists()]
    if at_stake and not (folder / CARD).exists():
        raise InvalidInput(
            f"{folder} holds a {at_stake[0].name} that is no bundled model's, and it would be "
            "replaced: choose another folder."
        )


def retold(name: str) -> Card:
    """The card of a bundled model, every figure measured again on the weights that it has.

    Raises:
        InvalidInput: there is no such recipe, or the corpus is not on this machine.
    """
    if name in CARDS:
        return CARDS[name](load(name), told_history(name))
    return _recipe(name, None)(Workshop(report_nothing)).card


def is_unfinished(name: str, folder: Path) -> bool:
    """Whether a training of this model was left in the middle in this folder."""
    return (_unfinished(name, folder) / FILE).exists()


def _unfinished(name: str, folder: Path) -> Path:
    return folder / f".unfinished-{name}"


def _bring(model: Path, folder: Path) -> None:
    """Copy a whole model into its folder, in place of one that may be there.

    While it is neither the one nor the other there is no ``config.json``, without which no folder
    is a model.
    """
    whole = (path for path in model.rglob("*") if path.is_file() and not is_aside(path))
    wanted = {path.relative_to(model) for path in whole}
    (folder / CONFIG).unlink(missing_ok=True)
    for stale in {Path(HISTORY), Path(INDEX), *_steps(folder)} - wanted:
        (folder / stale).unlink(missing_ok=True)
    for own in sorted(wanted, key=lambda path: path.name == CONFIG):
        (folder / own).parent.mkdir(exist_ok=True)
        source = model / own
        write_whole(folder / own, lambda aside, source=source: shutil.copyfile(source, aside))


def _steps(folder: Path) -> set[Path]:
    files = (folder / STEPS).glob("*.safetensors")
    return {path.relative_to(folder) for path in files if path.stem.isdecimal()}
