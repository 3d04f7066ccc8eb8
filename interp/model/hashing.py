"""SHA-256 of a model's weights, computed once for each version of the weights."""

import hashlib
from collections.abc import Sequence
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.utils.parametrize import is_parametrized

from interp.io import tensor_bytes
from interp.model.network import Network
from interp.model.weight_version import version_of


def weight_hash(model: Network) -> str:
    """SHA-256 over names, dtypes, shapes and bytes of all weights; independent of the device.

    Computed once per model, and again after a weight was changed, replaced or moved. A write
    through ``weight.data`` does not change a tensor's version; the sum of the weight detects it.
    For a parametrized weight, both the original and the computed weight are hashed.
    """
    if any(map(is_parametrized, model.modules())):
        return _compute_hash(model)
    version = weight_state(model)
    entry = _KNOWN.get(model)
    if entry is None or entry[0] != version:
        entry = _KNOWN[model] = (version, _compute_hash(model))
    return entry[1]


_KNOWN: WeakKeyDictionary[Network, tuple[object, str]] = WeakKeyDictionary()
"""The version and the hash of the weights of each model that was hashed."""
_CONSTANT: WeakKeyDictionary[Network, tuple[object, tuple[float, ...]]] = WeakKeyDictionary()
"""The versions and sums of the weights of each model whose weights are assumed to be constant."""


def weight_state(model: Network) -> tuple[object, tuple[float, ...]]:
    """The addresses and versions of all weights, and their sums."""
    weights = list(model.parameters())
    versions = tuple((weight.data_ptr(), version_of(weight)) for weight in weights)
    constant = _CONSTANT.get(model)
    return constant if constant and constant[0] == versions else (versions, weight_sums(weights))


def assume_constant_weights(model: Network) -> None:
    """Spare analyses their passes over the weights; writes through ``weight.data`` go unnoticed."""
    _CONSTANT[model] = weight_state(model)


def _compute_hash(model: Network) -> str:
    digest = hashlib.sha256()
    for name in sorted(model.weight_names()):
        part, _, attribute = name.rpartition(".")
        weight = getattr(model.get_submodule(part), attribute)
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        digest.update(tensor_bytes(weight))
    for _, part in sorted(model.named_modules()):
        for name in part.parametrizations if is_parametrized(part) else ():
            digest.update(tensor_bytes(getattr(part, name)))
    return digest.hexdigest()


AT_A_TIME = 2**20
"""Number of values that are converted to float64 at a time; PyTorch would convert all of them."""


@torch.no_grad()
def weight_sums(weights: Sequence[Tensor]) -> tuple[float, ...]:
    """The sum of each weight in float64, read from the device at once."""
    # In one tensor: separate sums would lie between converted values, and keep their memory apart.
    sums = torch.zeros(len(weights), dtype=torch.float64, device=weights[0].device)
    for number, weight in enumerate(map(torch.atleast_1d, weights)):
        rows = max(1, AT_A_TIME * len(weight) // max(1, weight.numel()))
        for part in weight.split(rows):
            sums[number] += part.sum(dtype=torch.float64).to(sums.device)
    return tuple(sums.tolist())
