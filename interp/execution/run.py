"""What happens inside this model on these tokens? One forward, watched and edited.

    run = interp.run(model, tokens, record="all", edits=[edits.zero("z", layer=1, head=4)])
    run.logits, run.cache["pattern", 0]

Recording and editing are arguments of this one call: nothing is registered on the model, so nothing
is left behind, also when it raises.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.cache.cache import Cache
from interp.edits import Edit
from interp.errors import InvalidInput
from interp.execution.plan import (
    Record,
    Wanted,
    asked_of,
    edit_plan,
    plan_of,
    planned_of,
    reached_by,
)
from interp.execution.recorder import Listener
from interp.metrics import Metric, MetricLike, measure
from interp.model.batch import Batch
from interp.model.network import Network
from interp.model.stack import Span
from interp.points import Place


@dataclass(frozen=True, eq=False)
class Start:
    """Where a run begins, if not at the tokens.

    Attributes:
        layer: the first block that is run.
        stream: ``[batch pos d_model]``, what enters it (``resid_pre`` of that layer).
    """

    layer: int
    stream: Float[Tensor, "batch pos d_model"]


@dataclass(frozen=True, eq=False)
class Run:
    """What a run gave.

    Attributes:
        logits: ``[batch pos vocab]``; ``None`` if the run stopped before them, or the model has
            none.
        stream: ``[batch pos d_model]``, the stream where it stopped, or that a model without
            logits gives out; ``None`` else.
        cache: what was recorded.
        batch: the tokens, checked; of the last stack.
        edits: what was changed.
    """

    logits: Float[Tensor, "batch pos vocab"] | None
    stream: Float[Tensor, "batch pos d_model"] | None
    cache: Cache
    batch: Batch
    edits: tuple[Edit, ...]


def run(  # noqa: PLR0913 - each is one thing a run may do, all by keyword
    model: Network,
    *tokens: Any,  # noqa: ANN401 - whatever model.check reads: ids, and texts if it has a tokenizer
    record: Record = None,
    store: Record = None,
    edits: Sequence[Edit] = (),
    start: Start | None = None,
    stop_at_layer: int | None = None,
    kernel: str = "auto",
    gradients_of: Metric | MetricLike | None = None,
    mask: object = None,
) -> Run:
    """Run ``model`` once, recording and editing.

    Args:
        model: the model.
        *tokens: what ``model(...)`` takes: ids ``[batch pos]``; source and target for a pair.
        record: ``"all"``, a place or several (a bare label means every layer), or a function of
            the TransformerLens name. ``None`` records nothing.
        store: places, named likewise, that are recorded and held as the forward forms them, where
            ``record`` would derive them when they are read: more memory, and no time at reading.
        edits: changes to make, in order where they meet.
        start: begin at a layer from a given stream; no layer before it is run.
        stop_at_layer: end before this layer (of the last stack); negative counts from the end.
        kernel: ``auto`` forms attention matrices only where they are edited or differentiated;
            ``explicit`` always; ``fused`` never.
        gradients_of: a metric, as ``interp.metrics.logit_diff(...)``; the gradient of its sum by
            every recorded tensor is then in the cache as ``cache["z_grad", 0]``.
        mask: ``[batch pos]``, nonzero at real tokens, if padded otherwise than with ``PAD``.

    Raises:
        UnknownPlace: a misspelt place, before anything is computed.
        InvalidEdit: an edit that does not fit, or that lies outside what is run.
        InvalidTokens: tokens that can't be used.
        HookFailed: a function of the user's raised.
    """
    batches = model.check(*tokens, mask=mask)
    span = _span(model, start, stop_at_layer, batches[-1])
    reached = reached_by(model, span)
    planned = planned_of(model, edits, reached)
    stored = asked_of(model, store, reached)
    recorded = {*asked_of(model, record, reached), *stored}
    asked = [place for place in reached if place in recorded]
    wanted = Wanted(asked, stored, kernel, differentiate=gradients_of is not None)
    plan = plan_of(model, planned, wanted)
    listener = Listener(plan)
    with torch.set_grad_enabled(gradients_of is not None):
        stream = model.stream(batches, listener, span)
        ends = span.stop is None and model.config.unembeds
        logits = _exit(model, stream, listener, batches[-1]) if ends else None
        gradients = _gradients(listener, gradients_of, logits, batches[-1])
    listener.check_met()
    kept = {place: tensor.detach() for place, tensor in listener.kept.items()}
    cache = Cache(model, asked, kept, listener.contexts, gradients)
    cache.trim()
    stopped = None if ends else stream.detach()
    given = None if logits is None else logits.detach()
    made = tuple(edit for several in planned.values() for edit in several)
    return Run(given, stopped, cache, batches[-1], made)


def run_edited(
    model: Network,
    *tokens: Any,  # noqa: ANN401 - whatever model.check reads
    edits: Sequence[Edit],
    mask: object = None,
) -> Tensor:
    """Only the logits of an edited run, with the caller's own grad mode, as ``model(tokens)``."""
    batches = model.check(*tokens, mask=mask)
    listener = Listener(edit_plan(model, edits))
    logits = _exit(model, model.stream(batches, listener), listener, batches[-1])
    listener.check_met()
    return logits


def _span(model: Network, start: object, stop: object, batch: Batch) -> Span:
    n = len(model.stacks[-1].blocks)
    if not isinstance(stop, int | None) or not isinstance(start, Start | None):
        raise InvalidInput(
            "start= takes an interp.Start and stop_at_layer= a whole number; got "
            f"{start!r} and {stop!r}."
        )
    last = n if stop is None else stop + n if stop < 0 else stop
    first = 0 if start is None else start.layer + n if start.layer < 0 else start.layer
    if not 0 <= last <= n:
        raise InvalidInput(f"stop_at_layer={stop}: this stack has layers 0..{n - 1}.")
    if not 0 <= first <= last:
        raise InvalidInput(f"A run can't start at layer {first} and stop before layer {last}.")
    if start is None:
        return Span(0, None if stop is None else last)
    expected = (*batch.ids.shape, model.config.d_model)
    stream = start.stream
    if tuple(stream.shape) != expected or stream.dtype != model.dtype:
        raise InvalidInput(
            f"The stream to start from is {tuple(stream.shape)} {stream.dtype}; expected "
            f"{expected} {model.dtype}."
        )
    return Span(first, None if stop is None else last, stream.to(model.device))


def _exit(model: Network, stream: Tensor, listener: Listener, batch: Batch) -> Tensor:
    context = model.contexts([batch])[0]
    return model.unembed(stream, listener.at(context=context))


def _gradients(
    listener: Listener, metric: Metric | MetricLike | None, logits: Tensor | None, batch: Batch
) -> dict[Place, Tensor]:
    """The gradient of the metric's sum by everything kept (zeros where it does not depend)."""
    if metric is None:
        return {}
    if logits is None:
        raise InvalidInput("gradients_of needs the logits; this run has none.")
    places = list(listener.kept)
    if not places:
        raise InvalidInput("gradients_of needs record=: the places whose gradient is wanted.")
    total = measure(metric, logits, batch).sum()
    if not total.requires_grad:
        raise InvalidInput(
            "gradients_of: this metric has no gradient (accuracy has none, and nothing has one "
            "under torch.inference_mode())."
        )
    tensors = [listener.kept[place] for place in places]
    found = torch.autograd.grad(total, tensors, materialize_grads=True)
    return dict(zip(places, found, strict=True))
