"""Checks of one symmetry at one part of a model: an identity, or a change that must break it."""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from analyses.methods.heads import every_attention
from analyses.methods.symmetries import (
    HEAD,
    LAYER,
    MODEL,
    OUTPUT,
    PATTERN,
    TIGHT,
    Identity,
    Observed,
    Part,
    difference,
    observed,
)
from interp.model import Attention, Batch, Network

Kinds = tuple[tuple[str, str], ...]
"""Pairs of a kind of part and a quantity, which are compared."""
AT_MODEL: Kinds = ((MODEL, OUTPUT),)
AT_LAYERS: Kinds = ((LAYER, OUTPUT), *AT_MODEL)
OUTPUTS: Kinds = ((HEAD, OUTPUT), *AT_LAYERS)
EVERYWHERE: Kinds = ((HEAD, PATTERN), *OUTPUTS)


@dataclass(frozen=True)
class SymmetryCheck(Identity):
    """One symmetry at one part of a model; ``name`` is the identity.

    Attributes:
        symmetry: ``tokens``, ``heads``, ``neurons``, ``batch``, ``vocabulary``, ``scores`` or
            ``values``.
        kind: kind of the part: ``head``, ``layer`` or ``model``.
        part: name of the part, such as ``L0H1``, ``L0`` or ``model``.
        quantity: ``pattern``, or ``output``: the output of a head, the stream after a layer, or the
            logits.
        change: the change that should break the identity; empty for the identity itself.
    """

    symmetry: str
    kind: str
    part: str
    quantity: str
    change: str = ""

    @property
    def verdict(self) -> str:
        """``holds`` or ``BROKEN`` of an identity; ``breaks`` or ``no effect`` of a change."""
        if self.change:
            return "no effect" if self.holds else "breaks"
        return "holds" if self.holds else "BROKEN"


Rows = Iterator[SymmetryCheck]


@dataclass(frozen=True, eq=False)
class Case:
    """The model, inputs and random numbers of one series of checks.

    Attributes:
        model: the model, in float64.
        batches: random tokens, one batch per stack.
        generator: generator of permutations and bases.
        notes: symmetries that were skipped, and why; the checks append to it.
    """

    model: Network
    batches: Sequence[Batch]
    generator: torch.Generator
    notes: list[str] = field(default_factory=list[str])

    def after(
        self,
        change: Callable[[Network], None],
        parts: Iterable[nn.Module],
        model: Network | None = None,
    ) -> Observed:
        """The quantities that are compared, computed by a changed copy of ``model``.

        Args:
            change: changes the copy in place.
            parts: the parts whose weights it changes.
            model: the model that is copied; by default that of the case.
        """
        weights = (weight for part in parts for weight in part.parameters())
        new = copy_with(model or self.model, weights)
        change(new)
        return observed(new, self.batches)


@dataclass(frozen=True)
class Symmetry:
    """A symmetry, and the identities that express it.

    Attributes:
        name: the value of ``symmetry`` in its checks.
        output: the identity of outputs.
        pattern: the identity of patterns, if it differs from that of outputs.
        bound: the largest allowed error.
    """

    name: str
    output: str
    pattern: str | None = None
    bound: float = TIGHT

    def rows(
        self,
        after: Observed,
        expected: Callable[[Part], Tensor],
        kinds: Kinds,
        change: str = "",
    ) -> Rows:
        """A check of each part of these kinds; ``change`` names what should break the identity."""
        for part, tensor in after.items():
            if (part.kind, part.quantity) in kinds:
                name = self.pattern if self.pattern and part.quantity == PATTERN else self.output
                error = difference(tensor, expected(part))
                where = (self.name, part.kind, part.name, part.quantity)
                yield SymmetryCheck(name, error, self.bound, *where, change)


def copy_with(model: Network, weights: Iterable[Tensor]) -> Network:
    """A copy with weights of its own at these weights; all others are shared with ``model``."""
    copied = {id(weight) for weight in weights}
    shared = {id(weight): weight for weight in model.parameters() if id(weight) not in copied}
    return copy.deepcopy(model, shared)


def attentions(model: Network) -> list[Attention]:
    """Every attention of a model."""
    return [attn for kind in every_attention(model) for attn in kind.layers]
