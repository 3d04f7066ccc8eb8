"""Programs over rows of tokens, as expressions of selects, aggregates and maps.

Each operation has one value per position. Calling a :class:`Program` evaluates it in plain Python;
the compiled Transformer must give the same values.

Reference: Weiss, Goldberg and Yahav 2021, "Thinking Like Transformers" (the language RASP).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from interp.errors import InvalidInput

Value = str | int | bool | Fraction


class Operation:
    """A function of a row of tokens with one value per position."""

    @property
    def inputs(self) -> tuple["Operation", ...]:
        """The operations from whose values this one is computed."""
        return ()

    @property
    def domain(self) -> tuple[Value, ...]:
        """All possible values, each once."""
        raise NotImplementedError

    @property
    def codes(self) -> tuple[float, ...] | None:
        """The number that encodes each value; ``None`` if each value has its own direction."""
        return None


@dataclass(frozen=True, eq=False)
class Tokens(Operation):
    """The current token."""

    alphabet: tuple[str, ...]

    @property
    def domain(self) -> tuple[Value, ...]:
        """The alphabet."""
        return self.alphabet


@dataclass(frozen=True, eq=False)
class Positions(Operation):
    """The current position, starting at 1; BOS is at 0 and has no value."""

    longest: int

    @property
    def domain(self) -> tuple[Value, ...]:
        """1 … longest."""
        return tuple(range(1, self.longest + 1))


@dataclass(frozen=True, eq=False)
class Select:
    """For each position, the set of positions whose key matches its query."""

    keys: Operation
    queries: Operation
    match: Callable[[Value, Value], bool]

    def __post_init__(self) -> None:
        _need_values("Select", self.keys, self.queries)


@dataclass(frozen=True, eq=False)
class Aggregate(Operation):
    """The value at the selected position; ``None`` where no position is selected.

    At most one position may be selected.
    """

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
        """The domain of ``values``."""
        return self.values.domain


@dataclass(frozen=True, eq=False)
class Count(Operation):
    """The number n of selected positions, encoded as 1 / (1 + n)."""

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
    """The share of selected positions whose value satisfies ``of``; 0 if none is selected.

    A selected position without a value does not satisfy ``of``.
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
    """``fn`` of the values of one operation, or of two that are not numbers, at each position."""

    fn: Callable[..., Value]
    of: tuple[Operation, ...]

    def __post_init__(self) -> None:
        numbers = [operand for operand in self.of if operand.codes is not None]
        if len(self.of) not in (1, 2) or (numbers and len(self.of) > 1):
            raise InvalidInput(
                f"Map takes one operation, or two that are not numbers; got {len(self.of)}, "
                f"{len(numbers)} of them numbers. Map numbers to values first."
            )

    @property
    def inputs(self) -> tuple[Operation, ...]:
        """The arguments of ``fn``."""
        return self.of

    @property
    def domain(self) -> tuple[Value, ...]:
        """The possible results of ``fn``."""
        results = [self.fn(*values) for values in product(*(operand.domain for operand in self.of))]
        distinct = tuple(dict.fromkeys(results))
        if len({str(value) for value in results}) != len(distinct):
            raise InvalidInput(
                f"Map has values that are equal but differ as text, or the reverse: {results}."
            )
        return distinct


@dataclass(frozen=True, eq=False)
class Program:
    """A named operation.

    Attributes:
        name: name of the program and of the compiled model.
        output: the operation whose values the model predicts.
        causal: whether each position selects only from itself and earlier positions.
        longest: maximum length of a row, in tokens.
    """

    name: str
    output: Operation
    causal: bool
    longest: int

    def __call__(self, row: Sequence[str]) -> list[Value | None]:
        """The value at each position of a row.

        Raises:
            InvalidInput: the row is longer than ``longest``.
        """
        if len(row) > self.longest:
            raise InvalidInput(f"{self.name} takes at most {self.longest} tokens; got {len(row)}.")
        return _evaluate(self.output, tuple(row), causal=self.causal)


def _need_values(what: str, *operations: Operation) -> None:
    """Raise if an operation is a number: heads need one direction per value, and a number has one.

    Raises:
        InvalidInput: an operation is a number.
    """
    if any(operation.codes is not None for operation in operations):
        raise InvalidInput(f"{what} takes no number, such as a Count; Map it to values.")


def _evaluate(operation: Operation, row: tuple[str, ...], *, causal: bool) -> list[Value | None]:
    inputs = [_evaluate(source, row, causal=causal) for source in operation.inputs]
    positions = range(len(row))
    if isinstance(operation, Tokens):
        return list(row)
    if isinstance(operation, Positions):
        return [pos + 1 for pos in positions]
    if isinstance(operation, Map):
        return [None if None in here else operation.fn(*here) for here in zip(*inputs, strict=True)]
    if not isinstance(operation, Aggregate | Count | Share):
        raise InvalidInput(f"{type(operation).__name__} is not an operation of a program.")
    match, (queries, keys) = operation.select.match, inputs[:2]
    selected = [
        [k for k in positions if (k <= q or not causal) and _matches(match, keys[k], queries[q])]
        for q in positions
    ]
    return [_gather(operation, inputs, chosen) for chosen in selected]


def _matches(match: Callable[[Value, Value], bool], key: Value | None, query: Value | None) -> bool:
    return key is not None and query is not None and match(key, query)


def _gather(
    operation: Aggregate | Count | Share, inputs: list[list[Value | None]], selected: list[int]
) -> Value | None:
    """The value at one position, given the positions that it selects."""
    if isinstance(operation, Count):
        return len(selected)
    values = [value for value in (inputs[2][pos] for pos in selected) if value is not None]
    if isinstance(operation, Share):
        return Fraction(sum(map(operation.of, values)), len(selected)) if selected else Fraction(0)
    if len(selected) > 1:
        raise InvalidInput(
            f"Aggregate takes one position; {len(selected)} positions were selected."
        )
    return values[0] if values else None
