"""The arguments that a model is called with, from the tokens of a sweep."""

from typing import Any

from interp.errors import InvalidInput
from interp.model.batch import Batch
from interp.model.network import Network


def inputs_of(model: Network, tokens: Any) -> tuple[Any, ...]:  # noqa: ANN401 - checked by the model
    """``tokens`` itself, or the source and the target of a pair; a batch a stack is taken as such.

    Raises:
        InvalidInput: not a tuple of both.
    """
    whole = isinstance(tokens, tuple) and len(tokens) == len(model.stacks)
    if len(model.stacks) == 1:
        return tokens if whole and isinstance(tokens[0], Batch) else (tokens,)
    if whole:
        return tokens
    raise InvalidInput("This model reads two inputs: give both as the tuple (source, target).")
