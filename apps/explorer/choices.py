"""Checks the fields of a view that have a fixed list of values, such as the score of the map.

A link may have any text there. A value that is not in the list is replaced by the default, with a
message that names the field.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import interp
from analyses.methods.circuits import KINDS
from analyses.methods.components import METHODS
from apps.explorer.default_views import EXAMPLES, examples
from apps.explorer.metrics_offered import NAMES, offered_metrics
from apps.explorer.opened import reports
from apps.explorer.pages.circuit import CIRCUIT
from apps.explorer.pages.continuation import CONTINUATION
from apps.explorer.pages.corpus.texts import sets_of
from apps.explorer.pages.graph import DICTIONARIES, SCALED, SHARES, UNIT_TEXTS, offered_units
from apps.explorer.pages.heads import TEXTS
from apps.explorer.pages.heads.scores import SCORES
from apps.explorer.pages.patch import points_of
from apps.explorer.pages.paths import REMOVED
from apps.explorer.pages.steps import STEPS
from apps.explorer.pages.view_inputs import is_target_unknown
from apps.explorer.pages.weights import SECTIONS
from apps.explorer.pages.why_there import WHY_THERE
from apps.explorer.view import ATTENTIONS, DEFAULT, View
from interp.errors import InterpError, shorten

REQUESTS = (
    *(TEXTS, WHY_THERE, STEPS, CONTINUATION, CIRCUIT, REMOVED),
    *(SCALED, UNIT_TEXTS, DICTIONARIES),
)
"""The names of the long analyses that a view can request."""


def with_valid_choices(
    view: View, model: interp.Transformer, asked: View
) -> tuple[View, tuple[str, ...]]:
    """Replace the values that this model's pages do not offer, with a message on each.

    Args:
        view: the view, completed with the model's defaults.
        model: its model.
        asked: the view of the link, without defaults.
    """
    changes, notes = dict[str, Any](), list[str]()
    for field, values in _values(view, model).items():
        value = getattr(view, field)
        if value in values:
            continue
        changes[field] = getattr(DEFAULT, field)
        notes.append(not_offered(field, value, values))
    unknown = [name for name in view.asked if name not in REQUESTS]
    if unknown:
        changes["asked"] = tuple(name for name in view.asked if name in REQUESTS)
        notes.append(not_offered("asked", unknown[0], REQUESTS))
    view = replace(view, **changes)
    if asked.metric:
        view, more = _with_valid_metric(view, model)
        notes += more
    return view, tuple(notes)


def not_offered(field: str, value: object, values: Collection[Any]) -> str:
    """The message about a value that is not in the list of a field."""
    listed = ", ".join(str(choice) for choice in values if choice)
    return f"{field}={shorten(value)} is not available here; the values are {listed or 'none'}."


def _values(view: View, model: interp.Transformer) -> Mapping[str, Collection[Any]]:
    """The values of each field that has a list of them."""
    return {
        "attention": ATTENTIONS if len(model.stacks) > 1 else ("",),
        "score": ("", *SCORES),
        "method": METHODS,
        "prompts": ("", EXAMPLES) if examples(view.model) else ("",),
        "at": points_of(model),
        "weights": SECTIONS,
        "kind": KINDS,
        "corpus": ("", *sets_of(view.model)),
        "report": ("", *reports()),
        "units": offered_units(view),
        "share": SHARES,
    }


def _with_valid_metric(view: View, model: interp.Transformer) -> tuple[View, list[str]]:
    """The view with a metric that its prompts allow.

    If only a long forward tells the target, the page shows whether the metric can be measured.
    """
    try:
        metrics = [*NAMES] if is_target_unknown(view, model) else offered_metrics(view, model)
    except InterpError:  # the prompts can't be read, which the page says
        metrics = [*NAMES]
    if view.metric in metrics:
        return view, []
    return replace(view, metric=metrics[0]), [not_offered("metric", view.metric, metrics)]
