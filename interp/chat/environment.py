"""Renders a chat template with Jinja: in its sandbox, as `transformers` does, within limits.

The environment is that of ``transformers.utils.chat_template_utils``: blocks are trimmed, loops may
be left early, and templates can call ``raise_exception``, ``strftime_now`` and the filter
``tojson``. Templates come with models of unknown origin, so what they compute is bounded: loops and
calls take steps, of which there are :data:`MAX_STEPS`; a value that is stored, passed or returned,
and the whole output, have at most :data:`MAX_LENGTH` characters or elements. Not bounded is what a
single expression makes of such values before it is stored, such as by the width in a format.
"""

import json
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import Any

from interp.errors import InvalidInput, first_line, shorten

MAX_STEPS = 2**19
"""Maximum number of iterations of loops and of calls in a rendering."""
MAX_LENGTH = 2**22
"""Maximum number of characters of a text, and of elements of a list."""
MAX_BITS = 2**10
"""Maximum number of bits of an integer."""
LOWEST = (3, 1, 6)
"""The first version of Jinja without known ways out of the sandbox."""
STEPS, BOUNDED, CALLED = "interp_steps", "interp_bounded", "interp_called"
"""Filters that are added to a template: around what loops run over, what is stored, and arguments
of filters."""


class RefusedByTemplate(InvalidInput):
    """The template called ``raise_exception``."""


class _OutOfBoundsError(Exception):
    """A rendering takes too many steps, or makes something too long."""


class _RaisedError(Exception):
    """``raise_exception`` was called."""


@dataclass
class Rendering:
    """What the renderings of one chat share.

    Attributes:
        now: the time that ``strftime_now`` uses.
        steps: the steps that are left.
    """

    now: datetime = field(default_factory=datetime.now)
    steps: int = MAX_STEPS

    def take(self, steps: int) -> None:
        """Count steps."""
        self.steps -= steps
        if self.steps < 0:
            raise _OutOfBoundsError(f"it takes more than {MAX_STEPS} steps")


_RENDERING: ContextVar[Rendering] = ContextVar("rendering")


def render(template: str, variables: Mapping[str, Any], now: datetime) -> str:
    """The text that a template makes of variables.

    Args:
        template: a template of Jinja.
        variables: JSON values by name.
        now: the time that ``strftime_now`` uses.

    Raises:
        RefusedByTemplate: the template refuses the variables.
        InvalidInput: the template is not valid, fails, or exceeds a limit; or Jinja is not
            installed.
    """
    compiled = _compiled(template)
    token = _RENDERING.set(Rendering(now))
    parts, length = list[str](), 0
    try:
        for part in compiled.generate(**variables):
            parts.append(part)
            length += len(part)
            if length > MAX_LENGTH:
                raise _OutOfBoundsError(f"it writes more than {MAX_LENGTH} characters")  # noqa: TRY301
    except _RaisedError as error:
        raise RefusedByTemplate(f"The chat template refuses these messages: {error}.") from error
    except Exception as error:  # a template may raise errors of any type
        raise InvalidInput(f"The chat template fails: {_reason(error)}.") from error
    finally:
        _RENDERING.reset(token)
    return "".join(parts)


def _reason(error: Exception) -> str:
    if isinstance(error, _OutOfBoundsError):
        return str(error)
    return f"{type(error).__name__}: {shorten(first_line(error).rstrip('.'))}"


@lru_cache(16)
def _compiled(template: str) -> Any:  # noqa: ANN401 - of Jinja
    environment = _environment()
    try:
        return environment.from_string(template)
    except Exception as error:  # of a template without end or depth
        line = getattr(error, "lineno", None)
        where = "" if line is None else f", line {line}"
        raise InvalidInput(
            f"The chat template is not a valid template of Jinja: {_reason(error)}{where}."
        ) from error


def _bounded(value: Any) -> Any:  # noqa: ANN401 - of a template
    """The value, unless it is too long."""
    if isinstance(value, str | list | tuple | dict) and len(value) > MAX_LENGTH:  # pyright: ignore[reportUnknownArgumentType]
        raise _OutOfBoundsError(f"it makes a value with more than {MAX_LENGTH} elements")
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise _OutOfBoundsError(f"it makes a number with more than {MAX_BITS} bits")
    return value  # pyright: ignore[reportUnknownVariableType]


def _counted(values: Any) -> Any:  # noqa: ANN401 - of a template
    """What a loop runs over; each element takes a step."""
    values = values if hasattr(values, "__len__") else list(values)
    _RENDERING.get().take(len(values))
    return values


def _called(value: Any) -> Any:  # noqa: ANN401 - of a template
    """An argument of a call or a filter, counted and checked."""
    if isinstance(value, int) and abs(value) > MAX_LENGTH:
        raise _OutOfBoundsError(f"it calls a function with a number over {MAX_LENGTH}")
    if isinstance(_bounded(value), list | tuple | dict):
        _RENDERING.get().take(len(value))  # pyright: ignore
    return value


def _check_operands(operator: str, left: Any, right: Any) -> None:  # noqa: ANN401
    """Check a product or a power before it is computed."""
    number = next((each for each in (right, left) if isinstance(each, int)), 0)
    for each in (left, right):
        if operator == "*" and isinstance(each, str | list | tuple):
            if len(each) * number > MAX_LENGTH:  # pyright: ignore[reportUnknownArgumentType]
                raise _OutOfBoundsError(f"it repeats a value over {MAX_LENGTH} times")
        elif operator == "**" and isinstance(each, int) and each.bit_length() > 8:  # noqa: PLR2004
            raise _OutOfBoundsError("it raises to a large power")


def _tojson(
    value: object,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002
    indent: Any = None,  # noqa: ANN401
    separators: Any = None,  # noqa: ANN401
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    """JSON; that of Jinja also escapes the characters of HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: object) -> None:
    raise _RaisedError(shorten(message).strip("'\"").rstrip("."))


def _strftime_now(format: object) -> str:
    return _RENDERING.get().now.strftime(str(format))


def _check_name(name: object) -> None:
    if str(name).startswith("_"):
        raise _OutOfBoundsError(f"it stores the name {shorten(name)}")


def _library() -> Any:  # noqa: ANN401 - Jinja
    """The modules of Jinja that are used.

    Raises:
        InvalidInput: it is not installed, or too old.
    """
    how = "pip install 'interp[chat]'"
    try:
        from jinja2 import (  # noqa: PLC0415 - only chats need it
            __version__ as version,
        )
        from jinja2 import ext, nodes, sandbox, utils  # noqa: PLC0415
    except ImportError as error:
        raise InvalidInput(
            f"Chat templates need jinja2, which can't be imported ({first_line(error)}): {how}."
        ) from error
    if tuple(int(part) for part in version.split(".")[:3] if part.isdecimal()) < LOWEST:
        wanted = ".".join(map(str, LOWEST))
        raise InvalidInput(
            f"Chat templates need jinja2 {wanted} or later, since templates can leave the sandbox "
            f"of earlier versions; {version} is installed: {how}."
        )
    return SimpleNamespace(ext=ext, nodes=nodes, sandbox=sandbox, utils=utils)


@cache
def _environment() -> Any:  # noqa: ANN401 - of Jinja
    """The environment in which templates are compiled."""
    library = _library()

    class Bounded(library.sandbox.ImmutableSandboxedEnvironment):
        """The sandbox, with limits."""

        intercepted_binops = frozenset({"*", "**"})

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401
            _check_operands(operator, left, right)
            return super().call_binop(context, operator, left, right)

        def call(self, context: Any, function: Any, /, *args: Any, **named: Any) -> Any:  # noqa: ANN401
            _RENDERING.get().take(1)
            for value in (*args, *named.values()):
                _called(value)
            return _bounded(super().call(context, function, *args, **named))

        def _parse(self, source: str, name: str | None, filename: str | None) -> Any:  # noqa: ANN401
            tree = super()._parse(source, name, filename)
            _limit(tree, library.nodes, self)
            return tree

    environment = Bounded(
        trim_blocks=True,
        lstrip_blocks=True,
        # What is computed while a template is compiled would not be bounded.
        optimized=False,
        extensions=[_generation_block(library), library.ext.loopcontrols],
    )
    filters = {STEPS: _counted, BOUNDED: _bounded, CALLED: _called, "tojson": _tojson}
    environment.filters.update(filters)
    environment.globals |= {
        "raise_exception": _raise_exception,
        "strftime_now": _strftime_now,
        "dict": _Dictionaries(),
        "namespace": _namespace(library),
    }
    del environment.globals["lipsum"]
    return environment


class _Dictionaries:
    """``dict`` of a template, without the attributes of the class."""

    __call__ = staticmethod(dict)
    fromkeys = staticmethod(dict.fromkeys)


def _generation_block(library: Any) -> Any:  # noqa: ANN401 - of Jinja
    """The block ``generation``, which marks what a model wrote; only its content matters here."""

    class Generation(library.ext.Extension):
        tags = {"generation"}  # noqa: RUF012 - read by Jinja

        def parse(self, parser: Any) -> Any:  # noqa: ANN401
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return library.nodes.Scope(body).set_lineno(line)

    return Generation


def _namespace(library: Any) -> Any:  # noqa: ANN401 - of Jinja
    """``namespace`` of a template, without names of the interpreter."""

    class Namespace(library.utils.Namespace):
        def __init__(self, /, *args: Any, **attributes: Any) -> None:  # noqa: ANN401
            for name in dict(*args, **attributes):
                _check_name(name)
            super().__init__(*args, **attributes)

        def __setitem__(self, name: str, value: Any) -> None:  # noqa: ANN401
            _check_name(name)
            super().__setitem__(name, value)

    return Namespace


def _limit(tree: Any, nodes: Any, environment: object) -> None:  # noqa: ANN401 - of Jinja
    """Put filters that check limits around values; see :data:`STEPS`."""

    def filtered(value: Any, name: str, line: int) -> Any:  # noqa: ANN401
        node = nodes.Filter(value, name, [], [], None, None, lineno=line)
        return node.set_environment(environment)

    for node in [*tree.find_all((nodes.Filter, nodes.For, nodes.Assign, nodes.AssignBlock))]:
        if isinstance(node, nodes.Filter):
            node.args = [filtered(argument, CALLED, node.lineno) for argument in node.args]
            for argument in node.kwargs:
                argument.value = filtered(argument.value, CALLED, node.lineno)
        elif isinstance(node, nodes.For):
            node.iter = filtered(node.iter, STEPS, node.lineno)
        elif isinstance(node, nodes.Assign):
            node.node = filtered(node.node, BOUNDED, node.lineno)
        else:
            node.filter = filtered(node.filter, BOUNDED, node.lineno)
