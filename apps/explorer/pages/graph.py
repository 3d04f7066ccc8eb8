"""The page Graph: through which heads, MLPs, neurons or features is a token predicted?

The attribution graph of one token, over tokens and layers. Its slider filters lines in the browser.
A click on a node shows what it reads and what reads it, and on which texts its unit is active; a
click on a line, which heads carry it, and a head's pattern, as a click on a head does. Units can be
grouped, and a unit or a group is switched off or scaled: the change that the graph predicts stands
beside the measured one.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import chain, count
from typing import Literal

import streamlit as st

import interp
from analyses import (
    AttentionPattern,
    AttributionGraph,
    DictionaryCheck,
    ScaledUnits,
    TopTexts,
    attention_pattern,
    attribution_graph,
    check_dictionaries,
    scale_units,
    top_texts,
)
from analyses.results import Result, Scale, encoded, number
from apps.explorer.canvas import Pick, ViewData
from apps.explorer.controls import ask_switch, choose, write
from apps.explorer.controls import number as number_field
from apps.explorer.default_views import examples
from apps.explorer.offered import dictionaries_of
from apps.explorer.page import Ask, Page, ask, in_turn
from apps.explorer.pages.paths import is_traceable
from apps.explorer.pages.target import direct_settings, where
from apps.explorer.pages.view_inputs import inputs_of
from apps.explorer.questions import Question, question
from apps.explorer.state import change
from apps.explorer.store import STORE
from apps.explorer.view import GROUP_NAME, MAX_FACTOR, MAX_TEXT, UNIT_NAME, UNITS, Head, View
from apps.frame_table import table_of_frame
from apps.presentation import table
from apps.widget.pictures import table_view, view_of

GRAPH, CHECKED, SCALED, UNIT_TEXTS, DICTIONARIES = (
    *("graph", "graph_checked", "scaled", "unit_texts"),
    "dictionary_check",
)
"""Names of questions; a view requests the last three."""
CHECKS = 16
"""Number of units that are removed to check a graph."""
SHARES = (0.5, 0.8, 0.95)
"""Shares of the units' influence that stay when nodes are pruned."""
MOST = 16
"""Largest number of edges, and of tokens, that are listed."""
READ_TEXTS = 64
"""Number of texts on which a unit and dictionaries are measured."""
MOST_PROMOTING = 3
"""Number of units of a group of which the promoted tokens are listed."""
GROUPED_BY: dict[Literal["tokens", "sources"], str] = {
    "tokens": "promote nearly the same tokens",
    "sources": "read nearly the same of the same nodes",
}
"""What units of a group have in common; see :meth:`analyses.AttributionGraph.groups`."""
NOT_IN_NAMES = re.compile(r"[^\w -]+")
LONGEST_NAME = 27
"""Number of characters of the name of a group, without its number."""
ARROW = " → "


# ---- questions -------------------------------------------------------------------------------


def asks(view: View, model: interp.Transformer) -> list[Ask]:
    """The graph, its check, and what belongs to the chosen node, group or edge."""
    if not is_traceable(model):
        return [Ask(GRAPH, f"The stream of {view.model} is no sum of what its parts write.")]
    graphs = {GRAPH: 0, CHECKED: CHECKS}
    asked = in_turn(
        [
            ask(name, lambda check=check: _graph_question(view, model, check), long=True)
            for name, check in graphs.items()
        ]
    )
    if _scaled_units(view) and SCALED in view.asked:
        asked.append(ask(SCALED, lambda: _scaled_question(view, model), long=True))
    if UNIT_NAME.fullmatch(view.node) and UNIT_TEXTS in view.asked:
        asked.append(ask(UNIT_TEXTS, lambda: _texts_question(view), long=True))
    if view.head is not None and (ARROW in view.node or _head(view.node) == view.head):
        asked.append(ask("graph pattern", lambda: _pattern_question(view, model)))
    if _has_features(view) and DICTIONARIES in view.asked:
        checked = _of_units(view, question(check_dictionaries, view.model, _texts(view)))
        asked.append(ask(DICTIONARIES, lambda: checked, long=True))
    return asked


def _of_units(view: View, asked: Question) -> Question:
    """A question about the model with its dictionaries, if units are their features."""
    return (
        replace(asked, dictionaries=dictionaries_of(view.model)) if _has_features(view) else asked
    )


def _has_features(view: View) -> bool:
    """Whether units are features, and perhaps heads too."""
    return "features" in view.units


def offered_units(view: View) -> tuple[str, ...]:
    """What the units of a graph may be; features need dictionaries."""
    return tuple(kind for kind in UNITS if dictionaries_of(view.model) or "features" not in kind)


def _graph_question(view: View, model: interp.Transformer, check: int) -> Question:
    """The graph of the target's logit; of one prompt, whatever sweeps run over."""
    inputs = inputs_of(view, model)
    answer = direct_settings(replace(view, prompts=""), inputs)
    asked = question(
        attribution_graph,
        view.model,
        inputs.batch,
        targets=answer["target"],
        pos=answer["pos"],
        units=tuple(view.units.lower().split(" and ")),
        node_share=view.share,
        check=check,
    )
    return _of_units(view, asked)


def _scaled_question(view: View, model: interp.Transformer) -> Question:
    """The logits with the chosen unit, or all of a group, scaled."""
    inputs = inputs_of(view, model)
    answer = direct_settings(replace(view, prompts=""), inputs)
    settings = {"factor": view.factor, "targets": answer["target"], "pos": answer["pos"]}
    units = tuple(_scaled_units(view))
    return _of_units(view, question(scale_units, view.model, inputs.batch, units, **settings))


def _texts_question(view: View) -> Question:
    unit = view.node.partition("@")[0]
    return _of_units(view, question(top_texts, view.model, _texts(view), of=unit, top=8))


def _texts(view: View) -> list[str]:
    return [prompt.text for prompt in examples(view.model)][:READ_TEXTS]


def _pattern_question(view: View, model: interp.Transformer) -> Question:
    (prompt,) = inputs_of(view, model).prompts
    return question(attention_pattern, view.model, prompt.text, *(view.head or Head(0, 0)))


def groups_of(view: View) -> dict[str, list[str]]:
    """The units of each group."""
    pairs = (group.partition("=") for group in view.groups)
    return {name: units.split("+") for name, _, units in pairs}


def _scaled_units(view: View) -> list[str]:
    """The units of the chosen group, or the chosen unit."""
    chosen = groups_of(view).get(view.node)
    return chosen or ([view.node] if UNIT_NAME.fullmatch(view.node) else [])


# ---- views -----------------------------------------------------------------------------------


def views(view: View, _model: interp.Transformer, results: Mapping[str, Result]) -> list[ViewData]:
    """The graph, and what is known of the chosen node, group or edge."""
    graph = results.get(CHECKED) or results.get(GRAPH)
    check = results.get(DICTIONARIES)
    checked = [_dictionaries(check)] if isinstance(check, DictionaryCheck) else []
    if not isinstance(graph, AttributionGraph):
        return checked
    drawings = [_network(view, graph)]
    scaled = results.get(SCALED)
    if isinstance(scaled, ScaledUnits):
        drawings += _scaled(view, graph, scaled)
    drawings += _carriers(view, graph) if ARROW in view.node else _around(view, graph)
    pattern = results.get("graph pattern")
    if isinstance(pattern, AttentionPattern):
        drawings.append(view_of(pattern.drawing(), "graph_pattern"))
    texts = results.get(UNIT_TEXTS)
    if isinstance(texts, TopTexts):
        drawings += [
            view_of(drawing, f"{UNIT_TEXTS}_{n}")
            for n, drawing in enumerate(texts.drawings().values())
        ]
    return [*drawings, *checked]


def _network(view: View, graph: AttributionGraph) -> ViewData:
    """The graph; its conclusion, which says whether to rely on it, in the note."""
    drawing = graph.drawing(groups_of(view))
    headline, units, *checks = graph.conclusion()
    lines = [headline, units, *checks[1:]]  # the headline has the first check
    conclusion = " ".join(f"{line[0].upper()}{line[1:]}." for line in lines)
    of_edges = ", a line for the heads that carry it" if len(graph.carriers) > 1 else ""
    return {
        **view_of(drawing, GRAPH),
        "title": f"{drawing.title}{where(view)}",
        "note": f"{conclusion} Patterns, norms and gates are fixed, so why heads attend where they "
        f"do is no part of it. Click a node for what it reads{of_edges}.",
    }


def _around(view: View, graph: AttributionGraph) -> list[ViewData]:
    """What the chosen node or group reads, and what reads it."""
    names = {*groups_of(view).get(view.node, [view.node])}
    frame = graph.to_frame()
    reads, is_read = (frame[end].isin(names) for end in ("reader", "writer"))
    rows = frame[reads | is_read]
    if rows.empty:
        return []
    order = rows["share"].sort_values(ascending=False, kind="stable").index
    promoted = {node.promoted_tokens: None for node in graph.nodes if node.name in names}
    promotes = " / ".join([tokens for tokens in promoted if tokens][:MOST_PROMOTING])
    columns = rows.loc[order, ["name", "effect", "share", "carrier", "carried"]].head(MOST)
    return [
        table_view(
            "around",
            f"What {view.node} reads, and what reads it",
            table_of_frame(columns),
            "The largest shares. effect: what the writer adds to what the reader reads; carrier: "
            "the head with the largest part of it, or the bypass."
            f"{promotes and f' Through the final norm alone, it promotes {promotes}.'}",
        )
    ]


def _carriers(view: View, graph: AttributionGraph) -> list[ViewData]:
    """The parts of the chosen edge, by the heads that carry them."""
    frame = graph.to_carrier_frame()
    rows = frame[frame["name"] == view.node]
    if rows.empty:
        return []
    order = rows["effect"].abs().sort_values(ascending=False, kind="stable").index
    rows = rows.loc[order].head(MOST)
    values = rows["effect"].tolist()
    return [
        {
            "kind": "bars",
            "id": "carriers",
            "labels": rows["carrier"].tolist(),
            "values": encoded(values),
            "unit": "added to what the reader reads",
            "scale": asdict(Scale.around_zero(values)),
            "title": f"{view.node}: the heads that carry it",
            "note": "Parts by the last head of each route; they sum to "
            f"{number(rows['effect'].sum(), 3, sign=True)}. Click a head for its pattern.",
            "pick": "row",
        }
    ]


def _scaled(view: View, graph: AttributionGraph, result: ScaledUnits) -> list[ViewData]:
    """The change of the logits: predicted by the graph, and measured."""
    units = [name for name in result.scaled if any(node.name == name for node in graph.nodes)]
    predicted = float(graph.predicted_effect(units, result.factor)[0]) if units else 0.0
    row = result.target_ids.tolist().index(int(graph.target_ids[0]))
    numbers = {
        "change of the logit, predicted by the graph": predicted,
        "measured": float(result.effect[row]),
        "measured with patterns kept": float(result.effect_frozen[row]),
        "the logit before (minus the mean)": float(result.value[row]),
    }
    shares = {
        "probability before": float(result.probability[row]),
        "probability after": float(result.scaled_probability[row]),
    }
    rows = [(name, number(value, 3, sign=True)) for name, value in numbers.items()]
    rows += [(name, number(value, 3)) for name, value in shares.items()]
    title = f"{graph.target[0]} with {view.node} {_how(result.factor)}"
    left_out = len(result.scaled) - len(units)
    note = f" {left_out} of its units are not in the graph, which predicts nothing for them."
    return [
        table_view(
            SCALED,
            title,
            ([("", "left"), ("logits", "right")], rows),
            "The graph holds patterns, divisors of norms and gates fixed; a run computes them anew."
            f"{note if left_out else ''}",
        ),
        view_of(result.drawing(), f"{SCALED}_logits"),
    ]


def _how(factor: float) -> str:
    return "set to 0" if factor == 0 else f"scaled by {factor:g}"


def _dictionaries(check: DictionaryCheck) -> ViewData:
    return table_view(
        DICTIONARIES,
        "What the dictionaries explain",
        table(check),
        "On the model's prompts. FVU: the share of the variance that is left unexplained; loss "
        "without the error, and the share of it that is recovered against the mean."
        + "".join(f" {place} {definition}." for place, definition in _definitions(check)),
    )


def _definitions(check: DictionaryCheck) -> list[tuple[str, str]]:
    """What each claim of a publisher is of, and how it is defined."""
    rows = check.to_claim_frame().to_dict("records")
    return [(f"{row['place']}, claimed {row['figure']}:", str(row["definition"])) for row in rows]


# ---- clicks and controls -----------------------------------------------------------------------


def on_pick(view: View, pick: Pick) -> View:
    """Choose a node or an edge of the graph, or a head that carries the edge."""
    name = str(pick["name"])
    if pick["view"] == "carriers":
        head = Head.of(name)
        _, query = _positions(view.node)
        return view if head is None else replace(view, head=head, query=query, key=None)
    if pick["view"] != GRAPH:
        return view
    if head := _head(name):
        return replace(view, node=name, head=head, query=_positions(name)[1], key=None)
    return replace(view, node=name, head=None if ARROW in name else view.head)


def _head(node: str) -> Head | None:
    """The head that a node is."""
    return Head.of(node.partition("@")[0])


def _positions(edge: str) -> tuple[int | None, int | None]:
    """The positions of the two ends of an edge."""
    ends = [end.rpartition("@")[2] for end in edge.split(ARROW)]
    writer, reader = (int(end) if end.isdecimal() else None for end in (ends[0], ends[-1]))
    return writer, reader


def controls(view: View, model: interp.Transformer) -> None:
    """The kind of units, pruning, groups, and what is done to the chosen unit or group."""
    if not is_traceable(model):
        return
    choose("Units", "units", offered_units(view))
    choose(
        "Pruned to",
        "share",
        SHARES,
        format_func=lambda share: f"{share:.0%}",
        help="The units with the most influence stay, down to this share of the influence of all.",
    )
    if _has_features(view):
        ask_switch(
            "Check dictionaries",
            DICTIONARIES,
            help="Variance, sparsity and loss of the dictionaries on the model's prompts.",
        )
    if UNIT_NAME.fullmatch(view.node) and examples(view.model):
        ask_switch(
            "Texts", UNIT_TEXTS, help="Where the unit is most active on the model's prompts."
        )
    _group_controls(view, model)
    if _scaled_units(view):
        number_field("Factor", "factor", (-MAX_FACTOR, MAX_FACTOR))
        ask_switch(
            f"Scale {view.node}",
            SCALED,
            help="Run the model with these activations multiplied by the factor; 0 switches them "
            "off.",
        )


def _group_controls(view: View, model: interp.Transformer) -> None:
    """Groups of units that are alike, and the group of the chosen unit."""
    groups = groups_of(view)
    with st.container(horizontal=True):
        for by, alike in GROUPED_BY.items():
            st.button(
                f"Group by {by}",
                on_click=partial(_group, view, model, by),
                help=f"Draw units that {alike} as one node; the strongest one leads.",
            )
        if groups:
            st.button("Ungroup", on_click=partial(change, groups=(), node=""))
    if UNIT_NAME.fullmatch(view.node):
        write("Group", "group", help="The name of the group that the chosen unit joins or leaves.")
        is_member = view.node in groups.get(view.group, [])
        st.button(
            "Leave group" if is_member else "Join group",
            on_click=lambda: change(_with_member(view, view.node, joins=not is_member)),
            disabled=not GROUP_NAME.fullmatch(view.group),
        )


def grouped(view: View, graph: AttributionGraph, by: Literal["tokens", "sources"]) -> View:
    """The view with the units of a graph grouped by what they have in common.

    Groups are left out from the first one on that does not fit into the address.
    """
    members: dict[str, list[str]] = {}
    for title, units in graph.groups(by).items():
        name = (NOT_IN_NAMES.sub(" ", title).strip() or by)[:LONGEST_NAME].rstrip()
        numbered = chain([name], (f"{name} {n}" for n in count(2)))
        distinct = next(each for each in numbered if each not in members)
        longer = _with_groups(view, {**members, distinct: units})
        if len(",".join(longer.groups)) > MAX_TEXT:
            break
        members[distinct] = units
    return _with_groups(view, members)


def _group(view: View, model: interp.Transformer, by: Literal["tokens", "sources"]) -> None:
    """Group the units of the graph, if it has been computed."""
    known = (STORE.get(_graph_question(view, model, check)) for check in (CHECKS, 0))
    graph = next((each for each in known if each is not None), None)
    if graph is not None:
        change(replace(grouped(view, graph, by), node=""))


def _with_member(view: View, unit: str, *, joins: bool) -> View:
    """The view with a unit in the named group, or without it; a unit is in one group."""
    members = {
        name: [each for each in units if each != unit] for name, units in groups_of(view).items()
    }
    if joins:
        members[view.group] = [*members.get(view.group, []), unit]
    return _with_groups(view, members)


def _with_groups(view: View, members: Mapping[str, Sequence[str]]) -> View:
    groups = tuple(f"{name}={'+'.join(units)}" for name, units in members.items() if units)
    return replace(view, groups=groups)


GRAPH_PAGE = Page("graph", "Graph", asks, views, on_pick, controls)
