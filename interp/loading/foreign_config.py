"""What does somebody else's ``config.json`` say? Its fields, with the family's own defaults.

A field that is missing means what that family's class takes for it; a value that is not known is
refused with its name, never guessed.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from interp.errors import ModelLoadError

_Meaning = TypeVar("_Meaning")

ACTIVATIONS: dict[str, Any] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
"""Names of ``transformers``, and ours."""

KINDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a word",
}
LARGEST = 2**63
"""No size is as large as this."""
MOST_SHOWN = 200
"""Characters of a value that an error shows."""


class Raw:
    """The fields of a foreign configuration.

    Args:
        family: whose it is, for errors.
        fields: what the file says.
        defaults: what the family's class takes where it says nothing.
        keys: names of the weights that there are, in the family's own spelling.
        head: whether the unembedding is ``tied`` to the embedding, has weights of its ``own``, or
            there is ``none``.
    """

    def __init__(
        self,
        family: str,
        fields: Mapping[str, Any],
        defaults: Mapping[str, Any],
        keys: frozenset[str] = frozenset(),
        head: str = "none",
    ) -> None:
        self.family, self.keys, self.head = family, keys, head
        self._fields, self._defaults = fields, defaults

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - JSON
        """A field that must be there, in the file or among the defaults.

        Raises:
            ModelLoadError: it is not.
        """
        if name in self._fields and self._fields[name] is not None:
            return self._fields[name]
        if name in self._defaults:
            return self._defaults[name]
        raise ModelLoadError(f"{self.family}: config.json lacks {name!r}.")

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - JSON
        """A field that may be missing or null.

        Raises:
            ModelLoadError: ``default`` is a flag, a number or a word, and the field is none.
        """
        value = self._fields.get(name, self._defaults.get(name))
        if value is None:
            return default
        kind = type(default)
        if kind in KINDS and not _is_a(kind, value):
            raise self.refused(name, value, KINDS[kind])
        return value

    def said(self, name: str) -> Any:  # noqa: ANN401 - JSON
        """A field where null means something: the default only if it is not there at all."""
        return self._fields[name] if name in self._fields else self._defaults.get(name)

    def having(self, **fields: Any) -> "Raw":  # noqa: ANN401 - JSON
        """The same with some fields that say something else."""
        return Raw(self.family, {**self._fields, **fields}, self._defaults, self.keys, self.head)

    def whole(self, name: str) -> int:
        """A whole number of at least 1."""
        value = self[name]
        if not _is_a(int, value) or value < 1:
            raise self.refused(name, value, "a whole number of at least 1")
        return value

    def number(self, name: str) -> float:
        """A number."""
        value = self[name]
        if not _is_a(float, value):
            raise self.refused(name, value, KINDS[float])
        return float(value)

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self[name]
        if not _is_a(bool, value):
            raise self.refused(name, value, KINDS[bool])
        return value

    def one_of(self, name: str, meanings: Mapping[Any, _Meaning]) -> _Meaning:
        """A field whose values each mean something."""
        value = self[name]
        if not isinstance(value, str | int) or value not in meanings:
            raise self.refused(name, value, "one of " + ", ".join(map(str, meanings)))
        return meanings[value]

    def activation(self, name: str) -> Any:  # noqa: ANN401 - a Literal of ours
        """Our name of an activation."""
        return self.one_of(name, ACTIVATIONS)

    def only(self, name: str, values: tuple[object, ...] = ()) -> None:
        """Refuse all but ``values``; a field that is not there is none of them and no matter."""
        value = self._fields.get(name, self._defaults.get(name))
        if value is not None and value not in values:
            raise self.refused(name, value, " or ".join(map(repr, values)) or "nothing")

    def no_others(self, *names: str) -> None:
        """Refuse fields whose names are not among these."""
        others = sorted(set(self._fields) - set(names))
        if others:
            raise ModelLoadError(
                f"{self.family}: {others[0]!r} is not known here; known are {', '.join(names)}."
            )

    @property
    def n_classes(self) -> int:
        """How many a classifier tells apart: two where nothing is said."""
        return len(self.get("id2label", ())) or self.get("num_labels", 2)

    def saved_as(self, *tasks: str) -> str | None:
        """The first of ``tasks`` with which a class among ``architectures`` ends, if any does."""
        classes = self.get("architectures", ())
        ends = (task for task in tasks if any(str(name).endswith(task) for name in classes))
        return next(ends, None)

    def refused(self, name: str, value: object, expected: str) -> ModelLoadError:
        """The error for a value that this toolkit does not know."""
        told = repr(value) if len(repr(value)) <= MOST_SHOWN else f"{repr(value)[:MOST_SHOWN]}…"
        return ModelLoadError(
            f"{self.family}: config.json says {name}={told}; this toolkit knows {expected} here "
            "and does not guess."
        )


def _is_a(kind: type, value: Any) -> bool:  # noqa: ANN401 - JSON
    """Whether a field is of a kind; true is no number, and a number is finite and has a size."""
    if kind in (bool, str):
        return isinstance(value, kind)
    number = isinstance(value, int) or (kind is float and isinstance(value, float))
    return number and not isinstance(value, bool) and abs(value) < LARGEST
