"""Reads the records of a file one at a time: lines of text or JSON, rows of a table, fillings.

| file | a record is |
| --- | --- |
| `.jsonl` | a line: a JSON object |
| `.csv`, `.tsv` | a row; the first line names the columns |
| `.parquet` | a row |
| `.toml` | a filling of a template (:mod:`interp.prompts.template_file`) |
| a folder | a row of the dataset that ``datasets.Dataset.save_to_disk`` wrote |
| any other | a line: a text |

Empty lines are skipped.
"""

import os
import stat
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

from interp.errors import InterpError, InvalidInput, reason
from interp.io import UNREADABLE, is_folder, open_regular, parse_json, read_file_or_pipe, size_of
from interp.prompts.lines import OpenFile, lines_of
from interp.prompts.record import Record
from interp.prompts.saved_dataset import OBJECT, dataset_records, is_dataset, open_dataset
from interp.prompts.tables import csv_records, parquet_records
from interp.prompts.template_file import MAX_BYTES as MAX_TEMPLATE_BYTES
from interp.prompts.template_file import parse_template

MAX_PIPE_BYTES = 2**26
"""Maximum number of bytes read from a pipe."""
Reader = Callable[[OpenFile, str, int], Iterator[Record]]
"""Reads an open file, with its name and its size in bytes."""


def records_of(given: object) -> Iterator[Record]:
    """Iterate over the records of a file, a folder or a dataset of the library `datasets`.

    Args:
        given: a path, or a dataset.

    Raises:
        InvalidInput: it can't be read, or a part of it is malformed; the message has file and line.
    """
    if is_dataset(given):
        yield from dataset_records(given, OBJECT)
    elif isinstance(given, Path):
        yield from _records_of_path(given)
    else:
        raise InvalidInput(f"A path or a dataset was expected; got a {type(given).__name__}.")


def records_of_bytes(data: bytes, path: Path) -> Iterator[Record]:
    """The records of a file whose content was already read."""
    return reader_of(path)(BytesIO(data), str(path), len(data))


def reader_of(path: Path) -> Reader:
    """The function that reads a file with this name.

    Raises:
        InvalidInput: files of this kind are not supported.
    """
    if path.suffix.lower() == ".json":
        raise InvalidInput(
            f"{path} does not have the name of a prompt file: write one JSON object per line, and "
            f"name it {path.with_suffix('.jsonl').name}."
        )
    return READERS.get(path.suffix.lower(), _text_records)


def _records_of_path(path: Path) -> Iterator[Record]:
    try:
        if is_folder(path):
            yield from dataset_records(open_dataset(path), str(path))
            return
        with _open(path) as file:
            size = len(file.getbuffer()) if isinstance(file, BytesIO) else size_of(file)
            yield from reader_of(path)(file, str(path), size)
    except InterpError:
        raise
    except UNREADABLE as error:
        raise InvalidInput(f"{path} can't be read: {reason(error)}.") from error


def _open(path: Path) -> OpenFile:
    """A regular file, or the content of a pipe."""
    if stat.S_ISFIFO(os.stat(path).st_mode):  # noqa: PTH116 - Path.stat is the same
        return BytesIO(read_file_or_pipe(path, MAX_PIPE_BYTES))
    return open_regular(path)


def _text_records(file: OpenFile, name: str, size: int) -> Iterator[Record]:
    for line in lines_of(file, name):
        text = line.text.rstrip("\r\n")
        if text.strip():
            yield Record({"text": text}, line.source, line.end, size)


def _json_records(file: OpenFile, name: str, size: int) -> Iterator[Record]:
    for line in lines_of(file, name):
        if line.text.strip():
            try:
                values: Any = parse_json(line.text)
            except ValueError as error:
                raise InvalidInput(f"{line.source}: not a JSON object: {reason(error)}.") from error
            yield Record(values, line.source, line.end, size)


def _parquet_records(file: OpenFile, name: str, _: int) -> Iterator[Record]:
    return parquet_records(file, name)


def _template_records(file: OpenFile, name: str, _: int) -> Iterator[Record]:
    prompts = parse_template(file.read(MAX_TEMPLATE_BYTES + 1), name).fill()
    for number, prompt in enumerate(prompts, 1):
        yield Record(prompt.fields(), prompt.source, number, len(prompts))


READERS: dict[str, Reader] = {
    ".jsonl": _json_records,
    ".csv": csv_records,
    ".tsv": partial(csv_records, delimiter="\t"),
    ".parquet": _parquet_records,
    ".toml": _template_records,
}
"""The reader for each file name extension; files with any other hold one text per line."""
