"""Sets of transcoders of circuit-tracer: ``config.yaml`` and ``layer_0.safetensors``, ….

After circuit-tracer 0.5.0: `transcoder/single_layer_transcoder.py`, `utils/hf_utils.py`. Nothing is
subtracted from the input; its TopK keeps negative values; the activation is JumpReLU if a file has
thresholds, else ReLU.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import yaml

from interp.dictionaries.activations import Activation, JumpReLU, ReLU, TopK
from interp.dictionaries.dictionary import Dictionary, SkipDictionary
from interp.dictionaries.files import Settings, Tensors, active_count, sizes_of, take, tensors_of
from interp.errors import ModelLoadError, reason, shorten
from interp.io import UNREADABLE, read_bounded

SETTINGS = "config.yaml"
KIND, CROSS_LAYER = "transcoder_set", "cross_layer_transcoder"
MOST_SETTINGS = 2**17
"""Maximum number of bytes of the settings."""
MOST_LEVELS = 8
"""Maximum nesting depth of the settings."""
THRESHOLD = "activation_function.threshold"
JUMP_RELU = ("jumprelu", "jump_relu")
LISTED = "transcoders"
"""Name of the list of files in the settings."""
LAYER = re.compile(r"layer_(0|[1-9]\d{0,3})\.safetensors")
HOOK = re.compile(r"\w+(\.\w+)*")
WITHOUT_GAIN = "hook_normalized"


def read_set(
    folder: Path,
    dtype: torch.dtype,
    reads: str | None,
    writes: str | None,
    published: Sequence[str] | None,
) -> list[Dictionary]:
    """The transcoders of a folder, one for each layer.

    Args:
        folder: the folder.
        dtype: dtype of the weights.
        reads: name of what each one reads within its layer; ``None`` takes that of the file.
        writes: likewise.
        published: names of the files that the repository of the folder has, if they are known.

    Raises:
        ModelLoadError: the files are damaged or contradict one another, the set is one of another
            kind, or some of its files are not in the folder.
    """
    settings = settings_of_set(folder / SETTINGS)
    if settings.get("model_kind") == CROSS_LAYER:
        raise ModelLoadError(
            f"{folder}: model_kind is {CROSS_LAYER!r}, whose features write to several layers: "
            "read it with interp.dictionaries.load_cross_layer."
        )
    if settings.get("model_kind") != KIND:
        raise ModelLoadError(
            f"{folder / SETTINGS}: model_kind is {shorten(settings.get('model_kind'))}; {KIND!r} "
            "was expected."
        )
    hooks = {
        "reads": reads or hook_of(settings, "feature_input_hook", folder),
        "writes": writes or hook_of(settings, "feature_output_hook", folder),
    }
    transcoders: list[Dictionary] = []
    for layer, path in enumerate(_paths(settings, folder, published)):
        places = {verb: f"blocks.{layer}.{hook}" for verb, hook in hooks.items()}
        transcoder = _read(path, dtype, settings, places)
        first = transcoders[0] if transcoders else transcoder
        if transcoder.w_enc.shape != first.w_enc.shape:
            raise ModelLoadError(
                f"{path}: W_enc is transposed to {list(transcoder.w_enc.shape)}; that of layer 0 "
                f"to {list(first.w_enc.shape)}. All layers of a set should have the same sizes."
            )
        transcoders.append(transcoder)
    return transcoders


def settings_of_set(path: Path) -> dict[str, Any]:
    """The mapping of a YAML file of plain values, without references.

    Raises:
        ModelLoadError: there is none.
    """
    try:
        text = read_bounded(path, MOST_SETTINGS).decode()
        _check_structure(text)
        settings = yaml.safe_load(text)
    except (*UNREADABLE, yaml.YAMLError, ValueError) as error:
        raise ModelLoadError(f"{path} can't be read: {reason(error)}.") from error
    if not isinstance(settings, dict):
        raise ModelLoadError(f"{path}: names with values were expected; got {shorten(settings)}.")
    return settings


def _check_structure(text: str) -> None:
    """Refuse what takes much time or memory, before anything is built.

    Raises:
        ValueError: the text has references, with which it could become arbitrarily large, or is
            nested deeper than :data:`MOST_LEVELS`.
        yaml.YAMLError: it is not YAML.
    """
    level = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        level += isinstance(event, yaml.CollectionStartEvent)
        level -= isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("it has references (*name), which are not read")  # noqa: TRY004
        if level > MOST_LEVELS:
            raise ValueError(f"it is nested deeper than {MOST_LEVELS} levels")


def hook_of(settings: Settings, name: str, folder: Path) -> str:
    """A name of TransformerLens within a layer.

    Raises:
        ModelLoadError: it is none, or what is there is another tensor in models of this package.
    """
    hook = settings.get(name)
    if not isinstance(hook, str) or not HOOK.fullmatch(hook):
        raise ModelLoadError(
            f"{folder / SETTINGS}: {name} is {shorten(hook)}; a name within a layer was expected, "
            "such as mlp.hook_in."
        )
    if hook.endswith(WITHOUT_GAIN):
        verb = "reads" if "input" in name else "writes"
        raise ModelLoadError(
            f"{folder / SETTINGS}: {name} is {hook}. In TransformerLens that is before the gain of "
            "an RMS norm (and after that of a LayerNorm), here it is after both. If the norms of "
            f"your model have no gain or are LayerNorms, pass {verb}={hook!r}."
        )
    return hook


def lists_layers(facts: Settings) -> bool:
    """Whether the settings of a set say which files it has."""
    return bool(facts.get(LISTED))


def _paths(settings: Settings, folder: Path, published: Sequence[str] | None) -> list[Path]:
    """The file of each layer.

    How many there are is what the settings list, else what the repository has, else what is stored.

    Raises:
        ModelLoadError: one is missing, elsewhere, or not listed.
    """
    listed: Any = settings.get(LISTED)
    if listed is not None and not _are_names(listed):
        raise ModelLoadError(
            f"{folder / SETTINGS}: transcoders is {shorten(listed)}; a list of files was expected."
        )
    elsewhere = [name for name in listed or [] if Path(name).name != name or name in (".", "..")]
    if listed and not elsewhere:
        _check_stored(folder, listed)
        return [folder / name for name in listed]
    names = [name for name in names_in(folder) if LAYER.fullmatch(name)]
    if elsewhere and not names:
        raise ModelLoadError(
            f"{folder / SETTINGS} lists {shorten(elsewhere[0])}; only files in the folder itself "
            "are read. Download them first, and store them there as layer_0.safetensors, "
            "layer_1.safetensors, …"
        )
    of_repository = [name for name in published or () if LAYER.fullmatch(name)]
    n_layers = len(listed or of_repository or names) or 1
    expected = [f"layer_{layer}.safetensors" for layer in range(n_layers)]
    missing, more = sorted(set(expected) - set(names)), sorted(set(names) - set(expected))
    if missing or more:
        raise ModelLoadError(
            f"{folder} should have a file layer_N.safetensors for each layer from 0 on; missing: "
            f"{shorten(missing) if missing else 'none'}, unexpected: "
            f"{shorten(more) if more else 'none'}."
        )
    return [folder / name for name in expected]


def _check_stored(folder: Path, listed: Sequence[str]) -> None:
    """Refuse a folder that lacks files of the list, if it has others.

    Raises:
        ModelLoadError: it lacks some.
    """
    missing = [name for name in listed if not (folder / name).is_file()]
    if 0 < len(missing) < len(listed):
        raise ModelLoadError(
            f"{folder / SETTINGS} lists {len(listed)} files, of which {len(missing)} are not in "
            f"the folder: {shorten(', '.join(missing))}. Download them first."
        )


def names_in(folder: Path) -> list[str]:
    """Names of the files in a folder.

    Raises:
        ModelLoadError: it can't be read.
    """
    try:
        return [path.name for path in folder.iterdir()]
    except OSError as error:
        raise ModelLoadError(f"{folder} can't be read: {error.strerror}.") from error


def _are_names(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(name, str) and name for name in values)


def _read(path: Path, dtype: torch.dtype, settings: Settings, places: dict[str, str]) -> Dictionary:
    """The transcoder of one layer."""
    tensors = tensors_of(path, dtype)
    n_features, width = sizes_of(tensors, "W_enc", path)
    shapes: dict[str, tuple[int, ...]] = {
        "W_enc": (n_features, width),
        "W_dec": (n_features, width),
        "b_enc": (n_features,),
        "b_dec": (width,),
    }
    optional = {"W_skip": (width, width), THRESHOLD: (n_features,)}
    shapes |= {name: shape for name, shape in optional.items() if name in tensors}
    take(tensors, shapes, path)
    fields: dict[str, Any] = {
        "w_enc": tensors["W_enc"].T,
        "b_enc": tensors["b_enc"],
        "b_in": tensors["b_dec"].new_zeros(width),
        "w_dec": tensors["W_dec"],
        "b_dec": tensors["b_dec"],
        "activation": _activation(settings, tensors, path),
        **places,
        "format": "circuit-tracer",
        "facts": settings,
    }
    if "W_skip" in tensors:
        return SkipDictionary(**fields, w_skip=tensors["W_skip"].T)
    return Dictionary(**fields)


def _activation(settings: Settings, tensors: Tensors, path: Path) -> Activation:
    """That of the settings, or else by whether there are thresholds.

    Raises:
        ModelLoadError: the settings contradict the file, or are unknown.
    """
    threshold = tensors.get(THRESHOLD)
    name = settings.get("activation", "relu" if threshold is None else JUMP_RELU[0])
    jumps = name in JUMP_RELU
    if not (jumps or name in ("relu", "topk")) or jumps != (threshold is not None):
        has = "has no" if threshold is None else "has the"
        raise ModelLoadError(
            f"{path.parent / SETTINGS}: activation is {shorten(name)}, and {path.name} {has} "
            f"tensor {THRESHOLD}; relu, topk, or jumprelu with that tensor were expected."
        )
    if name == "topk":
        k = active_count(settings, len(tensors["b_enc"]), path.parent / SETTINGS)
        return TopK(k, keeps_negative=True)
    if threshold is None:
        return ReLU()
    if (threshold < 0).any():
        raise ModelLoadError(
            f"{path}: {THRESHOLD} has negative numbers, for which circuit-tracer keeps negative "
            "features, other than JumpReLU. These are not read."
        )
    return JumpReLU(threshold)
