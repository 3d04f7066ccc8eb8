"""The page Prompt."""

from apps.explorer.page import Page

PROMPT = Page(
    "prompt", "Prompt", asks=lambda _view, _model: [], views=lambda _view, _model, _known: []
)
