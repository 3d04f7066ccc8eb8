"""One forward of a model, recorded and edited.

    run = interp.run(model, tokens, record="all", edits=[edits.zero("z", layer=1, head=4)])
    run.logits, run.cache["pattern", 0]

Recording and editing are arguments of this call: nothing is registered on the model, so nothing is
left behind, also when it raises.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.cache.cache import Cache
from interp.cache.derive import Derivation
from interp.edits import Edit
from interp.errors import InvalidInput, shorten
from interp.execution.plan import Plan, place_edits, places_in, plan_of, plan_of_edits
from interp.execution.recorder import Recorder
from interp.integers import as_integer
from interp.metrics import Metric, MetricLike, measure
from interp.model.batch import Batch
from interp.model.network import Network, as_network
from interp.model.stack import Span
from interp.names import Request
from interp.points import Place
from interp.table import Table


@dataclass(frozen=True, eq=False)
class Start:
    """Where a run starts, if not at the tokens.

    Attributes:
        layer: the first block to run.
        stream: ``[batch pos d_model]``, the stream before it (``resid_pre`` of that layer).
    """

    layer: int
    stream: Float[Tensor, "batch pos d_model"]


@dataclass(frozen=True, eq=False)
class Run:
    """The result of a run.

    Attributes:
        logits: ``[batch pos vocab]``; ``None`` if the run stopped before them, or the model has
            none. Detached, unless the run kept its graph; so are the stream and the cache.
        stream: ``[batch pos d_model]``, the stream where the run stopped, or the output of a model
            without logits; otherwise ``None``.
        cache: the recorded activations.
        batch: the checked tokens of the last stack.
        edits: the edits that were made.
    """

    logits: Float[Tensor, "batch pos vocab"] | None
    stream: Float[Tensor, "batch pos d_model"] | None
    cache: Cache
    batch: Batch
    edits: tuple[Edit, ...]

    def __repr__(self) -> str:
        return self.description().to_text()

    def _repr_html_(self) -> str:
        return self.description().to_html()

    def description(self) -> Table:
        """What was run: shapes, edits, and what the cache holds."""
        rows, columns = self.batch.ids.shape
        given = {"logits": self.logits, "stream": self.stream}
        shapes = [(name, str(list(x.shape))) for name, x in given.items() if x is not None]
        edits = [("edit", str(edit)) for edit in self.edits]
        held = f"{len(self.cache)} places recorded, {len(self.cache.stored)} tensors stored"
        title = f"Run of {rows} rows of {columns} tokens"
        return Table(title, (), [*shapes, ("cache", held), *edits])


def run(  # noqa: PLR0913 - independent options, all by keyword
    model: Network,
    *tokens: Any,  # noqa: ANN401 - what model.check reads: ids, and texts if it has a tokenizer
    record: Request = None,
    store: Request = None,
    edits: Sequence[Edit] = (),
    start: Start | None = None,
    stop_at_layer: int | None = None,
    kernel: str = "auto",
    gradients_of: Metric | MetricLike | None = None,
    keep_graph: bool = False,
    mask: object = None,
) -> Run:
    """Run ``model`` once, recording and editing.

    No gradients are recorded, unless they are asked for. To learn a steering vector ``w``::

        steer = edits.add("resid_post", w, layer=3)
        run = interp.run(model, tokens, edits=[steer], keep_graph=True)
        loss(run.logits).backward()                                     # fills w.grad

    Args:
        model: the model.
        *tokens: what ``model(...)`` takes: ids ``[batch pos]``; source and target for a pair.
        record: ``"all"``, a place or several (a bare label means every layer), or a function of
            the TransformerLens name. ``None`` records nothing.
        store: places, named likewise, that are recorded and stored as the forward forms them, where
            ``record`` alone would derive them when they are read: more memory, faster reading.
        edits: changes to make; several at one place are made in order.
        start: start at a layer from a given stream; no layer before it is run.
        stop_at_layer: end before this layer (of the last stack); negative counts from the end.
        kernel: ``auto`` forms attention matrices only where they are edited or differentiated;
            ``explicit`` always; ``fused`` never.
        gradients_of: a metric, as ``interp.metrics.logit_diff(...)``; the gradient of its sum by
            every recorded tensor is then in the cache as ``cache["z_grad", 0]``.
        keep_graph: whether logits, stream and cache keep their autograd graph: they can then be
            differentiated by the weights, by values given to edits and by what functions given to
            ``edits.apply`` use. An edit copies its values, so make it anew after each step of an
            optimizer. What is read from the cache is a copy: for gradients *by* an activation, see
            ``gradients_of``.
        mask: ``[batch pos]``, nonzero at real tokens, if padded with other ids than ``PAD``.

    Raises:
        UnknownPlace: a misspelt place, before anything is computed.
        InvalidEdit: an edit that does not match the tensor, or is outside what is run; or whose
            values require a gradient that would not be recorded.
        InvalidInput: parts of the model have PyTorch hooks.
        InvalidTokens: tokens that this model can't read.
        HookFailed: a function given as an edit raised.
    """
    batches = as_network(model).check(*tokens, mask=mask)
    span = _span(model, start, stop_at_layer, batches[-1])
    passed = places_in(model, span)
    placed = place_edits(model, edits, passed, keep_graph=keep_graph)
    stored = model.names.requested(store, passed, _not_passed)
    wanted = {*model.names.requested(record, passed, _not_passed), *stored}
    recorded = [place for place in passed if place in wanted]
    plan = plan_of(
        model,
        placed,
        recorded,
        stored,
        kernel=kernel,
        differentiate=gradients_of is not None,
        keep_graph=keep_graph,
    )
    recorder = Recorder(plan)
    derivation = Derivation(model, recorder.contexts, keep_graph=keep_graph)
    with torch.set_grad_enabled(plan.differentiate or keep_graph):
        stream = model.stream(batches, recorder, span)
        ends = span.stop is None and model.config.unembeds
        logits = _logits(model, stream, recorder, batches[-1]) if ends else None
        gradients = _gradients(recorder, gradients_of, logits, batches[-1])
        recorder.check_applied()
        tensors = {place: _result(tensor, plan) for place, tensor in recorder.stored.items()}
        cache = Cache(derivation, recorded, tensors, gradients)
        cache.compact()
    return Run(
        None if logits is None else _result(logits, plan),
        None if ends else _result(stream, plan),
        cache,
        batches[-1],
        tuple(edit for several in placed.values() for edit in several),
    )


def run_edited(
    model: Network,
    *tokens: Any,  # noqa: ANN401 - what model.check reads
    edits: Sequence[Edit],
    mask: object = None,
) -> Tensor:
    """The logits of an edited forward, in the caller's grad mode, as ``model(tokens)``."""
    batches = model.check(*tokens, mask=mask)
    recorder = Recorder(plan_of_edits(model, edits))
    logits = _logits(model, model.stream(batches, recorder), recorder, batches[-1])
    recorder.check_applied()
    return logits


def _result(tensor: Tensor, plan: Plan) -> Tensor:
    """A tensor of the forward as the run returns it."""
    return tensor if plan.keep_graph else tensor.detach()


def _not_passed(name: object) -> InvalidInput:
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


def _layer(given: object, what: str, n: int) -> int:
    """A layer from 0 to n, where n is after the last block; negative ones count from the end."""
    layer = as_integer(given)
    if layer is None or not -n <= layer <= n:
        raise InvalidInput(f"{what}{shorten(given)}: this stack has layers 0..{n - 1}.")
    return layer + n if layer < 0 else layer


def _stream(given: object, model: Network, batch: Batch) -> Tensor:
    expected = (*batch.ids.shape, model.config.d_model)
    if (
        not isinstance(given, Tensor)
        or given.is_meta
        or given.layout != torch.strided
        or tuple(given.shape) != expected
        or given.dtype != model.dtype
    ):
        what = f"{given.layout} on {given.device}" if isinstance(given, Tensor) else "no tensor"
        raise InvalidInput(
            f"The stream to start from is {shorten(given)} ({what}); expected a tensor of shape "
            f"{expected} and {model.dtype}."
        )
    return given.to(model.device)


def _logits(model: Network, stream: Tensor, recorder: Recorder, batch: Batch) -> Tensor:
    context = model.contexts([batch])[0]
    return model.unembed(stream, recorder.scoped(context=context))


def _gradients(
    recorder: Recorder, metric: Metric | MetricLike | None, logits: Tensor | None, batch: Batch
) -> dict[Place, Tensor]:
    """The gradient of the metric's sum by everything stored (zeros where it does not depend)."""
    if metric is None:
        return {}
    if logits is None:
        raise InvalidInput("gradients_of needs the logits; this run has none.")
    places = list(recorder.stored)
    if not places:
        raise InvalidInput("gradients_of needs record=: the places whose gradients are wanted.")
    total = measure(metric, logits, batch).sum()
    if not total.requires_grad:
        raise InvalidInput(
            "gradients_of: this metric has no gradient (accuracy has none, and nothing has one "
            "under torch.inference_mode())."
        )
    tensors = [recorder.stored[place] for place in places]
    found = torch.autograd.grad(
        total, tensors, retain_graph=recorder.plan.keep_graph, materialize_grads=True
    )
    return dict(zip(places, found, strict=True))
