"""Modules whose parts and methods can't be replaced.

The core computes the forward, and would neither use a new part or method nor call PyTorch's hooks
on a part. Operations without effect are refused.
"""

from types import FunctionType
from typing import Any

from torch import nn

from interp.compat.hooked_root_module import HookedRootModule
from interp.errors import InvalidInput


class FixedParts(nn.Module):
    """A module whose parts can't be replaced by other modules.

    Attributes:
        replaceable: methods that an instance may replace, with effect.
    """

    replaceable: tuple[str, ...] = ()

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute.

        Raises:
            InvalidInput: it is an existing part, such as ``blocks[0].mlp``, or a method of a part
                that the forward would not call, such as ``blocks[0].attn.forward``.
        """
        is_method = isinstance(getattr(type(self), name, None), FunctionType)
        if is_method and name not in self.replaceable and not isinstance(self, HookedRootModule):
            raise InvalidInput(
                f"{name} of this {type(self).__name__} can't be replaced: the forward would not "
                "call the new one. Add a hook that returns what it computes; of the methods of "
                "parts, only the forward of an MLP without experts can be replaced."
            )
        before = self.__dict__.get("_modules", {}).get(name)
        if before is not None and value is not before:
            raise InvalidInput(
                f"{name} of this {type(self).__name__} can't be replaced: the forward would still "
                "use the old part. Add a hook that returns the output of the new part, or set the "
                "parameters of the old one (W_in.data = ...)."
            )
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        """Delete an attribute.

        Raises:
            InvalidInput: it is a part, such as ``blocks[3]``.
        """
        if name in self._modules:
            raise InvalidInput(
                f"{name} of this {type(self).__name__} can't be deleted: the forward would still "
                "use it. Use stop_at_layer=, a hook that returns zeros, or a HookedTransformer "
                "with another cfg."
            )
        super().__delattr__(name)

    def register_forward_hook(self, *arguments: Any, **keywords: Any) -> Any:
        """Register a forward hook of PyTorch, on the whole model only.

        Raises:
            InvalidInput: this module is a part of a model.
        """
        self._check_is_called()
        return super().register_forward_hook(*arguments, **keywords)

    def register_forward_pre_hook(self, *arguments: Any, **keywords: Any) -> Any:
        """Register a forward pre-hook of PyTorch, on the whole model only.

        Raises:
            InvalidInput: this module is a part of a model.
        """
        self._check_is_called()
        return super().register_forward_pre_hook(*arguments, **keywords)

    def _check_is_called(self) -> None:
        if not isinstance(self, HookedRootModule):
            raise InvalidInput(
                f"The forward would not call a hook of PyTorch on a {type(self).__name__}; use "
                "model.add_hook at one of model.hook_dict, which sees the same tensors."
            )


class FixedList(FixedParts, nn.ModuleList):
    """The blocks."""

    def append(self, module: nn.Module) -> Any:
        """Not supported.

        Raises:
            InvalidInput: always.
        """
        raise InvalidInput(
            f"A {type(module).__name__} can't be added: the forward would not run it. Build a "
            "HookedTransformer with a cfg of more layers."
        )
