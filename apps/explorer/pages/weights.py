"""The page Weights."""

from apps.explorer.page import Page

WEIGHTS = Page(
    "weights", "Weights", asks=lambda _view, _model: [], views=lambda _view, _model, _known: []
)
