"""Whether a façade still has the parts that it was built with.

The forward of the core computes what these parts compute. If one was replaced (a hook point by a
sparse autoencoder, an MLP by a transcoder), has a method of its own or a hook of PyTorch, was added
or deleted, then the forward calls the parts instead, one after the other, as TransformerLens does.
"""

from collections.abc import Iterable

from torch import nn

from interp.compat.hook_point import HookPoint

# pyright: reportPrivateUsage=false
# Through the dictionaries of modules, because look-ups by nn.Module take longer.
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""Attributes of modules with hooks of PyTorch."""


class Structure:
    """The parts of a model, as they were when it was built.

    Args:
        model: the model, whose own attributes count only if they are among ``names``.
        names: the names of its parts.
    """

    def __init__(self, model: nn.Module, names: Iterable[str]) -> None:
        self.names = tuple(name for name in names if name in model._modules)
        self._original = dict(self._named_parts(model))
        self.update(model)

    def _named_parts(self, model: nn.Module) -> Iterable[tuple[str, nn.Module]]:
        for name in self.names:
            part = model._modules.get(name)
            if part is not None:
                yield from part.named_modules(prefix=name)

    def update(self, model: nn.Module) -> None:
        """Take over new hook points that stand in the place of others."""
        parts = dict(self._named_parts(model))
        is_whole = parts.keys() == self._original.keys() and all(
            part is parts[name] or (type(part) is type(parts[name]) is HookPoint)
            for name, part in self._original.items()
        )
        self._root = model._modules
        modules = [part for part in parts.values() if not isinstance(part, HookPoint)]
        if is_whole and not any(map(_has_assigned_method, modules)):
            self._children = {name: parts[name] for name in self.names}
            self._modules = [(part, part._modules, dict(part._modules)) for part in modules]
            self._sizes = [len(part.__dict__) for part in modules]

    def is_whole(self) -> bool:
        """Whether no part was replaced, added or deleted, and none has hooks of PyTorch."""
        if any(self._root.get(name) is not part for name, part in self._children.items()):
            return False
        for (part, now, before), size in zip(self._modules, self._sizes, strict=True):
            # A method that was assigned to the instance is in its dictionary.
            if now != before or len(part.__dict__) != size:
                return False
            if any(part.__dict__[hooks] for hooks in HOOKS):
                return False
        return True

    def replaced(self, model: nn.Module) -> list[str]:
        """The names of the parts that are not those that were built, for messages."""
        parts = dict(self._named_parts(model))
        names = [name for name, part in parts.items() if self._original.get(name) is not part]
        names += [name for name in self._original if name not in parts]
        return names or [
            name
            for name, part in parts.items()
            if not isinstance(part, HookPoint) and any(part.__dict__[hooks] for hooks in HOOKS)
        ]


def _has_assigned_method(part: nn.Module) -> bool:
    """Whether an instance has a function in the place of a method of its class."""
    return any(
        callable(getattr(type(part), name, None))
        for name in part.__dict__
        if not name.startswith("_")
    )
