"""Cross-layer transcoders of circuit-tracer: ``config.yaml``, ``W_enc_0.safetensors``, ….

After circuit-tracer 0.5.0, `transcoder/cross_layer_transcoder.py`. The file of a layer's encoder
has ``W_enc_i`` [feature d_model], ``b_enc_i``, ``b_dec_i`` and, of a JumpReLU, ``threshold_i``;
that of its decoders ``W_dec_i`` [feature target d_model], with a target for each layer from i on.
The activation is JumpReLU if there are thresholds, else ReLU, whatever the settings say; nothing is
subtracted from the input.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
import yaml
from safetensors import safe_open
from torch import Tensor

from interp.dictionaries.activations import Activation, JumpReLU, ReLU
from interp.dictionaries.circuit_tracer import (
    CROSS_LAYER,
    JUMP_RELU,
    SETTINGS,
    hook_of,
    names_in,
    settings_of_set,
)
from interp.dictionaries.cross_layer import CrossLayerTranscoder, Decoder
from interp.dictionaries.files import (
    Settings,
    Tensors,
    finite,
    shapes_of,
    sizes_of,
    take,
    tensors_of,
)
from interp.errors import InvalidInput, ModelLoadError, OutOfResources, reason, shorten
from interp.io import (
    DAMAGED,
    UNREADABLE,
    as_path,
    atomic_folder,
    save_tensors,
    write_text_whole,
)

AFTER_NORM = "ln2.hook_normalized"
"""What an MLP reads after a norm, which files call ``mlp.hook_in``."""
OTHER_FILES = "transcoders"
"""The setting that lists files of other libraries, such as Gemma Scope 2."""


@dataclass(frozen=True, eq=False)
class StoredDecoder:
    """Decoders of one layer that stay in their file; those of some features are read when asked.

    Attributes:
        path: the safetensors file.
        name: the name of the tensor in it.
        shape: features, layers that they write, and numbers of each output.
        device: where what is read is placed.
        dtype: the dtype of what is read.
        before: number of targets in the file before those that are read, which have to be 0.
    """

    path: Path
    name: str
    shape: torch.Size
    device: torch.device
    dtype: torch.dtype
    before: int = 0

    def __getitem__(self, which: Tensor) -> Tensor:
        """The decoders of some features.

        Raises:
            ModelLoadError: the file is damaged or gone, a number is not finite, or one writes a
                layer before its own.
        """
        if not len(which):
            return torch.zeros(0, *self.shape[1:], device=self.device, dtype=self.dtype)
        try:
            with safe_open(str(self.path), framework="pt") as file:
                rows: Tensor = file.get_slice(self.name)[which.tolist()]
        except (*DAMAGED, *UNREADABLE, ValueError) as error:
            raise ModelLoadError(f"{self.path} can't be read: {reason(error)}.") from error
        rows = finite(rows, self.dtype, f"{self.path}: {self.name}")
        return later_targets(rows, self.before, self.path).to(self.device)

    def to(self, device: torch.device, dtype: torch.dtype) -> "StoredDecoder":
        """The same decoders, on another device and in another dtype."""
        return replace(self, device=device, dtype=dtype)

    def __str__(self) -> str:
        """The file and its size."""
        return f"{self.path.name} {self.path.stat().st_size} {list(self.shape)}"


def later_targets(w_dec: Tensor, before: int, path: Path) -> Tensor:
    """Decoders without those to the first targets, which are layers before their own.

    Raises:
        ModelLoadError: one of these is not 0.
    """
    if w_dec[:, :before].any():
        raise ModelLoadError(
            f"{path} has decoders to layers before that of their features, which no forward can "
            "write. A cross-layer transcoder has zeros there."
        )
    return w_dec[:, before:].clone() if before else w_dec


def read_cross_layer(
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
        ModelLoadError: the files are damaged or contradict one another, one is missing, or the
            transcoder is one of another kind.
    """
    settings = settings_of_set(folder / SETTINGS)
    _check_settings(settings, folder)
    n_layers = _number_of_layers(folder)
    hooks = (
        reads or hook_of(settings, "feature_input_hook", folder),
        writes or hook_of(settings, "feature_output_hook", folder),
    )
    first = folder / "W_enc_0.safetensors"
    encoders = [_encoder(folder, layer, dtype) for layer in range(n_layers)]
    sizes = sizes_of(encoders[0], "W_enc", first)
    thresholds = "threshold" in encoders[0]
    for layer, tensors in enumerate(encoders):
        shapes = {"W_enc": sizes, "b_enc": sizes[:1], "b_dec": sizes[1:]}
        shapes |= {"threshold": sizes[:1]} if thresholds else {}
        take(tensors, shapes, folder / f"W_enc_{layer}.safetensors")
    return CrossLayerTranscoder(
        w_enc=torch.stack([tensors["W_enc"].T for tensors in encoders]),
        b_enc=torch.stack([tensors["b_enc"] for tensors in encoders]),
        w_dec=tuple(
            _decoder(folder, (n, n_layers), sizes, dtype, lazy=lazy) for n in range(n_layers)
        ),
        b_dec=torch.stack([tensors["b_dec"] for tensors in encoders]),
        activation=tuple(
            _activation(tensors, settings, folder / f"W_enc_{layer}.safetensors")
            for layer, tensors in enumerate(encoders)
        ),
        reads=tuple(f"blocks.{layer}.{hooks[0]}" for layer in range(n_layers)),
        writes=tuple(f"blocks.{layer}.{hooks[1]}" for layer in range(n_layers)),
        format="circuit-tracer",
        facts=settings,
    )


def save_cross_layer(transcoder: CrossLayerTranscoder, folder: str | Path) -> None:
    """Write a cross-layer transcoder as circuit-tracer does.

    What an MLP reads after a norm is named ``mlp.hook_in``, as in circuit-tracer.

    Args:
        transcoder: a transcoder without a skip, with ReLU or JumpReLU in all layers, each of which
            reads and writes the same places of its layer.
        folder: created if missing; it must have no other files.

    Raises:
        InvalidInput: circuit-tracer has no such file, or the folder has other files.
        OutOfResources: the folder can't be written.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> parts = [interp.dictionaries.load(f"python-4l/mlp-{layer}") for layer in range(4)]
        >>> transcoder = interp.dictionaries.CrossLayerTranscoder.of(parts)
        >>> with TemporaryDirectory() as folder:
        ...     interp.dictionaries.save_cross_layer(transcoder, f"{folder}/saved")
        ...     interp.dictionaries.load_cross_layer(f"{folder}/saved").reads[0]
        'blocks.0.mlp.hook_in'
    """
    kinds = {type(each) for each in transcoder.activation}
    hooks = [
        {name.removeprefix(f"blocks.{layer}.") for layer, name in enumerate(names)}
        for names in (transcoder.reads, transcoder.writes)
    ]
    is_alike = kinds in ({ReLU}, {JumpReLU}) and {1} == {*map(len, hooks)}
    if not is_alike or transcoder.w_skip is not None:
        raise InvalidInput(
            f"{transcoder} can't be written: in a file of circuit-tracer all layers have ReLU, or "
            "all have JumpReLU, read and write the same places of their layers, and have no skip."
        )
    reads, writes = (hook.pop().replace(AFTER_NORM, "mlp.hook_in") for hook in hooks)
    settings = {
        "model_kind": CROSS_LAYER,
        "model_name": str(transcoder.facts.get("model_name", "")),
        "feature_input_hook": reads,
        "feature_output_hook": writes,
    }
    with atomic_folder(as_path(folder)) as new:
        try:
            for layer in range(transcoder.n_layers):
                for part, tensors in _stored(transcoder, layer).items():
                    save_tensors(tensors, new / f"{part}_{layer}.safetensors", {})
            write_text_whole(new / SETTINGS, yaml.safe_dump(settings, sort_keys=False))
        except OSError as error:
            raise OutOfResources(f"{folder} can't be written: {error}.") from error


def _stored(transcoder: CrossLayerTranscoder, layer: int) -> dict[str, dict[str, Tensor]]:
    """The tensors of a layer's two files."""
    activation = transcoder.activation[layer]
    encoder = {
        "W_enc": transcoder.w_enc[layer].T,
        "b_enc": transcoder.b_enc[layer],
        "b_dec": transcoder.b_dec[layer],
    }
    encoder |= {"threshold": activation.threshold} if isinstance(activation, JumpReLU) else {}
    decoder = transcoder.w_dec[layer][torch.arange(transcoder.n_features)]
    files = {"W_enc": encoder, "W_dec": {"W_dec": decoder}}
    return {
        part: {f"{name}_{layer}": x.detach().contiguous() for name, x in tensors.items()}
        for part, tensors in files.items()
    }


def _check_settings(settings: Settings, folder: Path) -> None:
    """Refuse sets of another kind, and files of other libraries.

    Raises:
        ModelLoadError: it is one of them.
    """
    kind = settings.get("model_kind")
    if kind != CROSS_LAYER:
        raise ModelLoadError(
            f"{folder / SETTINGS}: model_kind is {shorten(kind)}; {CROSS_LAYER!r} was expected. "
            "Sets with a transcoder for each layer are read with interp.dictionaries.load_set."
        )
    if OTHER_FILES in settings:
        raise ModelLoadError(
            f"{folder / SETTINGS} lists files of another format under {OTHER_FILES}: "
            f"{shorten(settings[OTHER_FILES])}. Those of Gemma Scope 2 are read from the folder "
            "with their config.json."
        )


def _number_of_layers(folder: Path) -> int:
    """The number of layers, each of which has two files.

    Raises:
        ModelLoadError: a file is missing, or one has an unexpected name.
    """
    names = names_in(folder)
    n = max(1, sum(name.startswith("W_enc_") for name in names))
    check_files(folder, n, ("W_enc_", "W_dec_"))
    return n


def check_files(folder: Path, n_layers: int, prefixes: tuple[str, ...]) -> None:
    """Refuse a folder without a file of each layer, or with files of more.

    Args:
        folder: the folder.
        n_layers: number of layers.
        prefixes: what the names of files begin with; the number of the layer follows.

    Raises:
        ModelLoadError: a file is missing, or one has an unexpected name.
    """
    names = {name for name in names_in(folder) if name.startswith(prefixes)}
    expected = {f"{prefix}{n}.safetensors" for n in range(n_layers) for prefix in prefixes}
    missing, more = sorted(expected - names), sorted(names - expected)
    if missing or more:
        files = " and ".join(f"{prefix}N.safetensors" for prefix in prefixes)
        raise ModelLoadError(
            f"{folder} should have the files {files} of each layer from 0 on; missing: "
            f"{shorten(missing) if missing else 'none'}, unexpected: "
            f"{shorten(more) if more else 'none'}."
        )


def _encoder(folder: Path, layer: int, dtype: torch.dtype) -> Tensors:
    """The tensors of the file of an encoder, by their names without the layer."""
    tensors = tensors_of(folder / f"W_enc_{layer}.safetensors", dtype)
    return {name.removesuffix(f"_{layer}"): tensor for name, tensor in tensors.items()}


def _decoder(
    folder: Path,
    which: tuple[int, int],
    sizes: tuple[int, int],
    dtype: torch.dtype,
    *,
    lazy: bool,
) -> Decoder:
    """The decoders of a layer.

    Args:
        folder: the folder.
        which: the layer, and the number of layers.
        sizes: number of features, and the width.
        dtype: dtype of the weights.
        lazy: whether they stay on disk.

    Raises:
        ModelLoadError: they have another shape, or the file has other tensors.
    """
    layer, n_layers = which
    path, name = folder / f"W_dec_{layer}.safetensors", f"W_dec_{layer}"
    n_features, width = sizes
    shape = (n_features, n_layers - layer, width)
    if not lazy:
        return take(tensors_of(path, dtype), {name: shape}, path)[name]
    take(shapes_of(path), {name: shape}, path)
    return StoredDecoder(path, name, torch.Size(shape), torch.device("cpu"), dtype)


def _activation(tensors: Tensors, settings: Settings, path: Path) -> Activation:
    """By whether there are thresholds, as circuit-tracer decides.

    Raises:
        ModelLoadError: the settings contradict that, or thresholds are negative.
    """
    threshold = tensors.get("threshold")
    expected = ("relu",) if threshold is None else JUMP_RELU
    name = settings.get("activation", expected[0])
    if name not in expected:
        has = "has no thresholds" if threshold is None else "has thresholds"
        raise ModelLoadError(
            f"{path.parent / SETTINGS}: activation is {shorten(name)}, and {path.name} {has}, for "
            f"which circuit-tracer computes {expected[0]}, whatever the settings say."
        )
    if threshold is None:
        return ReLU()
    if (threshold < 0).any():
        raise ModelLoadError(
            f"{path}: thresholds are negative, for which circuit-tracer keeps negative features, "
            "other than JumpReLU. These are not read."
        )
    return JumpReLU(threshold)
