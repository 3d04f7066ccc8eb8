"""The circuit on the page Patch: the edges that carry the difference, pruned to a few."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pandas as pd

import interp
from analyses import EdgeAttribution, OVCircuit, Pruning, attribute_edges, ov, prune
from analyses.results import Result, circuit_drawing
from apps.explorer.canvas import Pick, ViewData
from apps.explorer.page import Ask, ask, in_turn
from apps.explorer.pages.measured import agreement, sentences
from apps.explorer.pages.target import Pairs, head_of, with_component
from apps.explorer.pages.view_inputs import inputs_of
from apps.explorer.questions import Question, question
from apps.explorer.view import View
from apps.widget.pictures import view_of

CIRCUIT = "circuit"
CHECKED = 16
"""Number of edges whose effect is also measured."""
TOP = 8
"""Number of tokens shown that a head promotes."""


def circuit_asks(view: View, model: interp.Transformer, pairs: Pairs) -> list[Ask]:
    """The questions about the circuit, if it was requested, and what the chosen head promotes.

    Scores of edges are estimated at once from one gradient, then along a path with a check of some
    edges; these rank the edges of the circuits that are run.
    """
    asked = (view.model, pairs.clean, pairs.corrupt)

    def edges(**settings: object) -> Question:
        return question(attribute_edges, *asked, metric=pairs.metric, **settings)

    def circuit() -> Question:
        scored = edges(check=CHECKED)
        return replace(question(prune, *asked, metric=pairs.metric), scored_by=scored)

    def promoted() -> Question:
        return promoted_question(view, model, view.component)

    if CIRCUIT not in view.asked:
        return []
    steps = {
        "edge estimates": lambda: edges(method="eap", check=0),
        "edge scores": lambda: edges(check=CHECKED),
        CIRCUIT: circuit,
    }
    return [
        *in_turn([ask(name, make, long=True) for name, make in steps.items()]),
        *([] if head_of(view.component) is None else [ask("promoted", promoted)]),
    ]


def promoted_question(view: View, model: interp.Transformer, component: str) -> Question:
    """What a head promotes when it attends to each token of the prompt."""
    is_cross = component.startswith("cross.")
    batch = model.batches(inputs_of(view, model).batch)[0 if is_cross else -1]
    return question(
        ov,
        view.model,
        *(head_of(component) or ()),
        tokens=tuple(dict.fromkeys(batch.ids[0].tolist())),
        top=TOP,
        attention=component.rpartition(".")[0] or None,
    )


def circuit_views(view: View, results: Mapping[str, Result]) -> list[ViewData]:
    """The graph, the faithfulness of circuits by size, and the tokens that the head promotes."""
    drawings: list[ViewData] = []
    circuit, promoted = results.get(CIRCUIT), results.get("promoted")
    scored = [each for each in results.values() if isinstance(each, EdgeAttribution)]
    if isinstance(circuit, Pruning):
        drawings += _circuit(view, circuit)
    elif scored:
        drawings.append(_estimated(view, scored[-1]))
    if isinstance(promoted, OVCircuit):
        drawings.append(promoted_view(promoted, "promoted"))
    return drawings


def promoted_view(result: OVCircuit, identity: str) -> ViewData:
    """The tokens that a head promotes."""
    note = f"Computed from the weights alone. The attention pattern of {result.name} is on the page"
    return {**view_of(result.drawing("out"), identity), "note": f"{note} Heads."}


def _circuit(view: View, result: Pruning) -> list[ViewData]:
    """The highest-ranked edges as a graph, and the faithfulness of circuits by size."""
    count, every = min(view.edges, len(result.edges)), len(result.edges)
    runs = result.to_frame()
    run = runs[runs["count"] <= max(count, result.counts[0])].iloc[-1]
    faithfulness, random = _percent(run["faithfulness"]), _percent(run["control"])
    curve = {"pick": "x", "marked": [count], "note": "Click a size to draw that circuit."}
    return [
        {
            **view_of(result.circuit_drawing(count), CIRCUIT),
            "title": f"The {count} highest-ranked of {every} edges, {every - count} hidden; "
            f"{view.model}",
            "note": f"Run alone, the first {run['count']:.0f} edges keep {faithfulness} of the "
            f"{result.metric}; the same number of random edges keeps {random}. Click a head or an "
            "edge to see what the head promotes.",
        },
        {**view_of(result.drawing(), "faithfulness"), **curve},
    ]


def _estimated(view: View, result: EdgeAttribution) -> ViewData:
    """The edges with the largest estimated effects as a graph, until circuits of them are run."""
    scores = result.scores
    largest = sorted(scores, key=lambda edge: -abs(scores[edge]))[: view.edges]
    drawing = circuit_drawing(
        {edge: scores[edge] for edge in largest},
        title=f"Estimated effects of the {len(largest)} strongest of {len(scores)} edges "
        f"({result.method}); {view.model}",
        unit=result.unit,
    )
    notes = ["dashed: estimated from gradients; no circuit has been run yet"]
    if len(result.checked):
        names = [" → ".join(result.edges[edge]) for edge in result.checked.tolist()]
        measured, estimated = (
            pd.DataFrame({"name": names, "effect": effects.mean(-1).tolist()})
            for effects in (result.exact, result.effect[result.checked])
        )
        notes.append(agreement(measured, estimated, result.unit, "edge"))
    drawn = view_of(drawing, CIRCUIT)
    return {**drawn, "estimated": True, "note": sentences(notes).strip()}


def _percent(share: float) -> str:
    return f"{round(share, 2) + 0:.0%}"


def _choose_component(view: View, pick: Pick) -> View:
    """Choose the node that was clicked, or the head at the start, else the end, of an edge."""
    ends = pick["name"].split(" → ")
    return with_component(view, next((end for end in ends if head_of(end)), ends[0]))


def _choose_size(view: View, pick: Pick) -> View:
    return replace(view, edges=max(1, round(pick["x"])))


CIRCUIT_PICKS: dict[str, Callable[[View, Pick], View]] = {
    CIRCUIT: _choose_component,
    "faithfulness": _choose_size,
}
