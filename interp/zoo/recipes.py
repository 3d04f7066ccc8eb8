"""Which recipe makes which bundled model?"""

from collections.abc import Callable
from pathlib import Path

from interp.errors import InvalidInput
from interp.loading.folder import save_folder
from interp.transformer import Transformer
from interp.zoo import induction_by_hand, python_2l
from interp.zoo.card import Card
from interp.zoo.training import Report

RECIPES: dict[str, Callable[[int | None, Report], tuple[Transformer, Card]]] = {
    induction_by_hand.NAME: induction_by_hand.make,
    python_2l.NAME: python_2l.make,
}


def train(name: str, folder: Path, *, steps: int | None, report: Report) -> Path:
    """Make a bundled model again, from nothing.

    Args:
        name: which one.
        folder: where it goes.
        steps: of training; ``None`` means as many as the bundled model had.
        report: called with steps done, of how many, and the loss in nats.

    Raises:
        InvalidInput: there is no such recipe, or the corpus is not on this machine.
        OutOfResources: the folder can't be written.
    """
    if name not in RECIPES:
        raise InvalidInput(f"There is no recipe {name!r}; there are {', '.join(RECIPES)}.")
    if steps is not None and steps < 1:
        raise InvalidInput(f"steps={steps} must be at least 1.")
    model, card = RECIPES[name](steps, report)
    save_folder(model, folder)
    card.write(folder)
    return folder
