"""The file of ``interp report --config``: which analyses, of which models, on which prompts.

    title = "What the heads of python-2l do"
    models = ["python-2l", "runs/mine"]        # names of bundled models, or folders
    prompts = ["sets/mine.jsonl"]              # by default, the set that each model's card names
    seed = 0                                   # for all analyses; also device, dtype, kernel, …

    [[analyses]]
    command = "ablate"
    method = "zero"                            # an option of the command

    [[analyses]]
    command = "circuits"
    models = ["python-2l"]                     # replaces the models above; so would prompts
    heads = ["L0H5", "L1H4"]                   # one page for each; {head} stands for its name
    ov = "{head}"

Paths are relative to the file.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from apps.catalogue import check_name
from apps.commands import commands
from apps.commands.analysis_run import Settings
from apps.commands.carry_out import NOT_SETTINGS
from apps.commands.command import CommandSpec
from apps.commands.options import FILES
from interp.errors import InterpError, InvalidInput, reason, shorten
from interp.io import UNREADABLE, parse_toml, read_file_or_pipe
from interp.loading import bundled
from interp.prompts import bundled_prompts, path_of_prompts

HOW = ("device", "dtype", "kernel", "seed", "rows", "memory")
"""Shared options that can be given once, for all analyses."""
KEYS = ("title", "models", "prompts", "analyses", *HOW)
OWN_KEYS = ("command", "models", "prompts", "heads", *HOW)
HEAD = "{head}"
MAX_BYTES = 2**20
MAX_PAGES = 1000
MAX_WORDS = 100_000
"""Maximum number of words of all command lines together."""


@dataclass(frozen=True)
class ReportConfig:
    """The contents of a report file.

    Attributes:
        title: the title of the site.
        pages: the settings of each page, by the name of its folder.
    """

    title: str
    pages: dict[str, Settings]


def read_config(file: Path) -> ReportConfig:
    """Read the report that a file describes.

    Raises:
        InvalidInput: the file can't be read, or a key or value is not valid; the message names its
            line.
    """
    try:
        text = read_file_or_pipe(file, MAX_BYTES).decode()
    except UNREADABLE as error:
        raise InvalidInput(f"{file} can't be read: {reason(error)}.") from error
    try:
        values = parse_toml(text)
    except ValueError as error:
        raise InvalidInput(f"{file} is not valid TOML: {error}.") from error
    return _Reader(file, text, values).config()


class _Reader:
    """Reads one file.

    Args:
        file: the path of the file.
        text: its text, to find the lines that messages name.
        values: its parsed contents.
    """

    def __init__(self, file: Path, text: str, values: dict[str, Any]) -> None:
        self.file, self.lines, self.values = file, text.splitlines(), values
        self.headers = [n for n, line in enumerate(self.lines, 1) if re.match(r"\s*\[\[", line)]
        self.specs = commands()
        self.number_of_words = 0

    def config(self) -> ReportConfig:
        self._check_keys(self.values, KEYS, None)
        title = self.values.get("title", self.file.stem)
        if not isinstance(title, str):
            raise self._error("title", None, f"should be a string, got {shorten(title)}")
        entries = self.values.get("analyses", [])
        if not isinstance(entries, list) or not entries or not all(map(_is_table, entries)):
            raise InvalidInput(
                f'{self.file} has no analyses: add a table [[analyses]] with command = "ablate".'
            )
        if sum(map(self._number_of_pages, entries)) > MAX_PAGES:
            raise InvalidInput(f"{self.file} asks for more than {MAX_PAGES} pages.")
        pages: dict[str, Settings] = {}
        for number, entry in enumerate(entries):
            for settings in self._settings(number, entry):
                pages[_unique_name(_name_of(settings), pages)] = settings
        return ReportConfig(title, pages)

    def _number_of_pages(self, entry: dict[str, Any]) -> int:
        """An estimate of the number of pages of an entry that is not checked yet."""
        spec = self.specs.get(str(entry.get("command")))
        names = ("models", "heads", *(["prompts"] if spec is not None and spec.reads else []))
        lists = [entry.get(name, self.values.get(name)) for name in names]
        return prod(len(value) or 1 for value in lists if isinstance(value, list))

    def _settings(self, number: int, entry: dict[str, Any]) -> Iterator[Settings]:
        """The settings of the pages of one entry: one for each model, prompt set and head."""
        name = entry.get("command")
        if not isinstance(name, str) or name not in self.specs:
            near = _nearest(str(name), self.specs)
            raise self._error("command", number, f"{shorten(name)} is not a command{near}")
        spec = self.specs[name]
        named = {key.replace("-", "_"): value for key, value in entry.items()}
        self._check_keys(named, (*OWN_KEYS, *spec.parameters), number)
        both = {key: self.values[key] for key in ("models", "prompts", *HOW) if key in self.values}
        values = both | named
        models = self._texts(values, "models", number)
        if not models:
            raise self._error("models", number, "is missing; name at least one model")
        sets = self._texts(values, "prompts", number) if spec.reads else []
        heads = self._texts(values, "heads", number)
        self._check_names(models, sets, number)
        options = {key: values[key] for key in (*HOW, *spec.parameters) if key in values}
        for model, source, head in product(models, sets or [None], heads or [None]):
            settings = {"model": model, "prompts": source, **options}
            filled = {key: _filled(value, head) for key, value in settings.items()}
            yield self._parsed(spec, filled, number)

    def _check_names(self, models: list[str], sets: list[str], number: int) -> None:
        """Check that models and prompt sets exist before the first page is run."""
        for model in models:
            try:
                check_name(self._resolved("model", model))
            except InterpError as error:
                raise InvalidInput(f"{self._where('models', number)}: {error}") from error
        for source in sets:
            if not path_of_prompts(self._resolved("prompts", source)).exists():
                listed = ", ".join(bundled_prompts())
                raise self._error(
                    "prompts",
                    number,
                    f"{source} is neither a file (paths are relative to this one) nor a bundled "
                    f"set ({listed})",
                )

    def _parsed(self, spec: CommandSpec, options: dict[str, Any], number: int) -> Settings:
        words: list[str] = []
        for name, value in options.items():
            words += self._words(name, value, number)
        self.number_of_words += len(words)
        if self.number_of_words > MAX_WORDS:
            raise InvalidInput(f"{self.file} gives more than {MAX_WORDS} options in all.")
        line = self._line(r"command\b", number)
        parsed = spec.parse(words, f"{self.file}:{line}, {spec.name}")
        spec_options = spec.options(parsed["model"], {n: parsed[n] for n in spec.parameters})
        how = {name: parsed[name] for name in HOW}
        return Settings(spec, parsed["model"], parsed.get("prompts"), spec_options, **how)

    def _words(self, name: str, value: Any, number: int) -> list[str]:  # noqa: ANN401 - TOML's
        """The words of the command line that give an option."""
        option = f"--{name.replace('_', '-')}"
        if value is None or value is False:
            return []
        if value is True:
            return [option]
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(item, str | int | float) for item in values):
            raise self._error(name, number, f"should be a string or a number, got {shorten(value)}")
        return [word for item in values for word in (option, self._resolved(name, str(item)))]

    def _resolved(self, name: str, value: str) -> str:
        """Resolve a path relative to the file; other values are returned unchanged."""
        if name not in FILES or value in bundled() or value in bundled_prompts():
            return value
        path = self.file.parent / value
        return str(path) if path.exists() else value

    def _texts(self, entry: dict[str, Any], name: str, number: int) -> list[str]:
        """The value of a key as a list of strings; a single string becomes a list of one."""
        value = entry.get(name, [])
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(item, str) for item in values):
            raise self._error(name, number, f"should be a list of strings, got {shorten(value)}")
        return values

    def _check_keys(
        self, values: dict[str, Any], allowed: Sequence[str], number: int | None
    ) -> None:
        for name in values:
            if name not in allowed:
                raise self._error(name, number, f"is not a key here{_advice(name, allowed)}")

    def _error(self, name: str, number: int | None, what: str) -> InvalidInput:
        """The error about a key of the file (``number`` is ``None``) or of an entry."""
        return InvalidInput(f"{self._where(name, number)}: {name} {what}.")

    def _where(self, name: str, number: int | None) -> str:
        """The file and line of a key, which may be in the entry or at the top of the file."""
        entry = {} if number is None else self.values["analyses"][number]
        if name in self.values and name not in {key.replace("-", "_") for key in entry}:
            number = None
        pattern = rf"{re.escape(name).replace('_', '[-_]')}\b"
        return f"{self.file}:{self._line(pattern, number)}"

    def _line(self, pattern: str, number: int | None) -> int:
        """The line of a key, or of the entry if it lacks the key."""
        headers = self.headers
        if number is None:
            first, last = 1, (headers or [len(self.lines) + 1])[0]
        else:
            first = headers[number] if number < len(headers) else 1
            last = (*headers, len(self.lines) + 1)[number + 1] if number < len(headers) else first
        for line in range(first, last):
            if re.match(rf'\s*"?{pattern}', self.lines[line - 1]):
                return line
        return first


def _is_table(value: object) -> bool:
    return isinstance(value, dict)


def _advice(name: str, allowed: Sequence[str]) -> str:
    if name in NOT_SETTINGS:
        return f": --{name} belongs on the command line, and has no effect on the numbers"
    return _nearest(name, allowed)


def _nearest(name: str, allowed: Sequence[str] | dict[str, Any]) -> str:
    near = get_close_matches(name, [*allowed], n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(allowed)}"


def _filled(value: Any, head: str | None) -> Any:  # noqa: ANN401 - TOML's
    """A value with ``{head}`` replaced by the name of a head."""
    if head is None:
        return value
    if isinstance(value, list):
        return [_filled(item, head) for item in value]
    return value.replace(HEAD, head) if isinstance(value, str) else value


def _name_of(settings: Settings) -> str:
    """The name of a page's folder: the command's default name, the prompts and the head."""
    spec = settings.spec
    base = spec.folder_name(Path(settings.model).resolve().name, settings.options)
    prompts = [] if settings.prompts is None else [Path(settings.prompts).stem]
    heads = [
        str(settings.options[name]) for name in ("ov", "qk", "of") if settings.options.get(name)
    ]
    return re.sub(r"[^\w.@-]+", "-", "-".join([base, *prompts, *heads]))


def _unique_name(name: str, used: dict[str, Settings]) -> str:
    names = (name if n == 1 else f"{name}-{n}" for n in range(1, len(used) + 2))
    return next(candidate for candidate in names if candidate not in used)
