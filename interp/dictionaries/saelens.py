"""Dictionaries of SAELens: a folder with ``cfg.json`` and ``sae_weights.safetensors``.

After SAELens 6.54: `saes/sae.py`, `saes/*_sae.py`, `saes/transcoder.py`. BatchTopK and Matryoshka
dictionaries are saved as JumpReLU. Files of versions before 6 have other names for some settings.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp.dictionaries.activations import Activation, Gated, JumpReLU, ReLU, TopK
from interp.dictionaries.claims import OF_SAELENS, stated_claims
from interp.dictionaries.dictionary import Dictionary, SkipDictionary
from interp.dictionaries.files import (
    Settings,
    Tensors,
    active_count,
    settings_of,
    sizes_of,
    take,
    tensors_of,
)
from interp.errors import InvalidInput, ModelLoadError, OutOfResources, shorten
from interp.io import as_path, atomic_folder, save_tensors, write_text_whole

SETTINGS, WEIGHTS = "cfg.json", "sae_weights.safetensors"

VECTORS = {
    "standard": ("b_enc",),
    "topk": ("b_enc",),
    "jumprelu": ("b_enc", "threshold"),
    "gated": ("b_gate", "b_mag", "r_mag"),
    "transcoder": ("b_enc",),
    "skip_transcoder": ("b_enc",),
    "jumprelu_transcoder": ("b_enc", "threshold"),
    "jumprelu_skip_transcoder": ("b_enc", "threshold"),
}
"""Vectors with an entry for each feature, by architecture."""
ACTIVATIONS: dict[str, Callable[[Settings, Tensors], Activation]] = {
    "b_enc": lambda _, tensors: (
        JumpReLU(tensors["threshold"]) if "threshold" in tensors else ReLU()
    ),
    "topk": lambda settings, tensors: TopK(
        active_count(settings, len(tensors["b_enc"]), Path(SETTINGS))
    ),
    "gated": lambda _, tensors: Gated(tensors["b_gate"], tensors["r_mag"], tensors["b_mag"]),
}
"""The activation of an architecture; that of ``b_enc`` is of all others."""
OLD_NAMES = {"hook_point": "hook_name", "activation_fn_str": "activation_fn"}
"""Settings of versions before 6, with their later names."""


def read_saelens(folder: Path, dtype: torch.dtype) -> Dictionary:
    """The dictionary of a folder.

    Raises:
        ModelLoadError: the files are damaged, or the dictionary is of a kind that would be computed
            otherwise here.
    """
    settings = _renamed(settings_of(folder / SETTINGS))
    architecture = _architecture(settings, folder)
    path = folder / WEIGHTS
    tensors = tensors_of(path, dtype)
    d_in, n_features = sizes_of(tensors, "W_enc", path)
    d_out = sizes_of(tensors, "W_dec", path)[1]
    shapes = {"W_enc": (d_in, n_features), "W_dec": (n_features, d_out), "b_dec": (d_out,)}
    shapes |= dict.fromkeys(VECTORS[architecture], (n_features,))
    if "skip" in architecture:
        shapes["W_skip"] = (d_out, d_in)
    take(tensors, shapes, path)
    metadata = {**settings, **(settings.get("metadata") or {})}
    metadata.pop("metadata", None)
    reads = str(metadata.get("hook_name") or "")
    is_transcoder = "transcoder" in architecture
    fields: dict[str, Any] = {
        **_matrices(settings, tensors),
        "b_in": _subtracted(settings, tensors, d_in, is_transcoder=is_transcoder),
        "b_dec": tensors["b_dec"],
        "activation": ACTIVATIONS.get(architecture, ACTIVATIONS["b_enc"])(settings, tensors),
        "reads": reads,
        "writes": str(metadata.get("hook_name_out") or "") if is_transcoder else reads,
        "format": f"SAELens {architecture}",
        "facts": metadata,
        "claims": stated_claims(metadata, OF_SAELENS, n_features, folder / SETTINGS),
    }
    if "W_skip" in tensors:
        return SkipDictionary(**fields, w_skip=tensors["W_skip"].T)
    return Dictionary(**fields)


def _renamed(settings: Settings) -> dict[str, Any]:
    """The settings by their names in version 6."""
    renamed = {OLD_NAMES.get(name, name): value for name, value in settings.items()}
    options = renamed.get("activation_fn_kwargs") or {}
    if renamed.get("activation_fn") == "topk":
        renamed = {"architecture": "topk", **options, **renamed}
        renamed["architecture"] = "topk"
    normalized = renamed.get("normalize_activations")
    if isinstance(normalized, bool):
        renamed["normalize_activations"] = "expected_average_only_in" if normalized else "none"
    return {"architecture": "standard", **renamed}


def _architecture(settings: Settings, folder: Path) -> str:
    """The architecture, if everything that changes what it computes is known.

    Raises:
        ModelLoadError: something is not.
    """
    architecture = settings["architecture"]
    if architecture not in VECTORS:
        raise ModelLoadError(
            f"{folder}: dictionaries of the architecture {shorten(architecture)} are not read; "
            f"those that are: {', '.join(VECTORS)}."
        )
    expected = {
        "normalize_activations": ("none", None),
        "activation_fn": ("relu", "topk", None),
        "hook_head_index": (None,),
        "scaling_factor": (None,),
    }
    metadata = settings.get("metadata") or {}
    for name, values in expected.items():
        value = settings.get(name, metadata.get(name))
        if value not in values:
            raise ModelLoadError(
                f"{folder}: {name} is {shorten(value)}, which changes what the dictionary computes "
                "and is not supported; fold it into the weights with SAELens, then save it again."
            )
    return architecture


def _matrices(settings: Settings, tensors: Tensors) -> dict[str, Tensor]:
    """Encoder and decoder; a rescaling by the norms of the decoder's rows is folded into them."""
    n_features = tensors["W_enc"].shape[1]
    b_enc = tensors.get("b_enc", tensors["W_enc"].new_zeros(n_features))
    matrices = {"w_enc": tensors["W_enc"], "b_enc": b_enc, "w_dec": tensors["W_dec"]}
    if not settings.get("rescale_acts_by_decoder_norm"):
        return matrices
    norms = tensors["W_dec"].norm(dim=-1)
    return {
        "w_enc": tensors["W_enc"] * norms,
        "b_enc": b_enc * norms,
        "w_dec": tensors["W_dec"] / norms[:, None],
    }


def _subtracted(settings: Settings, tensors: Tensors, d_in: int, *, is_transcoder: bool) -> Tensor:
    """``b_dec`` where the dictionary subtracts it from its input; transcoders never do."""
    if is_transcoder or not settings.get("apply_b_dec_to_input", True):
        return tensors["b_dec"].new_zeros(d_in)
    return tensors["b_dec"]


def save(dictionary: Dictionary, folder: str | Path, *, dtype: torch.dtype | None = None) -> None:
    """Write a dictionary as SAELens (6 and later) does, which both libraries read.

    Args:
        dictionary: a dictionary with ReLU, TopK or JumpReLU.
        folder: created if missing; it must have no other files.
        dtype: dtype of the weights; ``None`` keeps that of the dictionary.

    Raises:
        InvalidInput: SAELens has no such architecture, or the folder has other files.
        OutOfResources: the folder can't be written.
    """
    architecture, vectors = _architecture_of(dictionary)
    tensors = {"W_enc": dictionary.w_enc, "W_dec": dictionary.w_dec, "b_dec": dictionary.b_dec}
    tensors |= {"b_enc": dictionary.b_enc, **vectors}
    if isinstance(dictionary, SkipDictionary):
        tensors["W_skip"] = dictionary.w_skip.T
    dtype = dtype or dictionary.w_enc.dtype
    stored = {name: tensor.detach().to(dtype).contiguous() for name, tensor in tensors.items()}
    is_heads = dictionary.reads.endswith("hook_z")
    activation = dictionary.activation
    settings: dict[str, Any] = {
        "architecture": architecture,
        "d_in": len(dictionary.w_enc),
        "d_sae": dictionary.n_features,
        "d_out": len(dictionary.b_dec),
        # That in which SAELens computes, whatever the file holds.
        "dtype": str(dictionary.w_enc.dtype).removeprefix("torch."),
        "device": "cpu",
        "apply_b_dec_to_input": bool(dictionary.b_in.any()),
        "normalize_activations": "none",
        "reshape_activations": "hook_z" if is_heads else "none",
        **({"k": activation.k} if isinstance(activation, TopK) else {}),
    }
    # Of facts that were read from such a file, settings are written as those of this dictionary.
    facts = {name: fact for name, fact in dictionary.facts.items() if name not in settings}
    hooks = {"hook_name": dictionary.reads, "hook_name_out": dictionary.writes}
    settings["metadata"] = facts | hooks
    with atomic_folder(as_path(folder)) as new:
        try:
            save_tensors(stored, new / WEIGHTS, {})
            write_text_whole(new / SETTINGS, json.dumps(settings, indent=1))
        except OSError as error:
            raise OutOfResources(f"{folder} can't be written: {error}.") from error


def _architecture_of(dictionary: Dictionary) -> tuple[str, dict[str, Tensor]]:
    """SAELens's name of what a dictionary computes, and the vectors of its activation.

    Raises:
        InvalidInput: it has no name for it.
    """
    activation, is_skip = dictionary.activation, isinstance(dictionary, SkipDictionary)
    changes_size = len(dictionary.b_in) != len(dictionary.b_dec)
    is_transcoder = is_skip or changes_size or dictionary.reads != dictionary.writes
    subtracts_b_dec = not is_transcoder and torch.equal(dictionary.b_in, dictionary.b_dec)
    name = _name_of(activation, is_skip=is_skip, is_transcoder=is_transcoder)
    if name is not None and (subtracts_b_dec or not bool(dictionary.b_in.any())):
        is_jump = isinstance(activation, JumpReLU)
        return name, {"threshold": activation.threshold} if is_jump else {}
    what = "transcoder" if is_transcoder else "dictionary"
    kind = str(activation) if isinstance(activation, TopK) else type(activation).__name__
    subtracted = "b_dec" if subtracts_b_dec else "another vector than b_dec"
    subtracted = subtracted if bool(dictionary.b_in.any()) else "nothing"
    raise InvalidInput(
        f"SAELens has no {what} with {kind} that subtracts {subtracted}. It has autoencoders with "
        "ReLU, TopK (without negative values) and JumpReLU, which may subtract b_dec, and "
        "transcoders with ReLU and JumpReLU, which subtract nothing."
    )


def _name_of(activation: Activation, *, is_skip: bool, is_transcoder: bool) -> str | None:
    """SAELens's name of an architecture; ``None`` where it has none."""
    kind = "skip_transcoder" if is_skip else "transcoder"
    match activation:
        case ReLU():
            return kind if is_transcoder else "standard"
        case JumpReLU():
            return f"jumprelu_{kind}" if is_transcoder else "jumprelu"
        case TopK(keeps_negative=False) if not is_transcoder:
            return "topk"
        case _:
            return None
