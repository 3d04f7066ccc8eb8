"""What each writer of the computation graph writes in a run, and what is put in its place."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from interp.edits.batch_values import token_mean
from interp.edits.edge import term_of
from interp.errors import InvalidInput, shorten
from interp.execution.run import run
from interp.graph import computation_graph
from interp.model.batch import Batch
from interp.model.network import Network

KINDS = ("resample", "mean", "zero")
"""What edges outside a circuit, or one that is patched, carry."""
Written = dict[str, Float[Tensor, "*batch_pos d_model"]]
"""By the name of the writer; a bias is a vector."""


def written(model: Network, batches: Sequence[Batch]) -> Written:
    """What each writer writes on some prompts, ``[batch pos d_model]``; a bias ``[d_model]``.

    Raises:
        InvalidInput: norms change the stream, so that it is no sum of what is written.
    """
    terms = {writer.name: term_of(model, writer) for writer in computation_graph(model).writers}
    sources = {place for place, _ in terms.values() if place is not None}
    cache = run(model, *batches, record=list(sources)).cache
    earlier = {place: cache[place] for place in sources}
    with torch.no_grad():
        return {name: term(earlier).detach() for name, (_, term) in terms.items()}


def replaced(
    model: Network, clean: Sequence[Batch], corrupt: Sequence[Batch], kind: str
) -> Written:
    """What writers write in place of their own values.

    Args:
        model: the model.
        clean: the prompts that are run, of each stack.
        corrupt: their counterparts.
        kind: ``resample``: what they write on the corrupted prompts; ``mean``: their mean over all
            tokens of the clean ones; ``zero``.

    Raises:
        InvalidInput: an unknown kind; see also :func:`written`.
    """
    if kind not in KINDS:
        raise InvalidInput(f"kind={shorten(kind)} is not known; it is one of {', '.join(KINDS)}.")
    if kind == "resample":
        return written(model, corrupt)
    values = written(model, clean)
    if kind == "zero":
        return {name: own.new_zeros(own.shape[-1]) for name, own in values.items()}
    stacks = {writer.name: writer.stack for writer in computation_graph(model).writers}
    real = {stack.name: batch.real for stack, batch in zip(model.stacks, clean, strict=True)}
    last = model.stacks[-1].name
    return {
        name: own if own.ndim == 1 else token_mean(own, real[stacks[name] or last])[0, 0]
        for name, own in values.items()
    }
