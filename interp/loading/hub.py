"""Models of the Hugging Face hub, ``hub:org/name@revision``: from the cache, else downloaded.

The network is used only for files that the cache lacks, and never where ``HF_HUB_OFFLINE`` is set.
Only the configuration, safetensors and the tokenizer are downloaded, no code.
"""

import re
from pathlib import Path

from interp.errors import ModelLoadError, first_line
from interp.loading.source import SafetensorsSource

PREFIX = "hub:"
PATTERNS = ["config.json", "*.safetensors", "*.safetensors.index.json", "tokenizer.json"]
REQUIRED = ["config.json", "tokenizer.json"]
"""Files that the cache must have if the repository has them; its index tells which shards."""
NAME = re.compile(r"(?!.*\.\.)(?P<repo>[\w.-]+(/[\w.-]+)?)(@(?P<revision>\w[\w./-]*))?")


def fetch(name: str) -> tuple[Path, str]:
    """The local folder of a model of the hub, and the model's name with its commit.

    Args:
        name: ``hub:org/name``, or ``hub:org/name@revision`` with a branch, tag or commit.

    Raises:
        ModelLoadError: the name is malformed, or the model can't be downloaded.
    """
    match = NAME.fullmatch(name.removeprefix(PREFIX))
    if match is None:
        raise ModelLoadError(f"{name!r} should read hub:org/name or hub:org/name@revision.")
    repo, revision = match["repo"], match["revision"]
    folder = _from_cache(repo, revision) or _download(repo, revision)
    return folder, f"{repo}@{folder.name}"


def _from_cache(repo: str, revision: str | None) -> Path | None:
    """The folder in the cache, if it is complete."""
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - slow to import
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError  # noqa: PLC0415

    try:
        folder = Path(
            snapshot_download(
                repo, revision=revision, allow_patterns=REQUIRED, local_files_only=True
            )
        )
        SafetensorsSource(folder)
    except (LocalEntryNotFoundError, HFValidationError, ModelLoadError, OSError):
        return None
    return folder if (folder / "config.json").is_file() else None


def _download(repo: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - slow to import

    try:
        return Path(snapshot_download(repo, revision=revision, allow_patterns=PATTERNS))
    except Exception as error:  # of the network library, which differs between versions
        raise ModelLoadError(
            f"{PREFIX}{repo}{'@' + revision if revision else ''} is not in the cache and can't be "
            f"downloaded: {first_line(error)} (Check the network, HF_HUB_OFFLINE, the name, and "
            "whether you have access to the model.)"
        ) from error
