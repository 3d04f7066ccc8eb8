"""Models that Ollama has downloaded: ``ollama:NAME`` or ``ollama:NAME:TAG``.

    ~/.ollama/models/manifests/HOST/library/NAME/TAG     JSON: the digest of each layer
    ~/.ollama/models/blobs/sha256-…                      the layers; that of the model is GGUF

The environment variable ``OLLAMA_MODELS`` names another folder, as it does for Ollama.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interp.errors import ModelLoadError, nearest, reason, shorten
from interp.io import UNREADABLE, read_json

OLLAMA_PREFIX = "ollama:"
NAME = re.compile(
    r"(?:(?P<space>[\w-][\w.-]*)/)?(?P<model>[\w-][\w.-]*)(?::(?P<tag>[\w-][\w.-]*))?"
)
LIBRARY, LATEST = "library", "latest"
MODEL_LAYER = "application/vnd.ollama.image.model"
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
MAX_BYTES, MAX_NAMED = 2**20, 20


def ollama_file(name: str) -> Path | None:
    """The GGUF file of a model of Ollama; ``None`` if the name does not begin with ``ollama:``.

    Args:
        name: ``ollama:MODEL``, ``ollama:MODEL:TAG`` or ``ollama:NAMESPACE/MODEL:TAG``.

    Raises:
        ModelLoadError: the name has another form, Ollama has no such model here, or its files are
            damaged.
    """
    if not name.startswith(OLLAMA_PREFIX):
        return None
    match = NAME.fullmatch(name.removeprefix(OLLAMA_PREFIX))
    if match is None:
        raise ModelLoadError(
            f"{shorten(name)} is not of the form {OLLAMA_PREFIX}MODEL or {OLLAMA_PREFIX}MODEL:TAG."
        )
    folder = Path(os.environ.get("OLLAMA_MODELS") or Path.home() / ".ollama" / "models")
    path = Path(match["space"] or LIBRARY, match["model"], match["tag"] or LATEST)
    manifest = next(folder.glob(f"manifests/*/{path}"), None)
    if manifest is None:
        wanted, names = name.removeprefix(OLLAMA_PREFIX), _names(folder)
        listed = f"It has {', '.join(names[:MAX_NAMED])}" if names else "It has none there"
        raise ModelLoadError(
            f"Ollama has no model {wanted} in {folder}. {listed}; more by: ollama pull MODEL."
            f"{nearest(wanted, names)}"
        )
    try:
        digest = _digest(read_json(manifest, MAX_BYTES))
    except UNREADABLE as error:
        raise ModelLoadError(f"{manifest} can't be read: {reason(error)}.") from error
    file = folder / "blobs" / digest.replace(":", "-")
    if not file.is_file():
        raise ModelLoadError(f"{manifest} names {file}, which is missing. Run: ollama pull MODEL")
    return file


def _digest(manifest: Any) -> str:  # noqa: ANN401 - JSON
    """The digest of the layer that is the model."""
    layers = manifest.get("layers") if isinstance(manifest, Mapping) else None
    for layer in layers if isinstance(layers, list) else []:
        if isinstance(layer, Mapping) and layer.get("mediaType") == MODEL_LAYER:
            digest = layer.get("digest")
            if isinstance(digest, str) and DIGEST.fullmatch(digest):
                return digest
    raise ValueError(f"it has no layer {MODEL_LAYER} with a digest")


def _names(folder: Path) -> list[str]:
    """The models that Ollama has, as ``MODEL:TAG``."""
    files = sorted(path for path in folder.glob("manifests/*/*/*/*") if path.is_file())
    spaces = ("" if path.parts[-3] == LIBRARY else f"{path.parts[-3]}/" for path in files)
    return [
        f"{space}{path.parts[-2]}:{path.name}" for space, path in zip(spaces, files, strict=True)
    ]
