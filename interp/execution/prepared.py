"""A prepared run (checked tokens, the part of the model, the plan), and its execution."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

import torch
from jaxtyping import Float
from torch import Tensor

from interp.cache import Cache, Derivation
from interp.edits import Edit
from interp.errors import InvalidInput, shorten
from interp.execution.plan import Plan, place_edits, places_in, plan_of
from interp.execution.recorder import Recorder
from interp.integers import as_integer
from interp.metrics import Metric, MetricLike, measure, measure_stream, with_ids
from interp.model import Batch, Network, Span, as_network
from interp.names import Request
from interp.points import Place, Point


@dataclass(frozen=True, eq=False)
class Start:
    """Where a run starts, if not from the tokens.

    Attributes:
        layer: index of the first block to run.
        stream: ``[batch pos d_model]``, the stream before it (``resid_pre`` of that layer).
    """

    layer: int
    stream: Float[Tensor, "batch pos d_model"]


class Options(TypedDict, total=False):
    """The keyword arguments of :func:`interp.run`."""

    record: Request
    store: Request
    edits: Sequence[Edit]
    start: Start | None
    stop_at_layer: int | None
    kernel: str
    gradients_of: Metric | MetricLike | None
    keep_graph: bool
    mask: object


@dataclass(frozen=True, eq=False)
class Prepared:
    """A run whose arguments were checked.

    Attributes:
        batches: the tokens of each stack.
        span: the part of the last stack that is run.
        plan: what is edited, stored and formed.
        placed: the edits by place.
        recorded: places that can be read afterwards, in order.
        total: the scalar to differentiate, as a function of logits and tokens; ``None`` if no
            gradients are computed.
        returned: the places of the logits and of the stored tensors.
    """

    batches: Sequence[Batch]
    span: Span
    plan: Plan
    placed: Mapping[Place, Sequence[Edit]]
    recorded: Sequence[Place]
    total: Callable[[Tensor, Batch], Tensor] | None
    returned: Collection[Place]

    def returned_bytes(self, model: Network) -> int:
        """A bound on the bytes of the tensors that it returns."""
        rows, width = self.batches[-1].ids.shape
        widest = max(model.widest, model.most_heads * width)
        return len(self.returned) * rows * width * widest * model.dtype.itemsize


def prepare(model: Network, tokens: Sequence[Any], **options: Unpack[Options]) -> Prepared:
    """Check the arguments of a run; see :func:`interp.run`."""
    batches = as_network(model).check(*tokens, mask=options.get("mask"))
    span = _span(model, options.get("start"), options.get("stop_at_layer"), batches[-1])
    keep_graph = options.get("keep_graph", False)
    metric = options.get("gradients_of")
    if metric is not None:
        metric = with_ids(metric, model)
    passed = places_in(model, span)
    placed = place_edits(model, options.get("edits", ()), passed, keep_graph=keep_graph)
    stored = model.names.requested(options.get("store"), passed, _not_computed)
    wanted = {*model.names.requested(options.get("record"), passed, _not_computed), *stored}
    recorded = [place for place in passed if place in wanted]
    plan = plan_of(
        model,
        placed,
        recorded,
        stored,
        kernel=options.get("kernel", "auto"),
        differentiate=metric is not None,
        keep_graph=keep_graph,
    )

    def total(logits: Tensor, batch: Batch) -> Tensor:
        return measure(metric, logits, batch).sum()  # pyright: ignore[reportArgumentType]

    logits = [Place(Point.LOGITS)] if model.config.unembeds and span.stop is None else []
    return Prepared(
        batches,
        span,
        plan,
        placed,
        recorded,
        None if metric is None else total,
        {*plan.stored, *logits},
    )


def execute(model: Network, prepared: Prepared) -> tuple[Tensor | None, Tensor | None, Cache]:
    """Compute a run: its logits or its stream (the other is ``None``), and its cache."""
    plan, batches, span = prepared.plan, prepared.batches, prepared.span
    recorder = Recorder(plan)
    derivation = Derivation(model, recorder.contexts, keep_graph=plan.keep_graph)
    # Tensors made under inference_mode() have no version counter, so a cache would copy each.
    with (
        torch.inference_mode(mode=False),
        torch.set_grad_enabled(plan.differentiate or plan.keep_graph),
    ):
        stream = model.stream(batches, recorder, span)
        ends = span.stop is None and model.config.unembeds
        logits = logits_of(model, stream, recorder, batches[-1]) if ends else None
        total = _total(prepared, logits)
        cache = _cache(prepared, recorder, derivation, total)
    return (
        None if logits is None else _result(logits, plan),
        None if ends else _result(stream, plan),
        cache,
    )


def execute_measured(
    model: Network, prepared: Prepared, metric: Metric
) -> tuple[Float[Tensor, " row"], Cache]:
    """Compute a run and a metric: the metric's values, and the cache with its gradients.

    Logits are computed only at the positions that the metric reads.
    """
    recorder, batches = Recorder(prepared.plan), prepared.batches
    derivation = Derivation(model, recorder.contexts)
    with torch.enable_grad():
        normalized = model.stream(batches, recorder, prepared.span)
        values = measure_stream(metric, model, normalized, batches[-1])
        cache = _cache(prepared, recorder, derivation, values.sum())
    return values.detach(), cache


def logits_of(model: Network, stream: Tensor, recorder: Recorder, batch: Batch) -> Tensor:
    """The logits of the last stack's stream."""
    context = model.contexts([batch])[0]
    return model.unembed(stream, recorder.scoped(context=context))


def _result(tensor: Tensor, plan: Plan) -> Tensor:
    """A tensor of the forward as the run returns it."""
    return tensor if plan.keep_graph else tensor.detach()


def _not_computed(name: object) -> InvalidInput:
    return InvalidInput(f"{shorten(name)} can't be recorded: this run does not compute it.")


def _span(model: Network, start: object, stop: object, batch: Batch) -> Span:
    n = len(model.stacks[-1].blocks)
    if not isinstance(start, Start | None):
        raise InvalidInput(f"start= takes an interp.Start; got {shorten(start)}.")
    last = n if stop is None else _layer(stop, "stop_at_layer=", n)
    first = 0 if start is None else _layer(start.layer, "A run can't start at layer ", n)
    if not first <= last:
        raise InvalidInput(f"A run can't start at layer {first} and stop before layer {last}.")
    stream = None if start is None else _stream(start.stream, model, batch)
    return Span(first, None if stop is None else last, stream)


def _layer(number: object, what: str, n: int) -> int:
    """A layer from 0 to n, where n is after the last block; negative values count from the end."""
    layer = as_integer(number)
    if layer is None or not -n <= layer <= n:
        raise InvalidInput(f"{what}{shorten(number)}: this stack has layers 0..{n - 1}.")
    return layer + n if layer < 0 else layer


def _stream(stream: object, model: Network, batch: Batch) -> Tensor:
    expected = (*batch.ids.shape, model.config.d_model)
    if (
        not isinstance(stream, Tensor)
        or stream.is_meta
        or stream.layout != torch.strided
        or tuple(stream.shape) != expected
        or stream.dtype != model.dtype
    ):
        what = f"{stream.layout} on {stream.device}" if isinstance(stream, Tensor) else "no tensor"
        raise InvalidInput(
            f"The stream to start from is {shorten(stream)} ({what}); expected a tensor of shape "
            f"{expected} and {model.dtype}."
        )
    return stream.to(model.device)


def _total(prepared: Prepared, logits: Tensor | None) -> Tensor | None:
    """The scalar to differentiate; ``None`` if no gradients are computed."""
    if prepared.total is None:
        return None
    if logits is None:
        raise InvalidInput("gradients_of needs the logits; this run has none.")
    return prepared.total(logits, prepared.batches[-1])


def _cache(
    prepared: Prepared, recorder: Recorder, derivation: Derivation, total: Tensor | None
) -> Cache:
    """The cache of what a forward recorded, with the gradients of ``total``."""
    gradients = {} if total is None else _gradients(recorder, total)
    recorder.check_applied()
    tensors = {place: _result(tensor, recorder.plan) for place, tensor in recorder.stored.items()}
    cache = Cache(derivation, list(prepared.recorded), tensors, gradients, recorder.joins)
    cache.compact()
    return cache


def _gradients(recorder: Recorder, total: Tensor) -> dict[Place, Tensor]:
    """The gradient of ``total`` with respect to each stored tensor (zeros if independent of it)."""
    places = list(recorder.stored)
    if not places:
        raise InvalidInput("gradients_of needs record=: the places whose gradients are wanted.")
    if not total.requires_grad:
        raise InvalidInput(
            "gradients_of: this metric has no gradient; accuracy, for example, has none."
        )
    tensors = [recorder.stored[place] for place in places]
    computed = torch.autograd.grad(
        total, tensors, retain_graph=recorder.plan.keep_graph, materialize_grads=True
    )
    return dict(zip(places, computed, strict=True))
