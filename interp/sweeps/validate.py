"""Does every edit fit where it is to be made, and the metric what it is to read?

What does not fit would be noticed when its turn comes, which may be after hours. What is needed to
know is there before anything is run: the shape of the tensor at each place, and the prompts'
padding. So each edit is made once, and the metric taken once, of a tensor that has a shape and a
dtype but no numbers.
"""

from collections.abc import Sequence
from contextlib import suppress

import torch

from interp.edits import Apply, Edit, EditSite
from interp.edits.selection import CROSS_KEYS
from interp.errors import InvalidInput
from interp.metrics import Loss, Metric, required_columns
from interp.model.batch import Batch
from interp.model.context import Context
from interp.model.network import Network
from interp.model.shapes import fixed_axes
from interp.points import Place
from interp.sweeps.cases import Item
from interp.sweeps.restart import Ways


def on_cpu(batches: Sequence[Batch]) -> list[Batch]:
    """The tokens where looking at them is cheap."""
    return [batch.to("cpu") for batch in batches]


def check_items(ways: Ways, batches: Sequence[Batch], items: Sequence[Item]) -> None:
    """Make sure that every edit can be made.

    Raises:
        InvalidEdit: a selection outside of the tensor, values of another shape or dtype, or an
            average over rows that can't be taken.
    """
    model, contexts = ways.model, ways.model.contexts(batches)
    for item in items:
        for place, edit in item.planned:
            shape, context = shape_at(ways, batches, place), contexts[ways.number_of(place)]
            check_fit(edit, place, shape, model.dtype, context)


def check_fit(
    edit: Edit, place: Place, shape: Sequence[int], dtype: torch.dtype, context: Context
) -> None:
    """Make sure that an edit of a tensor of this shape and dtype can be made; see above."""
    site, blank = EditSite(place, context), torch.empty(shape, dtype=dtype, device="meta")
    index = site.index(edit.select, blank.shape)
    if isinstance(edit, Apply):
        return  # a user's function is called with numbers, or not at all
    with suppress(RuntimeError):  # padding has numbers and the tensor none: they can't be weighed
        edit.replacement(blank[index], blank, index, site)


def shape_at(ways: Ways, batches: Sequence[Batch], place: Place) -> tuple[int, ...]:
    """The shape of the tensor at a place, in a forward of ``batches``."""
    width = batches[ways.number_of(place)].ids.shape[1]
    sizes = {
        **fixed_axes(ways.model.config, place),
        "batch": len(batches[0].ids),
        "pos": width,
        "query": width,
        "key": batches[0].ids.shape[1] if place.point in CROSS_KEYS else width,
    }
    return tuple(sizes[axis] for axis in place.point.axes)


def check_metric(metric: object, model: Network, batch: Batch) -> None:
    """Make sure before anything is run that a metric can be taken.

    Raises:
        InvalidInput: no metric, a target outside the vocabulary, not one target a prompt, a
            reference of another shape, or a prompt too short for it.
    """
    if not model.config.unembeds:
        raise InvalidInput("This model has no logits that a metric could measure.")
    if isinstance(metric, Loss) and model.config.n_classes is not None:
        raise InvalidInput("loss() is of next tokens; this model's logits are scores of classes.")
    if not isinstance(metric, Metric):
        if not callable(metric):
            raise InvalidInput(f"A metric is one of interp.metrics or a function, not {metric!r}.")
        return
    if metric.pos is not None:
        required_columns(batch, metric.pos)
    if isinstance(metric, Loss):  # whether a next token is there does not depend on which
        one_word = Batch(torch.zeros_like(batch.ids), batch.real)
        metric(torch.zeros(*batch.ids.shape, 1, device=batch.ids.device), one_word)
    logits = torch.empty(*batch.ids.shape, model.config.n_logits, device="meta")
    with suppress(RuntimeError):  # these have no numbers: it can check no more than their shape
        metric(logits, batch)
    metric.for_rows(range(len(batch.ids)), len(batch.ids))
