"""Where does a model come from? A bundled name, or a folder."""

from pathlib import Path

import torch

from interp.errors import ModelLoadError
from interp.loading.folder import CONFIG, load_folder, save_folder
from interp.transformer import Transformer

BUNDLED = Path(__file__).parent.parent / "zoo" / "models"


def bundled() -> list[str]:
    """Names of the models that come with the toolkit."""
    return sorted(path.parent.name for path in BUNDLED.glob(f"*/{CONFIG}"))


def load(source: str | Path, device: str | torch.device = "cpu") -> Transformer:
    """Load a model.

    Args:
        source: the name of a bundled model, or a folder with ``config.json`` and
            ``model.safetensors``.
        device: where its weights go.

    Raises:
        ModelLoadError: there is no such model, or its files are damaged.
    """
    name = str(source)
    if name in bundled():
        return load_folder(BUNDLED / name, device).eval()
    folder = Path(source)
    if folder.is_dir():
        return load_folder(folder, device).eval()
    raise ModelLoadError(
        f"{name!r} is neither a bundled model ({', '.join(bundled())}) nor a folder."
    )


__all__ = ["BUNDLED", "bundled", "load", "load_folder", "save_folder"]
