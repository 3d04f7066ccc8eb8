"""Processing the weights of an existing model: ``model.process_weights_()`` and its steps."""

from typing import Any

import torch
from torch import Tensor

from interp.compat import processing
from interp.compat.errors import InvalidInput
from interp.compat.stacked_weights import StackedWeights
from interp.errors import shorten

FOLDED = {"LN": "LNPre", "RMS": "RMSPre"}
"""The ``normalization_type`` of a norm after its gain and bias are folded."""


class ProcessingCalls(StackedWeights):
    """The methods that process state dicts with TransformerLens's names."""

    def load_and_process_state_dict(
        self,
        state_dict: dict[str, Any],
        fold_ln: bool = True,
        center_writing_weights: bool = True,
        center_unembed: bool = True,
        fold_value_biases: bool = True,
        refactor_factored_attn_matrices: bool = False,
    ) -> None:
        """Process weights under TransformerLens's names, and load them.

        With ``fold_ln``, a model with gains is rebuilt without them and loses its hooks. See
        :mod:`interp.compat.processing` for the steps.

        Raises:
            InvalidInput: ``refactor_factored_attn_matrices`` is set, and queries and keys are
                rotated, normalized or shared.
        """
        fold_ln = fold_ln and self.cfg.normalization_type is not None
        state = processing.processed_state(
            self.fill_missing_keys(state_dict),
            self.cfg,
            fold_ln=fold_ln,
            center_writing_weights=center_writing_weights,
            center_unembed=center_unembed,
            fold_biases=fold_value_biases,
            refactor=refactor_factored_attn_matrices,
        )
        if fold_ln and self.cfg.normalization_type in FOLDED:
            self.cfg.normalization_type = FOLDED[self.cfg.normalization_type]
            self._build()
        self.load_state_dict(state, strict=False)

    def process_weights_(
        self,
        fold_ln: bool = True,
        center_writing_weights: bool = True,
        center_unembed: bool = True,
        refactor_factored_attn_matrices: bool = False,
    ) -> None:
        """Process the weights of this model in place, for example after training."""
        self.load_and_process_state_dict(
            {name: weight.clone() for name, weight in self.state_dict().items()},
            fold_ln=fold_ln,
            center_writing_weights=center_writing_weights,
            center_unembed=center_unembed,
            refactor_factored_attn_matrices=refactor_factored_attn_matrices,
        )

    def fill_missing_keys(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """A state dict in which missing weights are filled with those of this model.

        Raises:
            InvalidInput: a matrix is missing.
        """
        missing = {k: weight for k, weight in self.state_dict().items() if k not in state_dict}
        matrices = sorted(name for name in missing if ".W_" in name or "._W_" in name)
        if matrices:
            raise InvalidInput(
                f"The state dict has no {shorten(matrices)}; its names must be those of "
                "model.state_dict()."
            )
        return state_dict | missing

    def fold_layer_norm(
        self,
        state_dict: dict[str, Tensor],
        fold_biases: bool = True,
        center_weights: bool = True,
    ) -> dict[str, Tensor]:
        """See :func:`interp.compat.processing.fold_norms`; folded norms stay, as the identity.

        Raises:
            InvalidInput: ``fold_biases`` is off, and a bias that would be left behind is not 0.
        """
        folded = processing.fold_norms(state_dict, self.cfg, centre=center_weights)
        norms = {x: weight for x, weight in state_dict.items() if x not in folded}
        biased = [x for x, weight in norms.items() if x.endswith(".b") and weight.any()]
        if biased and not fold_biases:
            raise InvalidInput(f"{shorten(biased)} are not 0: fold them too, fold_biases=True.")
        folded |= {x: torch.full_like(norms[x], float(x.endswith(".w"))) for x in norms}
        return {name: folded[name] for name in state_dict}

    def center_writing_weights(self, state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        """See :func:`interp.compat.processing.centre_writing`."""
        return processing.centre_writing(state_dict, self.cfg)

    def center_unembed(self, state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        """See :func:`interp.compat.processing.centre_unembed`."""
        return processing.centre_unembed(state_dict)

    def fold_value_biases(self, state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        """See :func:`interp.compat.processing.fold_value_biases`."""
        return processing.fold_value_biases(state_dict, self.cfg)

    def refactor_factored_attn_matrices(self, state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        """See :func:`interp.compat.processing.even_factors`."""
        return processing.even_factors(state_dict, self.cfg)

    def _build(self) -> None:
        """Rebuild the parts of the model from its configuration."""
        raise NotImplementedError
