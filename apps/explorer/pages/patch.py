"""The page Patch."""

from apps.explorer.page import Page

PATCH = Page(
    "patch", "Patch", asks=lambda _view, _model: [], views=lambda _view, _model, _known: []
)
