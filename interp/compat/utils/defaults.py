"""Attributes by dotted names, and defaults that can be overridden for one call."""

from types import TracebackType
from typing import Any, ClassVar

from interp.errors import InvalidInput, shorten

USE_DEFAULT_VALUE = None
"""The value of an argument that does not override the default."""


def get_nested_attr(obj: Any, attr_str: str) -> Any:
    """The attribute ``"a.b.c"`` of an object."""
    for name in attr_str.split("."):
        obj = getattr(obj, name)
    return obj


def set_nested_attr(obj: Any, attr_str: str, value: Any) -> None:
    """Set the attribute ``"a.b.c"`` of an object."""
    *parents, last = attr_str.split(".")
    setattr(get_nested_attr(obj, ".".join(parents)) if parents else obj, last, value)


def override_or_use_default_value(default_flag: Any, override: Any = None) -> Any:
    """``override``, or the default if that is ``None``."""
    return default_flag if override is None else override


class LocallyOverridenDefaults:
    """A context in which ``prepend_bos`` or ``padding_side`` of a model have other values.

    The values are restored on exit, even after an exception.

    Args:
        model: a model with ``cfg.default_prepend_bos`` and ``tokenizer.padding_side``; the
            tokenizer may be ``None``.
        **overrides: the values; ``None`` changes nothing.

    Raises:
        InvalidInput: a name is unknown, or a value is not valid.
    """

    LOCATIONS: ClassVar[dict[str, tuple[str, tuple[Any, ...]]]] = {
        "prepend_bos": ("cfg.default_prepend_bos", (None, True, False)),
        "padding_side": ("tokenizer.padding_side", (None, "left", "right")),
    }

    def __init__(self, model: Any, **overrides: Any) -> None:
        unknown = set(overrides) - set(self.LOCATIONS)
        if unknown:
            raise InvalidInput(
                f"{', '.join(sorted(unknown))} can't be overridden; "
                f"{', '.join(self.LOCATIONS)} can."
            )
        self.model, self.overrides = model, overrides
        self.before: dict[str, Any] = {}

    def __enter__(self) -> None:
        given: dict[str, Any] = {}
        for name, value in self.overrides.items():
            location, valid = self.LOCATIONS[name]
            if name == "padding_side" and self.model.tokenizer is None:
                continue
            if value not in valid:
                raise InvalidInput(f"{name}={shorten(value)} should be one of {valid}.")
            given[location] = value
        self.before = {location: get_nested_attr(self.model, location) for location in given}
        for location, value in given.items():
            if value is not None:
                set_nested_attr(self.model, location, value)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for location, value in self.before.items():
            set_nested_attr(self.model, location, value)
