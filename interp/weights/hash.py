"""SHA-256 of a model's weights, computed once per state of the weights."""

import hashlib
from weakref import WeakKeyDictionary

from interp.model.network import Network
from interp.tensor_data import bytes_of
from interp.weight_version import version_of


def weight_hash(model: Network) -> str:
    """SHA-256 over names, shapes and bytes of all weights, whatever device they are on.

    Computed once per model, and again after a weight was changed, replaced or moved. A write
    through ``weight.data`` does not change a tensor's version; the sum of the weight detects it.
    """
    state = tuple(
        (weight.data_ptr(), version_of(weight), weight.detach().sum().item())
        for weight in model.parameters()
    )
    known = _KNOWN.get(model)
    if known is None or known[0] != state:
        known = _KNOWN[model] = (state, _hashed(model))
    return known[1]


_KNOWN: WeakKeyDictionary[Network, tuple[object, str]] = WeakKeyDictionary()


def _hashed(model: Network) -> str:
    digest = hashlib.sha256()
    for name, weight in sorted(model.named_parameters()):
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        digest.update(bytes_of(weight))
    return digest.hexdigest()
