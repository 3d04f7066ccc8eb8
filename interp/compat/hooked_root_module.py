"""A module that contains hook points, with methods that add hooks, run, cache and reset.

``setup()`` at the end of ``__init__`` names every part. Hooks stay until ``reset_hooks``;
``hooks()``, ``run_with_hooks`` and ``run_with_cache`` remove the hooks that they added
(TransformerLens 3, ``HookedRootModule.py``).
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from interp.compat.caching_hooks import SaveHook, as_filter
from interp.compat.hook_point import (
    Direction,
    Directions,
    HookFunction,
    HookPoint,
    LensHandle,
    NamesFilter,
)
from interp.errors import UnknownPlace, shorten

HookName = str | Callable[[str], bool]
Hooks = Sequence[tuple[HookName, HookFunction]]


class HookedRootModule(nn.Module):
    """A module whose parts may be hook points.

    Attributes:
        mod_dict: every part by its name.
        hook_dict: every hook point by its name.
        context_level: the number of open :meth:`hooks` contexts.
        is_caching: whether caching hooks were added since the last reset.
    """

    mod_dict: dict[str, nn.Module]
    hook_dict: dict[str, HookPoint]

    def __init__(self, *args: object) -> None:  # noqa: ARG002 - as TransformerLens has it
        super().__init__()
        self.is_caching, self.context_level = False, 0
        self.mod_dict, self.hook_dict = {}, {}

    def setup(self) -> None:
        """Name every part and list the hook points; to be called when all parts exist."""
        self.mod_dict = {name: module for name, module in self.named_modules() if name}
        for name, module in self.mod_dict.items():
            module.name = name  # pyright: ignore[reportArgumentType] - a plain attribute
        self.hook_dict = {
            name: module for name, module in self.mod_dict.items() if isinstance(module, HookPoint)
        }

    def hook_points(self) -> list[HookPoint]:
        """Every hook point."""
        return list(self.hook_dict.values())

    def list_hooks(
        self,
        name_filter: NamesFilter = None,
        dir: Directions = "both",
        including_permanent: bool = True,
    ) -> dict[str, list[LensHandle]]:
        """The existing hooks, by the name of their point."""
        accepts = as_filter(name_filter)
        by_name = {
            name: [h for h in point.handles(dir) if including_permanent or not h.is_permanent]
            for name, point in self.hook_dict.items()
            if accepts(name)
        }
        return {name: handles for name, handles in by_name.items() if handles}

    # ---- adding and removing ------------------------------------------------------------------

    def check_hooks_to_add(
        self,
        hook_point: HookPoint,
        hook_point_name: str,
        hook: HookFunction,
        dir: Direction = "fwd",
        is_permanent: bool = False,
        prepend: bool = False,
    ) -> None:
        """Called before a hook is added by name; a subclass may raise."""

    def add_hook(
        self,
        name: HookName,
        hook: HookFunction,
        dir: Direction = "fwd",
        is_permanent: bool = False,
        level: int | None = None,
        prepend: bool = False,
    ) -> None:
        """Add a hook at a point, or at every point whose name a function accepts.

        The hook stays until :meth:`reset_hooks`, or if it is permanent, until that is called with
        ``including_permanent=True``. If the function accepts no name, nothing is added.

        Raises:
            UnknownPlace: there is no hook point of this name.
        """
        for full_name, point in self._points_named(name):
            self.check_and_add_hook(point, full_name, hook, dir, is_permanent, level, prepend)

    def check_and_add_hook(
        self,
        hook_point: HookPoint,
        hook_point_name: str,
        hook: HookFunction,
        dir: Direction = "fwd",
        is_permanent: bool = False,
        level: int | None = None,
        prepend: bool = False,
    ) -> None:
        """Add a hook at one point, after :meth:`check_hooks_to_add`."""
        self.check_hooks_to_add(
            hook_point, hook_point_name, hook, dir=dir, is_permanent=is_permanent, prepend=prepend
        )
        hook_point.add_hook(hook, dir=dir, is_permanent=is_permanent, level=level, prepend=prepend)

    def add_perma_hook(
        self,
        name: HookName,
        hook: HookFunction,
        dir: Direction = "fwd",
    ) -> None:
        """Add a permanent hook."""
        self.add_hook(name, hook, dir=dir, is_permanent=True)

    def _points_named(self, name: object) -> list[tuple[str, HookPoint]]:
        if callable(name):
            return [
                (hook_name, point) for hook_name, point in self.hook_dict.items() if name(hook_name)
            ]
        point = self.hook_dict.get(name) if isinstance(name, str) else None
        if point is None:
            raise UnknownPlace(
                f"There is no hook point {shorten(name)}; model.hook_dict lists all of them."
            )
        return [(str(name), point)]

    def remove_all_hook_fns(
        self,
        direction: Directions = "both",
        including_permanent: bool = False,
        level: int | None = None,
    ) -> None:
        """Remove hooks of every point; see :meth:`HookPoint.remove_hooks`."""
        for point in self.hook_points():
            point.remove_hooks(direction, including_permanent=including_permanent, level=level)

    def clear_contexts(self) -> None:
        """Empty the ``ctx`` of every point."""
        for point in self.hook_points():
            point.clear_context()

    def reset_hooks(
        self,
        clear_contexts: bool = True,
        direction: Directions = "both",
        including_permanent: bool = False,
        level: int | None = None,
    ) -> None:
        """Remove hooks, and empty the contexts of the points."""
        if clear_contexts:
            self.clear_contexts()
        self.remove_all_hook_fns(direction, including_permanent, level)
        self.is_caching = False

    @contextmanager
    def hooks(
        self,
        fwd_hooks: Hooks = (),
        bwd_hooks: Hooks = (),
        reset_hooks_end: bool = True,
        clear_contexts: bool = False,
    ) -> Generator[Any]:
        """A context in which hooks are added; other hooks are not affected."""
        self.context_level += 1
        try:
            both: tuple[tuple[Direction, Hooks], ...] = (("fwd", fwd_hooks), ("bwd", bwd_hooks))
            for direction, pairs in both:
                for name, hook in pairs:
                    for _, point in self._points_named(name):
                        point.add_hook(hook, dir=direction, level=self.context_level)
            yield self
        finally:
            if reset_hooks_end:
                self.reset_hooks(clear_contexts, level=self.context_level)
            self.context_level -= 1

    # ---- running ------------------------------------------------------------------------------

    def run_with_hooks(
        self,
        *model_args: Any,
        fwd_hooks: Hooks = (),
        bwd_hooks: Hooks = (),
        reset_hooks_end: bool = True,
        clear_contexts: bool = False,
        **model_kwargs: Any,
    ) -> Any:
        """Run a forward with hooks, which are removed afterwards.

        Backward hooks are useful only with ``reset_hooks_end=False``, as the backward pass comes
        later. Alternatively, run both passes inside ``with model.hooks(bwd_hooks=...)``.
        """
        with self.hooks(fwd_hooks, bwd_hooks, reset_hooks_end, clear_contexts):
            return self(*model_args, **model_kwargs)

    def get_caching_hooks(
        self,
        names_filter: NamesFilter = None,
        incl_bwd: bool = False,
        device: torch.device | str | None = None,
        remove_batch_dim: bool = False,
        cache: dict[str, Tensor] | None = None,
        pos_slice: Any = None,
    ) -> tuple[dict[str, Tensor], list[tuple[str, SaveHook]], list[tuple[str, SaveHook]]]:
        """A dictionary, and the hooks that fill it during a forward and a backward pass."""
        stored: dict[str, Tensor] = {} if cache is None else cache
        self.is_caching = True

        def save(*, is_backward: bool) -> SaveHook:
            return SaveHook(
                stored,
                is_backward=is_backward,
                device=device,
                remove_batch_dim=remove_batch_dim,
                pos_slice=pos_slice,
            )

        accepts = as_filter(names_filter)
        names = [name for name in self.hook_dict if accepts(name)]
        forward = [(name, save(is_backward=False)) for name in names]
        backward = [(name, save(is_backward=True)) for name in names if incl_bwd]
        return stored, forward, backward

    def add_caching_hooks(
        self,
        names_filter: NamesFilter = None,
        incl_bwd: bool = False,
        device: torch.device | str | None = None,
        remove_batch_dim: bool = False,
        cache: dict[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """Add hooks that fill a dictionary in every forward, until the next reset."""
        stored, forward, backward = self.get_caching_hooks(
            names_filter, incl_bwd, device, remove_batch_dim, cache
        )
        for name, hook in forward:
            self.hook_dict[name].add_hook(hook, "fwd")
        for name, hook in backward:
            self.hook_dict[name].add_hook(hook, "bwd")
        return stored

    def run_with_cache(
        self,
        *model_args: Any,
        names_filter: NamesFilter = None,
        device: torch.device | str | None = None,
        remove_batch_dim: bool = False,
        incl_bwd: bool = False,
        reset_hooks_end: bool = True,
        clear_contexts: bool = False,
        pos_slice: Any = None,
        **model_kwargs: Any,
    ) -> tuple[Any, Any]:
        """The output of a forward, and the activations of the points that a filter accepts.

        With ``incl_bwd``, the output must be a single number and is differentiated as well: the
        cache has gradients under ``NAME_grad``, and parameters have theirs in ``.grad``.
        """
        cache, forward, backward = self.get_caching_hooks(
            names_filter, incl_bwd, device, remove_batch_dim, pos_slice=pos_slice
        )
        with self.hooks(forward, backward, reset_hooks_end, clear_contexts):
            output = self(*model_args, **model_kwargs)
            if incl_bwd:
                output.backward()
        return output, cache
