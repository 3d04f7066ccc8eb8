"""Cards and training histories of models, by name or folder."""

from pathlib import Path

from interp.errors import ModelLoadError
from interp.io import as_path
from interp.loading import bundled, find_folder
from interp.transformer import TextNetwork
from interp.zoo.card import Card, read_card
from interp.zoo.history import History, read_history


def card(name: str | Path) -> Card:
    """The card of a model: its figures, its limits, and its circuit if that is known.

    Args:
        name: a bundled model or a folder, as in :func:`interp.load`. ``"NAME@400"`` gives the
            card of the fully trained model.

    Raises:
        ModelLoadError: there is no such model, it has no card, or the card is damaged.

    Examples:
        >>> interp.card("rasp-reverse").summary
        'A row of letters in reverse order, compiled from a program.'
    """
    return read_card(_folder(name))


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
    known = card(name).trained_tokens if name in bundled() else ()
    if known and max(known) < model.d_vocab:
        return known
    tokens = config.tokens
    special = {tokens.bos, tokens.eos, tokens.decoder_start, tokens.mask, *tokens.stop}
    return tuple(token for token in range(model.d_vocab) if token not in special)


def _folder(name: str | Path) -> Path:
    try:
        own, folder = find_folder(str(as_path(name))), Path(name)
        if own is not None or folder.is_dir():
            return folder if own is None else own[0]
    except OSError:
        pass
    raise ModelLoadError(
        f"{str(name)[:200]!r} is neither a bundled model ({', '.join(bundled())}) nor a folder."
    )
