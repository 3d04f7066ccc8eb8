"""Validation of edits and metric before anything is run.

An error in the last case of a sweep might otherwise be raised after hours. The shape of the tensor
at each place and the padding of the prompts are known beforehand, so each edit is applied once, and
the metric computed once, to a tensor on the meta device, which has a shape but no data.
"""

from collections.abc import Sequence
from contextlib import suppress

import torch

from interp.edits import Apply, Edge, Edit, EditSite
from interp.errors import InvalidInput, shorten
from interp.metrics import AtPosition, Loss, Metric, check_callable
from interp.model import Batch, Network, unembedding_of
from interp.sweeps.memory import Budget
from interp.sweeps.restart_map import RestartMap
from interp.sweeps.result import Sweep
from interp.sweeps.schedule import Case


def on_cpu(batches: Sequence[Batch]) -> list[Batch]:
    """The tokens on the CPU, where reading them is cheap."""
    return [batch.to("cpu") for batch in batches]


def check_cases(restart_map: RestartMap, batches: Sequence[Batch], cases: Sequence[Case]) -> None:
    """Make sure that every edit can be applied.

    Raises:
        InvalidEdit: a selection is outside the tensor, values have another shape or dtype, or an
            average over rows can't be taken.
    """
    model, contexts = restart_map.model, restart_map.model.contexts(batches)
    for case in cases:
        for place, edit in case.edits:
            shape = model.shape_at(batches, place)
            site = EditSite(place, contexts[restart_map.stack_of(place)])
            if isinstance(edit, Edge):
                stream = model.shape_at(batches, edit.resolved_ends.stream)
                edit.check_values(torch.empty(stream, dtype=model.dtype, device="meta"), site)
            else:
                check_edit(edit, site, shape, model.dtype)


def check_edit(edit: Edit, site: EditSite, shape: Sequence[int], dtype: torch.dtype) -> None:
    """Make sure that an edit can be applied to a tensor of this shape and dtype."""
    blank = torch.empty(shape, dtype=dtype, device="meta")
    index = site.index(edit.select, blank.shape)
    if isinstance(edit, Apply):
        return  # a user's function is only called with data
    with suppress(RuntimeError):  # a mean weighted by padding needs data
        edit.replacement(blank[index], blank, index, site)


def check_metric(metric: object, model: Network, batch: Batch) -> None:
    """Make sure before anything is run that a metric can be computed.

    Raises:
        InvalidInput: the model has no logits; ``metric`` is not a metric; a target is outside the
            vocabulary; there is not one target per prompt; a reference has another shape; or a
            prompt is too short or has no mask token.
    """
    unembedding_of(model)
    if isinstance(metric, Loss) and model.config.n_classes is not None:
        raise InvalidInput("loss() is of next tokens; this model's logits are scores of classes.")
    if not isinstance(metric, Metric):
        check_callable(metric)
        return
    if isinstance(metric, AtPosition):
        metric.read_columns(batch)
    if isinstance(metric, Loss):  # whether there is a next token does not depend on the vocabulary
        one_token = Batch(torch.zeros_like(batch.ids), batch.real)
        metric(torch.zeros(*batch.ids.shape, 1, device=batch.ids.device), one_token)
    logits = torch.empty(*batch.ids.shape, model.config.n_logits, device="meta")
    with suppress(RuntimeError):  # without data only shapes can be checked
        (metric.with_reference(logits) if metric.lacks_reference else metric)(logits, batch)
    metric.for_rows(range(len(batch.ids)), len(batch.ids))


def check_options(model: Network, memory: object, resume: object) -> None:
    """Check options before the values of edits are computed, which may take long.

    Raises:
        InvalidInput: ``memory`` is not a positive number of bytes, or ``resume`` is not a sweep.
    """
    Budget.of(model, memory)
    as_earlier(resume)


def as_earlier(resume: object) -> Sweep | None:
    """The result that is resumed, if there is one.

    Raises:
        InvalidInput: it is no result of a sweep.
    """
    if isinstance(resume, Sweep | None):
        return resume
    raise InvalidInput(
        f"resume={shorten(resume)} should be the result of a sweep of the same arguments; "
        "interp.Sweep.load(path) reads one from a file."
    )
