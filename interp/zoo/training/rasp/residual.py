"""Where does each value lie in the stream? One direction a value, and none is shared."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from interp.zoo.training.rasp.program import Operation, Value


@dataclass(eq=False)
class Residual:
    """The directions of a stream, in the order in which they are asked for.

    BOS has the first. Where it stands all others are 0, but for numbers that heads write.
    """

    width: int = 1
    _spaces: dict[int, slice] = field(default_factory=dict[int, slice])
    BOS = 0

    def add(self, operation: Operation) -> slice:
        """Directions for an operation: one a value, or a single one for the number it is."""
        size = len(operation.domain) if operation.codes is None else 1
        self._spaces[id(operation)] = slice(self.width, self.width + size)
        self.width += size
        return self.of(operation)

    def of(self, operation: Operation) -> slice:
        """The directions of an operation."""
        return self._spaces[id(operation)]

    def at(self, operation: Operation, value: Value) -> int:
        """The direction of one of its values."""
        return self.of(operation).start + operation.domain.index(value)


def words(domain: Iterable[Value]) -> list[str]:
    """How the values of a domain are written."""
    return [str(value) for value in domain]
