"""The tuned lens: an affine translator of the stream before each block, then the unembedding.

    logits_l = unembed(norm(x + x·A_l + b_l))          x: the stream before block l

(Belrose et al. 2023, "Eliciting Latent Predictions from Transformers with the Tuned Lens"). With
A = 0 and b = 0 it is the logit lens. The stream after the last block is not translated.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.methods.described_tensors import FileKind
from interp.errors import InvalidInput
from interp.execution import Provenance
from interp.io import build, tensor_bytes
from interp.metrics import at_least_float32
from interp.model import Network, Stream, as_network, unembedding_of, weight_hash

FILE = FileKind("interp_tuned_lens", 1, "a tuned lens", "lens.save(path)")


@dataclass(frozen=True, eq=False, repr=False)
class TunedLens:
    """Translators from the stream before each block to the stream after the last one.

    Attributes:
        A: weights, in the model's dtype but at least float32.
        b: biases, likewise.
        provenance: the model of the lens, and the prompts that it was trained on.
    """

    A: Float[Tensor, "layer d_model d_model"]
    b: Float[Tensor, "layer d_model"]
    provenance: Provenance

    @classmethod
    def untrained(cls, model: Network, provenance: Provenance | None = None) -> "TunedLens":
        """A lens with A = 0 and b = 0, which is bit-identical to the logit lens.

        Raises:
            InvalidInput: the model has no unembedding.
        """
        unembedding_of(model)
        shape = (len(model.stacks[-1].blocks), model.d_model)
        like = at_least_float32(torch.empty(0, dtype=model.dtype, device=model.device))
        return cls(
            like.new_zeros(*shape, model.d_model),
            like.new_zeros(shape),
            Provenance.of(model) if provenance is None else provenance,
        )

    @property
    def digest(self) -> str:
        """SHA-256 of A and b; independent of the device."""
        digest = hashlib.sha256()
        for tensor in (self.A, self.b):
            digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode() + tensor_bytes(tensor))
        return digest.hexdigest()

    def translate(self, x: Stream, layer: int) -> Stream:
        """``x + x·A_l + b_l``, where ``x`` is the stream before block ``layer``."""
        return translated(x, self.A[layer], self.b[layer])

    def check_model(self, model: Network) -> None:
        """Check that the lens belongs to this model.

        Raises:
            InvalidInput: the lens was trained on other weights.
        """
        provenance, present = self.provenance, weight_hash(model)
        if provenance.weights != present:
            raise InvalidInput(
                f"This lens is of the model {provenance.model!r} (weights "
                f"{provenance.weights[:12]}…, torch.{provenance.dtype}), not of "
                f"{model.config.name or 'unnamed'!r} (weights {present[:12]}…, "
                f"{model.dtype}): train a lens on this model, or load the model of this lens."
            )

    def __repr__(self) -> str:
        layers, d_model = self.b.shape
        return f"TunedLens({layers} layers, d_model {d_model}, of {self.provenance.model!r})"

    # ---- as a file ------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the lens to a safetensors file; an incomplete file is never left behind.

        Raises:
            InvalidInput: the folder does not exist, or the path is that of a folder.
            OutOfResources: the file can't be written.
        """
        tensors = {"A": self.A.contiguous(), "b": self.b.contiguous()}
        FILE.write(path, {"provenance": self.provenance.to_dict()}, tensors)

    @classmethod
    def load(cls, path: str | Path, model: Network) -> "TunedLens":
        """Load a lens that :meth:`save` wrote, on the device of its model.

        Raises:
            InvalidInput: the file does not exist, is damaged or of another kind or version, or has
                the lens of another model.
        """
        model = as_network(model)
        provenance, tensors = FILE.read(path, _described, model.device)
        like = cls.untrained(model, provenance)
        like.check_model(model)
        _check_tensors(path, tensors, {"A": like.A, "b": like.b})
        return cls(tensors["A"], tensors["b"], provenance)


def translated(
    x: Stream, A: Float[Tensor, "d_model d_model"], b: Float[Tensor, " d_model"]
) -> Stream:
    """``x + x·A + b``."""
    return x + (x.to(A.dtype) @ A + b).to(x.dtype)


@dataclass(frozen=True)
class _Header:
    """The header of a file of this version."""

    provenance: Provenance


def _described(
    description: object, tensors: dict[str, Tensor]
) -> tuple[Provenance, dict[str, Tensor]]:
    """The provenance of a lens, and its tensors, which are not checked yet."""
    return build(_Header, description, "header").provenance, tensors


def _check_tensors(
    path: str | Path, tensors: Mapping[str, Tensor], like: Mapping[str, Tensor]
) -> None:
    """Check that the tensors are finite, with the shapes and dtypes of a lens of this model.

    Raises:
        InvalidInput: they are not.
    """
    expected = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in like.items()}
    actual = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}
    if actual != expected:
        raise InvalidInput(f"{path} is damaged: it holds {actual}; expected {expected}.")
    if not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
        raise InvalidInput(f"{path} is damaged: it holds numbers that are not finite.")
