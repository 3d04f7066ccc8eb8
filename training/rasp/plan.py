"""Assigns each operation of a program to a head or MLP, in the first layer that has its inputs.

The edges of the circuit follow from this plan.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from interp.errors import InvalidInput
from interp.zoo import Circuit
from training.rasp.program import (
    Aggregate,
    Count,
    Map,
    Operation,
    Positions,
    Program,
    Share,
    Tokens,
)
from training.rasp.residual import Residual

Gather = Aggregate | Count | Share
"""The operations that a head computes."""


@dataclass(frozen=True, eq=False)
class Plan:
    """The node that computes each operation, and the directions of its values.

    Attributes:
        tokens: the token operations, written by the embedding.
        positions: the position operations, written by the position embedding.
        heads: the operations that heads compute, by layer.
        maps: the operations that MLPs compute, by layer.
        residual: the directions of the residual stream.
    """

    tokens: list[Tokens]
    positions: list[Positions]
    heads: list[list[Gather]]
    maps: list[list[Map]]
    residual: Residual

    def writer(self, operation: Operation) -> str:
        """The node that writes an operation's values, such as ``L0H1``."""
        if isinstance(operation, Tokens):
            return "embed"
        if isinstance(operation, Positions):
            return "pos_embed"
        for layer, (heads, maps) in enumerate(zip(self.heads, self.maps, strict=True)):
            for head, gather in enumerate(heads):
                if gather is operation:
                    return f"L{layer}H{head}"
            if any(each is operation for each in maps):
                return f"L{layer}MLP"
        raise LookupError(operation)


def plan_of(program: Program) -> Plan:
    """Assign each operation to the first layer in which its inputs are available.

    Raises:
        InvalidInput: the output is a number, no token is read, or an operation has a different
            ``longest`` from that of the program.
    """
    operations = list(_in_order(program.output))
    _check(program, operations)
    stage: dict[int, int] = {}
    for operation in operations:
        ready = max((stage[id(source)] for source in operation.inputs), default=-2) + 1
        # Even stages are attention, odd ones MLPs.
        parity = 1 if isinstance(operation, Map) else 0
        stage[id(operation)] = ready + (ready % 2 != parity) if operation.inputs else -1
    residual = Residual()
    for operation in operations:
        residual.add(operation)
    layers = range(max(stage.values()) // 2 + 1)
    return Plan(
        tokens=[operation for operation in operations if isinstance(operation, Tokens)],
        positions=[operation for operation in operations if isinstance(operation, Positions)],
        heads=[
            [o for o in operations if isinstance(o, Gather) and stage[id(o)] == 2 * layer]
            for layer in layers
        ],
        maps=[
            [o for o in operations if isinstance(o, Map) and stage[id(o)] == 2 * layer + 1]
            for layer in layers
        ],
        residual=residual,
    )


def _check(program: Program, operations: list[Operation]) -> None:
    if program.output.codes is not None:
        raise InvalidInput(f"{program.name}: the output is a number; Map it to values.")
    if not any(isinstance(operation, Tokens) for operation in operations):
        raise InvalidInput(f"{program.name} reads no token.")
    for operation in operations:
        if (
            isinstance(operation, Count | Share | Positions)
            and operation.longest != program.longest
        ):
            raise InvalidInput(
                f"{program.name} has longest={program.longest}; a {type(operation).__name__} in it "
                f"has longest={operation.longest}. They must be equal."
            )


def circuit_of(program: Program, plan: Plan) -> Circuit:
    """The nodes that compute an operation, and the edges between them."""
    edges: dict[tuple[str, str], None] = {}
    for operation in (o for layer in plan.heads for o in layer):
        node = plan.writer(operation)
        for port, source in zip("qkv", operation.inputs, strict=False):
            edges[plan.writer(source), f"{node}.{port}"] = None
        edges["embed", f"{node}.k"] = None
        if isinstance(operation, Count):
            edges["embed", f"{node}.v"] = None
    for operation in (o for layer in plan.maps for o in layer):
        for source in operation.inputs:
            edges[plan.writer(source), plan.writer(operation)] = None
            if source.codes is not None:
                edges["embed", plan.writer(operation)] = None
    edges[plan.writer(program.output), "logits"] = None
    return Circuit(
        heads=tuple(plan.writer(o) for layer in plan.heads for o in layer),
        mlps=tuple(f"L{layer}MLP" for layer, maps in enumerate(plan.maps) if maps),
        edges=tuple(edges),
    )


def _in_order(operation: Operation) -> Iterator[Operation]:
    """The operation and all operations that it depends on, each once, inputs first."""
    seen: dict[int, Operation] = {}

    def visit(node: Operation) -> None:
        if id(node) not in seen:
            for source in node.inputs:
                visit(source)
            seen[id(node)] = node

    visit(operation)
    return iter(seen.values())
