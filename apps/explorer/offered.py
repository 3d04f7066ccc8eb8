"""The models that the explorer offers: bundled ones, their checkpoints, those of the command line.

No other model is ever loaded: links name models, and must not be able to read files.
"""

from functools import lru_cache
from threading import Lock

import torch

import interp
from interp.errors import ModelLoadError, shorten
from interp.loading import AT_STEP, MODEL_FOLDER, bundled, load
from interp.loading.folder import steps_of

MAX_MODELS = 6
"""Number of models that stay loaded."""
_named: list[str] = []
_loading = Lock()


def offer(names: list[str]) -> None:
    """Offer models besides the bundled ones: folders and ``hub:`` names of the command line."""
    _named[:] = [name for name in names if name not in bundled()]


def offered() -> list[str]:
    """The names of the models that can be chosen; those of the command line come first."""
    return [*_named, *bundled()]


def steps(name: str) -> list[int]:
    """The training steps of a bundled model for which there are checkpoints."""
    return steps_of(MODEL_FOLDER / name) if name in bundled() else []


def is_offered(name: str) -> bool:
    """Whether a name, which may end in ``@step``, is that of an offered model."""
    checkpoint = AT_STEP.fullmatch(name)
    if name in offered() or checkpoint is None:
        return name in offered()
    return int(checkpoint["step"]) in steps(checkpoint["model"])


def model_of(name: str) -> interp.Transformer:
    """An offered model, on a GPU if there is one.

    Raises:
        ModelLoadError: the model is not offered, or can't be loaded.
    """
    if not is_offered(name):
        raise ModelLoadError(
            f"The explorer offers {', '.join(offered())}; got {shorten(name)}. To add a model, "
            "start interp explore with --model."
        )
    # Two sessions that open the same model load it once.
    with _loading:
        return _load(name, "cuda" if torch.cuda.is_available() else "cpu")


@lru_cache(MAX_MODELS)
def _load(name: str, device: str) -> interp.Transformer:
    return load(name, device)
