"""What an analysis declares for the tests that all analyses have in common.

The test file of an analysis, ``tests/analyses/test_….py``, ends with ``DECLARED = Declared(...)``,
or with a tuple of them if it tests several functions. The tests find all of these by listing the
folder (:func:`declarations`), so that a new analysis is added to no other table. Where it takes no
part in a test, its field holds the reason: ``Without("it reads weights alone")``.

:mod:`declared.odd` has values that mean nothing; :mod:`declared.small`, :mod:`declared.example` and
:mod:`declared.prompts` have models and prompts, :mod:`permuted` what a symmetry is about.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any
from zlib import crc32

from permuted import Case, Frames

from analyses.results import Result
from declared.prompts import Rows
from interp import Transformer

FOLDER = Path(__file__).parents[1] / "analyses"
PromptNumbers = Callable[[Transformer, Any, int], Rows]
"""The numbers of each of ``n`` prompts: a function of the model, the prompts and ``n``."""
Symmetry = Callable[[Case], Result | Frames]
"""A result, or tables, of the inputs of a case."""


@dataclass(frozen=True)
class Without:
    """In place of a declaration: the reason why an analysis takes no part in a test."""

    reason: str


@dataclass(frozen=True, eq=False)
class Made:
    """How its result is made. Read by ``tests/analyses/test_results.py``.

    Attributes:
        make: makes a result that is fast and has values in all of its fields.
        means: the column of single prompts in ``to_prompt_frame``, and that of their means in
            ``to_frame``. A reason if the first has other quantities; ``None`` if there is none.
    """

    make: Callable[[], Result]
    means: tuple[str, str] | Without | None = None


@dataclass(frozen=True, eq=False)
class Call:
    """A call that is fast, and odd values of all settings. Read by ``tests/analyses``.

    ``odd_settings.py`` gives it each odd value, ``test_finite.py`` models of which a weight or an
    activation is not finite; ``test_cancelled.py`` cancels it, if it has a sweep.

    Attributes:
        arguments: by position; the model is that of :mod:`declared.small`.
        settings: by name.
        odd: values of each setting that mean nothing, by its name.
        runs: whether it runs the model; other analyses read weights, or results.
        overflows: whether large weights overflow; not in float64, nor if embeddings alone are read.
    """

    arguments: tuple[object, ...]
    settings: Mapping[str, object]
    odd: Mapping[str, tuple[object, ...]]
    runs: bool = True
    overflows: bool = True


@dataclass(frozen=True)
class Command:
    """Its command. Read by ``tests/apps/test_commands.py`` and ``test_commands_derived.py``.

    Attributes:
        name: the name, as in ``apps.commands.COMMANDS``.
        words: options of a fast run.
        table: the name of the file of its table.
        excerpt: a part of what that run prints.
        options: all of its options with their defaults, which saved runs and scripts rely on.
        more: files that it writes beside those of its table and of single prompts.
    """

    name: str
    words: tuple[str, ...]
    table: str
    excerpt: str
    options: str
    more: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class EachPrompt:
    """What it measures on each prompt. Read by ``tests/laws/test_analyses.py``.

    Attributes:
        measure: the numbers of each prompt.
        refused: kinds of prompts that it can't read, each with a pattern of the error.
        is_slow: whether a call takes a second.
    """

    measure: PromptNumbers
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    is_slow: bool = False


@dataclass(frozen=True, eq=False)
class Symmetric:
    """What moves with heads, neurons, tokens and prompts. Read by ``tests/laws/test_symmetry.py``.

    Attributes:
        variants: calls by a short name, which is empty for the plain call. The numbers of all
            tables are compared, by the labels of their rows.
        not_compared: columns of values drawn at random, of ranks among possibly equal values, of
            names that contain numbers of prompts, and of ids of tokens beside their labels.
        draws_tokens: whether it draws token ids, so that the vocabulary is not permuted.
        refused: architectures that it does not apply to.
        of_experts: variants that also run on a mixture of experts, because they depend on what an
            MLP computes.
    """

    variants: Mapping[str, Symmetry]
    not_compared: tuple[str, ...] = ()
    draws_tokens: bool = False
    refused: tuple[str, ...] = ()
    of_experts: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Declared:
    """All that the tests of all analyses have to know of one.

    Attributes:
        analysis: the function.
        made: how its result is made.
        call: a call, and odd values of its settings.
        command: its command.
        of_each_prompt: what it measures on each prompt.
        of_each_pair: likewise on pairs of source and target, with the model ``t5``: functions by a
            short name, which is empty for the plain call. Read by ``tests/laws/test_analyses.py``.
        symmetric: what moves with heads, neurons, tokens and prompts.
    """

    analysis: Callable[..., Result]
    made: Made | Without
    call: Call
    command: Command | Without
    of_each_prompt: EachPrompt | Without
    of_each_pair: Mapping[str, PromptNumbers] | Without
    symmetric: Symmetric | Without

    @property
    def name(self) -> str:
        """The public name of the function."""
        return self.analysis.__name__

    @property
    def result(self) -> str:
        """The name of the class of its result."""
        return signature(self.analysis, eval_str=True).return_annotation.__name__

    def result_of_call(self, **settings: object) -> object:
        """The result of its call, with some settings or arguments replaced."""
        arguments = signature(self.analysis).bind_partial(*self.call.arguments).arguments
        return self.analysis(**{**arguments, **self.call.settings, **settings})


@cache
def declarations() -> dict[str, Declared]:
    """All declarations by the names of the functions, in the order of the test files.

    Files are imported by the names that pytest imports them by, so each is imported once.
    """
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    by_name: dict[str, Declared] = {}
    for file in sorted(FOLDER.glob("test_*.py")):
        for declared in _of_file(file):
            assert declared.name not in by_name, f"{file.name} declares {declared.name} again"
            by_name[declared.name] = declared
    return by_name


def _of_file(file: Path) -> tuple[Declared, ...]:
    """A file without a declaration is not imported: it may itself gather declarations."""
    if "\nDECLARED = " not in file.read_text(encoding="utf-8"):
        return ()
    declared = import_module(file.stem).DECLARED
    return declared if isinstance(declared, tuple) else (declared,)


def declared_as(name: str) -> dict[str, Any]:
    """What the analyses declare in a field, by their names; without those that have a reason."""
    values = {analysis: getattr(entry, name) for analysis, entry in declarations().items()}
    return {analysis: x for analysis, x in values.items() if not isinstance(x, Without)}


def with_variants(name: str, variants: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each variant of an analysis, with both of their names."""
    for variant, value in variants.items():
        yield (f"{name}, {variant}" if variant else name), value


def turn_of(name: str) -> int:
    """A number by which cases are fast or slow; another analysis does not change it."""
    return crc32(name.encode())
