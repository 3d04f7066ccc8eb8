"""Minimal pairs: a clean and a corrupted prompt, aligned token by token.

Patching writes the activations of one prompt at a position into the run of the other at the same
position (Meng et al. 2022; Wang et al. 2022), so both must have the same number of tokens, each
with its counterpart at the same position. Replacing a token by a similar one keeps the prompt
plausible, whereas adding noise does not (Zhang and Nanda 2024, "Towards Best Practices of
Activation Patching").
"""

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from interp.errors import InvalidInput
from interp.model import PAD, Batch
from interp.prompts import Prompt, read_batches
from interp.transformer import TextNetwork

Batches = tuple[Batch, ...]
"""One batch per stack of a model, as ``model.check`` returns them."""
BEFORE, SHOWN, WIDTH = 2, 8, 12
"""For an alignment in a message: the number of tokens shown before the first that differ, of all
tokens shown, and of characters of each."""
NO_TOKEN = "∅"
"""Shown in an alignment after the end of a row."""


def aligned(
    model: TextNetwork,
    clean: Any,  # noqa: ANN401 - what model.check reads
    corrupt: Any,  # noqa: ANN401 - likewise
) -> tuple[Batches, Batches]:
    """Clean prompts and their corrupted counterparts as checked batches, one per stack.

    Row i of the clean batch is compared with row i of the corrupted one. Both have the same
    padding, so that counterparts are in the same column. (If the padding differs, it is moved to
    the right.) ``interp.sweep`` takes either result, ``interp.run`` takes ``*clean``.

    Args:
        model: the model.
        clean: texts, token ids padded with ``interp.PAD``, images, or a batch; a tuple
            ``(source, target)`` for an encoder–decoder.
        corrupt: as many prompts of the same kind, each with as many tokens as its counterpart.

    Raises:
        InvalidInput: the numbers of prompts differ; the prompts of a pair differ in length (the
            message shows the tokens of both from where they differ) or in the position of their
            mask token; or the prompts of a pair are identical.
    """
    return _aligned(model, clean, corrupt, "Prompt {}".format)


def _aligned(
    model: TextNetwork,
    clean: Any,  # noqa: ANN401 - what model.check reads
    corrupt: Any,  # noqa: ANN401 - likewise
    name: Callable[[int], str],
) -> tuple[Batches, Batches]:
    """Implements :func:`aligned`; ``name`` gives the name of each prompt for messages."""
    left = read_batches(model, clean)
    right = read_batches(model, corrupt)
    if len(left[0].ids) != len(right[0].ids):
        raise InvalidInput(
            f"There are {len(left[0].ids)} clean prompts and {len(right[0].ids)} corrupted ones; "
            "each clean prompt needs one corrupted counterpart."
        )
    for clean_batch, other, stack in zip(left, right, model.stacks, strict=True):
        _check_lengths(model, clean_batch, other, f" ({stack.name})" if len(left) > 1 else "", name)
    pairs = [
        _with_same_padding(clean_batch, other)
        for clean_batch, other in zip(left, right, strict=True)
    ]
    _check_mask_tokens(*pairs[-1], name)
    same = torch.stack([_identical_rows(clean_batch, other) for clean_batch, other in pairs]).all(0)
    if bool(same.any()):
        raise InvalidInput(
            f"{name(int(same.int().argmax()))} is the same clean and corrupted, so patching it "
            "changes nothing; leave it out, or change a token that its answer depends on."
        )
    return tuple(clean_batch for clean_batch, _ in pairs), tuple(other for _, other in pairs)


def aligned_prompts(model: TextNetwork, prompts: Sequence[Prompt]) -> tuple[Batches, Batches]:
    """:func:`aligned` for a prompt set: each text with its ``corrupt`` text.

    The decoder of an encoder–decoder reads the ``prefix`` of the prompt both times.

    Raises:
        InvalidInput: see :func:`aligned` (the message names the source of the prompt); or a prompt
            lacks a field.
    """
    texts = [_field(prompt, "text") for prompt in prompts]
    corrupt = [_field(prompt, "corrupt") for prompt in prompts]

    def name(row: int) -> str:
        return prompts[row].source or f"Prompt {row}"

    if len(model.stacks) == 1:
        return _aligned(model, texts, corrupt, name)
    prefixes = [_field(prompt, "prefix") for prompt in prompts]
    return _aligned(model, (texts, prefixes), (corrupt, prefixes), name)


def position_labels(model: TextNetwork, clean: Batch, corrupt: Batch) -> tuple[str, ...]:
    """A label for each position of minimal pairs: its token, where all prompts have the same one.

    Where all clean prompts have one token and all corrupted prompts another, the label has both:
    ``June/July``. Elsewhere, and for images, it is empty.
    """
    longest = int(clean.is_real.sum(-1).max())
    if clean.images is not None:
        return ("",) * longest
    rows = [
        [model.to_labels(ids[ids != PAD]) for ids in batch.tokens] for batch in (clean, corrupt)
    ]
    common: list[str] = []
    for pos in range(longest):
        tokens = [{row[pos] for row in side if pos < len(row)} for side in rows]
        shared = all(len(labels) == 1 for labels in tokens)
        common.append(
            "/".join(dict.fromkeys(next(iter(labels)) for labels in tokens)) if shared else ""
        )
    return tuple(common)


def _field(prompt: Prompt, field: str) -> str:
    text = getattr(prompt, field)
    if text is None:
        raise InvalidInput(f"{prompt.source}: a minimal pair needs a {field!r}; this has none.")
    return text


def _check_lengths(
    model: TextNetwork, clean: Batch, corrupt: Batch, stack: str, name: Callable[[int], str]
) -> None:
    """Raise if the prompts of a pair differ in length; ``stack`` names the input in the message."""
    wrong = clean.is_real.sum(-1) != corrupt.is_real.sum(-1)
    if not bool(wrong.any()):
        return
    row = int(wrong.int().argmax())
    clean_labels, corrupt_labels = (
        model.to_labels(ids[ids != PAD]) for ids in (clean.tokens[row], corrupt.tokens[row])
    )
    raise InvalidInput(
        f"{name(row)}{stack} has {len(clean_labels)} tokens clean and "
        f"{len(corrupt_labels)} corrupted; each token needs its counterpart at the same position:\n"
        f"{_alignment(clean_labels, corrupt_labels)}\n"
        "Reword one of the two so that both have as many tokens."
    )


def _alignment(clean: Sequence[str], corrupt: Sequence[str]) -> str:
    """The tokens of two rows, one row above the other, from just before the first that differ."""
    both = list(zip_longest(clean, corrupt))
    differ = [clean_label != other for clean_label, other in both]
    first = max(0, differ.index(True) - BEFORE)
    window = slice(first, first + SHOWN)
    rows = [
        ["position", *map(str, range(len(both))[window])],
        ["clean", *(_cut(label) for label, _ in both[window])],
        ["corrupt", *(_cut(other) for _, other in both[window])],
        ["", *("^" if differs else "" for differs in differ[window])],
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _cut(label: str | None) -> str:
    if label is None:
        return NO_TOKEN
    return label if len(label) <= WIDTH else f"{label[: WIDTH - 1]}…"


def _with_same_padding(clean: Batch, corrupt: Batch) -> tuple[Batch, Batch]:
    """Both batches with the same columns of padding; their rows must have equal lengths."""
    if clean.ids.shape == corrupt.ids.shape and torch.equal(clean.is_real, corrupt.is_real):
        return clean, corrupt
    return clean.padded_right(), corrupt.padded_right()


def _check_mask_tokens(clean: Batch, corrupt: Batch, name: Callable[[int], str]) -> None:
    """Raise if the predictions of a pair are read at different positions."""
    if clean.masked is None or corrupt.masked is None:
        return
    elsewhere = (clean.masked != corrupt.masked).any(-1)
    if bool(elsewhere.any()):
        raise InvalidInput(
            f"{name(int(elsewhere.int().argmax()))} has its mask token at another position when "
            "corrupted; predictions are compared at the same position."
        )


def _identical_rows(clean: Batch, corrupt: Batch) -> Bool[Tensor, " batch"]:
    """Which rows hold the same tokens with the same types, or the same image."""
    if clean.images is not None and corrupt.images is not None:
        return (clean.images == corrupt.images).flatten(1).all(-1)
    same = (clean.ids == corrupt.ids) & (clean.types_from(0) == corrupt.types_from(0))
    return (same | ~clean.is_real).all(-1)
