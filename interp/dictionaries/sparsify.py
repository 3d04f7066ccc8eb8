"""Dictionaries of sparsify: a folder with ``cfg.json`` and ``sae.safetensors``.

After eai-sparsify 1.3.3: `sparse_coder.py`, `fused_encoder.py`. The folder is named after the
module of a transformers model whose output is reconstructed: ``layers.3``, ``layers.3.mlp``.
"""

import re
from pathlib import Path
from typing import Any

import torch

from interp.dictionaries.activations import Activation, GroupMax, TopK
from interp.dictionaries.dictionary import Dictionary, SkipDictionary
from interp.dictionaries.files import active_count, settings_of, sizes_of, take, tensors_of
from interp.errors import ModelLoadError, shorten

SETTINGS, WEIGHTS = "cfg.json", "sae.safetensors"
ACTIVATIONS: dict[object, type[TopK] | type[GroupMax]] = {"topk": TopK, "groupmax": GroupMax}
HOOKS = {
    "": "hook_resid_post",
    ".mlp": "hook_mlp_out",
    **dict.fromkeys((".attention", ".attn", ".self_attn"), "hook_attn_out"),
}
"""What modules of a layer write, by their names."""
LAYER = re.compile(r"(?:.*\.)?(?:layers|h)\.(\d+)(\.\w+)?")


def read_sparsify(folder: Path, dtype: torch.dtype) -> Dictionary:
    """The dictionary of a folder.

    Raises:
        ModelLoadError: the files are damaged, or the activation is unknown.
    """
    settings, path = settings_of(folder / SETTINGS), folder / WEIGHTS
    tensors = tensors_of(path, dtype)
    n_features, d_in = sizes_of(tensors, "encoder.weight", path)
    d_out = sizes_of(tensors, "W_dec", path)[1]
    shapes: dict[str, tuple[int, ...]] = {
        "encoder.weight": (n_features, d_in),
        "encoder.bias": (n_features,),
        "W_dec": (n_features, d_out),
        "b_dec": (d_out,),
    }
    if settings.get("skip_connection"):
        shapes["W_skip"] = (d_out, d_in)
    take(tensors, shapes, path)
    is_transcoder = bool(settings.get("transcode"))
    reads, writes = _places(folder.name, is_transcoder=is_transcoder)
    b_dec = tensors["b_dec"]
    fields: dict[str, Any] = {
        "w_enc": tensors["encoder.weight"].T,
        "b_enc": tensors["encoder.bias"],
        "b_in": b_dec.new_zeros(d_in) if is_transcoder else b_dec,
        "w_dec": tensors["W_dec"],
        "b_dec": b_dec,
        "activation": _activation(settings, n_features, folder),
        "reads": reads,
        "writes": writes,
        "format": "sparsify",
        "facts": settings,
    }
    if "W_skip" in tensors:
        return SkipDictionary(**fields, w_skip=tensors["W_skip"].T)
    return Dictionary(**fields)


def _activation(settings: dict[str, Any], n_features: int, folder: Path) -> Activation:
    name: object = settings.get("activation", "topk")
    if name not in ACTIVATIONS:
        raise ModelLoadError(
            f"{folder}: the activation {shorten(name)} is unknown; known: topk, groupmax."
        )
    k = active_count(settings, n_features, folder / SETTINGS)
    if name == "groupmax" and n_features % k:
        raise ModelLoadError(
            f"{folder}: k={k} groups of equal size do not fit {n_features} features."
        )
    return ACTIVATIONS[name](k)


def _places(name: str, *, is_transcoder: bool) -> tuple[str, str]:
    """TransformerLens names of what it reads and writes, from the name of a module."""
    match = LAYER.fullmatch(name)
    hook = None if match is None else HOOKS.get(match[2] or "")
    if match is None or hook is None:
        return "", ""
    writes = f"blocks.{match[1]}.{hook}"
    if not is_transcoder:
        return writes, writes
    return (f"blocks.{match[1]}.ln2.hook_normalized" if match[2] == ".mlp" else ""), writes
