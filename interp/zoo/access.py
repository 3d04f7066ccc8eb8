"""What is told of a model beside its weights? Its card, and the history of its training."""

from pathlib import Path

from interp.errors import ModelLoadError
from interp.loading import bundled, find_folder
from interp.zoo.card import Card, read_card
from interp.zoo.history import History, read_history


def card(name: str | Path) -> Card:
    """The facts about a bundled model, or one in a folder: figures, limits, its circuit if known.

    Args:
        name: as of :func:`interp.load`; of ``"NAME@400"``, the card is that of the whole model.

    Raises:
        ModelLoadError: there is no such model, it has no card, or the card is damaged.
    """
    return read_card(_folder(name))


def history(name: str | Path) -> History:
    """How a model was trained: the loss of each step in nats, and what was measured on the way.

    Args:
        name: as of :func:`card`.

    Raises:
        ModelLoadError: there is no such model, it was not trained, or its history is damaged.
    """
    return read_history(_folder(name))


def _folder(name: str | Path) -> Path:
    try:
        own, folder = find_folder(str(name)), Path(name)
        if own is not None or folder.is_dir():
            return folder if own is None else own[0]
    except OSError:
        pass
    raise ModelLoadError(
        f"{str(name)[:200]!r} is neither a bundled model ({', '.join(bundled())}) nor a folder."
    )
