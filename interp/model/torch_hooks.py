"""Refuses models with PyTorch hooks, which only some forwards would call.

A hook fires when its module is called. A sweep continues forwards in the middle of a block, a cache
derives tensors with methods of a module, and some modules are never called at all: with a hook,
their results would silently differ from ``model(tokens)``. Pruning, weight norm and spectral norm
of ``torch.nn.utils`` are such hooks. Parametrizations are not: a parametrized weight is computed
wherever it is read.
"""

from collections.abc import Mapping

from torch import nn
from torch.nn.modules import module as every_module

from interp.errors import InvalidInput

KINDS = ("forward_pre_hooks", "forward_hooks", "backward_pre_hooks", "backward_hooks")
GLOBAL = {kind: getattr(every_module, f"_global_{kind}") for kind in KINDS}
OBSERVERS = "torch.utils."
"""Prefix of the modules whose global hooks are allowed: PyTorch adds them to count operations."""


def refuse_hooks(model: nn.Module) -> None:
    """Make sure that no part of ``model`` has a hook, and that there are no global module hooks.

    Raises:
        InvalidInput: there is a hook; the message names its owner.
    """
    for kind, hooks in GLOBAL.items():
        for hook in hooks.values():
            if not str(getattr(hook, "__module__", "")).startswith(OBSERVERS):
                raise _refused("Every module of this program", kind, hook)
    for name, part in model.named_modules():
        for kind in KINDS:
            hooks: Mapping[int, object] = getattr(part, f"_{kind}")
            for hook in hooks.values():
                raise _refused(f"model.{name}" if name else "The model", kind, hook)


def _refused(owner: str, kind: str, hook: object) -> InvalidInput:
    named = str(getattr(hook, "__name__", type(hook).__name__))[:100]
    return InvalidInput(
        f"{owner} has a {kind[:-1].replace('_', ' ')} of PyTorch ({named}), which only some "
        "forwards would call. Remove it, and use model.run_with_hooks or "
        "interp.run(edits=[edits.apply(...)]) to change activations, record= to read them, and "
        "gradients_of= for gradients; make pruning, weight norm or spectral norm permanent with "
        "torch.nn.utils.prune.remove, remove_weight_norm or remove_spectral_norm."
    )
