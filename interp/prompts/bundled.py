"""The bundled sets of prompts, by name."""

from pathlib import Path

from interp.io import as_path

SUFFIXES = (".jsonl", ".toml")
PROMPT_FOLDER = Path(__file__).parent.parent / "zoo" / "prompts"


def bundled_prompts() -> list[str]:
    """Names of the bundled prompt sets.

    Examples:
        >>> interp.bundled_prompts()[:2]
        ['addition-mod-113', 'addition-mod-113-pairs']
    """
    return sorted(_bundled_files())


def _bundled_files() -> dict[str, Path]:
    """The files of the bundled sets, by name: prompts, or a template of prompts."""
    return {path.stem: path for path in PROMPT_FOLDER.iterdir() if path.suffix in SUFFIXES}


def path_of_prompts(path: object) -> Path:
    """The file of a bundled set given by name, or the path itself."""
    path = as_path(path)
    return _bundled_files().get(str(path), path)
