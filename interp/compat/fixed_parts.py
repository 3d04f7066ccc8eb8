"""Modules whose parts stay: the core computes the forward, and would not see another part."""

from typing import Any

from torch import nn

from interp.errors import InvalidInput


class FixedParts(nn.Module):
    """A module that refuses another module in the place of one of its parts."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute.

        Raises:
            InvalidInput: it is a part that is there already, such as ``blocks[0].mlp``.
        """
        before = self.__dict__.get("_modules", {}).get(name)
        if before is not None and value is not before:
            raise InvalidInput(
                f"{name} of this {type(self).__name__} can't be replaced: the forward would go on "
                "with the part that it had. Add a hook that returns what the new part computes, or "
                "set its parameters (W_in.data = ...)."
            )
        super().__setattr__(name, value)


class FixedList(FixedParts, nn.ModuleList):
    """The blocks."""
