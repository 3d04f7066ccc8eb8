"""Directions of the residual stream: one basis vector for each value of each operation."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from training.rasp.program import Operation, Value


@dataclass(eq=False)
class Residual:
    """Assigns basis vectors of the residual stream, in the order of :meth:`add`.

    The first is that of BOS. At the position of BOS, the coefficients of all others are 0, except
    those of numbers that heads write.
    """

    width: int = 1
    _spaces: dict[int, slice] = field(default_factory=dict[int, slice])
    BOS = 0

    def add(self, operation: Operation) -> slice:
        """Assign directions to an operation: one per value, or a single one for a number."""
        size = len(operation.domain) if operation.codes is None else 1
        self._spaces[id(operation)] = slice(self.width, self.width + size)
        self.width += size
        return self.of(operation)

    def of(self, operation: Operation) -> slice:
        """The directions of an operation."""
        return self._spaces[id(operation)]

    def at(self, operation: Operation, value: Value) -> int:
        """The direction of one value of an operation."""
        return self.of(operation).start + operation.domain.index(value)


def words(domain: Iterable[Value]) -> list[str]:
    """The values of a domain, as text."""
    return [str(value) for value in domain]
