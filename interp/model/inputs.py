"""Converts token ids, masks, types and images to tensors, from any array of numbers."""

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.errors import MAX_SHOWN, InvalidTokens, first_line, shorten

IDS = (
    "whole numbers [batch pos] of one length (model.to_tokens([...]) pads texts; fill shorter rows "
    "of ids with interp.PAD)"
)


def as_tensor(given: object, what: str, expected: str) -> Tensor:
    """``given`` as a dense tensor that holds data.

    Args:
        given: a tensor, an array, a number, or lists of them.
        what: its name in the error message: ``"Tokens"``.
        expected: description of the expected input in the error message.

    Raises:
        InvalidTokens: ``given`` is none of these.
    """
    if isinstance(given, Mapping) and "input_ids" in given:
        raise InvalidTokens(
            f"{what} should be {expected}; got the output of a tokenizer. Pass its ids, and its "
            'mask if there is padding: model(output["input_ids"], mask=output["attention_mask"]).'
        )
    try:
        tensor = torch.as_tensor(given)
        kind = _unreadable_kind(tensor)
    except Exception as error:  # of any type: the object's own methods raise it
        reason = first_line(error)[:MAX_SHOWN]
        raise InvalidTokens(
            f"{what} should be {expected}; got {shorten(given)} ({reason})."
        ) from error
    if kind is not None:
        raise InvalidTokens(f"{what} should be {expected}; got {kind}.")
    return tensor


def _unreadable_kind(tensor: Tensor) -> str | None:
    """The kind of a tensor that can't be read as a dense array; ``None`` for one that can."""
    if tensor.is_meta:
        return "a tensor on the meta device, which holds no numbers"
    if tensor.is_nested:
        return "a nested tensor, whose rows may differ in length"
    if tensor.is_quantized or tensor.layout != torch.strided:
        return f"a tensor of {tensor.layout} and {tensor.dtype}"
    return None


def whole_numbers(tokens: object) -> Int[Tensor, "..."]:
    """Token ids in any form, as an int64 tensor of the same shape.

    Raises:
        InvalidTokens: they are not whole numbers, or not an array of them.
    """
    ids = as_tensor(tokens, "Tokens", IDS)
    if ids.numel() and (ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool):
        raise InvalidTokens(f"Token ids must be whole numbers, got a tensor of {ids.dtype}.")
    return ids.long()


def as_ids(tokens: object) -> Int[Tensor, "batch pos"]:
    """Token ids as a batch; a single row becomes a batch of one.

    Raises:
        InvalidTokens: there are no tokens, or they are not ``[batch pos]``.
    """
    ids = whole_numbers(tokens)
    if ids.numel() == 0:
        raise InvalidTokens("The prompt is empty: there is no token to run the model on.")
    ids = ids[None] if ids.ndim == 1 else ids
    if ids.ndim != 2:  # noqa: PLR2004 - batch and pos
        raise InvalidTokens(f"Tokens must be [batch pos], got {shorten(tokens)}.")
    return ids


def as_mask(mask: object, ids: Int[Tensor, "batch pos"]) -> Bool[Tensor, "batch pos"]:
    """A mask that is nonzero at real tokens, as a boolean tensor.

    Raises:
        InvalidTokens: its shape differs from that of the ids.
    """
    given = as_tensor(mask, "The mask", "numbers [batch pos], nonzero at real tokens")
    given = given[None] if given.ndim == 1 else given
    if given.shape != ids.shape:
        raise InvalidTokens(
            f"The mask is {tuple(given.shape)}, the tokens are {tuple(ids.shape)}; they must agree."
        )
    return given.bool()


def as_types(types: object, ids: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos"]:
    """The type of each token.

    Raises:
        InvalidTokens: their shape differs from that of the ids, or they are not whole numbers.
    """
    given = as_tensor(types, "Token types", "whole numbers [batch pos]")
    given = given[None] if given.ndim == 1 else given
    if given.shape != ids.shape or given.is_floating_point() or given.is_complex():
        raise InvalidTokens(
            f"The types are {tuple(given.shape)} {given.dtype}, the tokens {tuple(ids.shape)}; "
            "give one whole number from 0 per token."
        )
    return given.long()


def is_text(tokens: object) -> bool:
    """Whether tokens are given as a text or a sequence of texts."""
    several = isinstance(tokens, list | tuple) and bool(tokens)
    return isinstance(tokens, str) or (several and isinstance(tokens[0], str))  # pyright: ignore
