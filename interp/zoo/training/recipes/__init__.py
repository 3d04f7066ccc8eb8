"""Which recipe makes which bundled model, and what tells of it? One file a model.

`rasp-*` share theirs.
"""

from collections.abc import Callable

from interp.transformer import Transformer
from interp.zoo.card import Card
from interp.zoo.history import History
from interp.zoo.training.recipes import (
    addition_mod_113,
    dates,
    induction_by_hand,
    python_2l,
    python_4l,
    python_mlm,
    rasp,
)
from interp.zoo.training.training_run import Made, Workshop

RECIPES: dict[str, Callable[[Workshop], Made]] = {
    induction_by_hand.NAME: induction_by_hand.make,
    **rasp.RECIPES,
    python_2l.NAME: python_2l.make,
    python_4l.NAME: python_4l.make,
    python_mlm.NAME: python_mlm.make,
    addition_mod_113.NAME: addition_mod_113.make,
    dates.NAME: dates.make,
}

CARDS: dict[str, Callable[[Transformer, History], Card]] = {
    recipe.NAME: recipe.card
    for recipe in (python_2l, python_4l, python_mlm, addition_mod_113, dates)
}
"""What measures a model that was trained, and tells of it; those set by hand are told as made."""
