"""Weights of all layers as one tensor: ``model.W_Q [layer head d_model d_head]`` (copies)."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from interp.compat.config import HookedTransformerConfig
from interp.compat.errors import InvalidInput
from interp.compat.factored_matrix import FactoredMatrix, composition_scores
from interp.compat.hooked_root_module import HookedRootModule
from interp.compat.text_calls import TextCalls
from interp.errors import NoSuchAttribute, shorten

STACKED = {
    **dict.fromkeys(("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O"), "attn"),
    **dict.fromkeys(("W_in", "W_gate", "W_out", "b_in", "b_out"), "mlp"),
}
"""Weights of every block, and the part of the block that has each."""
SINGLE = {"W_U": "unembed", "b_U": "unembed", "W_E": "embed", "W_pos": "pos_embed"}
"""Weights of which there is one, and the part of the model that has each."""


class BlockWeights(HookedRootModule):
    """The weights of a model as attributes."""

    cfg: HookedTransformerConfig
    blocks: Any
    single: ClassVar[Mapping[str, str]] = SINGLE
    """The part that has each of :data:`SINGLE`."""

    def __getattr__(self, name: str) -> Any:
        """A weight of every layer stacked, or W_E, W_pos, W_U, b_U (the parameters).

        Raises:
            NoSuchAttribute: the model has no such weight.
        """
        if name in STACKED:
            return self._stacked(name)
        if name in SINGLE:
            first, _, inner = self.single.get(name, "").partition(".")
            part = self._modules.get(first)
            if part is None:
                raise NoSuchAttribute(f"This model has no {name}.")
            return getattr(part.get_submodule(inner), name)
        return super().__getattr__(name)

    def _every_block(self) -> Iterable[nn.Module]:
        """The blocks whose weights are stacked."""
        return self.blocks

    def __dir__(self) -> list[str]:
        """Names of attributes, including those of weights."""
        return [*super().__dir__(), *STACKED, *SINGLE]

    def _stacked(self, name: str) -> Tensor | None:
        parts = [getattr(block, STACKED[name], None) for block in self._every_block()]
        weights = [getattr(part, name, None) for part in parts]
        present = [weight for weight in weights if weight is not None]
        if len(present) == len(weights):
            return torch.stack(present)
        if name == "W_gate":
            return None
        raise NoSuchAttribute(f"This model has no {name}.")

    @property
    def W_E_pos(self) -> Tensor:
        """W_E and W_pos, concatenated ``[d_vocab+n_ctx d_model]``."""
        return torch.cat([self.W_E, self.W_pos])

    @property
    def QK(self) -> FactoredMatrix:
        """W_Q W_Kᵀ of every head ``[layer head d_model d_model]``."""
        return FactoredMatrix(self.W_Q, self.W_K.mT)

    @property
    def OV(self) -> FactoredMatrix:
        """W_V W_O of every head ``[layer head d_model d_model]``."""
        return FactoredMatrix(self.W_V, self.W_O)

    @property
    def n_params_total(self) -> int:
        """Number of parameters, including embeddings, biases and norms."""
        return sum(parameter.numel() for parameter in self.parameters())

    def all_head_labels(self) -> list[str]:
        """``L0H0``, ``L0H1``, … of every head."""
        cfg = self.cfg
        return [f"L{n}H{h}" for n in range(cfg.n_layers) for h in range(cfg.n_heads)]


class StackedWeights(BlockWeights, TextCalls):
    """The weights of a :class:`HookedTransformer`, and quantities computed from them."""

    def all_composition_scores(self, mode: str) -> Tensor:
        """‖OV·W‖ / (‖OV‖ ‖W‖) of each pair of heads ``[layer head layer head]``.

        W is QK, QKᵀ or OV of the second head; 0 unless it is in a later layer (Elhage et al. 2021).

        Args:
            mode: ``Q``, ``K`` or ``V``.

        Raises:
            InvalidInput: ``mode`` is unknown.
        """
        if mode not in ("Q", "K", "V"):
            raise InvalidInput(f"mode={shorten(mode)} must be Q, K or V.")
        right = {"Q": self.QK, "K": self.QK.T, "V": self.OV}[mode]
        scores = composition_scores(self.OV, right, broadcast_dims=True)
        layers = torch.arange(self.cfg.n_layers, device=scores.device)
        later = layers[:, None] < layers
        return scores.where(later[:, None, :, None], 0.0)

    def accumulated_bias(
        self,
        layer: int,
        mlp_input: bool = False,
        include_mlp_biases: bool = True,
    ) -> Tensor:
        """The sum of the biases written before a layer ``[d_model]``.

        Args:
            layer: the layer; biases of the blocks before it are summed.
            mlp_input: whether to include b_O of the layer itself.
            include_mlp_biases: whether to include b_out as well as b_O.
        """
        total = self.W_U.new_zeros(self.cfg.d_model)
        for block in self.blocks[:layer]:
            total = total + block.attn.b_O
            if include_mlp_biases and not self.cfg.attn_only and not self.cfg.num_experts:
                total = total + block.mlp.b_out
        return total + self.blocks[layer].attn.b_O if mlp_input else total
