"""Sparse dictionaries that were trained elsewhere: autoencoders and transcoders.

Read with :func:`load` (or :func:`load_set`, of all layers), and computed as the library that wrote
them does::

    dictionary = interp.dictionaries.load("folder")
    features = dictionary.encode(cache[dictionary.places(model)[0]])
"""

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from interp.dictionaries import (
    circuit_tracer,
    cross_layer_files,
    dictionary_learning,
    gemma_scope,
    gemma_scope_2,
    gemma_scope_2_layers,
    saelens,
    sparsify,
)
from interp.dictionaries.activations import Activation, Gated, GroupMax, JumpReLU, ReLU, TopK
from interp.dictionaries.claims import EVALUATION, Claim
from interp.dictionaries.cross_layer import CrossLayerTranscoder
from interp.dictionaries.cross_layer_edits import feature_edits, reconstruction_edits
from interp.dictionaries.cross_layer_files import save_cross_layer
from interp.dictionaries.cross_layer_training import (
    CrossLayerTraining,
    load_cross_layer_training,
    train_cross_layer,
)
from interp.dictionaries.dictionary import Dictionary, SkipDictionary
from interp.dictionaries.folders import (
    advice,
    check_dtype,
    has_cross_layer,
    is_of_hub,
    local_folder,
    published_in,
)
from interp.dictionaries.saelens import save
from interp.dictionaries.trained_weights import DictionarySettings
from interp.dictionaries.training import (
    DictionaryTraining,
    load_training,
    train,
    train_rows,
)
from interp.dictionaries.view import DictionaryTransformer, with_dictionaries
from interp.errors import ModelLoadError

_READERS: dict[str, Callable[[Path, torch.dtype], Dictionary]] = {
    saelens.WEIGHTS: saelens.read_saelens,
    sparsify.WEIGHTS: sparsify.read_sparsify,
    gemma_scope.PARAMS: gemma_scope.read_gemma_scope,
    gemma_scope_2.WEIGHTS: gemma_scope_2.read_gemma_scope_2,
    dictionary_learning.WEIGHTS: dictionary_learning.read_dictionary_learning,
}
"""Readers by the file of weights that their folders have."""
_SETTINGS = [saelens.SETTINGS, gemma_scope_2.SETTINGS, EVALUATION]
"""Files of settings and evaluations that are read beside them."""


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
    inside: str = "",
    reads: str | None = None,
    writes: str | None = None,
    dtype: torch.dtype = torch.float32,
) -> Dictionary:
    """The dictionary of a folder, as one of the libraries below published it, or a bundled one.

    SAELens, sparsify, dictionary_learning, and Gemma Scope 1 and 2. No code of a file is executed:
    of ``ae.pt``, which is a pickle, only tensors and plain values are read. What would be computed
    otherwise than by the library that wrote the file is refused by name: other architectures,
    normalizations of the input that are not folded into the weights.

    What the folder says of the quality of the dictionary is in ``claims``; what of it can't be
    read is left out with a warning, as nothing is computed from it.

    Args:
        folder: the folder of one dictionary, a name of :func:`bundled`, or
            ``"hub:org/name@revision"``: only the files of the dictionary are downloaded, and
            nothing if they are in the cache.
        inside: path of the dictionary's folder within the folder or the repository, such as
            ``"layers.3.mlp"``.
        reads: name of the place that it reads, such as ``"blocks.3.hook_resid_post"``; ``None``
            takes that of the file.
        writes: likewise; ``None`` takes that of the file, or ``reads`` if that is given.
        dtype: dtype of the weights.

    Raises:
        InvalidInput: ``dtype`` is not a floating-point dtype, or ``inside`` is not a path within
            the folder.
        ModelLoadError: there is no such folder or no known file in it, a file is damaged, or the
            dictionary is of a kind that is not read.

    Examples:
        >>> interp.dictionaries.load("python-4l/mlp-0")
        Dictionary(2048 features, JumpReLU, 256 → 256, blocks.0.ln2.hook_normalized →
        blocks.0.hook_mlp_out, SAELens jumprelu_transcoder)
    """
    check_dtype(dtype)
    path = local_folder(
        BUNDLED / str(folder) if folder in bundled() else folder, inside, [*_READERS, *_SETTINGS]
    )
    names = [name for name in _READERS if (path / name).is_file()]
    if len(names) != 1:
        raise ModelLoadError(
            f"{path} should be the folder of one dictionary, with one of the files "
            f"{', '.join(_READERS)}; it has {' and '.join(names) or 'none of them'}."
            f"{advice(path)}"
        )
    dictionary = _READERS[names[0]](path, dtype)
    reads_at = dictionary.reads if reads is None else reads
    writes_at = writes or (dictionary.writes if reads is None else reads)
    return replace(dictionary, reads=reads_at, writes=writes_at)


def load_set(
    folder: object,
    *,
    inside: str = "",
    reads: str | None = None,
    writes: str | None = None,
    dtype: torch.dtype = torch.float32,
) -> list[Dictionary]:
    """The transcoders of all layers of a model, as circuit-tracer publishes them.

        view = interp.with_dictionaries(model, interp.dictionaries.load_set("folder"))

    A folder with ``config.yaml`` and the files ``layer_0.safetensors``, ``layer_1.safetensors``, ….
    Its ``mlp.hook_in`` and ``mlp.hook_out`` are the input and the output of the MLP itself, between
    its norms.

    Args:
        folder: the folder of the set, or ``"hub:org/name@revision"``. Files of other repositories
            (``hf://``) that ``config.yaml`` lists have to be stored in the folder first.
        inside: path of the set within the folder or the repository.
        reads: name of what each transcoder reads within its layer, such as ``"hook_mlp_in"``;
            ``None`` takes that of the file.
        writes: likewise.
        dtype: dtype of the weights.

    Returns:
        One transcoder for each layer, in their order.

    Raises:
        InvalidInput: as for :func:`load`.
        ModelLoadError: the files are damaged or contradict one another, layers are missing that the
            configuration or the repository lists (the message names them), the set is of another
            kind, or it reads what is another tensor in models of this package.
    """
    check_dtype(dtype)
    path = local_folder(folder, inside, [circuit_tracer.SETTINGS, "layer_*.safetensors"])
    published = published_in(folder, inside)
    transcoders = circuit_tracer.read_set(path, dtype, reads, writes, published)
    is_unknown = published is None and not circuit_tracer.lists_layers(transcoders[0].facts)
    if is_of_hub(folder) and is_unknown:
        warnings.warn(
            f"{folder}: {len(transcoders)} layers were read, which are those in the cache. "
            f"{circuit_tracer.SETTINGS} does not say how many the set has, and the hub can't be "
            "asked.",
            stacklevel=2,
        )
    return transcoders


def load_cross_layer(
    folder: object,
    *,
    inside: str = "",
    reads: str | None = None,
    writes: str | None = None,
    dtype: torch.dtype = torch.float32,
    lazy: bool = False,
) -> CrossLayerTranscoder:
    """The cross-layer transcoder of a folder, as circuit-tracer or Gemma Scope 2 publishes it.

        transcoder = interp.dictionaries.load_cross_layer("folder")
        analyses.attribution_graph(model, text, units=transcoder)
        interp.run(model, text, edits=interp.dictionaries.feature_edits(transcoder, 3, 17))

    A folder with ``config.yaml`` and, for each layer, the files ``W_enc_N.safetensors`` and
    ``W_dec_N.safetensors``, whose places are named as in :func:`load_set`; or one with
    ``config.json`` and ``params_layer_N.safetensors``, of Gemma Scope 2, such as
    ``load_cross_layer("hub:google/gemma-scope-2-1b-pt", inside="clt/width_262k_l0_medium")``.

    Args:
        folder: the folder, or ``"hub:org/name@revision"``.
        inside: path of the transcoder within the folder or the repository.
        reads: name of what features read within their layer, such as ``"hook_mlp_in"``; ``None``
            takes that of the file.
        writes: likewise of what is reconstructed.
        dtype: dtype of the weights.
        lazy: whether decoders, which are most of the weights, stay on disk: those of the active
            features are read whenever they are used.

    Raises:
        InvalidInput: as for :func:`load`.
        ModelLoadError: the files are damaged or contradict one another, the set is of another kind,
            or it reads what is another tensor in models of this package.
    """
    check_dtype(dtype)
    files = ["W_*.safetensors", f"{gemma_scope_2_layers.FILES}*.safetensors"]
    settings = [circuit_tracer.SETTINGS, gemma_scope_2.SETTINGS]
    path = local_folder(folder, inside, [*settings, *files])
    is_of_gemma = any(path.glob(files[1]))
    read = (
        gemma_scope_2_layers.read_gemma_scope_2_layers
        if is_of_gemma
        else cross_layer_files.read_cross_layer
    )
    return read(path, dtype, reads, writes, lazy=lazy)


def load_any(folder: object) -> Dictionary | CrossLayerTranscoder:
    """What a folder has that :func:`interp.with_dictionaries` takes.

    Args:
        folder: what :func:`load` takes; or a folder of this machine with a cross-layer transcoder,
            whose decoders stay on disk.

    Raises:
        ModelLoadError: as for :func:`load` and :func:`load_cross_layer`.

    Examples:
        >>> interp.dictionaries.load_any("python-4l/mlp-0").n_features
        2048
    """
    is_name = is_of_hub(folder) or folder in bundled()
    if not is_name and has_cross_layer(local_folder(folder, "", [])):
        return load_cross_layer(folder, lazy=True)
    return load(folder)


__all__ = [
    "Activation",
    "Claim",
    "CrossLayerTraining",
    "CrossLayerTranscoder",
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
    "feature_edits",
    "load",
    "load_any",
    "load_cross_layer",
    "load_cross_layer_training",
    "load_set",
    "load_training",
    "reconstruction_edits",
    "save",
    "save_cross_layer",
    "train",
    "train_cross_layer",
    "train_rows",
    "with_dictionaries",
]
