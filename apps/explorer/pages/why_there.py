"""Why there? The score of the chosen cell of a pattern, by pairs of what wrote queries and keys.

Any page whose views have a pattern can show it. Terms are grouped by layer and kind. A click on a
term lists its writers, and a click on a head there selects it, at the position where it wrote.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from math import nan

import interp
from analyses import AttentionPattern, ScoreTerms, explain_scores
from analyses.methods.heads import attentions_of
from analyses.results import PROBABILITIES, Result, Scale, counted, encoded, number
from apps.explorer.canvas import Pick, ViewData
from apps.explorer.offered import model_of
from apps.explorer.page import JOBS, Ask, ask
from apps.explorer.pages.target import head_of, with_component
from apps.explorer.pages.view_inputs import inputs_of
from apps.explorer.questions import Question, question
from apps.explorer.validate import attention_of
from apps.explorer.view import Head, View
from apps.widget.pictures import table_view
from interp.errors import InvalidInput

WHY_THERE, WRITERS, CHECK, KEYS = (
    *("why_there", "why_there_writers"),
    *("why_there_check", "why_there_keys"),
)
"""Names of questions and ids of views; a view requests all of them by the first."""
VIEWS = (WHY_THERE, WRITERS, KEYS)
"""Ids of the views that take clicks."""
SWITCH: dict[str, str] = {
    "label": "Why there?",
    "name": WHY_THERE,
    "help": "Explain the score of the chosen query and key: what was written at either.",
}
"""The switch that requests it."""
MOST = 12
"""The most terms, and the most writers of one, that are shown."""
CHECKED = 3
"""Number of the largest terms that are measured by removal."""
OF_LAYER = re.compile(r"(.*L\d+)H\d+")
AT_POSITION = re.compile(r"(?P<name>.+) at (?:query|key) (?P<position>\d+)")


# ---- questions -------------------------------------------------------------------------------


def why_there_asks(view: View, model: interp.Transformer) -> list[Ask]:
    """The terms by layer and kind, the writers of the chosen one, the largest ones removed."""
    if WHY_THERE not in view.asked:
        return []
    asks = [ask(WHY_THERE, lambda: _question(view, model, by="layer"), long=True)]
    if view.term:
        asks.append(ask(WRITERS, lambda: _question(view, model), long=True))
    if _is_removable(view, model):
        checks = ask(CHECK, lambda: _question(view, model, by="layer", check=CHECKED), long=True)
        asks.append(checks)
    return asks


def _question(view: View, model: interp.Transformer, **settings: object) -> Question:
    """The terms of the chosen cell; without one, of the cell that the patterns mark."""
    attention, head = attention_of(view, model), view.head or Head(0, 0)
    kind = attentions_of(model, attention)
    sees_one = view.query == 0 and not (kind.is_cross or kind.is_bidirectional)
    return question(
        explain_scores,
        view.model,
        inputs_of(view, model).batch,
        *head,
        query=-1 if view.query is None else view.query,
        key="strongest" if view.key is None else view.key,
        other_key=view.other_key,
        against="nothing" if sees_one else None,
        attention=attention,
        **settings,
    )


def _is_removable(view: View, model: interp.Transformer) -> bool:
    """Whether outputs of earlier heads can be removed from what the chosen head reads."""
    try:
        writers = interp.computation_graph(model).writers
    except InvalidInput:
        return False
    earlier = (view.head or Head(0, 0)).layer > 0
    return earlier and any(writer.head is not None for writer in writers)


# ---- views -----------------------------------------------------------------------------------


def why_there_views(
    view: View, results: Mapping[str, Result], pattern: AttentionPattern
) -> list[ViewData]:
    """The terms, the writers of the chosen one, the keys, and what was measured.

    Args:
        view: the view.
        results: the answers of the page.
        pattern: the pattern of the head whose cell is explained.
    """
    terms, writers, checks = (results.get(name) for name in (WHY_THERE, WRITERS, CHECK))
    if not isinstance(terms, ScoreTerms):
        return []
    drawings = [_terms(view.term, terms)]
    if isinstance(writers, ScoreTerms) and view.term in {*terms.to_frame()["name"]}:
        drawings.append(_writers(view.term, terms, writers))
    drawings.append(_keys(view, terms, pattern))
    if isinstance(checks, ScoreTerms) and len(checks.checked):
        drawings.append(_checks(checks))
    return drawings


def _terms(chosen: str, result: ScoreTerms) -> ViewData:
    """The largest terms, of which one may be chosen, and the sum of the others."""
    frame = result.to_frame()
    first, rest = frame.head(MOST), frame[MOST:]
    labels, effects, controls = (first[name].tolist() for name in ("name", "effect", "control"))
    if len(rest):
        labels.append(f"{counted(len(rest), 'other term')}")
        effects.append(float(rest["effect"].sum()))
        controls.append(nan)
    total, size = number(result.value.mean(), 3, sign=True), number(result.error, 2)
    return {
        **_bars(WHY_THERE, labels, effects),
        **({"at": [labels.index(chosen), 0]} if chosen in labels else {}),
        "title": f"Why there? {result.score_line}",
        "note": f"a × b: written by a at the query, read at what b wrote at the key. The "
        f"{counted(len(frame), 'term')} sum to {total} nats, with an error of {size}. Mark: the "
        "size of the same term for a visible key drawn at random. Click a term to see which "
        "heads wrote it.",
        "first": "term",
        "marks": [{"title": "for a random key (control)", "values": encoded(controls)}],
    }


def _writers(term: str, terms: ScoreTerms, result: ScoreTerms) -> ViewData:
    """What each writer of a term adds to it, at the query and at the key."""
    effect = result.effect.double().mean(-1)
    sides = term.split(" × ")
    rows = _members(result.query_writers, sides[0], terms.query_writers)
    columns = _members(result.key_writers, sides[-1], terms.key_writers)
    table = effect[rows][:, columns]
    labels, values = list[str](), list[float]()
    for end, names, sums in (
        ("query", [result.query_writers[row] for row in rows], table.sum(1)),
        ("key", [result.key_writers[column] for column in columns], table.sum(0)),
    ):
        for at in sums.abs().argsort(descending=True, stable=True)[:MOST].tolist():
            labels.append(f"{names[at]} at {end} {result.cells[end][0]}")
            values.append(float(sums[at]))
    return {
        **_bars(WRITERS, labels, values),
        "title": f"{term}: what each writer adds to it, in the score of {result.name}",
        "note": f"The writers at the query sum to the term, {number(table.sum(), 3, sign=True)} "
        "nats, and so do those at the key. Click a head to select it, with the attention of the "
        "position at which it wrote.",
    }


def _members(writers: Sequence[str], group: str, groups: Sequence[str]) -> list[int]:
    """The indices of the writers that a group sums."""
    return [at for at, name in enumerate(writers) if _group_of(name, groups) == group]


def _group_of(writer: str, groups: Sequence[str]) -> str:
    """The group of a writer: the heads of its layer, itself, or all biases."""
    match = OF_LAYER.fullmatch(writer)
    if match is not None:
        return f"{match[1]} heads"
    return writer if writer in groups else "biases"


def _keys(view: View, result: ScoreTerms, pattern: AttentionPattern) -> ViewData:
    """The keys, of which another is chosen to compare with, by the attention of the query."""
    query, key = (int(str(result.cells[end][0])) for end in ("query", "key"))
    drawing: ViewData = {
        "kind": "tokens",
        "id": KEYS,
        "title": f"Why key {key} {pattern.key_tokens[key]} rather than another?",
        "note": "Click a key to compare with it, and again to compare with the mean of all others.",
        "tokens": [*pattern.key_tokens],
        "pick": "key",
    }
    if not view.edit:  # terms are those of the plain run, patterns those of the edited one
        weights = pattern.pattern[query].double()
        drawing["values"] = encoded(weights.masked_fill(weights == 0, nan))
        drawing |= {"scale": asdict(PROBABILITIES), "unit": "attention"}
    return drawing | ({} if view.other_key is None else {"at": [view.other_key, 0]})


def _checks(result: ScoreTerms) -> ViewData:
    """The largest terms, and the attention without their writers: predicted and measured."""
    patterns = ("pattern", "predicted_pattern", "removed_pattern")
    rows = [
        (
            str(row["name"]),
            *(number(row[name], 3, sign=True) for name in ("effect", "exact")),
            *(number(row[name], 2) for name in patterns),
        )
        for row in result.to_check_frame().to_dict("records")
    ]
    titles = ("nats", "nats, measured", "attention", "without both, predicted", "measured")
    return table_view(
        CHECK,
        f"The largest terms removed, from what {result.name} reads",
        ([("term", "left"), *((title, "right") for title in titles)], rows),
        "Measured: both writers are removed from what the head reads, and its norms are computed "
        "anew. Predicted: the terms with the divisors of norms as they were. What a writer does "
        "through other parts stays.",
    )


def _bars(identity: str, labels: Sequence[str], values: Sequence[float]) -> ViewData:
    return {
        "kind": "bars",
        "id": identity,
        "labels": [*labels],
        "values": encoded(values),
        "unit": "nats",
        "scale": asdict(Scale.around_zero(values)),
        "pick": "row",
    }


# ---- clicks ------------------------------------------------------------------------------------


def pick_why_there(view: View, pick: Pick) -> View:
    """Choose a term, the head that wrote it, or a key to compare with."""
    if pick["view"] == WHY_THERE:
        return _with_term(view, str(pick["name"]))
    if pick["view"] == WRITERS:
        return _with_writer(view, str(pick["name"]))
    if pick["view"] == KEYS:
        return _with_other_key(view, int(pick["row"]))
    return view


def _with_term(view: View, name: str) -> View:
    """The view with a chosen pair of writers, or without the one that was chosen."""
    return replace(view, term=name if " × " in name and name != view.term else "")


def _with_writer(view: View, name: str) -> View:
    """The view with the head of a row, and as query the position at which it wrote."""
    match = AT_POSITION.fullmatch(name)
    if match is None or head_of(match["name"]) is None:
        return view
    chosen, position = with_component(view, match["name"]), int(match["position"])
    traced = f"{match['name']}@{position}" if view.traced else ""
    return replace(chosen, query=position, key=None, other_key=None, term="", traced=traced)


def _with_other_key(view: View, key: int) -> View:
    """The view with another key; the cell that is explained stays, also where it is a default."""
    terms = JOBS.run(_question(view, model_of(view.model), by="layer"))
    if not isinstance(terms, ScoreTerms):
        return view
    query, explained = (int(str(terms.cells[end][0])) for end in ("query", "key"))
    other = None if key in (explained, view.other_key) else key
    return replace(view, query=query, key=explained, other_key=other)
