"""Where does a number come from? Model and weights, tokens, edits, settings and versions."""

import hashlib
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from interp.edits import Edit
from interp.model.batch import Batch
from interp.model.network import Network
from interp.weights.hash import weight_hash


@dataclass(frozen=True)
class Provenance:
    """What must be the same for a number to come out the same.

    Attributes:
        model: the model's name.
        config: SHA-256 of its configuration.
        weights: SHA-256 of names, shapes and bytes of all weights.
        tokens: SHA-256 of the token ids, padding included (and of types and images).
        edits: what was changed, as plain data (a function by its hash).
        dtype: of the weights.
        device: where they were.
        kernel: which attention kernel was asked for.
        products: which kernel computed products with weights (those with gradients are always the
            default's).
        precision: how float32 products are rounded, as PyTorch was told: ``ieee``, ``tf32``,
            ``bf16``; of another dtype, its own name.
        seed: of whatever was drawn.
        versions: of Python, torch and interp.
        agreement: the largest difference from the model that it was loaded from, of the largest
            number; ``None`` if it was not loaded from a live model.
    """

    model: str
    config: str
    weights: str
    tokens: str
    edits: tuple[str, ...]
    dtype: str
    device: str
    kernel: str
    products: str
    precision: str
    seed: int | None
    versions: dict[str, str]
    agreement: float | None

    @classmethod
    def of(
        cls,
        model: Network,
        *batches: Batch,
        edits: Sequence[Edit] = (),
        kernel: str = "auto",
        seed: int | None = None,
    ) -> "Provenance":
        """Of a run of ``model`` on ``batches``, one a stack."""
        return cls(
            model=model.config.name or "unnamed",
            config=hashlib.sha256(model.config.to_json().encode()).hexdigest(),
            weights=weight_hash(model),
            tokens=_read_by(batches),
            edits=tuple(edit.digest for edit in edits),
            dtype=str(model.dtype).removeprefix("torch."),
            device=str(model.device),
            kernel=kernel,
            products=model.products,
            precision=precision(model),
            seed=seed,
            versions=versions(),
            agreement=model.agreement,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)


def _read_by(batches: Sequence[Batch]) -> str:
    """SHA-256 of what the stacks read."""
    content = " ".join(
        f"{tuple(own.shape)} {own.tolist()}"
        for batch in batches
        for own in (batch.tokens, batch.types, batch.images)
        if own is not None
    )
    return hashlib.sha256(content.encode()).hexdigest()


def precision(model: Network) -> str:
    """What float32 products are rounded to on the model's device; nobody here ever sets it.

    It is ``torch.backends.fp32_precision``, or what stands in its place for one device's products
    (``torch.set_float32_matmul_precision`` writes those); where nothing is said, ``ieee``.
    """
    if model.dtype != torch.float32:
        return str(model.dtype).removeprefix("torch.")
    on_cpu = model.device.type == "cpu"
    own: Any = torch.backends.mkldnn if on_cpu else torch.backends.cuda
    every: Any = torch.backends
    told = (own.matmul.fp32_precision, every.fp32_precision)
    return next((one for one in told if one != "none"), "ieee")


def versions() -> dict[str, str]:
    """Of what computes: Python, torch, interp."""
    try:
        own = version("interp")
    except PackageNotFoundError:
        own = "source"
    return {"python": platform.python_version(), "torch": torch.__version__, "interp": own}
