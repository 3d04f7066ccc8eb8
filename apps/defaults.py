"""The prompts and the metric that a model's card names."""

from interp.errors import InvalidInput
from interp.loading import AT_STEP
from interp.prompts import bundled_prompts
from interp.zoo import FILE as CARD
from interp.zoo import Card, card_folder, read_card

LOSS, LOGIT_DIFF, MASKED_LOSS = "loss", "logit-diff", "masked-loss"
"""The metrics, by the names that the command line gives them."""


def default_prompts(model: str, *, pairs: bool = False, option: str = "--prompts") -> str:
    """The bundled prompt set that a model's card names, or its minimal pairs.

    Args:
        model: a bundled name or a folder.
        pairs: whether to return minimal pairs.
        option: the option by which a user gives other prompts, for the error message.

    Raises:
        InvalidInput: the model has no card, or the card names no such prompts.
    """
    card = card_of(model)
    named = card and (card.pairs if pairs else card.prompts)
    if named:
        return named
    what = "minimal pairs (prompts with a corrupted text)" if pairs else "prompts"
    suitable = [name for name in bundled_prompts() if name.endswith("-pairs") or not pairs]
    raise InvalidInput(
        f"{model!r} has no {what} of its own: give {option}, a file or a bundled set "
        f"({', '.join(suitable)}) that its vocabulary can encode."
    )


def default_metric(model: str) -> str:
    """The metric that a model's card names; ``loss`` if it has no card."""
    card = card_of(model)
    return LOSS if card is None else card.metric


def card_of(model: str) -> Card | None:
    """The card of a bundled model, ``name@step`` or model folder; ``None`` if it has none."""
    checkpoint = AT_STEP.fullmatch(model)
    for name in (model, checkpoint["model"]) if checkpoint else (model,):
        folder = card_folder(name)
        if (folder / CARD).is_file():
            return read_card(folder)
    return None
