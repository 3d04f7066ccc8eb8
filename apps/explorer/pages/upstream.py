"""The page Why, upstream: which earlier components feed the chosen one, and from which tokens.

    effect[w → r] = metric(r, an input of the component, reads w′ instead of w) − metric

w′ is what the method of ablation gives: zero, the mean over tokens, or what the corrupted prompt
gives. A step upstream chooses w as the component, down to the embedding.
"""

from collections.abc import Mapping
from math import nan

import torch

import interp
from analyses import DirectLogitAttribution, PathPatching, patch_paths
from analyses.payload import encoded
from analyses.result import Result
from apps.explorer.canvas import ViewData
from apps.explorer.page import Ask, ask
from apps.explorer.pages.view_inputs import inputs_of
from apps.explorer.pages.target import corrupted, direct_question, head_of, target_metric, where
from apps.explorer.questions import Question, question
from apps.explorer.scales import signed_scale, size_of
from apps.explorer.view import View

MOST = 24
"""Components that are shown."""
INPUTS = {"q": "query", "k": "key", "v": "value"}
RESAMPLE = "resample"
DONOR = {
    "zero": "zero",
    "mean": "the mean over tokens",
    RESAMPLE: "what the corrupted prompt gives",
}
"""What is read in place of what a component writes, by method."""


def upstream_asks(view: View, model: interp.Transformer) -> list[Ask]:
    """What the chosen component reads; of a head, also the tokens that it attends to."""

    def into() -> Question:
        inputs = inputs_of(view, model, swept=True)
        batches = [inputs.batch, *([corrupted(inputs)] if view.method == RESAMPLE else [])]
        return question(
            patch_paths,
            view.model,
            *batches,
            into=view.component,
            kind=view.method,
            metric=target_metric(view, inputs),
        )

    own = inputs_of(view, model)
    has_inputs = bool(view.component) and not _is_input(view.component)
    sources = ask("sources", lambda: direct_question(view, own, "source"))
    return [
        *([] if head_of(view.component) is None else [sources]),
        *([ask("upstream", into, long=True)] if has_inputs else []),
    ]


def upstream_views(
    view: View, model: interp.Transformer, known: Mapping[str, Result]
) -> list[ViewData]:
    """The chosen component's tokens and what it reads, or that its path ends."""
    found: list[ViewData] = []
    sources, upstream = known.get("sources"), known.get("upstream")
    if isinstance(sources, DirectLogitAttribution):
        found += _sources(view, sources)
    if isinstance(upstream, PathPatching):
        found.append(_upstream(view, upstream))
    if view.component and _is_input(view.component):
        found.append(_end(view, model))
    return found


def _is_input(component: str) -> bool:
    """Whether a component reads no other: an embedding or a bias."""
    last = component.rpartition(".")[2]
    return last.endswith("embed") or last in ("bias", "b_O", "b_out", "b_U")


def _sources(view: View, result: DirectLogitAttribution) -> list[ViewData]:
    """The tokens that the chosen head's direct contribution comes from."""
    heads = [part.name for part in result.parts if part.head is not None]
    if result.sources is None or view.component not in heads:
        return []
    values = result.sources[heads.index(view.component), 0]
    return [
        {
            "kind": "tokens",
            "id": "sources",
            "title": f"{view.component}: its direct contribution by the token that it attends to",
            "note": f"They sum to {values.sum():+.3g} logits; read where the answer is.",
            "tokens": [label or "" for label in result.tokens[0]],
            "values": encoded(values.double()),
            "scale": signed_scale(values),
            "unit": "logits",
            "pick": None,
        }
    ]


def _upstream(view: View, result: PathPatching) -> ViewData:
    """The effect of each edge into the chosen component: writers down, its inputs across."""
    cells: dict[str, dict[str, float]] = {}
    for (writer, reader), effect in zip(result.edges, result.effect.mean(-1).tolist(), strict=True):
        letter = reader.rpartition(".")[2]
        cells.setdefault(writer, {})[INPUTS.get(letter, "input")] = effect
    rows = sorted(cells, key=lambda name: -max(map(size_of, cells[name].values())))
    read = {name for own in cells.values() for name in own}
    columns = [name for name in (*INPUTS.values(), "input") if name in read]
    values = torch.tensor([[cells[row].get(own, nan) for own in columns] for row in rows[:MOST]])
    left = len(rows) - len(values)
    hidden = f"{left} with smaller effects are not shown. " if left > 0 else ""
    return {
        "kind": "matrix",
        "id": "upstream",
        "title": f"Upstream of {view.component}: change of the {result.metric} when, of one "
        f"earlier component, it reads {DONOR[result.kind]}{where(view)}",
        "note": f"{hidden}All other components read what they do. What {view.component} then "
        "changes counts by every path. Click a row to go further upstream.",
        "rows": rows[:MOST],
        "columns": columns,
        "row_axis": "upstream",
        "column_axis": "read as",
        "unit": result.unit,
        "values": encoded(values),
        "scale": signed_scale(values),
        "numbers": True,
        "pick": "cell",
    }


def _end(view: View, model: interp.Transformer) -> ViewData:
    """The tokens, where a path upstream ends."""
    ids = model.batches(inputs_of(view, model).batch)[0].ids[0]
    return {
        "kind": "tokens",
        "id": "upstream",
        "title": f"{view.component} reads no other component: the path upstream ends here",
        "tokens": model.to_labels(ids),
        "pick": None,
    }
