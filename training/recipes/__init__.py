"""Recipes: how each bundled model is built, and how a trained one is measured.

There is one file per model, except that ``rasp.py`` builds the four ``rasp-*``.
``python_source.py`` has the common part of the three ``python-*``.
"""

from collections.abc import Callable

from interp.transformer import Transformer
from interp.zoo import Card, History
from training.recipes import (
    addition_mod_113,
    dates,
    induction_by_hand,
    python_2l,
    python_4l,
    python_mlm,
    rasp,
)
from training.training_run import BuiltModel, TrainingRun

RECIPES: dict[str, Callable[[TrainingRun], BuiltModel]] = {
    induction_by_hand.NAME: induction_by_hand.build,
    **rasp.RECIPES,
    python_2l.NAME: python_2l.build,
    python_4l.NAME: python_4l.build,
    python_mlm.NAME: python_mlm.build,
    addition_mod_113.NAME: addition_mod_113.build,
    dates.NAME: dates.build,
}

CARDS: dict[str, Callable[[Transformer, History], Card]] = {
    recipe.NAME: recipe.card
    for recipe in (python_2l, python_4l, python_mlm, addition_mod_113, dates)
}
"""Functions that measure a trained model and return its card, by name. Models whose weights are set
have none: their recipes take seconds, and measure the model when they build it."""
