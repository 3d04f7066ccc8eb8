"""The page Patch: where is the difference between two prompts, and which circuit carries it?

Attribution patching gives a preview of all heads and positions at once; exact patching follows as a
job. On request, the edges that carry the difference are scored and pruned to a circuit.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import interp
from analyses import (
    ActivationPatching,
    NodeAttribution,
    attribute_nodes,
    patch_activations,
)
from analyses.methods.components import components_of, position_labels
from analyses.patch_activations import VERBS
from analyses.results import Heatmap, Result, encoded, number, per_head
from apps.explorer.canvas import Pick, ViewData
from apps.explorer.controls import ask_switch, choose
from apps.explorer.default_views import examples, with_prompt
from apps.explorer.forward_cost import is_long_forward
from apps.explorer.offered import model_of
from apps.explorer.page import Ask, Page, ask
from apps.explorer.pages.circuit import CIRCUIT, CIRCUIT_PICKS, circuit_asks, circuit_views
from apps.explorer.pages.measured import is_previewed, known_effects, sentences, sweep_asks
from apps.explorer.pages.target import Pairs, corrupted, row_of, target_metric, with_component
from apps.explorer.pages.view_inputs import inputs_of
from apps.explorer.questions import Question, question
from apps.explorer.store import stored
from apps.explorer.suggested import suggested_swaps
from apps.explorer.validate import token_roles
from apps.explorer.view import DIRECTIONS, Head, View
from apps.widget.pictures import view_of
from interp.errors import InterpError
from interp.prompts import Prompt
from interp.text import visible

OF_POSITIONS = ("resid_pre", "attn_out", "mlp_out")
"""Points that are patched by layer and position."""
OF_HEADS = ("z", "q", "k", "v", "pattern")
"""Points that are patched by layer and head."""
ALL_NODES = ("z", "q", "k", "v", "mlp_out")
NODES = {node: (node,) for node in ALL_NODES} | {"attn_out": ("z",), "pattern": ("q", "k")}
"""The nodes that the preview shows for a point; for other points, it shows all."""
CHECKED = 16
"""Number of nodes of the preview that are also patched exactly."""
MOST = 24
"""Largest number of nodes of the preview that are shown."""
DIRECTION_WORDS = {"denoise": "clean into corrupted", "noise": "corrupted into clean"}
RUNS_OF_PREVIEW = CHECKED + 4
"""The most forwards that the preview takes, a backward pass counted as one."""
NEEDED = (
    "Patching needs a corrupted prompt, with the same number of tokens but another answer. Enter "
    "one in the sidebar"
)


def points_of(model: interp.Transformer) -> list[str]:
    """The points that can be patched."""
    lacking = () if components_of(model).mlps else ("mlp_out",)
    return [point for point in (*OF_POSITIONS, *OF_HEADS) if point not in lacking]


# ---- questions -------------------------------------------------------------------------------


def asks(view: View, model: interp.Transformer) -> list[Ask]:
    """Exact patching of one point, the preview, and the circuit if it was requested."""
    try:
        # The chosen position is one that is patched; the position of the answer stays the same.
        view_of_answer = replace(view, position=None)
        inputs = inputs_of(view_of_answer, model, swept=True)
        if not inputs.all_have("corrupt"):
            offers = pairs_of(view) or suggested_swaps(view, model)
            pairs_hint = ", or choose one below." if offers else "."
            return [Ask("pair", NEEDED + pairs_hint)]
        metric = target_metric(view_of_answer, inputs)
        pairs = Pairs(inputs.batch, corrupted(inputs), metric)
    except InterpError as error:
        return [Ask("pair", str(error))]
    is_long = bool(view.prompts) or is_long_forward(view, model, RUNS_OF_PREVIEW)
    return [
        *sweep_asks(
            "patching",
            lambda settings: _exact_question(view, model, pairs, **settings),
            preview=is_previewed(view, model),
        ),
        ask("preview", lambda: _preview_question(view, pairs), long=is_long),
        *circuit_asks(view, model, pairs),
    ]


def _preview_question(view: View, pairs: Pairs) -> Question:
    """Attribution patching of every head and MLP by position, linear around the patched run."""
    both = [pairs.clean, pairs.corrupt]
    return question(
        attribute_nodes,
        view.model,
        *(both if view.direction == "noise" else reversed(both)),
        metric=pairs.metric,
        method="atp",
        positions=True,
        check=CHECKED,
    )


def _exact_question(
    view: View, model: interp.Transformer, pairs: Pairs, **settings: object
) -> Question:
    """Patching of one point: of all cells, unless the settings say otherwise."""
    of_encoder = len(model.stacks) > 1 and view.attention == "encoder"
    return question(
        patch_activations,
        view.model,
        pairs.clean,
        pairs.corrupt,
        metric=pairs.metric,
        at=view.at,
        over=("layer", "head" if view.at in OF_HEADS else "pos"),
        direction=view.direction,
        stack="encoder" if of_encoder else None,
        **settings,
    )


def pairs_of(view: View) -> list[Prompt]:
    """The minimal pairs that belong to the model."""
    return [prompt for prompt in examples(view.model) if prompt.corrupt is not None]


# ---- views -----------------------------------------------------------------------------------


def views(view: View, model: interp.Transformer, results: Mapping[str, Result]) -> list[ViewData]:
    """The pair, the preview beside exact patching, and the circuit."""
    suggested = {} if view.prompts else _suggested(view, model)
    pair = _pair(view, model)
    drawings = [pair] if pair else [suggested, _offered(view)]
    preview = results.get("preview")
    patched = tuple(each for each in results.values() if isinstance(each, ActivationPatching))
    if isinstance(preview, NodeAttribution):
        pairs = inputs_of(view, model, swept=True).pairs
        drawings.append(
            _preview(view, preview, position_labels(model, *(pair[-1] for pair in pairs)))
        )
    if patched:
        drawings.append(_exact(view.model, patched))
    drawings += circuit_views(view, results)
    drawings += [suggested] if pair else []
    return [drawing for drawing in drawings if drawing]


def _pair(view: View, model: interp.Transformer) -> ViewData:
    """The tokens of both prompts; empty if they do not align."""
    inputs = inputs_of(view, model)
    try:
        batches = model.batches(inputs.batch)[0], model.batches(corrupted(inputs))[0]
    except InterpError:
        return {}
    clean, corrupt = (model.to_labels(batch.ids[0]) for batch in batches)
    return {
        "kind": "tokens",
        "id": "strips",
        "title": f"The prompt, with its corrupted counterpart below; {view.model}",
        "tokens": clean,
        "aligned": corrupt,
        "ids": batches[0].ids[0].tolist(),
        "roles": token_roles(view, model),
        "pick": "position",
    }


def _suggested(view: View, model: interp.Transformer) -> ViewData:
    """Corrupted prompts that swap a word or a number of the prompt; empty if there are none."""
    rows = [[f"{swap.before} → {swap.after}", swap.text] for swap in suggested_swaps(view, model)]
    if not rows:
        return {}
    return {
        "kind": "table",
        "id": "swaps",
        "title": "Corrupted prompts, each with a word of the prompt swapped",
        "note": "Click a row to patch from it. The sidebar takes any other.",
        "columns": [{"title": name, "align": "left"} for name in ("swapped", "corrupted prompt")],
        "rows": rows,
        "pick": "row",
    }


def _offered(view: View) -> ViewData:
    """The minimal pairs that belong to the model; empty if it has none."""
    pairs = pairs_of(view)
    columns = ("prompt", "corrupted", "target", "distractor")
    rows = [(pair.text, pair.corrupt, pair.target, pair.distractor) for pair in pairs]
    if not pairs:
        return {}
    return {
        "kind": "table",
        "id": "pairs",
        "title": f"Minimal pairs of {view.model}",
        "note": "Click a row to use its pair.",
        "columns": [{"title": name, "align": "left"} for name in columns],
        "rows": [[visible((text or "").encode()) for text in row] for row in rows],
        "pick": "row",
    }


def _preview(view: View, result: NodeAttribution, tokens: Sequence[str]) -> ViewData:
    """The estimated effects of heads and MLPs at each position, for those with the largest.

    Args:
        view: the view.
        result: attribution patching; the labels of its positions name the token of the patched run
            first.
        tokens: the labels of its positions with the token of the clean run first, as the other
            views have them.
    """
    nodes = [
        name
        for name, kind in zip(result.names, result.kinds(), strict=True)
        if kind in NODES.get(view.at, ALL_NODES)
    ]
    rows, values = result.largest_by_position(MOST, nodes)
    hidden = f"{len(nodes) - len(rows)} nodes with smaller effects are not shown. "
    agreement = result.agreement
    run = "corrupted" if view.direction == "denoise" else "clean"
    drawing = Heatmap(
        values,
        title=f"Preview by attribution patching: estimated change of the {result.metric} of the "
        f"{run} run; {view.model}, {_n(result.effect.shape[-1])}",
        rows=rows,
        columns=[f"{n} {token}".rstrip() for n, token in enumerate(tokens)],
        axes=("node", "position"),
        unit=result.unit,
        diverging=True,
    )
    note = (
        (hidden if len(rows) < len(nodes) else "")
        + f"Agreement with exact patching of {agreement.n} nodes: {agreement}. "
        + " ".join(agreement.warnings("node"))
    )
    all_estimated = [[1] * len(tokens) for _ in rows]
    estimated = {"estimated": encoded(all_estimated)}
    return {**view_of(drawing, "preview"), **estimated, "note": note, "pick": "cell"}


@stored
def _exact(model: str, results: tuple[ActivationPatching, ...]) -> ViewData:
    """The share of the difference that patching each cell accounts for, or its estimate.

    Args:
        model: the name of the model.
        results: of one point: of all cells, possibly partial or estimated, or of a few.
    """
    measured = next((result for result in results if not result.is_estimate), None)
    result = measured or results[0]
    by_head = "head" in result.axes
    what = "head" if by_head else "position"
    _, n_layers, n_columns, n = result.patched.shape
    cells = n_layers * n_columns
    frame, notes = known_effects(results, cells, "of the difference", "cell")
    sizes, across = [n_columns] * n_layers, "head" if by_head else "pos"
    clean, corrupt = (number(run.mean(), 3, sign=True) for run in (result.clean, result.corrupt))
    is_shared = result.shares_heads()
    letter = "KV" if is_shared else "H"
    tokens = result.cells.get("token", ())
    drawing = Heatmap(
        per_head(frame, "effect", sizes, across),
        title=f"Share of the {result.metric} that {result.points[0]} of each layer and {what} "
        f"{VERBS[result.direction]}; {model}, {_n(n)}",
        rows=[f"L{layer}" for layer in range(n_layers)],
        columns=[
            f"{letter}{at}" if by_head else f"{at} {tokens[at]}".rstrip() for at in range(n_columns)
        ],
        axes=("layer", what),
        unit="share",
        diverging=True,
    )
    n_measured = int(frame["is_measured"].sum())
    lines = [
        f"The {result.metric} is {clean} {result.unit} on the clean prompt and {corrupt} on the "
        "corrupted one. A share of 0 is no change, of 1 the whole difference",
        *([f"{n_measured} of {cells} cells so far"] if n_measured < cells else []),
        *notes,
        *result.control_lines[:1],
    ]
    pick = "head" if by_head and not is_shared else "cell"
    drawn: ViewData = {
        **view_of(drawing, "patching"),
        "note": sentences(lines).strip(),
        "pick": pick,
    }
    if n_measured < len(frame):
        is_estimate = frame.assign(is_estimate=~frame["is_measured"])
        drawn["estimated"] = encoded(per_head(is_estimate, "is_estimate", sizes, across))
    return drawn


def _n(n: int) -> str:
    return "1 pair" if n == 1 else f"{n} pairs"


# ---- clicks and controls -----------------------------------------------------------------------


def on_pick(view: View, pick: Pick) -> View:
    """Choose a pair, a position, a head, a component of the circuit, or the circuit's size."""
    take = next((action for name, action in PICKS.items() if pick["view"].startswith(name)), None)
    return view if take is None else take(view, pick)


def _choose_pair(view: View, pick: Pick) -> View:
    return with_prompt(view, pairs_of(view)[pick["row"]])


def _choose_swap(view: View, pick: Pick) -> View:
    swaps = suggested_swaps(view, model_of(view.model))
    return replace(view, corrupt=swaps[pick["row"]].text)


def _choose_position(view: View, pick: Pick) -> View:
    """Choose the position, except in an encoder, where there are no predictions."""
    position = pick.get("column", pick["row"])
    return view if view.attention == "encoder" else replace(view, position=position)


def _choose_node(view: View, pick: Pick) -> View:
    """Choose the component and the position; shared keys and values belong to no single head."""
    name, there = row_of(pick).partition(".")[0], _choose_position(view, pick)
    return there if "KV" in name else with_component(there, name)


def _choose_cell(view: View, pick: Pick) -> View:
    if pick["pick"] == "head":
        return replace(view, head=Head(pick["row"], pick["column"]))
    return _choose_position(view, pick) if view.at in OF_POSITIONS else view


PICKS: dict[str, Callable[[View, Pick], View]] = {
    "pairs": _choose_pair,
    "swaps": _choose_swap,
    "strips": _choose_position,
    "preview": _choose_node,
    "patching": _choose_cell,
    **CIRCUIT_PICKS,
}


def controls(view: View, model: interp.Transformer) -> None:
    """The point that is patched, the direction, and the switch for the circuit."""
    if len(model.stacks) > 1:
        decoder = "decoder" if view.attention == "encoder" else view.attention
        words = {decoder: "decoder", "encoder": "encoder"}
        choose("Stack", "attention", [*words], format_func=words.__getitem__)
    choose(
        "Patch",
        "at",
        points_of(model),
        help="The activation to copy: the first three by layer and position, the others by layer "
        "and head.",
    )
    choose("Direction", "direction", DIRECTIONS, format_func=DIRECTION_WORDS.__getitem__)
    ask_switch(
        "Circuit", CIRCUIT, help="Score all edges and run circuits of the highest-ranked ones."
    )


PATCH = Page("patch", "Patch", asks, views, on_pick, controls, sidebar=("prompts",))
