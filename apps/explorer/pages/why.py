"""The page Why: why does the model answer with the target rather than the distractor?

The page shows each component's direct contribution beside the effect of its ablation. A click on a
component shows which earlier components it reads this from, and so step by step upstream to the
embedding. A graph of paths shows from which tokens all this comes; the logit lens, at which layers
the answer appears.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import streamlit as st

import interp
from analyses import Ablation, DirectLogitAttribution, ablate
from analyses.methods.components import METHODS, components_of
from analyses.results import Result, Scale, Side, encoded, number
from apps.commands.inputs import Inputs
from apps.explorer.canvas import Pick, ViewData
from apps.explorer.controls import ask_switch, choose
from apps.explorer.offered import model_of
from apps.explorer.page import Ask, Page, ask
from apps.explorer.pages.lens import lens_asks, lens_views
from apps.explorer.pages.masking import answered_at
from apps.explorer.pages.measured import is_previewed, known_effects, sentences, sweep_asks
from apps.explorer.pages.paths import (
    PATHS,
    REMOVED,
    is_traceable,
    paths_asks,
    paths_views,
    pick_path,
    traced_head,
)
from apps.explorer.pages.target import (
    corrupted,
    direct_question,
    row_of,
    target_metric,
    where,
    with_component,
)
from apps.explorer.pages.upstream import RESAMPLE, size_of, upstream_asks, upstream_views
from apps.explorer.pages.view_inputs import inputs_of
from apps.explorer.pages.why_there import SWITCH, VIEWS, pick_why_there
from apps.explorer.questions import Question, question
from apps.explorer.state import change
from apps.explorer.view import View

MOST = 30
"""Largest number of components that are shown."""


# ---- questions -------------------------------------------------------------------------------


def asks(view: View, model: interp.Transformer) -> list[Ask]:
    """The paths, contributions and ablations of all components, upstream of one, the lens."""
    return [
        *paths_asks(view, model),
        *_component_asks(view, model),
        *upstream_asks(view, model),
        *lens_asks(view, inputs_of(view, model)),
    ]


def _component_asks(view: View, model: interp.Transformer) -> list[Ask]:
    asked = [
        ask(
            "direct",
            lambda: direct_question(view, inputs_of(view, model, swept=True), "head"),
            long=bool(view.prompts),
        )
    ]
    kinds: dict[str, dict[str, object]] = {"heads": {}, "MLPs": {"units": "mlps"}}
    if not components_of(model).mlps:
        del kinds["MLPs"]
    for name, units in kinds.items():

        def ablated(settings: dict[str, object], units: dict[str, object] = units) -> Question:
            return _ablation(view, inputs_of(view, model, swept=True), **units, **settings)

        preview = is_previewed(view, model)
        asked += sweep_asks(f"ablation of {name}", ablated, of=f" of {name}", preview=preview)
    return asked


def _ablation(view: View, inputs: Inputs, **settings: object) -> Question:
    """The ablation of each head or MLP; resampled values come from the corrupted prompts if any."""
    has_donors = view.method == RESAMPLE and inputs.all_have("corrupt")
    return question(
        ablate,
        view.model,
        inputs.batch,
        metric=target_metric(view, inputs),
        method=view.method,
        reference=corrupted(inputs) if has_donors else None,
        **settings,
    )


# ---- views -----------------------------------------------------------------------------------


def views(view: View, model: interp.Transformer, results: Mapping[str, Result]) -> list[ViewData]:
    """The chosen component, all components, the paths, the lens; as far as there are answers."""
    # The component that was clicked last is at the top.
    drawings = upstream_views(view, model, results)
    direct, ablated = results.get("direct"), _ablated(results, model)
    if isinstance(direct, DirectLogitAttribution):
        drawings.append(_components(view, direct, ablated))
    elif ablated.effects:
        drawings.append(_ablations(view, ablated))
    return [*drawings, *paths_views(view, results), *lens_views(view, model, results)]


@dataclass(frozen=True)
class _Ablated:
    """The effects of ablating components, as far as they are known.

    Attributes:
        effects: the mean effect of each, by name.
        estimated: the names of those that are only estimated.
        notes: how far the sweeps are, and how the estimates agree with what is measured.
    """

    effects: dict[str, float]
    estimated: frozenset[str]
    notes: tuple[str, ...]

    def is_estimate(self, names: Sequence[str]) -> dict[str, Any]:
        """The field of a view that marks estimates among its bars; empty if there are none."""
        marks = [int(name in self.estimated) for name in names]
        return {"estimated": encoded(marks)} if any(marks) else {}


def _ablated(answers: Mapping[str, Result], model: interp.Transformer) -> _Ablated:
    """The mean effect of ablating each component, measured or else estimated."""
    results = [answer for answer in answers.values() if isinstance(answer, Ablation)]
    effects, estimated, notes = dict[str, float](), set[str](), list[str]()
    components = components_of(model)
    for units, of_kind in (("heads", components.heads), ("mlps", components.mlps)):
        of_units = [result for result in results if result.units == units]
        if not of_units:
            continue
        unit, cell = of_units[0].unit, {"heads": "head", "mlps": "MLP"}[units]
        frame, lines = known_effects(of_units, len(of_kind), unit, cell)
        effects |= dict(zip(frame["name"], frame["effect"], strict=True))
        estimated |= {*frame.loc[~frame["is_measured"], "name"]}
        notes += lines
    return _Ablated(effects, frozenset(estimated), (*dict.fromkeys(notes),))


def _components(view: View, direct: DirectLogitAttribution, ablated: _Ablated) -> ViewData:
    """Direct contributions, largest first, beside the effects of ablation."""
    largest, hidden = direct.largest_terms(ablated.effects, MOST)
    terms = direct.to_frame()
    sides = [side for side in ("target", "distractor") if f"to_{side}" in terms]
    note = (
        f"The {len(terms)} contributions, biases included, sum to "
        f"{number(direct.value.mean(), 4, sign=True)} "
        f"logits, with an error of {direct.error:.1e}. The mean size of a contribution is "
        f"{number(terms['size'].mean(), 2)} logits; to the logits of random tokens, it is "
        f"{number(terms['control'].mean(), 2)}. "
        "Ablation: the change from the unablated model. What helps has one colour in both bars. "
    )
    if sides:
        note += "Marks: what it adds to each of the two logits, whose difference the bar is. "
    if len(hidden):
        note += f"{len(hidden)} smaller contributions are not shown; they sum to "
        note += f"{number(hidden['effect'].sum(), 2, sign=True)} logits. "
    names = largest["name"].tolist()
    return {
        **_bars(names, largest["effect"].tolist(), "above"),
        "title": f"Why {_what(direct)}? Direct contribution, and {view.method} ablation, of each "
        f"component{where(view)}",
        "note": note + sentences(ablated.notes) + "Click a row to see what its component reads.",
        "low": encoded(largest["low"].tolist()),
        "high": encoded(largest["high"].tolist()),
        "first": "direct contribution (above 0: helps)",
        "marks": [
            {"title": f"to the {side}", "values": encoded(largest[f"to_{side}"].tolist())}
            for side in sides
        ],
        "second": {
            "title": f"{view.method} ablation (below 0: helps)",
            "values": encoded(largest["other"].tolist()),
            "helps": "below",
            **ablated.is_estimate(names),
        },
    }


def _ablations(view: View, ablated: _Ablated) -> ViewData:
    """The effects of ablation alone, for a model whose logits are not a sum of contributions."""
    effects = ablated.effects
    names = sorted(effects, key=lambda name: -size_of(effects[name]))[:MOST]
    return {
        **_bars(names, [effects[name] for name in names], "below"),
        "title": f"Change of the answer under {view.method} ablation of each component"
        f"{where(view)}",
        "note": f"{sentences(ablated.notes)}Click a row to see what its component reads.",
        **ablated.is_estimate(names),
    }


def _bars(labels: Sequence[str], values: Sequence[float], helps: Side) -> ViewData:
    return {
        "kind": "bars",
        "id": "components",
        "labels": [*labels],
        "values": encoded(values),
        "unit": "logits",
        "scale": asdict(Scale.around_zero(values, helps=helps)),
        "pick": "row",
    }


def _what(direct: DirectLogitAttribution) -> str:
    """The question in words: the target, and the distractor if there is one."""
    n, has_other = len(direct.value), direct.distractor is not None
    if n > 1:
        return f"the target{' rather than the distractor' if has_other else ''}, on {n} prompts"
    other = f" rather than {direct.distractor[0]}" if direct.distractor is not None else ""
    return f"{direct.target[0]}{other}"


# ---- clicks and controls -----------------------------------------------------------------------


def on_pick(view: View, pick: Pick) -> View:
    """Choose a component, one upstream of it, a part of the paths, or the question's position."""
    if pick["view"] == "components":
        return replace(with_component(view, pick["name"]), trail=(pick["name"],))
    if pick["view"] == "upstream":
        name, trail = row_of(pick), (*view.trail, view.component)
        walked = trail[: trail.index(view.component) + 1]
        return replace(with_component(view, name), trail=(*walked, name))
    if pick["view"] == PATHS:
        return pick_path(view, pick)
    if pick["view"] in VIEWS:
        return pick_why_there(replace(view, head=traced_head(view.traced)), pick)
    if pick["view"] == "lens":
        return answered_at(view, model_of(view.model), pick["column"])
    return view


def controls(view: View, model: interp.Transformer) -> None:
    """The method of ablation, the trail of components, a removal, a button back to the answer."""
    choose(
        "Ablation method",
        "method",
        METHODS,
        help="What replaces an ablated activation, and the output of an upstream component.",
    )
    if view.component:
        trail = ["", *dict.fromkeys((*view.trail, view.component))]
        choose("Upstream", "component", trail, format_func=lambda name: name or "all components")
    if view.traced and is_traceable(model):
        ask_switch(
            f"Remove {view.traced}",
            REMOVED,
            help="Run the model without what was clicked in the graph of paths, and measure what "
            "the answer loses.",
        )
    if is_traceable(model) and traced_head(view.traced) is not None:
        ask_switch(**SWITCH)
    if view.position is not None:
        st.button("Back to the answer's position", on_click=lambda: change(position=None))


WHY = Page("why", "Why", asks, views, on_pick, controls, sidebar=("prompts",))
