"""Settings for optional hook points, which cost time or memory."""

from typing import Any

from interp.compat.errors import InvalidInput
from interp.compat.hook_point import HookPoint
from interp.compat.stacked_weights import StackedWeights

NEEDS = {
    "attn.hook_result": "use_attn_result",
    "hook_q_input": "use_split_qkv_input",
    "hook_k_input": "use_split_qkv_input",
    "hook_v_input": "use_split_qkv_input",
    "hook_mlp_in": "use_hook_mlp_in",
    "attn_in": "use_attn_in",
}
"""The setting that a hook point needs, by the end of its name."""


class Settings(StackedWeights):
    """The methods that switch hook points on; setting ``cfg.use_*`` does the same."""

    def check_hooks_to_add(
        self,
        hook_point: HookPoint,  # noqa: ARG002
        hook_point_name: str,
        *hook: Any,  # noqa: ARG002
        **how: Any,  # noqa: ARG002
    ) -> None:
        """Refuse a hook at a point that is never called.

        Raises:
            InvalidInput: the setting that the point needs is off.
        """
        for ending, setting in NEEDS.items():
            if hook_point_name.endswith(ending) and not getattr(self.cfg, setting):
                raise InvalidInput(f"{hook_point_name} needs model.set_{setting}(True) first.")

    def set_use_attn_result(self, use_attn_result: bool) -> None:
        """Set whether the output of each head is computed (``hook_result``)."""
        self.cfg.use_attn_result = use_attn_result

    def set_use_split_qkv_input(self, use_split_qkv_input: bool) -> None:
        """Set whether queries, keys and values of each head have their own input."""
        self.cfg.use_split_qkv_input = use_split_qkv_input

    def set_use_hook_mlp_in(self, use_hook_mlp_in: bool) -> None:
        """Set whether ``hook_mlp_in`` is called.

        Raises:
            InvalidInput: the model has no MLPs.
        """
        if self.cfg.attn_only:
            raise InvalidInput("This model has no MLPs, and so no hook_mlp_in.")
        self.cfg.use_hook_mlp_in = use_hook_mlp_in

    def set_use_attn_in(self, use_attn_in: bool) -> None:
        """Set whether each head has its own input (``hook_attn_in``)."""
        self.cfg.use_attn_in = use_attn_in

    def set_ungroup_grouped_query_attention(self, ungroup_grouped_query_attention: bool) -> None:
        """Set whether keys and values are repeated for each query head that shares them.

        If so, ``hook_k``, ``hook_v``, ``hook_rot_k`` and the split inputs have all query heads, and
        an edit affects only one of them.
        """
        self.cfg.ungroup_grouped_query_attention = ungroup_grouped_query_attention
