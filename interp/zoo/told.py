"""What is told of a model beside its weights? Its card, and the history of its training."""

from pathlib import Path

from interp.loading import BUNDLED, bundled
from interp.zoo.card import Card, read_card
from interp.zoo.history import History, read_history


def card(name: str | Path) -> Card:
    """The facts about a bundled model, or one in a folder: figures, limits, its circuit if known.

    Raises:
        ModelLoadError: there is none, or it is damaged.
    """
    return read_card(_folder(name))


def history(name: str | Path) -> History:
    """How a model was trained: the loss of each step in nats, and what was measured on the way.

    Raises:
        ModelLoadError: it was not trained, or its history is damaged.
    """
    return read_history(_folder(name))


def _folder(name: str | Path) -> Path:
    return BUNDLED / name if str(name) in bundled() else Path(name)
