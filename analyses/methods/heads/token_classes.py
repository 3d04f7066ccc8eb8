"""Named classes of tokens, and the positions of their tokens in a batch."""

from collections.abc import Collection, Mapping

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.errors import InvalidInput, InvalidTokens, shorten
from interp.model import Batch, whole_numbers
from interp.transformer import TextNetwork

Classes = Mapping[str, int | str | Collection[int | str] | Tensor]
"""For each name, tokens (ids, or texts of one token each) or a boolean tensor ``[batch pos]``."""
OTHER = "other"


def tokens_of_classes(
    model: TextNetwork, classes: Classes, batch: Batch
) -> dict[str, Bool[Tensor, "batch pos"]]:
    """A mask of the tokens of each class, and of those in no class (``other``), without padding.

    Raises:
        InvalidInput: ``classes`` is not a mapping from names; a class is called ``other``; or a
            tensor is not boolean ``[batch pos]``.
        InvalidTokens: a text is not a single token, or an id is outside the vocabulary.
    """
    if not isinstance(classes, Mapping) or not all(isinstance(name, str) for name in classes):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(
            f"classes={shorten(classes)} should map the name of each class to its tokens, as in "
            '{"digits": ["0", "1"]}.'
        )
    if OTHER in classes:
        raise InvalidInput(
            f"A class can't be called {OTHER}, which is the name of the tokens in no class."
        )
    real = batch.is_real
    masks = {
        name: _tokens_of(model, name, members, batch) & real for name, members in classes.items()
    }
    in_any = torch.stack([~real, *masks.values()]).any(0)
    return {**masks, OTHER: ~in_any}


def selected_tokens(selected: object, batch: Batch, argument: str) -> Bool[Tensor, "batch pos"]:
    """A mask of the tokens that a boolean tensor selects, without padding.

    Raises:
        InvalidInput: ``selected`` is not a boolean tensor, or its shape is not that of the tokens.
    """
    shape = list(batch.ids.shape)
    if not isinstance(selected, Tensor) or selected.dtype != torch.bool:
        raise InvalidInput(
            f"{argument} should be a boolean tensor {shape}; got {shorten(selected)}."
        )
    if list(selected.shape) != shape:
        raise InvalidInput(
            f"{argument} should have an entry for each token, padding included: {shape}; got "
            f"{list(selected.shape)}."
        )
    return selected.to(batch.ids.device) & batch.is_real


def _tokens_of(
    model: TextNetwork, name: str, members: int | str | Collection[int | str] | Tensor, batch: Batch
) -> Bool[Tensor, "batch pos"]:
    if isinstance(members, Tensor) or batch.images is not None:  # patches have no token ids
        return selected_tokens(members, batch, f"classes[{shorten(name)}]")
    several = (
        members if isinstance(members, Collection) and not isinstance(members, str) else [members]
    )
    try:
        ids = [
            model.to_single_token(token) if isinstance(token, str) else token for token in several
        ]
        return torch.isin(batch.ids, _checked(ids, model.d_vocab).to(batch.ids.device))
    except InvalidInput as error:
        raise type(error)(f"classes[{shorten(name)}]: {error}") from error


def _checked(ids: object, d_vocab: int) -> Int[Tensor, " token"]:
    """Token ids as a tensor, checked against the vocabulary.

    Raises:
        InvalidTokens: they are not integers, or outside the vocabulary.
    """
    token_ids = whole_numbers(ids).flatten()
    outside = token_ids[(token_ids < 0) | (token_ids >= d_vocab)]
    if len(outside):
        raise InvalidTokens(
            f"Token id {int(outside[0])} is outside the vocabulary 0..{d_vocab - 1}."
        )
    return token_ids
