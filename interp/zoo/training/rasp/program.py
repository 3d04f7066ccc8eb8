"""What is a program for a Transformer? Selectors, aggregates and maps over a row of tokens.

Each operation gives one value a position. Calling a :class:`Program` says what it means, in plain
Python; the compiler says how a Transformer computes it, and the two must agree.

Reference: Weiss, Goldberg and Yahav 2021, "Thinking Like Transformers" (the language RASP).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from interp.errors import InvalidInput

Value = str | int | bool | Fraction


class Operation:
    """One value a position."""

    @property
    def inputs(self) -> tuple["Operation", ...]:
        """The operations that it is made of."""
        return ()

    @property
    def domain(self) -> tuple[Value, ...]:
        """The values that it may have, each once."""
        raise NotImplementedError

    @property
    def codes(self) -> tuple[float, ...] | None:
        """The number that stands for each value; ``None`` if each has a direction of its own."""
        return None


@dataclass(frozen=True, eq=False)
class Tokens(Operation):
    """The token that stands here."""

    alphabet: tuple[str, ...]

    @property
    def domain(self) -> tuple[Value, ...]:
        """The alphabet."""
        return self.alphabet


@dataclass(frozen=True, eq=False)
class Positions(Operation):
    """Where we are, from 1 on; BOS stands at 0 and has no values."""

    longest: int

    @property
    def domain(self) -> tuple[Value, ...]:
        """1 … longest."""
        return tuple(range(1, self.longest + 1))


@dataclass(frozen=True, eq=False)
class Select:
    """Which positions a position looks at: those whose key matches its query."""

    keys: Operation
    queries: Operation
    match: Callable[[Value, Value], bool]

    def __post_init__(self) -> None:
        _need_values("Select", self.keys, self.queries)


@dataclass(frozen=True, eq=False)
class Aggregate(Operation):
    """The value at the one position that is selected; nothing where there is none."""

    select: Select
    values: Operation

    def __post_init__(self) -> None:
        _need_values("Aggregate", self.values)

    @property
    def inputs(self) -> tuple[Operation, ...]:
        """Queries, keys, values."""
        return self.select.queries, self.select.keys, self.values

    @property
    def domain(self) -> tuple[Value, ...]:
        """That of the values."""
        return self.values.domain


@dataclass(frozen=True, eq=False)
class Count(Operation):
    """How many positions are selected, n; 1 / (1 + n) stands for it."""

    select: Select
    longest: int

    @property
    def inputs(self) -> tuple[Operation, ...]:
        """Queries and keys."""
        return self.select.queries, self.select.keys

    @property
    def domain(self) -> tuple[Value, ...]:
        """0 … longest."""
        return tuple(range(self.longest + 1))

    @property
    def codes(self) -> tuple[float, ...]:
        """1 / (1 + n)."""
        return tuple(1 / (1 + n) for n in range(self.longest + 1))


@dataclass(frozen=True, eq=False)
class Share(Operation):
    """In what share of the selected positions ``of`` is true of the value; 0 if there are none.

    A position without a value counts as one where it is not true.
    """

    select: Select
    values: Operation
    of: Callable[[Value], bool]
    longest: int

    def __post_init__(self) -> None:
        _need_values("Share", self.values)

    @property
    def inputs(self) -> tuple[Operation, ...]:
        """Queries, keys, values."""
        return self.select.queries, self.select.keys, self.values

    @property
    def domain(self) -> tuple[Value, ...]:
        """The fractions with denominators up to ``longest``, in order."""
        lengths = range(1, self.longest + 1)
        return tuple(sorted({Fraction(k, n) for n in lengths for k in range(n + 1)}))

    @property
    def codes(self) -> tuple[float, ...]:
        """The fractions themselves."""
        return tuple(float(value) for value in self.domain if isinstance(value, Fraction))


@dataclass(frozen=True, eq=False)
class Map(Operation):
    """``fn`` of what stands here: of one operation, or of two that have directions of their own."""

    fn: Callable[..., Value]
    of: tuple[Operation, ...]

    def __post_init__(self) -> None:
        numbers = [one for one in self.of if one.codes is not None]
        if len(self.of) not in (1, 2) or (numbers and len(self.of) > 1):
            raise InvalidInput(
                f"Map takes one operation, or two that no number stands for; got {len(self.of)}, "
                f"{len(numbers)} of them numbers."
            )

    @property
    def inputs(self) -> tuple[Operation, ...]:
        """What ``fn`` is of."""
        return self.of

    @property
    def domain(self) -> tuple[Value, ...]:
        """All that ``fn`` may give."""
        given = [self.fn(*values) for values in product(*(one.domain for one in self.of))]
        found = tuple(dict.fromkeys(given))
        if len({str(value) for value in given}) != len(found):
            raise InvalidInput(f"Map gives values that are equal but not written alike: {given}.")
        return found


@dataclass(frozen=True, eq=False)
class Program:
    """A named operation.

    Attributes:
        name: of the model that computes it.
        output: what it gives.
        causal: whether a position sees only those up to itself.
        longest: row that it is for, in tokens.
    """

    name: str
    output: Operation
    causal: bool
    longest: int

    def __call__(self, row: Sequence[str]) -> list[Value | None]:
        """What the program gives at each position of a row.

        Raises:
            InvalidInput: the row is longer than ``longest``.
        """
        if len(row) > self.longest:
            raise InvalidInput(f"{self.name} is for {self.longest} tokens; got {len(row)}.")
        return _evaluate(self.output, tuple(row), causal=self.causal)


def _need_values(what: str, *operations: Operation) -> None:
    """Make sure that no number stands for their values, which a head could not tell apart."""
    if any(one.codes is not None for one in operations):
        raise InvalidInput(f"{what} takes no number, such as a Count; Map it to values.")


def _evaluate(operation: Operation, row: tuple[str, ...], *, causal: bool) -> list[Value | None]:
    inputs = [_evaluate(one, row, causal=causal) for one in operation.inputs]
    everywhere = range(len(row))
    if isinstance(operation, Tokens):
        return list(row)
    if isinstance(operation, Positions):
        return [place + 1 for place in everywhere]
    if isinstance(operation, Map):
        return [None if None in here else operation.fn(*here) for here in zip(*inputs, strict=True)]
    if not isinstance(operation, Aggregate | Count | Share):
        raise InvalidInput(f"{type(operation).__name__} is no operation of a program.")
    match, (queries, keys) = operation.select.match, inputs[:2]
    chosen = [
        [k for k in everywhere if (k <= q or not causal) and _matches(match, keys[k], queries[q])]
        for q in everywhere
    ]
    return [_gathered(operation, inputs, places) for places in chosen]


def _matches(match: Callable[[Value, Value], bool], key: Value | None, query: Value | None) -> bool:
    return key is not None and query is not None and match(key, query)


def _gathered(
    operation: Aggregate | Count | Share, inputs: list[list[Value | None]], places: list[int]
) -> Value | None:
    """What one position gets of those that it selected."""
    if isinstance(operation, Count):
        return len(places)
    values = [value for value in (inputs[2][place] for place in places) if value is not None]
    if isinstance(operation, Share):
        return Fraction(sum(map(operation.of, values)), len(places)) if places else Fraction(0)
    if len(places) > 1:
        raise InvalidInput(f"Aggregate gives one value; {len(places)} positions were selected.")
    return values[0] if values else None
