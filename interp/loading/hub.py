"""``hub:org/name@revision``: files of the Hugging Face hub, from its cache if they are there.

The network is used only for what the cache lacks, and not at all where ``HF_HUB_OFFLINE`` is set.
Only the configuration, safetensors and the tokenizer are fetched; nothing that could be run.
"""

import re
from pathlib import Path

from interp.errors import ModelLoadError, first_line
from interp.loading.source import Files

PREFIX = "hub:"
WANTED = ["config.json", "*.safetensors", "*.safetensors.index.json", "tokenizer.json"]
FIRST = ["config.json", "tokenizer.json"]
"""What a cache that knows of it must have; whether the weights are all there, their index tells."""
NAME = re.compile(r"(?!.*\.\.)(?P<repo>[\w.-]+(/[\w.-]+)?)(@(?P<revision>\w[\w./-]*))?")


def fetched(name: str) -> tuple[Path, str]:
    """The folder that holds a model of the hub, and its name with the commit.

    Args:
        name: ``hub:org/name``, and ``@`` with a branch, a tag or a commit if it is not the main
            one.

    Raises:
        ModelLoadError: no such name, no such model, or no way to get it.
    """
    found = NAME.fullmatch(name.removeprefix(PREFIX))
    if found is None:
        raise ModelLoadError(f"{name!r} should read hub:org/name or hub:org/name@revision.")
    repo, revision = found["repo"], found["revision"]
    folder = _cached(repo, revision) or _downloaded(repo, revision)
    return folder, f"{repo}@{folder.name}"


def _cached(repo: str, revision: str | None) -> Path | None:
    """The folder in the cache, if all that is needed is in it."""
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - slow to import
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError  # noqa: PLC0415

    try:
        folder = Path(
            snapshot_download(repo, revision=revision, allow_patterns=FIRST, local_files_only=True)
        )
        Files(folder)
    except (LocalEntryNotFoundError, HFValidationError, ModelLoadError, OSError):
        return None
    return folder if (folder / "config.json").is_file() else None


def _downloaded(repo: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - slow to import

    try:
        return Path(snapshot_download(repo, revision=revision, allow_patterns=WANTED))
    except Exception as error:  # its network library's own, which changed between versions
        raise ModelLoadError(
            f"{PREFIX}{repo}{'@' + revision if revision else ''} can't be had: "
            f"{first_line(error)} (The files "
            "are not in the cache; is there a network, is HF_HUB_OFFLINE set, is the name right, "
            "is the model open to you?)"
        ) from error
