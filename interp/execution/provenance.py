"""Provenance of a result: model and weights, tokens, edits, settings and versions."""

import hashlib
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from interp.edits import Edit
from interp.model import Batch, Network, weight_hash


@dataclass(frozen=True)
class Provenance:
    """Everything that a result depends on.

    Attributes:
        model: the model's name.
        config: SHA-256 of its configuration.
        weights: SHA-256 of names, shapes and bytes of all weights.
        tokens: SHA-256 of the token ids, padding included (and of types and images).
        edits: the hash of each edit.
        dtype: dtype of the weights.
        device: device of the weights.
        kernel: the attention kernel that was requested.
        products: the kernel of products with weights (always the default one with gradients).
        precision: rounding of float32 products as set in PyTorch (``ieee``, ``tf32`` or ``bf16``),
            or the name of another dtype.
        seed: seed of random numbers; ``None`` if there were none.
        versions: versions of Python, torch and interp.
        agreement: largest relative difference from the live model that the model was loaded from;
            ``None`` if it was not loaded from one.
        lens: SHA-256 of the tuned lens that was applied; ``None`` if there was none.
        kernel_choice: why the kernel of products was chosen, if the model was loaded with
            ``kernel="auto"`` and there was a choice; it is not compared, as it is no cause of
            other numbers.
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
    lens: str | None = None
    kernel_choice: str | None = field(default=None, compare=False)

    @classmethod
    def of(
        cls,
        model: Network,
        *batches: Batch,
        edits: Sequence[Edit] = (),
        kernel: str = "auto",
        seed: int | None = None,
    ) -> "Provenance":
        """The provenance of a run of ``model`` on ``batches``, one per stack."""
        return cls(
            model=model.config.name or "unnamed",
            config=model.config.digest,
            weights=weight_hash(model),
            tokens=_hash_inputs(batches),
            edits=tuple(edit.digest for edit in edits),
            dtype=str(model.dtype).removeprefix("torch."),
            device=", ".join(map(str, (model.device, *model.other_devices))),
            kernel=kernel,
            products=model.products,
            precision=precision(model),
            seed=seed,
            versions=versions(),
            agreement=model.agreement,
            kernel_choice=model.kernel_choice,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)


def _hash_inputs(batches: Sequence[Batch]) -> str:
    """SHA-256 of the inputs of all stacks."""
    content = " ".join(
        f"{tuple(tensor.shape)} {tensor.tolist()}"
        for batch in batches
        for tensor in (batch.tokens, batch.types, batch.images)
        if tensor is not None
    )
    return hashlib.sha256(content.encode()).hexdigest()


def precision(model: Network) -> str:
    """Rounding of float32 products on the model's device; this package never changes it.

    The setting of the device's products, which ``torch.set_float32_matmul_precision`` writes, or
    else ``torch.backends.fp32_precision``; ``ieee`` if neither is set.
    """
    if model.dtype != torch.float32:
        return str(model.dtype).removeprefix("torch.")
    on_cpu = model.device.type == "cpu"
    backend: Any = torch.backends.mkldnn if on_cpu else torch.backends.cuda
    every: Any = torch.backends
    settings = (backend.matmul.fp32_precision, every.fp32_precision)
    return next((setting for setting in settings if setting != "none"), "ieee")


def versions() -> dict[str, str]:
    """Versions of Python, torch and interp."""
    try:
        installed = version("interp")
    except PackageNotFoundError:
        installed = "source"
    return {"python": platform.python_version(), "torch": torch.__version__, "interp": installed}
