"""Models of the Hugging Face hub, ``hub:org/name@revision``, from the cache or downloaded.

The network is used only for files that the cache lacks, and never if ``HF_HUB_OFFLINE`` is set.
Only the configuration, the tokenizer and the weights are downloaded, no code; weights as pickles
only if there are no safetensors and pickles are allowed.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from interp.errors import ModelLoadError, first_line
from interp.loading.source import SafetensorsSource
from interp.loading.weight_files import (
    PICKLE,
    SAFETENSORS,
    file_name,
    find_weights,
    index_names,
    is_stored,
)

PREFIX = "hub:"
ADAPTER = "adapter_config.json"
REQUIRED = [
    *("config.json", "generation_config.json", "adapter_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
]
"""Files that the cache must have if the repository has them, in addition to the weights."""
CHATS = ["chat_template.jinja", "additional_chat_templates/*.jinja", "chat_templates.json"]
"""Chat templates, without which a model loads from the cache."""
ORGANISATIONS = {
    "EleutherAI": "gpt-neo-125m gpt-neo-1.3b gpt-neo-2.7b gpt-j-6b pythia-14m pythia-31m "
    "pythia-70m pythia-160m pythia-410m pythia-1b pythia-1.4b pythia-2.8b pythia-6.9b pythia-12b",
    "FacebookAI": "roberta-base roberta-large xlm-roberta-base xlm-roberta-large",
    "bigscience": "bloom-560m bloom-1b1 bloom-1b7 bloom-3b bloom-7b1",
    "distilbert": "distilgpt2 distilbert-base-cased distilbert-base-uncased distilroberta-base",
    "facebook": "bart-base bart-large opt-125m opt-350m opt-1.3b opt-2.7b opt-6.7b",
    "google": "flan-t5-small flan-t5-base flan-t5-large flan-t5-xl gemma-2b gemma-7b gemma-2-2b "
    "gemma-2-9b gemma-3-270m gemma-3-1b-pt gemma-3-1b-it vit-base-patch16-224",
    "google-bert": "bert-base-cased bert-base-uncased bert-large-cased bert-large-uncased",
    "google-t5": "t5-small t5-base t5-large t5-3b t5-11b",
    "openai-community": "gpt2 gpt2-medium gpt2-large gpt2-xl",
}
WELL_KNOWN = {
    name: f"{organisation}/{name}"
    for organisation, names in ORGANISATIONS.items()
    for name in names.split()
}
"""Models of the hub by the short names that other toolkits use."""
NAME = re.compile(r"(?!.*\.\.)(?P<repo>[\w.-]+(/[\w.-]+)?)(@(?P<revision>\w[\w./-]*))?")


def fetch(name: str, *, variant: str | None = None, allow_pickle: bool = False) -> tuple[Path, str]:
    """The local folder of a model of the hub, and the model's name with its commit.

    Args:
        name: ``hub:org/name``, or ``hub:org/name@revision`` with a branch, tag or commit.
        variant: the variant of the weights, such as ``"fp16"``.
        allow_pickle: whether pickles are downloaded if there are no safetensors.

    Raises:
        ModelLoadError: the name is malformed, or the model can't be downloaded.
        InvalidInput: the variant is not a part of a file name.
    """
    repo, revision = parse_name(name)
    folder = _from_cache(repo, revision, variant, allow_pickle=allow_pickle)
    if folder is None:
        patterns = [*REQUIRED, *CHATS, *weight_patterns(SAFETENSORS, variant)]
        folder = _download(repo, revision, patterns)
        has_weights = (folder / ADAPTER).exists() or is_stored(folder, SAFETENSORS, variant)
        if allow_pickle and not has_weights:
            patterns = [*REQUIRED, *CHATS, *weight_patterns(PICKLE, variant)]
            folder = _download(repo, revision, patterns)
        elif not has_weights and not is_stored(folder, PICKLE, variant):
            raise ModelLoadError(
                f"{name}: {file_name(SAFETENSORS, variant)} is missing. If the repository has "
                f"{file_name(PICKLE, variant)} instead, that is a pickle, which can execute code "
                "when it is read. If you trust it, pass load(..., allow_pickle=True) (only weights "
                f"are read even then), or convert it once: interp convert {name} FOLDER "
                "--allow-pickle."
            )
    return folder, f"{repo}@{folder.name}"


def fetch_files(name: str, inside: str, files: Sequence[str]) -> Path:
    """The local copy of a folder of a repository, with some of its files.

    Args:
        name: ``hub:org/name``, or ``hub:org/name@revision``.
        inside: path of the folder within the repository; empty for the repository itself.
        files: names or patterns of files. Where all are names, and the cache has weights among them
            with their settings, nothing is downloaded.

    Raises:
        ModelLoadError: the name is malformed, or the files can't be downloaded.
    """
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - slow to import
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError  # noqa: PLC0415

    repo, revision = parse_name(name)
    patterns = [f"{inside}/{file}" if inside else file for file in files]
    with suppress(LocalEntryNotFoundError, HFValidationError, OSError):
        folder = snapshot_download(
            repo, revision=revision, allow_patterns=patterns, local_files_only=True
        )
        if _is_whole(Path(folder) / inside, files):
            return Path(folder) / inside
    return _download(repo, revision, patterns) / inside


def published_files(name: str, inside: str) -> list[str] | None:
    """Names of the files in a folder of a repository; ``None`` if the hub can't be asked.

    Args:
        name: ``hub:org/name``, or ``hub:org/name@revision``.
        inside: path of the folder within the repository; empty for the repository itself.

    Raises:
        ModelLoadError: the name is malformed.
    """
    from huggingface_hub import HfApi  # noqa: PLC0415 - slow to import

    repo, revision = parse_name(name)
    try:
        files = HfApi().list_repo_files(repo, revision=revision)
    except Exception:  # exceptions of the network library differ between versions
        return None
    start = f"{inside}/" if inside else ""
    names = [file.removeprefix(start) for file in files if file.startswith(start)]
    return [name for name in names if "/" not in name]


def _is_whole(folder: Path, files: Sequence[str]) -> bool:
    """Whether a folder has settings and weights of these names, or a file that needs none."""
    stored = {Path(file).suffix for file in files if (folder / file).is_file()}
    return ".npz" in stored or (".json" in stored and len(stored) > 1)


def weight_patterns(name: str, variant: str | None) -> list[str]:
    """Patterns of the files of weights in a format, whose single file is ``name``.

    Raises:
        InvalidInput: the variant is not a part of a file name.
    """
    if variant is None and name == SAFETENSORS:
        return ["*.safetensors", "*.safetensors.index.json"]
    stem, _, suffix = file_name(name, variant).rpartition(".")
    return [f"{stem}.{suffix}", f"{stem}-*.{suffix}", *index_names(name, variant)]


def parse_name(name: str) -> tuple[str, str | None]:
    """The repository of a name, and its branch, tag or commit if the name has one.

    Raises:
        ModelLoadError: the name is malformed.
    """
    match = NAME.fullmatch(name.removeprefix(PREFIX))
    if match is None:
        raise ModelLoadError(f"{name!r} should read hub:org/name or hub:org/name@revision.")
    return match["repo"], match["revision"]


def is_cached(name: str) -> bool:
    """Whether all files of ``hub:org/name``, or of a revision, are in the cache.

    Raises:
        ModelLoadError: the name is malformed.
    """
    return _from_cache(*parse_name(name), None, allow_pickle=False) is not None


def _from_cache(
    repo: str, revision: str | None, variant: str | None, *, allow_pickle: bool
) -> Path | None:
    """The folder in the cache; ``None`` if it is not complete."""
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - slow to import
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError  # noqa: PLC0415

    try:
        folder = Path(
            snapshot_download(
                repo, revision=revision, allow_patterns=REQUIRED, local_files_only=True
            )
        )
        if (folder / ADAPTER).exists():
            return folder
        if not allow_pickle or is_stored(folder, SAFETENSORS, variant):
            SafetensorsSource(folder, variant=variant)
        elif not all(path.is_file() for path in find_weights(folder, PICKLE, variant).paths):
            return None
    except (LocalEntryNotFoundError, HFValidationError, ModelLoadError, OSError):
        return None
    return folder if (folder / "config.json").is_file() else None


def _download(repo: str, revision: str | None, patterns: list[str]) -> Path:
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - slow to import

    try:
        return Path(snapshot_download(repo, revision=revision, allow_patterns=patterns))
    except Exception as error:  # exceptions of the network library differ between versions
        raise ModelLoadError(
            f"{PREFIX}{repo}{'@' + revision if revision else ''} is not in the cache and can't be "
            f"downloaded: {first_line(error)} (Check the network, HF_HUB_OFFLINE, the name, and "
            "whether you have access to the model.)"
        ) from error
