"""A page without a browser: its questions answered one after another, and what it shows of them."""

import base64
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from analyses.results.result import Result
from apps.explorer.default_views import default_view, examples, with_prompt
from apps.explorer.page import Page
from apps.explorer.view import View
from interp.errors import InterpError
from interp.loading import load

loaded = cache(load)
"""The models of these tests, each loaded once."""


def opened(page: Page, name: str, **fields: Any) -> View:
    """A page with the first prompt of a bundled model's own, by itself, and with other fields."""
    view = with_prompt(default_view(name, page.name), examples(name)[0])
    return replace(view, **{"prompts": "", "method": "mean", **fields})


def answers(page: Page, view: View) -> tuple[dict[str, Result], dict[str, str]]:
    """The answers of a page's questions by name, and the errors of those that can't be asked."""
    model, results, errors = loaded(view.model), dict[str, Result](), dict[str, str]()
    for ask in page.asks(view, model):
        if isinstance(ask.question, str):
            errors[ask.name] = ask.question
            continue
        try:
            results[ask.name] = ask.question.run(model)
        except InterpError as error:
            errors[ask.name] = str(error)
    return results, errors


def views_by_id(page: Page, view: View, results: Mapping[str, Result]) -> dict[str, dict[str, Any]]:
    """The views of a page by their ids."""
    views = page.views(view, loaded(view.model), results)
    by_id = {drawn["id"]: drawn for drawn in views}
    assert len(by_id) == len(views)
    return by_id


def numbers(encoded: Mapping[str, Any]) -> np.ndarray:
    """An array as the browser reads it."""
    data = base64.b64decode(encoded["data"])
    return np.frombuffer(data, encoded["dtype"]).reshape(encoded["shape"])
