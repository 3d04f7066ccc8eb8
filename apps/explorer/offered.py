"""The models that the explorer offers: bundled ones, their checkpoints, those of the command line.

No other model is ever loaded: links name models, and must not be able to read files.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock

import interp
from apps.devices import default_device
from apps.explorer.garbage import freeze_lasting_objects
from interp import dictionaries
from interp.errors import ModelLoadError, shorten
from interp.loading import AT_STEP, AUTO, MODEL_FOLDER, bundled, hub, installed, load, steps_of
from interp.model import assume_constant_weights, weight_hash

MAX_DICTIONARIES = 64
"""Number of dictionaries that stay loaded."""
MAX_MODELS = 6
"""Number of models that stay loaded."""
_sources: dict[str, str] = {}
"""What the models of the command line are loaded from, by the names under which they are offered.

A folder is offered under its own name, so that pages and links do not show where it is.
"""
_dictionaries: list[str] = []
"""What the dictionaries of the command line are loaded from."""
_loading = Lock()


def offer(sources: list[str]) -> None:
    """Offer models besides the bundled ones: folders and ``hub:`` names of the command line."""
    named: dict[str, str] = {}
    for source in dict.fromkeys(sources):
        if source in own_names():
            continue
        name = source if source.startswith(hub.PREFIX) else Path(source).resolve().name
        taken = {*own_names(), *named}
        numbered = (f"{name} ({n})" for n in range(2, len(taken) + 3))
        named[next(label for label in (name, *numbered) if label not in taken)] = source
    if named != _sources:
        _sources.clear()
        _sources.update(named)


def offer_dictionaries(sources: list[str]) -> None:
    """Offer dictionaries besides the bundled ones: folders and ``hub:`` names."""
    _dictionaries[:] = dict.fromkeys(sources)


def dictionaries_of(name: str) -> tuple[str, ...]:
    """What the dictionaries of a model are loaded from: of the command line, else bundled ones."""
    transcoders = f"{name}/mlp-"
    of_model = [source for source in dictionaries.bundled() if source.startswith(transcoders)]
    return tuple(_dictionaries or of_model)


@lru_cache(MAX_DICTIONARIES)
def _dictionary(source: str) -> dictionaries.Dictionary | dictionaries.CrossLayerTranscoder:
    return dictionaries.load_any(source)


def with_dictionaries(model: interp.Transformer, sources: Sequence[str]) -> interp.Transformer:
    """A model with the dictionaries of some sources.

    Raises:
        InvalidInput: one does not fit the model.
        ModelLoadError: one can't be loaded.
    """
    return interp.with_dictionaries(model, [_dictionary(source) for source in sources])


def own_names() -> list[str]:
    """The models that are offered under their own names: bundled, or of an installed package."""
    return [*bundled(), *installed()]


def offered() -> list[str]:
    """The names of the models that can be chosen; those of the command line come first."""
    return [*_sources, *own_names()]


def source_of(name: str) -> str:
    """What a model is loaded from: the folder that it was offered from, or the name itself."""
    return _sources.get(name, name)


def is_local(name: str) -> bool:
    """Whether a name stands for a folder of this machine, which other machines may lack."""
    source = _sources.get(name)
    return source is not None and not source.startswith(hub.PREFIX)


def name_of(source: str) -> str:
    """The name under which a folder, a ``hub:`` name or a bundled model is offered.

    A source that is not offered is returned as it is.
    """
    return next((name for name, path in _sources.items() if path == source), source)


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
        return _load(source_of(name), default_device())


@lru_cache(MAX_MODELS)
def _load(name: str, device: str) -> interp.Transformer:
    model = load(name, device, kernel=AUTO)
    # Every result has the hash; later it takes a comparison of versions.
    assume_constant_weights(model)
    weight_hash(model)
    freeze_lasting_objects()
    return model
