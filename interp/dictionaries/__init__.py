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


BUNDLED = Path(__file__).parent / "weights"
"""The folder with the dictionaries of bundled models."""


def bundled() -> list[str]:
    """The names of the dictionaries that come with this package: of a bundled model, and of a part.

    Examples:
        >>> interp.dictionaries.bundled()[:2]
        ['python-4l/heads-1', 'python-4l/mlp-0']
    """
    files = sorted(BUNDLED.glob(f"*/*/{saelens.WEIGHTS}"))
    return [path.parent.relative_to(BUNDLED).as_posix() for path in files]


def load(
    folder: object,
    *,
    reads: str | None = None,
    writes: str | None = None,
    dtype: torch.dtype = torch.float32,
) -> Dictionary:
    """A dictionary that SAELens, sparsify or Gemma Scope published, or that is bundled.

    Nothing is unpickled. What would be computed otherwise than by the library that wrote the file
    is refused by name: other architectures, normalizations of the input that are not folded into
    the weights.

    Args:
        folder: the folder of one dictionary, or a name of :func:`bundled`.
        reads: name of the place that it reads, such as ``"blocks.3.hook_resid_post"``; ``None``
            takes that of the file.
        writes: likewise; ``None`` takes that of the file, or ``reads`` if that is given.
        dtype: dtype of the weights.

    Raises:
        InvalidInput: ``dtype`` is not a floating-point dtype.
        ModelLoadError: there is no such folder or no known file in it, a file is damaged, or the
            dictionary is of a kind that is not read.

    Examples:
        >>> interp.dictionaries.load("python-4l/mlp-0")
        Dictionary(2048 features, JumpReLU, 256 → 256, blocks.0.ln2.hook_normalized →
        blocks.0.hook_mlp_out, SAELens jumprelu_transcoder)
    """
    path = BUNDLED / str(folder) if folder in bundled() else as_path(folder)
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
    "bundled",
    "load",
    "load_training",
    "save",
    "train",
    "train_rows",
    "with_dictionaries",
]
