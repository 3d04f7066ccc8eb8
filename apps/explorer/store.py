"""What the server keeps beside its models, within one budget of bytes for the whole process.

Answers, partial results of stopped jobs, tables and scores made of results, earlier views of the
sessions: each has a key, and its size is counted. The least recently used are evicted.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import wraps
from threading import Lock
from typing import Any, ParamSpec, TypeVar
from weakref import ref

from analyses.results import Result, nbytes
from apps.devices import default_budget, free_memory

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class _Entry:
    value: Any
    size: int
    evicted: Callable[[], None] | None


class Store:
    """Values of all sessions; safe to use from several threads.

    Args:
        max_bytes: largest total size of the stored values, in bytes.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._total = 0
        self._lock = Lock()

    def get(self, key: Hashable) -> Any:  # noqa: ANN401 - of the key's kind
        """The value of a key, such as the answer to a question; ``None`` if it is not stored."""
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key].value

    def put(self, key: Hashable, value: object, evicted: Callable[[], None] | None = None) -> None:
        """Store a value, unless it is larger than the whole store.

        Args:
            key: its key.
            value: a result, or plain data.
            evicted: called when it has been evicted, or could not be stored.
        """
        entry = _Entry(value, nbytes(value), evicted)
        with self._lock:
            self._drop(key)
            self._entries[key] = entry
            self._total += entry.size
            lost = [entry] if entry.size > self.max_bytes else []
            if lost:
                self._drop(key)
            while self._total > self.max_bytes:
                lost.append(self._drop(next(iter(self._entries))))
        for each in lost:
            if each.evicted is not None:
                each.evicted()

    def drop(self, key: Hashable) -> None:
        """Remove the value of a key, if there is one."""
        with self._lock:
            self._drop(key)

    @property
    def nbytes(self) -> int:
        """Size of all stored values, in bytes."""
        with self._lock:
            return self._total

    def _drop(self, key: Hashable) -> _Entry:
        entry = self._entries.pop(key, _Entry(None, 0, None))
        self._total -= entry.size
        return entry


STORE = Store(default_budget(free_memory()))
"""The store of this process."""


def limit_to(max_bytes: int | None) -> None:
    """Limit the store of this process to the budget of the command line, if one was given."""
    if max_bytes is not None:
        STORE.max_bytes = max_bytes


def stored(function: Callable[P, R]) -> Callable[P, R]:
    """Keep what a function of results returns in the store, as long as the results are the same."""

    @wraps(function)
    def compute(*args: P.args, **kwargs: P.kwargs) -> R:
        key = (function, *map(_weakly, args), *((name, _weakly(kwargs[name])) for name in kwargs))
        value = STORE.get(key)
        if value is None:
            value = function(*args, **kwargs)
            STORE.put(key, value)
        return value

    return compute


def _weakly(argument: object) -> Hashable:
    """An argument as a part of a key, which does not keep results alive."""
    if isinstance(argument, tuple):
        return tuple(map(_weakly, argument))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return ref(argument) if isinstance(argument, Result) else argument
