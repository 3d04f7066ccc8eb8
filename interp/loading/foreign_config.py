"""A foreign ``config.json``: its fields, with the defaults of the family's configuration class.

A field that is missing takes the default of the family's class. A field of another type, or with a
value that is not supported, raises an error that names it: nothing is guessed.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from interp.errors import ModelLoadError, shorten

_Meaning = TypeVar("_Meaning")

UnembeddingKind = Literal["tied", "untied", "none"]
"""W_U is the transpose of W_E, a separate matrix, or missing."""

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
"""Names of activations in ``transformers``, and the :data:`interp.config.Activation` of each."""

TYPE_NAMES: dict[type, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
}
BASE_MODEL = (
    "Without its head the model is read: load it with transformers and pass its base model, "
    "interp.load(hf_model.base_model)."
)
"""What to do with a model whose head is not supported."""
MAX_NUMBER = 2**63
"""Numbers must be smaller than this in absolute value."""


class ForeignConfig:
    """The fields of a foreign configuration, and the names of the weights beside it.

    Args:
        family: the family's name, for error messages.
        fields: the content of ``config.json``.
        defaults: values of the family's configuration class, for fields that are missing.
        weight_names: canonical names of the weights in the file (``Family.canonical_name``).
        unembedding: whether the unembedding is tied to the embedding.
    """

    def __init__(
        self,
        family: str,
        fields: Mapping[str, Any],
        defaults: Mapping[str, Any],
        weight_names: frozenset[str] = frozenset(),
        unembedding: UnembeddingKind = "none",
    ) -> None:
        self.family, self.weight_names = family, weight_names
        self.unembedding: UnembeddingKind = unembedding
        self._fields, self._defaults = fields, defaults

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - JSON
        """A required field; null counts as missing.

        Raises:
            ModelLoadError: it is missing and has no default.
        """
        if name in self._fields and self._fields[name] is not None:
            return self._fields[name]
        if name in self._defaults:
            return self._defaults[name]
        raise ModelLoadError(f"{self.family}: config.json lacks {name!r}, which has no default.")

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - JSON
        """An optional field: ``default`` if it is missing or null.

        Raises:
            ModelLoadError: ``default`` is a bool, number or string, and the field has another type.
        """
        value = self._fields.get(name, self._defaults.get(name))
        if value is None:
            return default
        kind = type(default)
        if kind in TYPE_NAMES and not _has_type(kind, value):
            raise self.unsupported(name, value, TYPE_NAMES[kind])
        return value

    def nullable(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - JSON
        """A field for which null is a value: ``default`` is used only if the field is missing."""
        return self._fields.get(name, self._defaults.get(name, default))

    def replace(self, **fields: Any) -> "ForeignConfig":  # noqa: ANN401 - JSON
        """A copy with other values for some fields."""
        changed = {**self._fields, **fields}
        return ForeignConfig(
            self.family, changed, self._defaults, self.weight_names, self.unembedding
        )

    def integer(self, name: str) -> int:
        """A required integer of at least 1."""
        value = self[name]
        if not _has_type(int, value) or value < 1:
            raise self.unsupported(name, value, "an integer of at least 1")
        return value

    def number(self, name: str) -> float:
        """A required number."""
        value = self[name]
        if not _has_type(float, value):
            raise self.unsupported(name, value, TYPE_NAMES[float])
        return float(value)

    def flag(self, name: str) -> bool:
        """A required boolean."""
        value = self[name]
        if not _has_type(bool, value):
            raise self.unsupported(name, value, TYPE_NAMES[bool])
        return value

    def one_of(self, name: str, meanings: Mapping[Any, _Meaning]) -> _Meaning:
        """The entry of ``meanings`` for the value of a required field."""
        value = self[name]
        if not isinstance(value, str | int) or value not in meanings:
            raise self.unsupported(name, value, "one of " + ", ".join(map(str, meanings)))
        return meanings[value]

    def activation(self, name: str) -> Any:  # noqa: ANN401 - interp.config.Activation
        """The activation that a required field names."""
        return self.one_of(name, ACTIVATIONS)

    def allow_only(self, name: str, values: tuple[object, ...] = ()) -> None:
        """Refuse a field unless it is missing, null or one of ``values``."""
        value = self._fields.get(name, self._defaults.get(name))
        if value is not None and value not in values:
            raise self.unsupported(name, value, " or ".join(map(repr, values)) or "no value")

    def allow_only_computed(self, name: str, values: tuple[object, ...]) -> None:
        """Refuse a field that ``transformers`` ignores unless it computes what the field says.

        Args:
            name: the name of the field.
            values: the values that describe what ``transformers`` computes.

        Raises:
            ModelLoadError: the field has another value, and is not null.
        """
        value = self.nullable(name)
        if value is not None and value not in values:
            computed = f"as with {' or '.join(map(repr, values))}" if values else "as without it"
            raise ModelLoadError(
                f"{self.family}: config.json has {name}={shorten(value)}, which transformers "
                f"ignores: it computes {computed}, and so would this package. The model's own code "
                "reads it."
            )

    @property
    def n_classes(self) -> int:
        """Number of classes of a classifier; 2 by default, as in ``transformers``."""
        labels = self.get("id2label")
        if labels is None:
            return self.get("num_labels", 2)
        if not isinstance(labels, Mapping):
            raise self.unsupported("id2label", labels, "an object")
        return len(labels)

    def architecture_suffix(self, *suffixes: str) -> str | None:
        """The first of ``suffixes`` with which a class name in ``architectures`` ends."""
        matching = (end for end in suffixes if any(name.endswith(end) for name in self.class_names))
        return next(matching, None)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of classes in ``architectures``."""
        names = self.get("architectures")
        return tuple(map(str, names)) if isinstance(names, list | tuple) else ()

    def unsupported(self, name: str, value: object, expected: str) -> ModelLoadError:
        """The error for a field whose value is not supported."""
        return ModelLoadError(
            f"{self.family}: config.json has {name}={shorten(value)}, which is not supported; "
            f"expected {expected}."
        )

    def unsupported_head(self, *suffixes: str) -> ModelLoadError:
        """The error for ``architectures`` with another head than those with these suffixes."""
        expected = " or ".join(f"…{suffix}" for suffix in suffixes)
        error = self.unsupported("architectures", self.get("architectures"), expected)
        return ModelLoadError(f"{error} {BASE_MODEL}")


def _has_type(kind: type, value: Any) -> bool:  # noqa: ANN401 - JSON
    """Whether a JSON value is of a type; a bool is not a number, and numbers are bounded."""
    if kind in (bool, str):
        return isinstance(value, kind)
    number = isinstance(value, int) or (kind is float and isinstance(value, float))
    return number and not isinstance(value, bool) and abs(value) < MAX_NUMBER
