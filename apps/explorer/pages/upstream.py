"""The page Why, upstream: which earlier components feed the chosen one, and from which tokens.

    effect[w → r] = metric(r, an input of the component, reads w′ instead of w) − metric

w′ depends on the method of ablation: zero, the mean over tokens, or the value on the corrupted
prompt. A click on w chooses it as the component, and so on upstream to the embedding.
"""

from collections.abc import Mapping
from dataclasses import asdict
from math import isnan, nan

import interp
from analyses import DirectLogitAttribution, HeadEffects, PathPatching, patch_paths
from analyses.results import HELPS, NONE, Result, Scale, encoded, number
from apps.explorer.canvas import ViewData
from apps.explorer.page import Ask, ask
from apps.explorer.pages.target import (
    corrupted,
    direct_question,
    head_of,
    head_question,
    target_metric,
    where,
)
from apps.explorer.pages.view_inputs import inputs_of
from apps.explorer.questions import Question, question
from apps.explorer.validate import is_input
from apps.explorer.view import View
from apps.frame_table import table_of_frame
from apps.widget.pictures import table_view
from interp.errors import InvalidInput

MOST = 24
"""Largest number of components that are shown."""
INPUTS = {"q": "query", "k": "key", "v": "value"}
RESAMPLE = "resample"
DONOR = {
    "zero": "zero",
    "mean": "the mean over tokens",
    RESAMPLE: "the value on the corrupted prompt",
}
"""The value that replaces the output of an upstream component, by method."""


def size_of(effect: float) -> float:
    """The absolute value of an effect; 0 if it is NaN."""
    return 0.0 if isnan(effect) else abs(effect)


def upstream_asks(view: View, model: interp.Transformer) -> list[Ask]:
    """The questions about what the chosen component reads; of a head, also what it does."""

    def into() -> Question:
        inputs = inputs_of(view, model, swept=True)
        batches = [inputs.batch, *([corrupted(inputs)] if view.method == RESAMPLE else [])]
        return question(
            patch_paths,
            view.model,
            *batches,
            into=view.component,
            method=view.method,
            metric=target_metric(view, inputs),
        )

    def head() -> Question:
        return head_question(view, inputs_of(view, model, swept=True))

    view_inputs = inputs_of(view, model)
    has_inputs = bool(view.component) and not is_input(view.component)
    sources = ask("sources", lambda: direct_question(view, view_inputs, "source"))
    return [
        *([] if head_of(view.component) is None else [sources]),
        *([ask("head", head, long=True)] if _has_head_effects(view, model) else []),
        *([ask("upstream", into, long=True)] if has_inputs else []),
    ]


def _has_head_effects(view: View, model: interp.Transformer) -> bool:
    """Whether a head is chosen, and the analysis of heads takes this model, prompts and method.

    Resampled values come from corrupted prompts on this page, which that analysis has not.
    """
    if head_of(view.component) is None or len(model.stacks) > 1 or view.method == RESAMPLE:
        return False
    try:
        return inputs_of(view, model, swept=True).all_have("distractor")
    except InvalidInput:
        return False


def upstream_views(
    view: View, model: interp.Transformer, results: Mapping[str, Result]
) -> list[ViewData]:
    """What the chosen head does, its source tokens, what it reads, or the end of the path."""
    drawings: list[ViewData] = []
    head, sources, upstream = (results.get(name) for name in ("head", "sources", "upstream"))
    if isinstance(head, HeadEffects):
        drawings.append(_head(view, head))
    if isinstance(sources, DirectLogitAttribution):
        drawings += _sources(view, sources)
    if isinstance(upstream, PathPatching):
        drawings.append(_upstream(view, upstream))
    if view.component and is_input(view.component):
        drawings.append(_end(view, model))
    return drawings


def _head(view: View, result: HeadEffects) -> ViewData:
    """The evidence on the chosen head, and its label if the evidence agrees."""
    row = result.to_frame().iloc[0]
    does = row["label"]
    if does == NONE:
        does = f"no label ({row['missing']})"
    frame = result.to_evidence_frame().drop(columns=["layer", "head", "name"])
    is_attention = frame["quantity"].str.startswith("attention")
    parts = [table_of_frame(frame[rows]) for rows in (is_attention, ~is_attention)]
    return table_view(
        "head",
        f"{view.component}: {does}{where(view)}",
        (parts[0][0], [row for _, rows in parts for row in rows]),
        f"Attention is from the position of the answer, most to {row['strongest_key']}; its "
        "control is uniform attention. To the target, to the distractor: what the head adds to "
        "each logit, and the difference of the two; its control is for tokens drawn at random. "
        f"Ablation ({result.method}): the change of the difference. A head has a label where "
        "attention, both sides and ablation agree.",
    )


def _sources(view: View, result: DirectLogitAttribution) -> list[ViewData]:
    """The direct contribution of the chosen head, by the tokens that it attends to."""
    heads = [part.name for part in result.parts if part.head is not None]
    if result.by_source is None or view.component not in heads:
        return []
    row = heads.index(view.component)
    values, sides = result.by_source[row, 0], ""
    if result.of_target_by_source is not None:
        target = result.of_target_by_source[row, 0].sum()
        sides = (
            f": {number(target, 3, sign=True)} to the target, "
            f"{number(target - values.sum(), 3, sign=True)} to the distractor"
        )
    return [
        {
            "kind": "tokens",
            "id": "sources",
            "title": f"{view.component}: its direct contribution, by the token that it attends to",
            "note": f"The contributions sum to {number(values.sum(), 3, sign=True)} logits, at the "
            f"position of the answer{sides}.",
            "tokens": [label or "" for label in result.tokens[0]],
            "values": encoded(values),
            "scale": asdict(Scale.around_zero(values)),
            "unit": "logits",
            "pick": None,
        }
    ]


def _upstream(view: View, result: PathPatching) -> ViewData:
    """The effect of each edge into the chosen component: a row per writer, a column per input."""
    cells: dict[str, dict[str, float]] = {}
    for (writer, reader), effect in result.scores.items():
        letter = reader.rpartition(".")[2]
        cells.setdefault(writer, {})[INPUTS.get(letter, "input")] = effect
    rows = sorted(cells, key=lambda name: -max(map(size_of, cells[name].values())))
    read = {name for effects in cells.values() for name in effects}
    columns = [name for name in (*INPUTS.values(), "input") if name in read]
    values = [[cells[row].get(column, nan) for column in columns] for row in rows[:MOST]]
    left = len(rows) - len(values)
    hidden = f"{left} components with smaller effects are not shown. " if left > 0 else ""
    return {
        "kind": "matrix",
        "id": "upstream",
        "title": f"Upstream of {view.component}: change of the {result.metric} when it reads "
        f"{DONOR[result.method]} in place of an earlier component's output{where(view)}",
        "note": f"{hidden}All other components still read the original output; the change of "
        f"{view.component} has its effect by all paths to the logits. Click a row to go further "
        "upstream.",
        "rows": rows[:MOST],
        "columns": columns,
        "row_axis": "upstream",
        "column_axis": "read as",
        "unit": result.unit,
        "values": encoded(values),
        "scale": asdict(Scale.around_zero(values, helps=HELPS.get(result.metric))),
        "numbers": True,
        "pick": "cell",
    }


def _end(view: View, model: interp.Transformer) -> ViewData:
    """The tokens, at which the path upstream ends."""
    ids = model.batches(inputs_of(view, model).batch)[0].ids[0]
    return {
        "kind": "tokens",
        "id": "upstream",
        "title": f"{view.component} reads no other component: the path upstream ends here",
        "tokens": model.to_labels(ids),
        "pick": None,
    }
