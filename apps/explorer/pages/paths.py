"""The paths on the page Why: from which tokens, through which parts, the answer gets its evidence.

The graph holds all edges that were traced, and its slider filters them in the browser. A click on a
node or an edge shows what the node reads and is read by, and the pattern of its head; on request,
it is removed, and the measured loss stands beside the predicted one.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

import interp
from analyses import AttentionPattern, OVCircuit, TracedPaths, attention_pattern, trace_paths
from analyses.results import Result, number
from apps.explorer.canvas import Pick, ViewData
from apps.explorer.page import Ask, ask
from apps.explorer.pages.circuit import promoted_question, promoted_view
from apps.explorer.pages.target import direct_settings, where
from apps.explorer.pages.view_inputs import inputs_of
from apps.explorer.pages.why_there import why_there_asks, why_there_views
from apps.explorer.questions import Question, question
from apps.explorer.view import Head, View
from apps.frame_table import table_of_frame
from apps.widget.pictures import table_view, view_of
from interp.errors import InvalidInput

PATHS, REMOVED = "paths", "removed"
MOST = 16
"""Largest number of edges of a node that are listed."""
END = re.compile(r"(?P<part>[^.@]+(?:\.(?:b_O|b_out|bias))?)(?:\.(?P<letter>[qkv]))?@(?P<pos>\d+)")
"""A node, or the reader of an edge: ``L1H0.k@5``."""


def paths_asks(view: View, model: interp.Transformer) -> list[Ask]:
    """The trace, and what belongs to the chosen node or edge."""
    if not is_traceable(model):
        return []
    asks = [ask(PATHS, lambda: _trace(view, model, 0), long=True)]
    if view.traced and REMOVED in view.asked:
        asks.append(ask(REMOVED, lambda: _trace(view, model, (view.traced,)), long=True))
    head = traced_head(view.traced)
    if head is not None:
        asks += [
            ask("path pattern", lambda: _pattern(view, model, head)),
            ask("path promoted", lambda: promoted_question(view, model, str(head))),
            *why_there_asks(replace(view, head=head), model),
        ]
    return asks


def is_traceable(model: interp.Transformer) -> bool:
    """Whether the stream of the model is a sum of what its parts write."""
    try:
        interp.computation_graph(model)
    except InvalidInput:
        return False
    return len(model.stacks) == 1


def _trace(view: View, model: interp.Transformer, check: int | tuple[str, ...]) -> Question:
    """The trace of the answer; of one prompt, whatever sweeps run over."""
    inputs = inputs_of(view, model)
    settings = direct_settings(replace(view, prompts=""), inputs)
    return question(trace_paths, view.model, inputs.batch, **settings, check=check)


def _pattern(view: View, model: interp.Transformer, head: Head) -> Question:
    (prompt,) = inputs_of(view, model).prompts
    return question(attention_pattern, view.model, prompt.text, *head)


def traced_head(traced: str) -> Head | None:
    """The head of a node, or that which reads an edge; ``None`` if it is no head."""
    match = END.fullmatch(traced.rpartition(" → ")[2])
    return None if match is None else Head.of(match["part"])


# ---- views -----------------------------------------------------------------------------------


def paths_views(view: View, results: Mapping[str, Result]) -> list[ViewData]:
    """The graph, and what is known of the chosen node or edge."""
    traced = results.get(PATHS)
    if not isinstance(traced, TracedPaths):
        return []
    drawings = [_graph(view, traced)]
    removed = results.get(REMOVED)
    if isinstance(removed, TracedPaths):
        drawings += _removal(view.traced, removed)
    drawings += _around(view, traced)
    pattern, promoted = results.get("path pattern"), results.get("path promoted")
    if isinstance(pattern, AttentionPattern):
        drawings.append(view_of(pattern.drawing(), "path_pattern"))
        drawings += why_there_views(view, results, pattern)
    if isinstance(promoted, OVCircuit):
        drawings.append(promoted_view(promoted, "path_promoted"))
    return drawings


def _graph(view: View, result: TracedPaths) -> ViewData:
    """The graph of the strong edges, with the strongest single paths in its note."""
    frame = result.to_path_frame()
    paths = [
        f"{row['token']}: {row['name']} {number(row['effect'], 3, sign=True)} (control "
        f"{number(row['control'], 2)})"
        for row in frame.head(3).to_dict("records")
    ]
    drawing = result.drawing()
    return {
        **view_of(drawing, PATHS),
        "title": f"{drawing.title}{where(view)}",
        "note": "With patterns, norms and gates fixed, contributions through values and MLPs add "
        f"up to {number(result.value[0], 4, sign=True)} logits exactly; queries and keys (dashed) "
        "say why heads attend where they do, once on each path. Strongest paths: "
        f"{'; '.join(paths)}. Click a node or an edge to see what it reads and to remove it.",
    }


def _removal(name: str, result: TracedPaths) -> list[ViewData]:
    """What the answer loses without a node or an edge: predicted beside measured."""
    rows = pd.concat([result.to_node_frame(), result.to_frame()])
    rows = rows[(rows["name"] == name) & rows["exact"].notna()]
    if rows.empty:
        return []
    row = rows.iloc[0]
    before = float(result.value[0])
    numbers = {
        "contribution, which predicts the loss": row["effect"],
        "the same of random tokens (control)": row["control"],
        "measured loss": row["exact"],
        "the answer with it": before,
        "the answer without it": before - row["exact"],
    }
    table = (
        [("", "left"), ("logits", "right")],
        [(what, number(value, 4, sign=True)) for what, value in numbers.items()],
    )
    return [
        table_view(
            REMOVED,
            f"Without {name}",
            table,
            "The contribution holds patterns, norms and gates fixed; what goes through scores can "
            "exceed the answer, as keys work against one another. The measurement is a run without "
            "it (zeros in its place), in which all that follows is computed anew.",
        )
    ]


def _around(view: View, result: TracedPaths) -> list[ViewData]:
    """What the chosen node reads, and what reads it."""
    node = view.traced
    if not node or " → " in node:
        return []
    frame = result.to_frame()
    readers = frame["reader"].str.replace(r"\.[qkv]@", "@", regex=True)
    rows = frame[(readers == node) | (frame["writer"] == node)].head(MOST)
    if rows.empty:
        return []
    columns = rows[["name", "part", "token", "effect", "control"]]
    return [
        table_view(
            "around",
            f"What {node} reads, and what reads it",
            table_of_frame(columns),
            "The largest edges, by their contributions to the answer in logits; token: where the "
            "writer stands.",
        )
    ]


# ---- clicks ------------------------------------------------------------------------------------


def pick_path(view: View, pick: Pick) -> View:
    """Choose a node or an edge; of a head also the head, its query and its key."""
    name = str(pick["name"])
    writer, _, reader = name.rpartition(" → ")
    match = END.fullmatch(reader)
    head = traced_head(name)
    if match is None or head is None:
        return replace(view, traced=name)
    key = END.fullmatch(writer) if match["letter"] in ("k", "v") else None
    return replace(
        view,
        traced=name,
        head=head,
        query=int(match["pos"]),
        key=None if key is None else int(key["pos"]),
    )
