"""Dictionaries of Gemma Scope 2: a folder with ``config.json`` and ``params.safetensors``.

After `load_gemma_scope_2_transcoder` of circuit-tracer 0.5.0 and `gemma_3_sae_huggingface_loader`
of SAELens 6.54: JumpReLU, nothing is subtracted from the input, and the affine path of transcoders
is x W_skip. The configuration names the modules of Gemma 3 that are read and written.
"""

import re
from pathlib import Path
from typing import Any

import torch

from interp.dictionaries.activations import JumpReLU
from interp.dictionaries.claims import OF_GEMMA_SCOPE_2, stated_claims
from interp.dictionaries.dictionary import Dictionary, SkipDictionary
from interp.dictionaries.files import Settings, settings_of, sizes_of, take, tensors_of
from interp.errors import ModelLoadError, shorten

SETTINGS, WEIGHTS = "config.json", "params.safetensors"
ARCHITECTURE, SKIP, W_DEC = "jump_relu", "affine_skip_connection", "w_dec"
HOOKS = {
    "output": "hook_resid_post",
    "self_attn.o_proj.input": "attn.hook_z",
    "pre_feedforward_layernorm.output": "ln2.hook_normalized",
    "post_feedforward_layernorm.output": "hook_mlp_out",
}
"""Names of TransformerLens for what modules of a layer of Gemma 3 read and write."""
LAYER = re.compile(r"(?:model\.)?(?:language_model\.)?layers\.(\d+)\.(.+)")


def read_gemma_scope_2(folder: Path, dtype: torch.dtype) -> Dictionary:
    """The dictionary of a folder.

    Raises:
        ModelLoadError: the files are damaged or contradict one another, or the file is one of a
            cross-layer transcoder.
    """
    settings, path = checked_settings(folder), folder / WEIGHTS
    tensors = tensors_of(path, dtype)
    if W_DEC in tensors and tensors[W_DEC].ndim == len(("feature", "layer", "d_out")):
        raise ModelLoadError(
            f"{path}: {W_DEC} has the shape {list(tensors[W_DEC].shape)}: it is one layer of a "
            "cross-layer transcoder, whose features write to several layers. These are read from "
            "a folder with the files params_layer_N.safetensors of all layers."
        )
    d_in, n_features = sizes_of(tensors, "w_enc", path)
    d_out = sizes_of(tensors, W_DEC, path)[1]
    shapes: dict[str, tuple[int, ...]] = {"w_enc": (d_in, n_features), W_DEC: (n_features, d_out)}
    shapes |= {"b_enc": (n_features,), "threshold": (n_features,), "b_dec": (d_out,)}
    if is_set(settings, "affine_connection", folder):
        shapes[SKIP] = (d_in, d_out)
    take(tensors, shapes, path)
    reads = _place(settings.get("hf_hook_point_in"))
    fields: dict[str, Any] = {
        **{name: tensors[name] for name in ("w_enc", "b_enc", W_DEC, "b_dec")},
        "b_in": tensors["b_dec"].new_zeros(d_in),
        "activation": JumpReLU(tensors["threshold"]),
        "reads": reads,
        "writes": _place(settings.get("hf_hook_point_out")) or reads,
        "format": "Gemma Scope 2",
        "facts": settings,
        "claims": stated_claims(settings, OF_GEMMA_SCOPE_2, n_features, folder / SETTINGS),
    }
    return (
        SkipDictionary(**fields, w_skip=tensors[SKIP]) if SKIP in shapes else Dictionary(**fields)
    )


def checked_settings(folder: Path) -> dict[str, Any]:
    """The configuration of a folder.

    Raises:
        ModelLoadError: it can't be read, or is one of another architecture.
    """
    settings = settings_of(folder / SETTINGS)
    if settings.get("architecture") != ARCHITECTURE:
        raise ModelLoadError(
            f"{folder / SETTINGS}: architecture is {shorten(settings.get('architecture'))}; "
            f"{ARCHITECTURE!r} was expected."
        )
    return settings


def is_set(settings: Settings, name: str, folder: Path) -> bool:
    """A setting that is true or false; false if it is absent.

    Raises:
        ModelLoadError: it is something else.
    """
    value = settings.get(name)
    if value not in (True, False, None) or isinstance(value, int | float) != isinstance(
        value, bool
    ):
        raise ModelLoadError(
            f"{folder / SETTINGS}: {name} is {shorten(value)}; true or false was expected."
        )
    return bool(value)


def _place(name: object) -> str:
    """The name in TransformerLens; that of the file if there is none, which no model has."""
    match = LAYER.fullmatch(str(name or ""))
    if match is None or match[2] not in HOOKS:
        return str(name or "")
    return f"blocks.{int(match[1])}.{HOOKS[match[2]]}"
