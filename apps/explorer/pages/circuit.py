"""The circuit on the page Patch: the edges that carry the difference, pruned to a few."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import interp
from analyses import OVCircuit, Pruning, attribute_edges, ov, prune
from analyses.results import Result
from apps.explorer.canvas import Pick, ViewData
from apps.explorer.page import Ask, ask
from apps.explorer.pages.target import Pairs, head_of, with_component
from apps.explorer.pages.view_inputs import inputs_of
from apps.explorer.questions import Question, question
from apps.explorer.view import View
from apps.widget.pictures import view_of

CIRCUIT = "circuit"
TOP = 8
"""Number of tokens shown that a head promotes."""


def circuit_asks(view: View, model: interp.Transformer, pairs: Pairs) -> list[Ask]:
    """The questions about the circuit, if it was requested, and what the chosen head promotes."""

    def circuit() -> Question:
        asked = (view.model, pairs.clean, pairs.corrupt)
        scored = question(attribute_edges, *asked, metric=pairs.metric, check=0)
        return replace(question(prune, *asked, metric=pairs.metric), scored_by=scored)

    def promoted() -> Question:
        return promoted_question(view, model, view.component)

    if CIRCUIT not in view.asked:
        return []
    return [
        ask(CIRCUIT, circuit, long=True),
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
    if isinstance(circuit, Pruning):
        drawings += _circuit(view, circuit)
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
