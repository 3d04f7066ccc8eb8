"""``SVDInterpreter``: the right singular vectors of OV circuits and MLP weights, as logits.

(Millidge and Black 2022, "The Singular Value Decompositions of Transformer Weight Matrices are
Highly Interpretable".)
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.compat.factored_matrix import FactoredMatrix
from interp.errors import InvalidInput, shorten

OUTPUT_EMBEDDING = "unembed.W_U"
VECTOR_TYPES = ["OV", "w_in", "w_out"]


class SVDInterpreter:
    """The singular vectors of a model's weights.

    Args:
        model: a HookedTransformer: ``cfg`` and parameters by TransformerLens's names.
    """

    def __init__(self, model: Any) -> None:
        self.model, self.cfg = model, model.cfg
        self.params: dict[str, Tensor] = dict(model.named_parameters())

    def get_singular_vectors(
        self,
        vector_type: str,
        layer_index: int,
        num_vectors: int = 10,
        head_index: int | None = None,
    ) -> Float[Tensor, "vocab 1 num_vectors"]:
        """The logits of the singular vectors that write to the stream (``w_in``: read from it).

        Their signs are arbitrary.

        Args:
            vector_type: ``OV`` of a head, ``w_in`` or ``w_out`` of an MLP.
            layer_index: the layer.
            num_vectors: number of vectors, from the largest singular value.
            head_index: the head, for ``OV``.

        Raises:
            InvalidInput: there is no such matrix, or it has fewer vectors.
        """
        if vector_type not in VECTOR_TYPES:
            raise InvalidInput(f"vector_type={shorten(vector_type)} should be in {VECTOR_TYPES}.")
        _check_index("layer_index", layer_index, self.cfg.n_layers)
        block = f"blocks.{layer_index}"
        if vector_type == "OV":
            vectors = self._of_head(block, head_index).V.mT
        elif vector_type == "w_in":
            matrix = self.params[f"{block}.mlp.W_in"].mT
            norm = self.params.get(f"{block}.ln2.w")
            vectors = torch.linalg.svd(matrix if norm is None else matrix * norm)[2]
        else:
            vectors = torch.linalg.svd(self.params[f"{block}.mlp.W_out"])[2]
        if not 0 < num_vectors <= len(vectors):
            raise InvalidInput(f"num_vectors={num_vectors} should be from 1 to {len(vectors)}.")
        logits = vectors[:num_vectors].float() @ self.params[OUTPUT_EMBEDDING]
        return logits.mT[:, None]

    def _of_head(self, block: str, head: int | None) -> FactoredMatrix:
        """W_V·W_O of a head."""
        if head is None:
            raise InvalidInput("OV needs a head: pass head_index=.")
        _check_index("head_index", head, self.cfg.n_heads)
        weights = (self.params[f"{block}.attn.{name}"][head] for name in ("W_V", "W_O"))
        return FactoredMatrix(*weights)


def _check_index(name: str, index: int, n: int) -> None:
    if not 0 <= index < n:
        raise InvalidInput(f"{name}={index} should be from 0 to {n - 1}.")
