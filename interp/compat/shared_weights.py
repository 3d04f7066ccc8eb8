"""Parameters with TransformerLens's names and shapes, which share storage with the core's weights.

The core stores W_Q, W_K and W_V as one matrix; ``blocks[l].attn.W_Q [head d_model d_head]`` is a
separate parameter that shares this storage, so that training or editing one changes the other.
Autograd knows only the core's matrix: when its gradient is complete, it is passed on to the
``.grad`` of the parameters. ``torch.autograd.grad`` with such a parameter therefore finds no path.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

View = Callable[[Tensor], Tensor]
"""A function from a weight of the core to a view of a part of it."""


@dataclass(eq=False)
class SharedWeight:
    """One parameter of TransformerLens.

    Attributes:
        owner: the module that has it.
        name: its name there.
        core: the weight of the core whose storage it shares.
        view: selects the part of that weight.
        parameter: the parameter when it was last bound.
        pointer: the address of its data at that time.
    """

    owner: nn.Module
    name: str
    core: nn.Parameter
    view: View
    parameter: nn.Parameter
    pointer: int = 0

    @property
    def is_bound(self) -> bool:
        """Whether the parameter is still the same and has the same storage."""
        return self.current is self.parameter and self.parameter.data_ptr() == self.pointer

    @property
    def current(self) -> nn.Parameter | None:
        """The owner's present parameter of this name."""
        # From the dictionary, because a lookup through nn.Module takes longer.
        return self.owner._parameters[self.name]  # pyright: ignore[reportPrivateUsage]

    def bind(self, *, keep: bool) -> None:
        """Share the storage again.

        Args:
            keep: whether to keep the parameter's values and write them into the core; otherwise
                the core's values are kept.
        """
        now = self.current
        if now is None:
            return
        part = self.view(self.core.data)
        if keep and now.data_ptr() != part.data_ptr():
            part.copy_(now.data)
        now.data = part
        self.parameter, self.pointer = now, part.data_ptr()


class SharedWeights:
    """All parameters that share storage with a core."""

    def __init__(self) -> None:
        self._by_core: dict[int, list[SharedWeight]] = {}

    def add(self, owner: nn.Module, name: str, core: nn.Parameter, view: View) -> None:
        """Register a parameter ``name`` of ``owner`` that shares a part of a weight of the core."""
        parameter = nn.Parameter(view(core.data))
        owner.register_parameter(name, parameter)
        if id(core) not in self._by_core:
            self._by_core[id(core)] = []
            pass_on = partial(_pass_gradient_on, self._by_core[id(core)])
            core.register_post_accumulate_grad_hook(pass_on)
        shared = SharedWeight(owner, name, core, view, parameter, parameter.data_ptr())
        self._by_core[id(core)].append(shared)

    def check(self) -> None:
        """Take over replaced parameters and ``requires_grad``; called before a forward."""
        for shared in self._by_core.values():
            for weight in shared:
                if not weight.is_bound:
                    weight.bind(keep=True)
            wanted = any(weight.parameter.requires_grad for weight in shared)
            if shared[0].core.requires_grad is not wanted:
                shared[0].core.requires_grad_(wanted)

    def parameters(self) -> set[int]:
        """The identities of the parameters."""
        return {id(weight.parameter) for shared in self._by_core.values() for weight in shared}

    def rebind(self) -> None:
        """Bind the parameters to the core's new storage, after it was moved or cast."""
        for shared in self._by_core.values():
            for weight in shared:
                weight.bind(keep=False)
                _move_grad(weight.parameter)


def _move_grad(parameter: nn.Parameter) -> None:
    grad = parameter.grad
    if grad is not None:
        parameter.grad = None
        parameter.grad = grad.to(parameter.device, parameter.dtype)


@torch.no_grad()
def _pass_gradient_on(shared: list[SharedWeight], core: Tensor) -> None:
    """Add the core's gradient to those of the parameters, and clear it."""
    grad, core.grad = core.grad, None
    if grad is None:
        return
    for weight in shared:
        parameter = weight.parameter
        if parameter.requires_grad:
            part = weight.view(grad)
            parameter.grad = part if parameter.grad is None else parameter.grad + part
