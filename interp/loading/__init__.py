"""Where does a model come from? A bundled name, a folder, the hub, a checkpoint, or memory."""

import re
from dataclasses import replace
from pathlib import Path

import torch

from interp.errors import ModelLoadError
from interp.loading import hub
from interp.loading.checkpoint import is_checkpoint, load_checkpoint
from interp.loading.folder import CONFIG, load_folder, save_folder
from interp.loading.live import is_live, load_live
from interp.loading.registry import families
from interp.transformer import Transformer

AT_STEP = re.compile(r"(?P<model>.+)@(?P<step>\d{1,9})")
MODEL_FOLDER = Path(__file__).parent.parent / "zoo" / "models"


def bundled() -> list[str]:
    """Names of the models that come with the toolkit."""
    return sorted(path.parent.name for path in MODEL_FOLDER.glob(f"*/{CONFIG}"))


def load(
    source: object,
    device: str | torch.device | None = None,
    *,
    dtype: torch.dtype | None = None,
    tokenizer: object = None,
    allow_pickle: bool = False,
) -> Transformer:
    """Load a model, ready to run.

    Args:
        source: the name of a bundled model; a folder with ``config.json``, safetensors (one file
            or several) and perhaps ``tokenizer.json``; ``"hub:org/name@revision"``; a live model
            of ``transformers``, base or with a head, whose weights are copied; or a checkpoint of
            nanoGPT. ``"NAME@400"`` is a model as it was after 400 steps of its training, where its
            folder has these weights.
        device: where its weights go; a live model's own, or the CPU, if nothing is said.
        dtype: to compute in; ``None`` means that of the weights, or, if they were stored in another
            than our model had, that model's: bundled models are stored in half, and run in float32.
        tokenizer: reads and writes text in place of the folder's: ours, one of ``tokenizers``, or
            a fast one of ``transformers``.
        allow_pickle: whether a checkpoint, which is a pickle, may be read (its weights alone).

    Raises:
        ModelLoadError: there is no such model, its family is not known, its files are damaged, or
            its weights are not its configuration's.
    """
    if is_live(source):
        return load_live(source, tokenizer, dtype, device)
    if not isinstance(source, str | Path):
        raise ModelLoadError(f"A model is loaded from {FORMS}; got {type(source).__name__}.")
    place = "cpu" if device is None else device
    name = str(source)
    if name.startswith(hub.PREFIX):
        folder, own_name = hub.fetched(name)
        return named(load_folder(folder, place, dtype, tokenizer), own_name)
    path = Path(source)
    try:
        own = own_folder(name)
        holds_checkpoint, holds_model = is_checkpoint(path), path.is_dir()
    except OSError as error:
        raise ModelLoadError(f"{name[:200]!r} can't be read: {error.strerror}.") from error
    if own is not None:
        model = load_folder(own[0], place, dtype, tokenizer, step=own[1])
        return model if own[1] is None else named(model, f"{model.config.name}@{own[1]}")
    if holds_checkpoint:
        return load_checkpoint(path, place, dtype, tokenizer, allow_pickle=allow_pickle)
    if holds_model:
        return load_folder(path, place, dtype, tokenizer)
    raise ModelLoadError(
        f"{name!r} is neither a bundled model ({', '.join(bundled())}) nor a folder. A model is "
        f"loaded from {FORMS}."
    )


def own_folder(name: str) -> tuple[Path, int | None] | None:
    """The folder of a bundled model, or of a model at a step; ``None`` if it is neither.

    Raises:
        OSError: a name that can't be a file's.
    """
    if name in bundled():
        return MODEL_FOLDER / name, None
    told = AT_STEP.fullmatch(name)
    if told is None or Path(name).exists():
        return None
    folder = MODEL_FOLDER / told["model"] if told["model"] in bundled() else Path(told["model"])
    return (folder, int(told["step"])) if (folder / CONFIG).is_file() else None


def named(model: Transformer, name: str) -> Transformer:
    """The same model under a name."""
    model.config = replace(model.config, name=name)
    return model


FORMS = (
    'a bundled name, a folder with config.json and safetensors, "hub:org/name@revision", a live '
    "model of transformers, or a checkpoint of nanoGPT"
)

__all__ = [
    "MODEL_FOLDER",
    "bundled",
    "families",
    "load",
    "load_folder",
    "own_folder",
    "save_folder",
]
