"""The page Corpus: what each head does over a corpus of text.

All heads by any two statistics, a ranking, and one head: its distances, tokens, texts, and its
pattern on the prompt. A scan that takes long is estimated first, and starts when it is requested.
"""

from collections.abc import Mapping
from dataclasses import replace

import interp
from analyses import AttentionPatterns, HeadScan
from analyses.results import Result, counted
from apps.explorer.canvas import Pick, ViewData
from apps.explorer.forward_cost import is_long_forward
from apps.explorer.page import Ask, Page, ask
from apps.explorer.pages.corpus.controls import controls, duration
from apps.explorer.pages.corpus.measures import statistic_of
from apps.explorer.pages.corpus.placed import (
    RANKING,
    SCATTER,
    ranking_view,
    scatter_view,
    selected_measures,
    selected_name,
    with_unit,
)
from apps.explorer.pages.corpus.scan import EFFECTS, SCAN, Scan, so_far
from apps.explorer.pages.heads import patterns_question
from apps.explorer.pages.view_inputs import prompt_problem
from apps.explorer.store import stored
from apps.explorer.validate import attention_of
from apps.explorer.view import View
from apps.widget.head_views import (
    distance_view,
    effects_view,
    statistics_view,
    texts_view,
    token_view,
)
from apps.widget.pictures import view_of
from interp.errors import InterpError

PATTERN = "pattern on the prompt"
"""Name of the question about the prompt."""


def asks(view: View, model: interp.Transformer) -> list[Ask]:
    """The scan or its estimate, and the patterns of the prompt once there is a scan."""
    try:
        scan = Scan.of(view, model)
    except InterpError as error:
        return [Ask(SCAN, str(error))]
    asked = scan.asks()
    if so_far(scan) is None or prompt_problem(view, model):
        return asked
    is_long = is_long_forward(view, model)
    return [*asked, ask(PATTERN, lambda: patterns_question(view, model), long=is_long)]


def views(view: View, model: interp.Transformer, results: Mapping[str, Result]) -> list[ViewData]:
    """All heads, the ranking, and the chosen head; until there is a scan, what it takes."""
    measured = (results.get(name) for name in (EFFECTS, SCAN))
    complete = [each for each in measured if isinstance(each, HeadScan)]
    scan = next((each for each in complete if each.partial is None), (complete or [None])[-1])
    if scan is None:
        return _waiting(view, model)
    name = selected_name(view, model, scan)
    ranked, _ = selected_measures(view, scan)
    texts, *of_head = _head_views(scan, scan.names.index(name), statistic_of(ranked.name, scan))
    pattern = _pattern(with_unit(view, name), model, results.get(PATTERN))
    heads = [scatter_view(view, model, scan), ranking_view(view, model, scan)]
    return [*heads, texts, *pattern, *of_head]


@stored
def _head_views(scan: HeadScan, unit: int, statistic: str) -> list[ViewData]:
    """The texts, distances, tokens, statistics and effects of one head."""
    effects = effects_view(scan, unit)
    return [
        texts_view(scan, unit, statistic),
        {**distance_view(scan, unit), "half": True},
        token_view(scan, unit),
        statistics_view(scan, unit),
        *([] if effects is None else [effects]),
    ]


def _pattern(view: View, model: interp.Transformer, patterns: Result | None) -> list[ViewData]:
    """The pattern of the chosen head on the prompt, if it is computed."""
    if not isinstance(patterns, AttentionPatterns) or view.head is None:
        return []
    is_same = patterns.attention == attention_of(view, model)
    drawn = {**view_of(patterns.of(*view.head).drawing(), "pattern"), "half": True}
    return [{**drawn, "title": f"{drawn['title']} on the prompt"}] if is_same else []


def _waiting(view: View, model: interp.Transformer) -> list[ViewData]:
    """What the scan takes, before it has begun."""
    try:
        scan = Scan.of(view, model)
    except InterpError:  # the page shows it
        return []
    if scan.has_failed:
        return []
    cost, n = scan.cost, counted(scan.n_texts, "text")
    if cost is None:
        reason = f"The time of a scan of {n} is estimated from the first ones."
    elif scan.starts:
        reason = f"The scan of {n} takes about {duration(cost.seconds)}."
    else:
        reason = (
            f"The scan of {n} takes about {duration(cost.seconds)}, so it does not begin by "
            "itself: press Start above."
        )
    return [
        {
            "kind": "none",
            "id": SCATTER,
            "title": f"{view.model}: heads on {n}",
            "reason": reason,
        }
    ]


def on_pick(view: View, pick: Pick) -> View:
    """Choose the head of a point or of a row, on all pages."""
    if pick.get("view") in (SCATTER, RANKING):
        return with_unit(view, str(pick.get("name", "")))
    if pick["pick"] == "pair":
        return replace(view, query=pick["row"], key=pick["column"])
    return view


CORPUS = Page("corpus", "Corpus", asks, views, on_pick, controls, reads_prompt=False)
