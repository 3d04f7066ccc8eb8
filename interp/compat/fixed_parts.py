"""Refuses what the forward of a façade would not do: run other parts, or call PyTorch's hooks.

A façade's parts hold names, weights and hook points; the core computes. A part that is put in the
place of another, or a hook of PyTorch on a part, would have no effect, so it is an error.
"""

from torch import nn

from interp.compat.hook_point import HookPoint
from interp.errors import InvalidInput


class FixedParts:
    """The parts of a model as they were built.

    Args:
        root: the model, with all of its parts. PyTorch's hooks on itself are called.
    """

    def __init__(self, root: nn.Module) -> None:
        self._children = {
            name: (module, dict(module.named_children()))
            for name, module in root.named_modules()
            if not isinstance(module, HookPoint)
        }
        self._points = [part for part in root.modules() if isinstance(part, HookPoint)]

    def check(self) -> None:
        """See that every part is still there, without hooks of PyTorch.

        Raises:
            InvalidInput: a part was replaced, added or deleted, or has such a hook.
        """
        for name, (module, children) in self._children.items():
            # Of the dictionaries, because lookups through nn.Module take longer in every forward.
            if module._modules != children:  # pyright: ignore[reportPrivateUsage]
                raise InvalidInput(self._changed(name, module, children))
            if name and (module._forward_hooks or module._forward_pre_hooks):  # pyright: ignore[reportPrivateUsage]
                raise InvalidInput(_hooked(name))
        for point in self._points:
            if len(point._forward_hooks) > len(point.fwd_hooks) or point._forward_pre_hooks:  # pyright: ignore[reportPrivateUsage]
                raise InvalidInput(_hooked(str(point.name)))

    def _changed(self, name: str, module: nn.Module, children: dict[str, nn.Module]) -> str:
        now = dict(module.named_children())
        changed = next(
            child for child in [*children, *now] if children.get(child) is not now.get(child)
        )
        what = type(now[changed]).__name__ if changed in now else "nothing"
        return (
            f"{f'{name}.' if name else ''}{changed} was replaced by {what}, which the forward does "
            "not run. Change weights in place, or activations by a hook: model.add_hook; for fewer "
            "layers, use stop_at_layer= or build HookedTransformer of another cfg."
        )


def _hooked(name: str) -> str:
    return (
        f"{name} has a hook of PyTorch, which the forward does not call; use model.add_hook at one "
        "of model.hook_dict, which sees the same tensors."
    )
