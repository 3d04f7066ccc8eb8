"""One forward of a model, with recording and editing.

    run = interp.run(model, tokens, record="all", edits=[edits.zero("z", layer=1, head=4)])
    run.logits, run.cache["pattern", 0]

Recording and editing are arguments of this call: nothing is registered on the model, so nothing
needs to be removed afterwards, even if it raises an error.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from jaxtyping import Float
from torch import Tensor

from interp.cache import Cache
from interp.edits import Edit
from interp.errors import InvalidInput
from interp.execution.plan import plan_of_edits
from interp.execution.prepared import (
    Prepared,
    Start,
    execute,
    execute_measured,
    logits_of,
    prepare,
)
from interp.execution.recorder import Recorder
from interp.io import Table, check_cancelled
from interp.metrics import Metric, MetricLike
from interp.model import Batch, Network
from interp.names import Request

LARGE = 2**30
"""Runs that return fewer bytes than this are not compared with the free memory."""


@dataclass(frozen=True, eq=False)
class Run:
    """The result of a run.

    Attributes:
        logits: ``[batch pos vocab]``; ``None`` if the run stopped before them, or the model has
            none. Logits, stream and cache are detached unless the run kept its graph.
        stream: ``[batch pos d_model]``, the stream where the run stopped, or the output of a model
            without logits; otherwise ``None``.
        cache: the recorded activations.
        batch: the checked tokens of the last stack.
        edits: the edits that were applied.
    """

    logits: Float[Tensor, "batch pos vocab"] | None
    stream: Float[Tensor, "batch pos d_model"] | None
    cache: Cache
    batch: Batch
    edits: tuple[Edit, ...]

    def require_logits(self) -> Float[Tensor, "batch pos vocab"]:
        """The logits.

        Raises:
            InvalidInput: the run has no logits.
        """
        if self.logits is None:
            raise InvalidInput(
                "This run has no logits: it stopped before them, or its model returns its last "
                "stream."
            )
        return self.logits

    def __repr__(self) -> str:
        return self.description().to_text()

    def _repr_html_(self) -> str:
        return self.description().to_html()

    def description(self) -> Table:
        """A table of shapes, edits and the contents of the cache."""
        rows, columns = self.batch.ids.shape
        tensors = {"logits": self.logits, "stream": self.stream}
        shapes = [(name, str(list(x.shape))) for name, x in tensors.items() if x is not None]
        edits = [("edit", str(edit)) for edit in self.edits]
        contents = f"{len(self.cache)} places recorded, {len(self.cache.stored)} tensors stored"
        title = f"Run of {rows} rows of {columns} tokens"
        return Table(title, (), [*shapes, ("cache", contents), *edits])


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
    """Run ``model`` once, recording and editing activations.

    No autograd graph is recorded by default. To learn a steering vector ``w``::

        steer = edits.add("resid_post", w, layer=3)
        run = interp.run(model, tokens, edits=[steer], keep_graph=True)
        loss(run.logits).backward()                                     # fills w.grad

    Args:
        model: the model.
        *tokens: the inputs of ``model(...)``: ids ``[batch pos]``; for an encoder–decoder the
            source and the target.
        record: ``"all"``, a place or several (a bare label means every layer), or a function of
            the TransformerLens name. ``None`` records nothing.
        store: places, given in the same way, that are recorded and stored as the forward forms
            them, where ``record`` alone would derive them when they are read. This takes more
            memory and makes reading faster.
        edits: edits to apply; several at one place are applied in order.
        start: start at a layer from a given stream; no layer before it is run.
        stop_at_layer: end before this layer (of the last stack); negative values count from the
            end.
        kernel: ``auto`` forms attention matrices only where they are edited or differentiated;
            ``explicit`` always; ``fused`` never.
        gradients_of: a metric, such as ``interp.metrics.logit_diff(...)``; the gradient of its sum
            with respect to each recorded tensor is then in the cache as ``cache["z_grad", 0]``.
        keep_graph: whether logits, stream and cache keep their autograd graph: they can then be
            differentiated with respect to the weights, to values given to edits, and to tensors
            used by functions given to ``edits.apply``. An edit copies its values, so create it anew
            after each optimizer step. Tensors read from the cache are copies: for gradients with
            respect to an activation, use ``gradients_of``.
        mask: ``[batch pos]``, nonzero at real tokens; for tokens padded with ids other than
            ``PAD``.

    Raises:
        UnknownPlace: a place is misspelt; raised before anything is computed.
        InvalidEdit: an edit does not match its tensor, is outside the part of the model that is
            run, or has values that require a gradient that would not be recorded.
        InvalidInput: parts of the model have PyTorch hooks.
        InvalidTokens: the model can't read the tokens.
        HookFailed: a function given as an edit raised an error.
        OutOfResources: the run takes more memory than is free; see :func:`interp.estimate`.

    Examples:
        >>> model, head = interp.load("python-2l"), interp.edits.zero("z", layer=1, head=4)
        >>> run = interp.run(model, "def f(x):", record="pattern", edits=[head])
        >>> run.logits.shape, run.cache["pattern", 0].shape
        (torch.Size([1, 6, 512]), torch.Size([1, 8, 6, 6]))
    """
    prepared = prepare(
        model,
        tokens,
        record=record,
        store=store,
        edits=edits,
        start=start,
        stop_at_layer=stop_at_layer,
        kernel=kernel,
        gradients_of=gradients_of,
        keep_graph=keep_graph,
        mask=mask,
    )
    _refuse_if_too_large(model, prepared)
    logits, stream, cache = execute(model, prepared)
    check_cancelled()
    placed = prepared.placed.values()
    applied = tuple(edit for several in placed for edit in several)
    return Run(logits, stream, cache, prepared.batches[-1], applied)


def run_edited(
    model: Network,
    *tokens: Any,  # noqa: ANN401 - what model.check reads
    edits: Sequence[Edit],
    mask: object = None,
) -> Tensor:
    """The logits of an edited forward, in the caller's grad mode, as with ``model(tokens)``."""
    batches = model.check(*tokens, mask=mask)
    recorder = Recorder(plan_of_edits(model, edits))
    logits = logits_of(model, model.stream(batches, recorder), recorder, batches[-1])
    recorder.check_applied()
    return logits


def run_measured(
    model: Network,
    *tokens: Any,  # noqa: ANN401 - what model.check reads
    metric: Metric,
    record: Request,
    edits: Sequence[Edit] = (),
) -> tuple[Float[Tensor, " row"], Cache]:
    """A metric, one value per row, and a cache with its gradients, as of ``run(gradients_of=…)``.

    Logits are computed only at the positions that the metric reads, so they can't be returned,
    recorded or edited.

    Raises:
        InterpError: as for :func:`run`; or the metric is NaN.
    """
    prepared = prepare(model, tokens, record=record, edits=edits, gradients_of=metric)
    _refuse_if_too_large(model, prepared)
    measured = execute_measured(model, prepared, metric)
    check_cancelled()
    return measured


def _refuse_if_too_large(model: Network, prepared: Prepared) -> None:
    """Compare a large run with the free memory, before it starts.

    Raises:
        OutOfResources: the memory clearly does not suffice.
    """
    if prepared.returned_bytes(model) >= LARGE:
        import_module("interp.estimates").refuse_too_large(model, prepared)  # a package above
