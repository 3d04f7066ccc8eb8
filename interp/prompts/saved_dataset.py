"""Datasets of the library `datasets` of Hugging Face: objects, and folders that it saved.

The library is only imported to read such a folder. A dataset has a column for each field of a
prompt, as in :mod:`interp.prompts.tables`, or a column ``messages`` in place of ``text``.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from interp.errors import InterpError, InvalidInput, first_line
from interp.prompts.prompt import FIELDS, MESSAGES
from interp.prompts.record import Record
from interp.prompts.tables import columns_read

OBJECT = "dataset"
"""The name, in sources and messages, of a dataset that is given as an object."""
MARKS = ("state.json", "dataset_dict.json")
"""Files in a folder that ``save_to_disk`` wrote: for a dataset, and for one with splits."""


def is_dataset(given: object) -> bool:
    """Whether an object is a dataset of that library."""
    library: Any = sys.modules.get("datasets")
    names = ("Dataset", "IterableDataset", "DatasetDict", "IterableDatasetDict")
    kinds = tuple(getattr(library, name) for name in names if hasattr(library, name))
    return isinstance(given, kinds)


def open_dataset(folder: Path) -> Any:  # noqa: ANN401 - of a library without types
    """The dataset that ``save_to_disk`` wrote into a folder; its rows stay on the disk.

    Raises:
        InvalidInput: the folder contains no dataset, the library is not installed, or it can't read
            the folder.
    """
    if not any((folder / mark).is_file() for mark in MARKS):
        raise InvalidInput(
            f"{folder} is a folder without a dataset (no {' or '.join(MARKS)}). Give a prompt "
            "file, or a folder that Dataset.save_to_disk wrote."
        )
    try:
        from datasets import load_from_disk  # noqa: PLC0415 - takes seconds, and may be missing
    except ImportError as error:
        raise InvalidInput(
            f"{folder} is a dataset of the library datasets, which can't be imported "
            f"({first_line(error)}). Run: pip install datasets. Or write a .parquet file."
        ) from error
    try:
        return load_from_disk(str(folder))
    except Exception as error:  # the library's readers raise errors of any type
        raise InvalidInput(
            f"{folder} can't be read as a dataset: {first_line(error).rstrip('.')}."
        ) from error


def dataset_records(dataset: Any, name: str) -> Iterator[Record]:  # noqa: ANN401
    """Iterate over the rows of a dataset.

    Raises:
        InvalidInput: it has splits, or a row can't be read; see also :func:`columns_read`.
    """
    if isinstance(dataset, dict):
        splits: list[str] = [str(split) for split in dataset]
        first = splits[0] if splits else "SPLIT"
        example = f"{name}[{first!r}]" if name == OBJECT else f"{name}/{first}"
        raise InvalidInput(
            f"{name} has the splits {', '.join(splits)}; give one of them: {example}."
        )
    columns = dataset.column_names or list(next(iter(dataset), {}))
    is_chat = "text" not in columns and MESSAGES["text"] in columns
    chat_fields = {*MESSAGES.values(), *FIELDS} - {*MESSAGES}
    fields = [c for c in columns if c in chat_fields] if is_chat else columns_read(columns, name)
    total = len(dataset) if hasattr(dataset, "__len__") else 0
    try:
        for row, values in enumerate(dataset.select_columns(fields).with_format(None)):
            yield Record(values, f"{name}[{row}]", row + 1, total or row + 1)
    except InterpError:
        raise
    except Exception as error:  # as in open_dataset
        raise InvalidInput(
            f"{name} can't be read as a dataset: {first_line(error).rstrip('.')}."
        ) from error
