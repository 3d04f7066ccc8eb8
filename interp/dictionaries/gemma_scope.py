"""Dictionaries of Gemma Scope: a file ``params.npz`` (Lieberum et al. 2024, arXiv:2408.05147).

JumpReLU, and nothing is subtracted from the input. The file does not say where it reads and writes.
"""

from pathlib import Path

import torch

from interp.dictionaries.activations import JumpReLU
from interp.dictionaries.claims import folder_claims
from interp.dictionaries.dictionary import Dictionary
from interp.dictionaries.files import sizes_of, take, tensors_of

PARAMS = "params.npz"


def read_gemma_scope(folder: Path, dtype: torch.dtype) -> Dictionary:
    """The dictionary of a folder.

    Raises:
        ModelLoadError: the file is damaged, or has other tensors, such as a ``scaling_factor``.
    """
    path = folder / PARAMS
    read = tensors_of(path, dtype)
    # Some files have w_enc and w_dec.
    tensors = {name.replace("w_", "W_", 1): tensor for name, tensor in read.items()}
    d_in, n_features = sizes_of(tensors, "W_enc", path)
    d_out = sizes_of(tensors, "W_dec", path)[1]
    shapes: dict[str, tuple[int, ...]] = {"W_enc": (d_in, n_features), "W_dec": (n_features, d_out)}
    shapes |= {"b_enc": (n_features,), "threshold": (n_features,), "b_dec": (d_out,)}
    take(tensors, shapes, path)
    return Dictionary(
        w_enc=tensors["W_enc"],
        b_enc=tensors["b_enc"],
        b_in=tensors["b_dec"].new_zeros(d_in),
        w_dec=tensors["W_dec"],
        b_dec=tensors["b_dec"],
        activation=JumpReLU(tensors["threshold"]),
        format="Gemma Scope",
        claims=folder_claims(folder, n_features),
    )
