"""Load models: bundled ones, folders, models of the hub, live models, nanoGPT checkpoints."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from interp.config import Config
from interp.errors import InvalidInput, ModelLoadError, nearest, shorten
from interp.io import as_path
from interp.kernels import (
    AUTO,
    KERNELS,
    PACKED,
    check_kernel,
    faster_kernel,
    kernel_of,
    with_kernel,
)
from interp.loading import hub
from interp.loading.assemble import as_dtype, meta_model
from interp.loading.checkpoint import is_checkpoint, load_checkpoint
from interp.loading.checksums import check_listed, damaged
from interp.loading.families import gpt2
from interp.loading.folder import load_folder, steps_of
from interp.loading.gguf import GGUF_SUFFIX, GgufEntry, load_gguf, name_of_file
from interp.loading.hub import (
    PREFIX,
    WELL_KNOWN,
    fetch,
    fetch_files,
    is_cached,
    parse_name,
    published_files,
)
from interp.loading.joined_towers import EmbeddingAt, TwoTowers
from interp.loading.live import is_live, load_live
from interp.loading.ollama import ollama_file
from interp.loading.packaged import PACKAGED, installed, packaged_file
from interp.loading.pickle_file import check_weights, unpickled
from interp.loading.registry import families
from interp.loading.settings import UNBOUNDED
from interp.loading.shares import reading_shares, weights_at
from interp.loading.source import SafetensorsSource, Source, StateDictSource
from interp.loading.state_dict import load_state_dict
from interp.loading.torch_transformer import from_torch
from interp.loading.transformers_fields import TABLE
from interp.loading.two_towers import load_folder_of_towers, load_live_towers, named
from interp.model import DEFAULT
from interp.saved import CONFIG, save_folder, weights_file
from interp.transformer import Transformer

AT_STEP = re.compile(r"(?P<model>.+)@(?P<step>\d{1,9})")
MODEL_FOLDER = Path(__file__).parent.parent / "zoo" / "models"
DeviceMapLike = str | Sequence[str | torch.device] | Mapping[Any, str | torch.device]
SOURCES = (
    "a bundled name, a folder with config.json and safetensors, a GGUF file, "
    '"ollama:NAME", "hub:org/name@revision", a live model of transformers, or a checkpoint of '
    "nanoGPT"
)


def bundled() -> list[str]:
    """Names of the models that come with the toolkit.

    Examples:
        >>> interp.bundled()[:3]
        ['addition-mod-113', 'dates', 'induction-by-hand']
    """
    return sorted(path.parent.name for path in MODEL_FOLDER.glob(f"*/{CONFIG}"))


def load(  # noqa: PLR0913 - one function for every source
    source: object,
    device: str | torch.device | None = None,
    *,
    dtype: torch.dtype | str | None = None,
    tokenizer: object = None,
    allow_pickle: bool = False,
    variant: str | None = None,
    strict: bool = False,
    config: Config | None = None,
    kernel: str = DEFAULT,
    device_map: DeviceMapLike | None = None,
) -> Transformer:
    """Load a model in evaluation mode.

    Args:
        source: the name of a bundled model; a folder with ``config.json``, weights (safetensors or
            ``pytorch_model.bin``, one file or shards) and optionally ``tokenizer.json``; a GGUF
            file of llama.cpp, whose weights are dequantised; ``"ollama:NAME:TAG"``, one that Ollama
            has downloaded; ``"smollm2-135m"``, a pretrained model in a package;
            ``"hub:org/name@revision"``; a live model of ``transformers``, base or
            with a head, whose weights are copied; or a checkpoint of nanoGPT. ``"NAME@400"`` is a
            model after 400 training steps, if its folder has the weights of that step.
        device: the device of the parameters; by default that of a live model, else the CPU.
        dtype: the dtype to compute in, or its name (``"bfloat16"``). ``None`` means the dtype of
            the weights or, for a model saved by this toolkit, the dtype it had when it was saved
            (bundled models are stored in half precision and run in float32).
        tokenizer: the tokenizer to use instead of the folder's: an :class:`interp.Tokenizer`, a
            tokenizer of ``tokenizers``, or a fast tokenizer of ``transformers``.
        allow_pickle: allow reading a checkpoint, or the ``pytorch_model.bin`` of a folder or a
            model of the hub without safetensors; these are pickles (only their weights are read).
        variant: the variant of the weights of a folder or a model of the hub, such as ``"fp16"``
            for ``model.fp16.safetensors``.
        strict: refuse fields of a ``config.json``, or of a live model's configuration, that
            ``transformers`` does not read for models of this type. By default they are ignored,
            and an :class:`interp.errors.IgnoredFieldsWarning` names them.
        config: the configuration of the model, if ``source`` is a state dict of a model of this
            package (``model.state_dict()``) or a file of one: safetensors, or a pickle written by
            ``torch.save``.
        kernel: the kernel of products without gradients: ``"default"``, PyTorch's own;
            ``"packed"``, that of :func:`interp.packed`; or ``"auto"``: for a model of at least
            64 MiB, the one that is faster on this machine, measured in about a second and kept in
            the user's cache folder (packed weights take as much memory again).
        device_map: for a model larger than one GPU, the devices that its layers lie on:
            ``"balanced"`` divides consecutive layers over all GPUs, so that the largest share of
            the weights is smallest; a list of devices, the same over these; a mapping from
            ``"embed"`` (embeddings, last norm and unembedding) and each layer to its device. Each
            weight is read to its own device. ``model.placement`` and ``print(model)`` say where
            layers lie. Tokens, logits and activations and weights that are read are on the device
            of ``"embed"``.

    Raises:
        ModelLoadError: the model does not exist, its family is not supported, a file is damaged,
            or the weights do not match the configuration.
        InvalidInput: ``variant`` is not a part of a file name, ``source`` has no variants, the
            kernel is unknown, or it is ``"packed"`` and the model can't be packed; or
            ``device_map`` is given with ``device`` or another kernel, names a device or a layer
            that does not exist, leaves a layer out, or is of a model with two stacks or with
            weights that layers on different devices share.

    Examples:
        >>> interp.load("induction-by-hand")
        Transformer induction-by-hand
          decoder    2 layers: attention (4 heads of 64); no norms; learned positions
          sizes      d_model 256, n_ctx 64, d_vocab 63
          weights    574,464 parameters, float32 on cpu
          tokenizer  63 tokens
    """
    _check_variant(variant, source, config)
    check_kernel(kernel)
    _check_device_map(device_map, device, kernel)
    dtype = as_dtype(dtype)
    with weights_at(device_map):
        if config is not None:
            pickles = {"allow_pickle": allow_pickle}
            model = load_state_dict(source, config, device, dtype, tokenizer, **pickles)
        elif isinstance(source, str | Path):
            settings: dict[str, Any] = {
                "device": "cpu" if device is None else device,
                "dtype": dtype,
                "tokenizer": tokenizer,
            }
            model = _load_named(
                source, settings, allow_pickle=allow_pickle, variant=variant, strict=strict
            )
        else:
            model = load_live(_checked_live(source), tokenizer, dtype, device, strict=strict)
    return with_kernel(model, kernel)


def _check_device_map(device_map: object, device: object, kernel: str) -> None:
    """Refuse options that a device map excludes.

    Raises:
        InvalidInput: there is such an option.
    """
    if device_map is None:
        return
    if device is not None:
        raise InvalidInput(
            f"device={shorten(device)} and device_map={shorten(device_map)}: device= is one device "
            "for the whole model, device_map= one for each layer. Give one of them."
        )
    if kernel != DEFAULT:
        raise InvalidInput(
            f"kernel={shorten(kernel)} is for models on one CPU; leave it out with device_map=."
        )


def _load_named(
    source: str | Path,
    settings: Mapping[str, Any],
    *,
    allow_pickle: bool,
    variant: str | None,
    strict: bool,
) -> Transformer:
    """The model of a name or a path; the arguments are those of :func:`load`."""
    read = partial(load_folder, **settings, strict=strict)
    name = str(source)
    if name.startswith(hub.PREFIX):
        folder, hub_name = hub.fetch(name, variant=variant, allow_pickle=allow_pickle)
        return _renamed(read(folder, variant=variant, allow_pickle=allow_pickle), hub_name)
    try:
        folder_and_step = find_folder(name)
        file = named_file(name)
        path = file or as_path(source)
        is_folder, is_nanogpt = path.is_dir(), is_checkpoint(path)
    except OSError as error:
        raise ModelLoadError(f"{name[:200]!r} can't be read: {error.strerror}.") from error
    if folder_and_step is not None:
        return _load_step(*folder_and_step, read)
    if is_nanogpt:
        return load_checkpoint(path, **settings, allow_pickle=allow_pickle)
    if is_folder:
        return read(path, variant=variant, allow_pickle=allow_pickle)
    gguf_name = _gguf_name(path, name) if file is None else name
    return load_gguf(path, gguf_name, **settings, strict=strict)


def named_file(name: str) -> Path | None:
    """The GGUF file of a model of another package or of Ollama; ``None`` if it is another name.

    Raises:
        ModelLoadError: it is not installed.
    """
    return packaged_file(name) or ollama_file(name)


def load_towers(  # noqa: PLR0913 - one function for every source
    source: object,
    device: str | torch.device | None = None,
    *,
    dtype: torch.dtype | str | None = None,
    tokenizer: object = None,
    allow_pickle: bool = False,
    variant: str | None = None,
    strict: bool = False,
) -> TwoTowers:
    """Load a model of two towers, CLIP or SigLIP: one for texts, one for images.

    Each tower is a :class:`Transformer` in evaluation mode. ``towers.text.save(FOLDER)`` writes one
    of them as a folder that :func:`interp.load` and the commands read.

    Args:
        source: a folder with ``config.json`` and the weights of both towers;
            ``"hub:org/name@revision"``; or a live ``CLIPModel`` or ``SiglipModel`` of
            ``transformers``.
        device: as for :func:`interp.load`, like all arguments below.
        dtype: the dtype to compute in, or its name; ``None`` means that of each tower's weights.
        tokenizer: the tokenizer of the text tower, to use instead of the folder's.
        allow_pickle: allow reading ``pytorch_model.bin`` if there are no safetensors.
        variant: the variant of the weights of a folder or a model of the hub.
        strict: refuse fields of the configuration that ``transformers`` does not read.

    Raises:
        ModelLoadError: as for :func:`interp.load`; the source is not a model of two towers.
        InvalidInput: ``variant`` is not a part of a file name, or ``source`` has no variants.
    """
    _check_variant(variant, source, None)
    dtype = as_dtype(dtype)
    if not isinstance(source, str | Path):
        return load_live_towers(_checked_live(source), tokenizer, dtype, device, strict=strict)
    read = partial(
        load_folder_of_towers,
        device="cpu" if device is None else device,
        dtype=dtype,
        tokenizer=tokenizer,
        variant=variant,
        allow_pickle=allow_pickle,
        strict=strict,
    )
    name = str(source)
    if name.startswith(hub.PREFIX):
        folder, hub_name = hub.fetch(name, variant=variant, allow_pickle=allow_pickle)
        return named(read(folder), hub_name)
    if not _is_folder(source):
        raise ModelLoadError(
            f"{shorten(name)} is not a folder. Two towers are loaded from a folder with "
            'config.json and safetensors, "hub:org/name@revision", or a live CLIPModel or '
            "SiglipModel of transformers."
        )
    return read(as_path(source))


def _is_folder(source: str | Path) -> bool:
    """Whether a path is a folder.

    Raises:
        ModelLoadError: the path is not a valid file name.
    """
    try:
        return as_path(source).is_dir()
    except OSError as error:
        raise ModelLoadError(f"{str(source)[:200]!r} can't be read: {error.strerror}.") from error


def _check_variant(variant: str | None, source: object, config: Config | None) -> None:
    """Check that only a folder or a model of the hub is loaded by a variant.

    Raises:
        InvalidInput: the source is another one.
    """
    is_path = isinstance(source, str | Path) and config is None
    if variant is None or (is_path and str(source).startswith(hub.PREFIX)):
        return
    if not is_path or not as_path(source).is_dir():
        raise InvalidInput(
            f"variant={shorten(variant)} chooses among the weights of a folder or of a model of "
            f"the hub; got {shorten(source)}. Leave it out."
        )


def _gguf_name(path: Path, name: str) -> str:
    """The name of a model in a GGUF file.

    Raises:
        ModelLoadError: the path has another suffix.
    """
    if path.suffix.lower() != GGUF_SUFFIX:
        raise ModelLoadError(
            f"{shorten(name)} is neither a bundled model nor a folder.{_advice(name)} A model is "
            f"loaded from {SOURCES}. Bundled are {', '.join(bundled())}."
        )
    return name_of_file(path)


def _checked_live(source: object) -> Any:  # noqa: ANN401 - a model of transformers has no type here
    """Return ``source`` if it is a live model.

    Raises:
        ModelLoadError: it is not.
    """
    if isinstance(source, Mapping):
        raise ModelLoadError("A state dict needs its configuration: interp.load(..., config=).")
    if not is_live(source):
        raise ModelLoadError(f"A model is loaded from {SOURCES}; got {shorten(source)}.")
    return source


def _advice(name: str) -> str:
    """A hint: the model of the hub with this name, or bundled models with similar names."""
    repository = hub.WELL_KNOWN.get(name.lower())
    if repository is not None:
        return f' On the hub: interp.load("{hub.PREFIX}{repository}").'
    if "/" in name and hub.NAME.fullmatch(name):
        return f' Did you mean the model of the hub, interp.load("{hub.PREFIX}{name}")?'
    return nearest(name, [*bundled(), *PACKAGED])


def _load_step(folder: Path, step: int | None, read: Callable[..., Transformer]) -> Transformer:
    """The model of a folder after a training step; ``None`` means all of them."""
    _check_bundled(folder, step)
    model = read(folder, step=step)
    return model if step is None else _renamed(model, f"{model.config.name}@{step}")


def find_folder(name: str) -> tuple[Path, int | None] | None:
    """The folder and training step of ``"NAME"`` or ``"NAME@STEP"``.

    Returns:
        The folder of a bundled model and ``None``, or the folder of any model and a step; ``None``
        if the name has neither form.

    Raises:
        OSError: the name is not a valid file name.
    """
    if name in bundled():
        return MODEL_FOLDER / name, None
    match = AT_STEP.fullmatch(name)
    if match is None or Path(name).exists():
        return None
    model = match["model"]
    folder = MODEL_FOLDER / model if model in bundled() else Path(model)
    return (folder, int(match["step"])) if (folder / CONFIG).is_file() else None


def _check_bundled(folder: Path, step: int | None) -> None:
    """Check the weights of a bundled model against the list of checksums."""
    if folder.parent == MODEL_FOLDER:
        check_listed(weights_file(folder, step), MODEL_FOLDER)


def _renamed(model: Transformer, name: str) -> Transformer:
    """Set ``config.name`` of a model, and return the model."""
    model.config = replace(model.config, name=name)
    return model


__all__ = [
    "AUTO",
    "GGUF_SUFFIX",
    "KERNELS",
    "MODEL_FOLDER",
    "PACKAGED",
    "PACKED",
    "PREFIX",
    "TABLE",
    "UNBOUNDED",
    "WELL_KNOWN",
    "EmbeddingAt",
    "GgufEntry",
    "SafetensorsSource",
    "Source",
    "StateDictSource",
    "TwoTowers",
    "bundled",
    "check_weights",
    "damaged",
    "families",
    "faster_kernel",
    "fetch",
    "fetch_files",
    "find_folder",
    "from_torch",
    "gpt2",
    "installed",
    "is_cached",
    "kernel_of",
    "load",
    "load_folder",
    "load_towers",
    "meta_model",
    "named_file",
    "parse_name",
    "published_files",
    "reading_shares",
    "save_folder",
    "steps_of",
    "unpickled",
]
