"""An identity with hooks, for activations of a module: ``x = self.hook_mid(x)``.

A hook is called as ``fn(tensor, hook)``. Forward hooks receive the activation, backward hooks its
gradient; a return value replaces it, and ``None`` keeps it. Hooks run in the order in which they
were added, those added with ``prepend=True`` first (TransformerLens 3, ``hook_points.py``).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from interp.compat.errors import InvalidInput, OutOfRange
from interp.errors import shorten

Direction = Literal["fwd", "bwd"]
Directions = Literal["fwd", "bwd", "both"]
HookFunction = Callable[..., Any]
NamesFilter = Callable[[str], bool] | list[str] | tuple[str, ...] | str | None


@dataclass
class LensHandle:
    """One hook of a point.

    Attributes:
        hook: PyTorch's handle, which removes it.
        is_permanent: whether it stays until permanent hooks are removed too.
        context_level: the level of the context manager that added it; ``None`` outside of one.
        user_hook: the function that was given.
    """

    hook: RemovableHandle
    is_permanent: bool = False
    context_level: int | None = None
    user_hook: HookFunction | None = None


class HookPoint(nn.Module):
    """The identity, with hooks.

    Attributes:
        name: the name of the point in its model, set by :meth:`HookedRootModule.setup`.
        ctx: a dictionary in which hooks can store values.
        fwd_hooks: its forward hooks, in the order in which they run.
        bwd_hooks: its backward hooks, in the order in which they run.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fwd_hooks: list[LensHandle] = []
        self.bwd_hooks: list[LensHandle] = []
        self.ctx: dict[Any, Any] = {}
        self.name: str | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` unchanged."""
        return x

    def add_hook(
        self,
        hook: HookFunction,
        dir: Direction = "fwd",
        is_permanent: bool = False,
        level: int | None = None,
        prepend: bool = False,
    ) -> None:
        """Add a hook.

        Args:
            hook: the function, called as ``fn(tensor, hook)``, where ``hook`` is this point.
            dir: ``fwd`` for the activation, ``bwd`` for its gradient.
            is_permanent: whether ``remove_hooks`` keeps it unless ``including_permanent`` is set.
            level: the level of the context manager that adds it.
            prepend: whether it runs before all other hooks.

        Raises:
            InvalidInput: ``dir`` is neither.
        """
        if dir == "fwd":
            handle = self.register_forward_hook(self._forward_hook(hook), prepend=prepend)
        elif dir == "bwd":
            handle = self.register_full_backward_hook(self._backward_hook(hook), prepend=prepend)
        else:
            raise InvalidInput(f'dir={shorten(dir)} must be "fwd" or "bwd".')
        handles = self.fwd_hooks if dir == "fwd" else self.bwd_hooks
        handles.insert(
            0 if prepend else len(handles), LensHandle(handle, is_permanent, level, hook)
        )

    def add_perma_hook(self, hook: HookFunction, dir: Direction = "fwd") -> None:
        """Add a permanent hook."""
        self.add_hook(hook, dir=dir, is_permanent=True)

    def _forward_hook(self, hook: HookFunction) -> Callable[[nn.Module, Any, Tensor], Any]:
        def call(module: nn.Module, inputs: Any, output: Tensor) -> Any:  # noqa: ARG001
            return hook(output, hook=self)

        return call

    def _backward_hook(self, hook: HookFunction) -> Callable[[nn.Module, Any, Any], Any]:
        def call(module: nn.Module, by_input: Any, by_output: Any) -> Any:  # noqa: ARG001
            changed = hook(by_output[0], hook=self)
            return changed if changed is None or isinstance(changed, tuple) else (changed,)

        return call

    @property
    def is_hooked(self) -> bool:
        """Whether any hook would be called, including those added by PyTorch's own methods."""
        forward_hooks = (self._forward_hooks, self._forward_pre_hooks)
        return any((*forward_hooks, self._backward_hooks, self._backward_pre_hooks))

    def only_stores(self, kind: type) -> bool:
        """Whether all hooks that are called in a forward are of this class."""
        called = len(self._forward_hooks) + len(self._forward_pre_hooks)
        handles = self.fwd_hooks
        return called == len(handles) and all(
            isinstance(handle.user_hook, kind) for handle in handles
        )

    def has_hooks(
        self,
        dir: Directions = "both",
        including_permanent: bool = True,
        level: int | None = None,
    ) -> bool:
        """Whether there is a hook of this direction, and of this level if one is given."""
        return any(
            (including_permanent or not handle.is_permanent)
            and (level is None or handle.context_level == level)
            for handle in self.handles(dir)
        )

    def handles(self, dir: Directions = "both") -> list[LensHandle]:
        """The hooks of one direction, or of both.

        Raises:
            InvalidInput: ``dir`` is unknown.
        """
        by_direction = {
            "fwd": self.fwd_hooks,
            "bwd": self.bwd_hooks,
            "both": [*self.fwd_hooks, *self.bwd_hooks],
        }
        if dir not in by_direction:
            raise InvalidInput(f'dir={shorten(dir)} must be "fwd", "bwd" or "both".')
        return by_direction[dir]

    def remove_hooks(
        self,
        dir: Directions = "fwd",
        including_permanent: bool = False,
        level: int | None = None,
    ) -> None:
        """Remove hooks.

        Args:
            dir: the direction of the hooks to remove, or ``both``.
            including_permanent: whether to remove every hook, permanent or not, of any level.
            level: remove only hooks of this level.

        Raises:
            InvalidInput: ``dir`` is unknown.
        """
        for handle in list(self.handles(dir)):
            is_of_level = not handle.is_permanent and level in (None, handle.context_level)
            if including_permanent or is_of_level:
                handle.hook.remove()
                for handles in (self.fwd_hooks, self.bwd_hooks):
                    handles[:] = [other for other in handles if other is not handle]

    def clear_context(self) -> None:
        """Empty ``ctx``."""
        self.ctx = {}

    def layer(self) -> int:
        """The layer in the name ``blocks.{layer}.…``.

        Raises:
            InvalidInput: the point has no such name.
        """
        parts = (self.name or "").split(".")
        if len(parts) < 2 or not parts[1].isdigit():  # noqa: PLR2004
            raise OutOfRange(f"The hook point {self.name!r} is not in a layer.")
        return int(parts[1])

    def __repr__(self) -> str:
        """The name and the number of hooks."""
        parts = [] if self.name is None else [f"name={self.name!r}"]
        counts = {"fwd": len(self.fwd_hooks), "bwd": len(self.bwd_hooks)}
        parts += [f"{n} {direction}" for direction, n in counts.items() if n]
        return f"HookPoint({', '.join(parts)})"
