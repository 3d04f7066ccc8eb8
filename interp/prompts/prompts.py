"""Prompt files: one JSON object per line, e.g. ``{"text": "a b a", "target": " b"}``; or tables.

``text`` is required; ``target`` and ``distractor`` are texts of one token each, for logit
differences. ``corrupt`` is a text with the same number of tokens that differs where the answer
depends on it: the two are a minimal pair. ``prefix`` is the input of the decoder of an
encoder–decoder before the target. For a chat model, ``messages`` and ``corrupt_messages`` stand in
place of ``text`` and ``corrupt``; a model's chat template makes texts of them. Tables (CSV,
Parquet, a dataset of the library `datasets`) have a column for each field, templates (TOML) are
filled, and files with other names hold one plain-text prompt per line: see
:mod:`interp.prompts.records`.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import file_digest, sha256
from itertools import islice
from pathlib import Path

from interp.errors import InvalidInput, reason, shorten
from interp.io import UNREADABLE, is_folder, open_regular, read_file_or_pipe
from interp.prompts.bundled import bundled_prompts, path_of_prompts
from interp.prompts.prompt import FIELDS, MESSAGES, ChatRenderer, Prompt, prompt_of, with_texts
from interp.prompts.record import Record
from interp.prompts.records import records_of, records_of_bytes
from interp.prompts.saved_dataset import OBJECT, is_dataset

MAX_BYTES = 2**26
MAX_PROMPTS = 100_000
"""Maximum size of a file that is read as a whole, and number of its prompts."""


@dataclass(frozen=True)
class PromptFile:
    """The prompts of a file.

    Attributes:
        path: the file, or the folder of a dataset.
        prompts: its prompts, in the order of the file.
        sha256: SHA-256 of the bytes that were read; for a dataset, of its prompts as JSON lines.
    """

    path: Path
    prompts: tuple[Prompt, ...]
    sha256: str


def read_prompts(path: object, chat: ChatRenderer | None = None) -> list[Prompt]:
    """The prompts of a file, a bundled set given by name, or a dataset.

    Args:
        path: a file (see :mod:`interp.prompts.records`), a folder that ``Dataset.save_to_disk``
            wrote, the name of a bundled set, or a dataset of the library `datasets`.
        chat: ``model.chat``, which makes texts of the messages of prompts for chat models.

    Raises:
        InvalidInput: the file is missing, empty, too large, a device or not UTF-8, or a line is
            malformed; the message has file and line. Also if there are messages without ``chat``.

    Examples:
        >>> prompt = interp.read_prompts("letters")[0]
        >>> prompt.text, prompt.target, prompt.distractor
        ('8jzPde0Igx8j', 'z', 'e')
    """
    if is_dataset(path):
        return list(_at_most(iter_prompts(path, chat), OBJECT))
    return list(read_prompt_file(path, chat).prompts)


def read_prompt_file(path: object, chat: ChatRenderer | None = None) -> PromptFile:
    """The prompts of a file with its hash; the file is read once.

    Args:
        path: as for :func:`read_prompts`, but not a dataset.
        chat: as there.

    Raises:
        InvalidInput: as for :func:`read_prompts`.
    """
    file = path_of_prompts(path)
    if is_folder(file):
        prompts = tuple(_at_most(iter_prompts(file, chat), str(file)))
        data = b"".join(map(_line_of, prompts))
    else:
        data = _content(file)
        records = records_of_bytes(data, file)
        prompts = tuple(_at_most(_prompts(records, str(file), chat), str(file)))
    return PromptFile(file, prompts, sha256(data).hexdigest())


def sha256_of_prompts(path: object, chat: ChatRenderer | None = None) -> str:
    """The SHA-256 of a file of prompts of any size, as in :class:`PromptFile`.

    Raises:
        InvalidInput: the file can't be read.
    """
    file = path_of_prompts(path)
    if is_folder(file):
        digest = sha256()
        for prompt in iter_prompts(file, chat):
            digest.update(_line_of(prompt))
        return digest.hexdigest()
    try:
        with open_regular(file) as content:
            return file_digest(content, "sha256").hexdigest()
    except UNREADABLE as error:
        raise _unreadable(file, reason(error)) from error


def iter_prompts(path: object, chat: ChatRenderer | None = None) -> Iterator[Prompt]:
    """Iterate over the prompts of a file of any size, without reading it as a whole.

    Args:
        path: as for :func:`read_prompts`.
        chat: as there.

    Raises:
        InvalidInput: as for :func:`read_prompts`, when the line is reached; the number of prompts
            is not limited.

    Examples:
        >>> next(interp.iter_prompts("letters")).text
        '8jzPde0Igx8j'
    """
    if is_dataset(path):
        return _prompts(records_of(path), OBJECT, chat)
    file = path_of_prompts(path)
    try:
        file.stat()
    except UNREADABLE as error:
        raise _unreadable(file, reason(error)) from error
    return _prompts(records_of(file), str(file), chat)


def _line_of(prompt: Prompt) -> bytes:
    """A prompt as a line of JSON."""
    return f"{json.dumps(prompt.fields())}\n".encode()


def _content(file: Path) -> bytes:
    try:
        return read_file_or_pipe(file, MAX_BYTES)
    except UNREADABLE as error:
        raise _unreadable(file, reason(error)) from error


def _unreadable(file: Path, why: str) -> InvalidInput:
    bundled = ", ".join(bundled_prompts())
    return InvalidInput(f"{file} can't be read: {why}. Bundled prompt sets: {bundled}.")


def _prompts(records: Iterable[Record], name: str, chat: ChatRenderer | None) -> Iterator[Prompt]:
    is_empty = True
    for record in records:
        fields = with_texts(_known_fields(record), chat, record.source)
        yield prompt_of(fields, record.source)
        is_empty = False
    if is_empty:
        raise InvalidInput(f"{name} holds no prompts; it should hold one per line or row.")


def _at_most(prompts: Iterator[Prompt], name: str) -> Iterator[Prompt]:
    length = 0
    for prompt in islice(prompts, MAX_PROMPTS):
        length += sum(map(len, prompt.fields().values()))
        if length > MAX_BYTES:
            raise InvalidInput(f"{name} holds texts of more than {MAX_BYTES} characters; split it.")
        yield prompt
    if next(prompts, None) is not None:
        raise InvalidInput(f"{name} holds more than {MAX_PROMPTS} prompts; split it.")


def _known_fields(record: Record) -> dict[str, object]:
    """The fields of a record, checked to be known."""
    values, source = record.values, record.source
    if not isinstance(values, dict) or not ("text" in values or MESSAGES["text"] in values):
        raise InvalidInput(
            f'{source}: expected an object with a "text" (or "messages"), got {shorten(values)}.'
        )
    known = (*FIELDS, *MESSAGES.values())
    for name in values:
        if name not in known:
            allowed = ", ".join(known)
            raise InvalidInput(f"{source}: unknown field {shorten(name)}; known: {allowed}.")
    return values
