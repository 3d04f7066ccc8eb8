"""Cards and training histories of models, by name or folder."""

from pathlib import Path

from interp.errors import ModelLoadError
from interp.io import as_path
from interp.loading import MODEL_FOLDER, PACKAGED, bundled, find_folder
from interp.transformer import TextNetwork
from interp.zoo.card import Card, read_card
from interp.zoo.history import History, read_history

CARDS = Path(__file__).parent / "cards"
"""The folder with a folder for each model of another package."""


def card_folder(name: str) -> Path:
    """The folder in which the card of a model would be.

    Args:
        name: a bundled model, one of another package, or a folder.
    """
    if name in PACKAGED:
        return CARDS / name
    return MODEL_FOLDER / name if name in bundled() else Path(name)


def card(name: str | Path) -> Card:
    """The card of a model: its figures, its limits, and its circuit if that is known.

    Args:
        name: a bundled model, ``"smollm2-135m"`` or a folder, as in :func:`interp.load`.
            ``"NAME@400"`` gives the card of the fully trained model.

    Raises:
        ModelLoadError: there is no such model, it has no card, or the card is damaged.

    Examples:
        >>> interp.card("rasp-reverse").summary
        'A row of letters in reverse order, compiled from a program.'
    """
    return read_card(CARDS / name if name in [*PACKAGED] else _folder(name))


def history(name: str | Path) -> History:
    """The history of a model's training: the loss of each step in nats, and figures.

    Args:
        name: as in :func:`card`.

    Raises:
        ModelLoadError: there is no such model, it was not trained, or its history is damaged.

    Examples:
        >>> round(interp.history("python-2l").losses[-1], 2)
        2.04
    """
    return read_history(_folder(name))


def trained_tokens(model: TextNetwork) -> tuple[int, ...]:
    """The token ids from which random prompts for a model may be drawn.

    For a bundled model, these are the trained tokens of its card; for any other model, all tokens
    except special ones.
    """
    config = model.config
    name = (config.name or "").partition("@")[0]
    trained = card(name).trained_tokens if name in bundled() else ()
    if trained and max(trained) < model.d_vocab:
        return trained
    tokens = config.tokens
    special = {tokens.bos, tokens.eos, tokens.decoder_start, tokens.mask, *tokens.stop}
    return tuple(token for token in range(model.d_vocab) if token not in special)


def _folder(name: str | Path) -> Path:
    try:
        location, folder = find_folder(str(as_path(name))), Path(name)
        if location is not None or folder.is_dir():
            return folder if location is None else location[0]
    except OSError:
        pass
    raise ModelLoadError(
        f"{str(name)[:200]!r} is neither a bundled model ({', '.join(bundled())}) nor a folder."
    )
