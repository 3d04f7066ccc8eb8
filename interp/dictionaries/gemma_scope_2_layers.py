"""Cross-layer transcoders of Gemma Scope 2: ``config.json``, ``params_layer_0.safetensors``, ….

    f_l = JumpReLU(x_l w_enc,l + b_enc,l)
    ŷ_m = Σ_l f_l w_dec,l[:, m] + b_dec,m (+ x_m affine_skip_connection,m)

After ``JumpReLUMultiLayerSAE`` of the tutorial of Gemma Scope 2, and ``load_gemma_scope_2_clt`` of
circuit-tracer. The decoders of a layer, ``w_dec`` [feature layer d_model], have a target for each
layer of the model; those to earlier layers are zeros, and circuit-tracer leaves them out.
Crosscoders have files of the same names, and another type in their configuration.
"""

import re
from pathlib import Path
from typing import Any

import torch

from interp.dictionaries.activations import JumpReLU
from interp.dictionaries.cross_layer import CrossLayerTranscoder, Decoder
from interp.dictionaries.cross_layer_files import StoredDecoder, check_files, later_targets
from interp.dictionaries.files import Settings, Tensors, shapes_of, sizes_of, take, tensors_of
from interp.dictionaries.gemma_scope_2 import HOOKS, SETTINGS, SKIP, W_DEC, checked_settings, is_set
from interp.errors import ModelLoadError, shorten

FILES = "params_layer_"
"""What the names of the files of weights begin with."""
KIND = "clt"
ALL_LAYERS = re.compile(r"(?:model\.)?(?:language_model\.)?layers\.\{all\}\.(.+)")
"""What a configuration calls the modules of all layers."""


def read_gemma_scope_2_layers(
    folder: Path, dtype: torch.dtype, reads: str | None, writes: str | None, *, lazy: bool
) -> CrossLayerTranscoder:
    """The cross-layer transcoder of a folder.

    Args:
        folder: the folder.
        dtype: dtype of the weights.
        reads: name of what features read within their layer; ``None`` takes that of the file.
        writes: likewise of what is reconstructed.
        lazy: whether decoders stay on disk.

    Raises:
        ModelLoadError: the files are damaged or contradict one another, one is missing, or they are
            those of a crosscoder.
    """
    settings = _checked(folder)
    hooks = (
        reads or _hook(settings, "hf_hook_point_in", folder),
        writes or _hook(settings, "hf_hook_point_out", folder),
    )
    first = folder / f"{FILES}0.safetensors"
    shapes = _shapes(
        shapes_of(first), first, has_skip=is_set(settings, "affine_connection", folder)
    )
    n_layers = shapes[W_DEC][1]
    check_files(folder, n_layers, (FILES,))
    paths = [folder / f"{FILES}{layer}.safetensors" for layer in range(n_layers)]
    for path in paths:
        take(shapes_of(path), shapes, path)
    without = [W_DEC] if lazy else []
    layers = [tensors_of(path, dtype, without) for path in paths]
    stacked = {
        name: torch.stack([tensors[name] for tensors in layers])
        for name in ("w_enc", "b_enc", "b_dec", *([SKIP] if SKIP in shapes else []))
    }
    return CrossLayerTranscoder(
        w_enc=stacked["w_enc"],
        b_enc=stacked["b_enc"],
        w_dec=tuple(
            _decoder(tensors.pop(W_DEC, None), layer, path, shapes[W_DEC], dtype)
            for layer, (tensors, path) in enumerate(zip(layers, paths, strict=True))
        ),
        b_dec=stacked["b_dec"],
        activation=tuple(JumpReLU(tensors["threshold"]) for tensors in layers),
        reads=tuple(f"blocks.{layer}.{hooks[0]}" for layer in range(n_layers)),
        writes=tuple(f"blocks.{layer}.{hooks[1]}" for layer in range(n_layers)),
        format="Gemma Scope 2",
        facts=settings,
        w_skip=stacked.get(SKIP),
    )


def _checked(folder: Path) -> dict[str, Any]:
    """The configuration of a folder.

    Raises:
        ModelLoadError: it is not that of a cross-layer transcoder.
    """
    settings = checked_settings(folder)
    if settings.get("type", KIND) != KIND:
        raise ModelLoadError(
            f"{folder / SETTINGS}: type is {shorten(settings['type'])}; {KIND!r} was expected, a "
            "cross-layer transcoder. Features of a crosscoder write the stream of several layers; "
            "these are not read."
        )
    return settings


def _hook(settings: Settings, name: str, folder: Path) -> str:
    """The name in TransformerLens of a module of all layers.

    Raises:
        ModelLoadError: it is none that is known.
    """
    match = ALL_LAYERS.fullmatch(str(settings.get(name)))
    if match is None or match[1] not in HOOKS:
        raise ModelLoadError(
            f"{folder / SETTINGS}: {name} is {shorten(settings.get(name))}; a module of all layers "
            f"was expected, such as model.layers.{{all}}.{[*HOOKS][2]}. Pass reads= and writes= to "
            "name the places of each layer."
        )
    return HOOKS[match[1]]


def _shapes(tensors: Tensors, path: Path, *, has_skip: bool) -> dict[str, tuple[int, ...]]:
    """The shapes that the tensors of each layer should have.

    Raises:
        ModelLoadError: there is no encoder or no decoder to several layers.
    """
    d_in, n_features = sizes_of(tensors, "w_enc", path)
    w_dec = tensors.get(W_DEC)
    if w_dec is None or w_dec.ndim != len(("feature", "layer", "d_out")):
        raise ModelLoadError(f"{path} has no tensor {W_DEC} with the axes [feature layer d_model].")
    n_layers, d_out = w_dec.shape[1:]
    shapes: dict[str, tuple[int, ...]] = {
        "w_enc": (d_in, n_features),
        "b_enc": (n_features,),
        "threshold": (n_features,),
        W_DEC: (n_features, n_layers, d_out),
        "b_dec": (d_out,),
    }
    return shapes | ({SKIP: (d_in, d_out)} if has_skip else {})


def _decoder(
    w_dec: torch.Tensor | None, layer: int, path: Path, shape: tuple[int, ...], dtype: torch.dtype
) -> Decoder:
    """The decoders of a layer to itself and to later ones; in their file if they were not read."""
    if w_dec is not None:
        return later_targets(w_dec, layer, path)
    n_features, n_layers, width = shape
    later = torch.Size((n_features, n_layers - layer, width))
    return StoredDecoder(path, W_DEC, later, torch.device("cpu"), dtype, before=layer)
