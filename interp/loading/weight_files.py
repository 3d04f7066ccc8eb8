"""The files of a folder that hold its weights: a single file, or shards and an index of them.

model.safetensors         model.safetensors.index.json
pytorch_model.bin         pytorch_model.bin.index.json
model.fp16.safetensors    model.safetensors.index.fp16.json    the variant "fp16"
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from interp.errors import InvalidInput, ModelLoadError, reason, shorten
from interp.io import MAX_HEADER_BYTES, UNREADABLE, as_object, read_json, value_of

SAFETENSORS, PICKLE = "model.safetensors", "pytorch_model.bin"
WEIGHTS, INDEX = SAFETENSORS, f"{SAFETENSORS}.index.json"
VARIANT = re.compile(r"\w+([.-]\w+)*")


@dataclass(frozen=True)
class WeightFiles:
    """The files of a model's weights.

    Attributes:
        paths: the files.
        index: the index of shards; ``None`` if there is a single file.
        indexed: the file of each weight according to the index.
    """

    paths: list[Path]
    index: Path | None = None
    indexed: Mapping[str, Path] = field(default_factory=dict)

    def place(self, keys: Mapping[Path, Iterable[str]]) -> dict[str, Path]:
        """The file of each weight.

        Args:
            keys: the names of the weights in each file.

        Raises:
            ModelLoadError: a name is in two files, or in another one than the index says.
        """
        files: dict[str, Path] = {}
        for path in self.paths:
            for key in keys[path]:
                if key in files:
                    raise ModelLoadError(
                        f"{path.parent}: the weight {shorten(key)} is in both {files[key].name} "
                        f"and {path.name}; remove one of them."
                    )
                files[key] = path
        for key, path in self.indexed.items():
            if files.get(key) != path:
                raise ModelLoadError(
                    f"{self.index} places {shorten(key)} in {path.name}, which lacks it; fetch or "
                    "write the files again."
                )
        return files


def find_weights(folder: Path, name: str, variant: str | None = None) -> WeightFiles:
    """The files of a format: the single file if it is there, else those of an index.

    Args:
        folder: the model's folder.
        name: the name of the single file, :data:`SAFETENSORS` or :data:`PICKLE`.
        variant: the variant of the weights.

    Raises:
        ModelLoadError: the index is damaged, or names files outside the folder.
        InvalidInput: the variant is not a part of a file name.
    """
    single = folder / file_name(name, variant)
    indices = [folder / index for index in index_names(name, variant)]
    index = next((path for path in indices if path.is_file()), None)
    if single.is_file() or index is None:
        return WeightFiles([single])
    indexed = _read_index(index)
    paths = list(dict.fromkeys(indexed.values()))
    return WeightFiles(paths, index, indexed) if paths else WeightFiles([single])


def is_stored(folder: Path, name: str, variant: str | None = None) -> bool:
    """Whether the folder has a format's single file or an index of its shards.

    Raises:
        InvalidInput: the variant is not a part of a file name.
    """
    names = [file_name(name, variant), *index_names(name, variant)]
    return any((folder / name).is_file() for name in names)


def file_name(name: str, variant: str | None) -> str:
    """The name of a variant's single file.

    Raises:
        InvalidInput: the variant is not a part of a file name.
    """
    if variant is None:
        return name
    if not VARIANT.fullmatch(variant):
        raise InvalidInput(
            f"variant={shorten(variant)} should be the part of the file names that differs, such "
            'as "fp16" for model.fp16.safetensors.'
        )
    stem, _, suffix = name.rpartition(".")
    return f"{stem}.{variant}.{suffix}"


def index_names(name: str, variant: str | None) -> list[str]:
    """The names that the index of a variant's shards may have."""
    if variant is None:
        return [f"{name}.index.json"]
    return [f"{name}.index.{variant}.json", f"{file_name(name, variant)}.index.json"]


def variants(folder: Path) -> list[str]:
    """The variants of which the folder has weights in a single file or an index."""
    names: set[str] = set()
    for name in (SAFETENSORS, PICKLE):
        stem, _, suffix = name.rpartition(".")
        part = VARIANT.pattern
        forms = rf"{stem}\.(?P<single>{part})\.{suffix}(\.index\.json)?"
        forms += rf"|{re.escape(name)}\.index\.(?P<shards>{part})\.json"
        matches = (re.fullmatch(forms, path.name) for path in folder.iterdir())
        names |= {match["single"] or match["shards"] for match in matches if match}
    return sorted(names)


def _read_index(index: Path) -> dict[str, Path]:
    """The file of each weight.

    Raises:
        ModelLoadError: the index is damaged, or names files outside the folder.
    """
    try:
        content = as_object(read_json(index, MAX_HEADER_BYTES), "the index")
        names = value_of(dict[str, str], content.get("weight_map"), "weight_map")
    except UNREADABLE as error:
        raise ModelLoadError(
            f"{index} is not a valid index of weights: {reason(error)}."
        ) from error
    for name in dict.fromkeys(names.values()):
        if Path(name).name != name or name in ("", ".", "..") or "\\" in name:
            raise ModelLoadError(
                f"{index} names the file {shorten(name)}; shards must be plain names inside the "
                "model's folder."
            )
    paths = {name: index.parent / name for name in dict.fromkeys(names.values())}
    return {key: paths[name] for key, name in names.items()}
