"""Terms of a stream after a norm, and their contributions to logits."""

from typing import Any

import torch
from torch import Tensor

from interp.compat.errors import InvalidInput
from interp.compat.stored_activations import StoredActivations
from interp.compat.utils.slices import take
from interp.errors import shorten

NORMALIZED = ("LN", "LNPre", "RMS", "RMSPre")
CENTRED = ("LN", "LNPre")


class NormedActivations(StoredActivations):
    """With its scale fixed at the value from the run, a norm is linear and applies to each term."""

    def apply_ln_to_stack(
        self,
        residual_stack: Tensor,
        layer: int | None = None,
        mlp_input: bool = False,
        pos_slice: Any = None,
        batch_slice: Any = None,
        has_batch_dim: bool = True,
        recompute_ln: bool = False,
    ) -> Tensor:
        """Terms of a stream, centred and divided by the scale of the norm before a layer.

        The scale is that of the run; gain and bias of the norm are left out. ``recompute_ln``
        applies the whole final norm to each component instead.
        """
        cfg, last = self.model.cfg, self._layers(layer)
        if cfg.normalization_type not in NORMALIZED:
            return residual_stack
        stack = take(residual_stack, batch_slice, 1) if has_batch_dim else residual_stack
        if recompute_ln and last == cfg.n_layers:
            with torch.no_grad():
                return torch.stack([self.model.ln_final(x) for x in stack])
        if cfg.normalization_type in CENTRED:
            stack = stack - stack.mean(-1, keepdim=True)
        return self._divide_by_scale(stack, last, mlp_input, pos_slice, batch_slice)

    def logit_attrs(
        self,
        residual_stack: Tensor,
        tokens: Any,
        incorrect_tokens: Any = None,
        pos_slice: Any = None,
        batch_slice: Any = None,
        has_batch_dim: bool = True,
    ) -> Tensor:
        """The contribution of each component to a token's logit, or to the difference of two.

        Raises:
            InvalidInput: ``tokens`` and ``incorrect_tokens`` have different shapes.
        """
        direction = self.model.tokens_to_residual_directions(tokens)
        if incorrect_tokens is not None:
            other = self.model.tokens_to_residual_directions(incorrect_tokens)
            if other.shape != direction.shape:
                raise InvalidInput(
                    f"tokens {shorten(tokens)} and incorrect_tokens {shorten(incorrect_tokens)} "
                    "must have the same shape."
                )
            direction = direction - other
        scaled = self.apply_ln_to_stack(
            residual_stack,
            pos_slice=pos_slice,
            batch_slice=batch_slice,
            has_batch_dim=has_batch_dim,
        )
        return (scaled * direction).sum(-1)

    def _divide_by_scale(
        self,
        stack: Tensor,
        layer: int,
        mlp_input: bool = False,
        pos_slice: Any = None,
        batch_slice: Any = None,
    ) -> Tensor:
        """Terms ``[component ... any]``, divided by the scale of the norm before a layer."""
        is_last = layer == self.model.cfg.n_layers
        norm = "ln_final" if is_last else f"blocks.{layer}.ln{2 if mlp_input else 1}"
        scale = take(self[f"{norm}.hook_scale"], pos_slice, -2)
        return stack / (take(scale, batch_slice, 0) if self.has_batch_dim else scale)

    def _apply_ln_to_projected(
        self, stack: Tensor, layer: int, mlp_input: bool, pos_slice: Any
    ) -> Tensor:
        """Apply the norm before a layer to terms that are projected onto :meth:`_directions`."""
        if self.model.cfg.normalization_type not in NORMALIZED:
            return stack
        return self._divide_by_scale(stack, layer, mlp_input, pos_slice)

    def _directions(self, projection: Tensor, *, apply_ln: bool) -> Tensor:
        """Directions ``[d_model out]`` that terms are projected onto.

        If a norm centres the terms, the directions are centred instead, which is equivalent.
        """
        onto = projection[:, None] if projection.ndim == 1 else projection
        if apply_ln and self.model.cfg.normalization_type in CENTRED:
            onto = onto - onto.mean(0, keepdim=True)
        return onto
