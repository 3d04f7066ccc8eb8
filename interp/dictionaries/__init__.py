"""Sparse dictionaries that were trained elsewhere: autoencoders and transcoders.

Read with :func:`load`, and computed as the library that wrote them does::

    dictionary = interp.dictionaries.load("folder")
    features = dictionary.encode(cache[dictionary.places(model)[0]])
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from interp.dictionaries import gemma_scope, saelens, sparsify
from interp.dictionaries.activations import Activation, Gated, GroupMax, JumpReLU, ReLU, TopK
from interp.dictionaries.attached import DictionaryTransformer, with_dictionaries
from interp.dictionaries.dictionary import Dictionary, SkipDictionary
from interp.dictionaries.saelens import save
from interp.dictionaries.training import (
    DictionarySettings,
    DictionaryTraining,
    load_training,
    train,
    train_rows,
)
from interp.errors import InvalidInput, ModelLoadError, shorten
from interp.io import as_path

_READERS: dict[str, Callable[[Path, torch.dtype], Dictionary]] = {
    saelens.WEIGHTS: saelens.read_saelens,
    sparsify.WEIGHTS: sparsify.read_sparsify,
    gemma_scope.PARAMS: gemma_scope.read_gemma_scope,
}
"""Readers by the file of weights that their folders have."""


def load(
    folder: object,
    *,
    reads: str | None = None,
    writes: str | None = None,
    dtype: torch.dtype = torch.float32,
) -> Dictionary:
    """The dictionary of a folder that SAELens, sparsify or Gemma Scope published.

    Nothing is unpickled. What would be computed otherwise than by the library that wrote the file
    is refused by name: other architectures, normalizations of the input that are not folded into
    the weights.

    Args:
        folder: the folder of one dictionary.
        reads: name of the place that it reads, such as ``"blocks.3.hook_resid_post"``; ``None``
            takes that of the file.
        writes: likewise; ``None`` takes that of the file, or ``reads`` if that is given.
        dtype: dtype of the weights.

    Raises:
        InvalidInput: ``dtype`` is not a floating-point dtype.
        ModelLoadError: there is no such folder or no known file in it, a file is damaged, or the
            dictionary is of a kind that is not read.
    """
    path = as_path(folder)
    if not dtype.is_floating_point:
        raise InvalidInput(f"dtype={shorten(dtype)} should be a floating-point dtype of torch.")
    found = [name for name in _READERS if (path / name).is_file()]
    if len(found) != 1:
        raise ModelLoadError(
            f"{path} should be the folder of one dictionary, with one of the files "
            f"{', '.join(_READERS)}; it has {' and '.join(found) or 'none of them'}."
        )
    dictionary = _READERS[found[0]](path, dtype)
    reads_at = dictionary.reads if reads is None else reads
    writes_at = writes or (dictionary.writes if reads is None else reads)
    return replace(dictionary, reads=reads_at, writes=writes_at)


__all__ = [
    "Activation",
    "Dictionary",
    "DictionarySettings",
    "DictionaryTraining",
    "DictionaryTransformer",
    "Gated",
    "GroupMax",
    "JumpReLU",
    "ReLU",
    "SkipDictionary",
    "TopK",
    "load",
    "load_training",
    "save",
    "train",
    "train_rows",
    "with_dictionaries",
]
