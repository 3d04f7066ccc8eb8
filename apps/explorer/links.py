"""Completes the view of a link with defaults, and leaves out what is not available here."""

from dataclasses import fields, replace

from apps.explorer.choices import with_valid_choices
from apps.explorer.default_views import default_view
from apps.explorer.navigation import pages
from apps.explorer.offered import is_offered, model_of
from apps.explorer.pages.report import REPORT, report_of
from apps.explorer.pages.view_inputs import prompt_problem
from apps.explorer.validate import validated
from apps.explorer.view import DEFAULT, View
from interp.errors import shorten


def completed(view: View, first: str) -> tuple[View, tuple[str, ...]]:
    """Complete the view of an address with its model's defaults.

    Args:
        view: the view of the address.
        first: the name of the model that is shown if the address names none.

    Returns:
        The view, without what the model lacks, and a note on each thing that was left out.
    """
    notes: tuple[str, ...] = ()
    if view == DEFAULT and REPORT.name in pages():
        view = replace(view, page=REPORT.name)
    view = replace(view, model=view.model or first)
    if not is_offered(view.model):
        notes = (
            f"This link needs the model {shorten(view.model)}, which is not available here; "
            f"{first} is shown. To add models, start interp explore with --model.",
        )
        view = View(page=view.page, model=first)
    if view.page not in pages():
        notes = (
            *notes,
            "This link is to a report, but no report is open: start interp explore with --results.",
        )
        view = replace(view, page=DEFAULT.page)
    view, lacking = _of_model(view)
    if view.page == REPORT.name:
        view = replace(view, report=report_of(view).name)
    pinned, left_out = _pinned(view)
    if view.subtract and pinned is None:
        left_out = (*left_out, "subtract=True: no view is pinned, so there is no difference.")
    subtract = view.subtract and pinned is not None
    return replace(view, pinned=pinned, subtract=subtract), (*notes, *lacking, *left_out)


def _of_model(asked: View) -> tuple[View, tuple[str, ...]]:
    """The view with the defaults of its model, without what the model lacks."""
    view, model = asked, model_of(asked.model)
    if not view.text:
        view = replace(default_view(view.model), **_changed_fields(view))
    view, not_offered = with_valid_choices(view, model, asked)
    view, lacking = validated(view, model)
    return view, (*not_offered, *lacking)


def _pinned(view: View) -> tuple[View | None, tuple[str, ...]]:
    """The pinned view, completed; ``None`` and a note if it can't be shown."""
    pinned = view.pinned
    if pinned is None:
        return None, ()
    if not is_offered(pinned.model):
        model = shorten(pinned.model)
        return None, (f"pinned: its model {model} is not available here, so it is left out.",)
    pinned, notes = _of_model(pinned)
    problem = prompt_problem(pinned, model_of(pinned.model))
    if problem:
        return None, (f"pinned: it is left out. {problem}",)
    return pinned, tuple(f"pinned: {note}" for note in notes)


def _changed_fields(view: View) -> dict[str, object]:
    """The fields of a view that differ from the defaults."""
    values = {field.name: getattr(view, field.name) for field in fields(view)}
    return {name: value for name, value in values.items() if value != getattr(DEFAULT, name)}
