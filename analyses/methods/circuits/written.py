"""The outputs of the writers of the computation graph in a run, and their replacements."""

from collections.abc import Iterable, Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.methods.finite import check_no_nan
from interp.edits import term_of
from interp.errors import InvalidInput, shorten
from interp.execution import run
from interp.graph import Writer, computation_graph
from interp.metrics import at_least_float32
from interp.model import Batch, Network

ROWS = 64
"""Number of prompts run at a time."""
METHODS = ("resample", "mean", "zero")
"""The kinds of replacement values for edges outside a circuit, or for patched edges."""
Written = dict[str, Float[Tensor, "*batch_pos d_model"]]
"""The output of each writer by its name; a bias is a vector."""


def written(
    model: Network, batches: Sequence[Batch], names: Iterable[str] | None = None
) -> Written:
    """The outputs of writers on some prompts, ``[batch pos d_model]``; of a bias ``[d_model]``.

    Args:
        model: the model.
        batches: the prompts for each stack.
        names: names of the writers; by default all.

    Raises:
        InvalidInput: norms change the stream, so that it is not a sum of outputs.
        UnknownPlace: there is no writer of this name.
    """
    parts = [part for part, _ in _in_parts(model, batches, names)]
    return {
        name: output if output.ndim == 1 else torch.cat([part[name] for part in parts])
        for name, output in parts[0].items()
    }


def _writers(model: Network, names: Iterable[str] | None) -> Iterable[Writer]:
    """The writers with these names, or all."""
    graph = computation_graph(model)
    return graph.writers if names is None else [graph.writer(name) for name in names]


def _in_parts(
    model: Network, batches: Sequence[Batch], names: Iterable[str] | None
) -> Iterator[tuple[Written, Sequence[Batch]]]:
    """The outputs of writers for some prompts at a time, with these prompts; without logits."""
    terms = {writer.name: term_of(model, writer) for writer in _writers(model, names)}
    sources = list(dict.fromkeys(place for place, _ in terms.values() if place is not None))
    first, end = batches[0].ids, len(model.stacks[-1].blocks)
    for rows in torch.arange(len(first), device=first.device).split(ROWS):
        part_batches = [batch.rows(rows) for batch in batches]
        cache = run(model, *part_batches, record=sources, stop_at_layer=end).cache
        earlier = {place: cache[place] for place in sources}
        check_no_nan(model, part_batches, *earlier.values())
        with torch.no_grad():
            yield {name: term(earlier).detach() for name, (_, term) in terms.items()}, part_batches


def replaced(
    model: Network,
    clean: Sequence[Batch],
    corrupt: Sequence[Batch],
    method: str,
    names: Iterable[str] | None = None,
) -> Written:
    """The values that replace the outputs of writers.

    Args:
        model: the model.
        clean: the prompts that are run, for each stack.
        corrupt: their corrupted counterparts.
        method: ``resample`` for the outputs on the corrupted prompts; ``mean`` for the mean outputs
            over all tokens of the clean prompts; ``zero``.
        names: names of the writers; by default all.

    Raises:
        InvalidInput: the method is unknown; see also :func:`written`.
    """
    if method not in METHODS:
        raise InvalidInput(
            f"method={shorten(method)} is not known; it is one of {', '.join(METHODS)}."
        )
    if method == "resample":
        return written(model, corrupt, names)
    if method == "mean":
        return _means(model, clean, names)
    zero = torch.zeros(model.d_model, dtype=model.dtype, device=model.device)
    return {writer.name: zero for writer in _writers(model, names)}


def _means(model: Network, batches: Sequence[Batch], names: Iterable[str] | None) -> Written:
    """The mean output of each writer over all tokens, ``[d_model]``."""
    stacks = [stack.name for stack in model.stacks]
    number = {
        writer.name: -1 if writer.stack is None else stacks.index(writer.stack)
        for writer in computation_graph(model).writers
    }
    sums: Written = {}
    outputs: Written = {}
    for outputs, part in _in_parts(model, batches, names):
        for name, value in outputs.items():
            if value.ndim > 1:
                total = at_least_float32(value[part[number[name]].is_real]).sum(0)
                sums[name] = sums[name] + total if name in sums else total
    counts = [batch.is_real.sum() for batch in batches]
    return {
        name: (sums[name] / counts[number[name]]).to(value.dtype) if name in sums else value
        for name, value in outputs.items()
    }
