"""The arguments that a model is called with, from the tokens of a sweep."""

from typing import Any

from interp.errors import InvalidInput
from interp.model.network import Network


def inputs_of(model: Network, tokens: Any) -> tuple[Any, ...]:  # noqa: ANN401 - checked by the model
    """``tokens`` itself, or the source and the target of a pair.

    Raises:
        InvalidInput: not a tuple of both.
    """
    if len(model.stacks) == 1:
        return (tokens,)
    if isinstance(tokens, tuple) and len(tokens) == len(model.stacks):
        return tokens
    raise InvalidInput("This model reads two inputs: give both as the tuple (source, target).")
