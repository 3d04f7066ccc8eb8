"""What a forward does with the hooks of a point."""

from torch import Tensor

from interp.compat.caching_hooks import SaveHook
from interp.compat.hook_point import HookPoint


def call_hooks(point: HookPoint, value: Tensor) -> Tensor:
    """What the forward goes on with after the hooks of a point.

    Hooks get a copy, which they may change in place, unless all of them only store it. What they
    return is broadcast to the shape of the tensor.
    """
    if not (point.fwd_hooks or point.bwd_hooks):
        return value
    reads_only = all(isinstance(handle.user_hook, SaveHook) for handle in point.fwd_hooks)
    after = point(value if reads_only else value.clone())
    return after if after.shape == value.shape else after.expand_as(value)
