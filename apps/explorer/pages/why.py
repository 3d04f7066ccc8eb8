"""The page Why."""

from apps.explorer.page import Page

WHY = Page("why", "Why", asks=lambda _view, _model: [], views=lambda _view, _model, _known: [])
