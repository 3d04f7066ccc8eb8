"""The page Heads."""

from collections.abc import Mapping

import interp
from analyses import Ablation, ablate
from analyses.payload import encoded
from analyses.result import Result
from apps.explorer.canvas import ViewData
from apps.explorer.page import Ask, Page, ask
from apps.explorer.pages.asked import inputs_of, metric_of
from apps.explorer.questions import question
from apps.explorer.view import View


def asks(view: View, model: interp.Transformer) -> list[Ask]:
    """The ablation of each head."""
    inputs = inputs_of(view, model, swept=True)
    return [
        ask(
            "ablation",
            lambda: question(
                ablate, view.model, inputs.batch, metric=metric_of(view, inputs), method=view.method
            ),
            long=True,
        )
    ]


def views(_view: View, model: interp.Transformer, known: Mapping[str, Result]) -> list[ViewData]:
    """The map of effects."""
    result = known.get("ablation")
    if not isinstance(result, Ablation):
        return []
    n_heads = model.blocks[0].attn.n_heads
    values = result.effect.mean(-1).unflatten(0, (-1, n_heads))
    largest = float(values.abs().nan_to_num().max())
    return [
        {
            "kind": "matrix",
            "id": "ablation",
            "title": f"Change of {result.metric} under {result.method} ablation of each head",
            "rows": [f"L{n}" for n in range(len(values))],
            "columns": [f"H{n}" for n in range(n_heads)],
            "row_axis": "layer",
            "column_axis": "head",
            "unit": result.unit,
            "values": encoded(values.float()),
            "scale": {"kind": "diverging", "low": -largest, "high": largest},
            "numbers": True,
            "pick": "head",
        }
    ]


HEADS = Page("heads", "Heads", asks, views)
