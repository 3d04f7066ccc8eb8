"""A row of a check: one identity at one part, or the same comparison after what must break it."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from interp.model.attention.attention import Attention
from interp.model.attentions import every_attention
from interp.model.batch import Batch
from interp.model.network import Network
from interp.symmetries.observed import (
    HEAD,
    LAYER,
    MODEL,
    OUTPUT,
    PATTERN,
    Observed,
    Part,
    observed,
)
from interp.verify import TIGHT, Identity, difference

Kinds = tuple[tuple[str, str], ...]
"""Kinds of parts and quantities that are compared."""
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
        kind: of the part: ``head``, ``layer`` or ``model``.
        part: e.g. ``L0H1``, ``L0`` or ``model``.
        quantity: ``pattern``, or ``output``: what a head writes, a layer's stream, the logits.
        change: what should break it; empty for the identity itself.
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
    """What a model is checked on.

    Attributes:
        model: in float64.
        batches: random tokens, of each stack.
        generator: of permutations and bases.
        notes: symmetries that were left out, and why; collected by the checks.
    """

    model: Network
    batches: Sequence[Batch]
    generator: torch.Generator
    notes: list[str] = field(default_factory=list[str])

    def after(self, change: Callable[[Network], None], model: Network | None = None) -> Observed:
        """What a changed copy of the model, or of another, computes."""
        new = copy.deepcopy(model or self.model)
        change(new)
        return observed(new, self.batches)


@dataclass(frozen=True)
class Symmetry:
    """A symmetry.

    Attributes:
        name: as in the rows.
        output: the identity of outputs.
        pattern: that of patterns, if it is another.
        bound: the largest error allowed.
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
        """A row for each part of these kinds; ``change`` is what should break the identity."""
        for part, found in after.items():
            if (part.kind, part.quantity) in kinds:
                name = self.pattern if self.pattern and part.quantity == PATTERN else self.output
                error = difference(found, expected(part))
                where = (self.name, part.kind, part.name, part.quantity)
                yield SymmetryCheck(name, error, self.bound, *where, change)


def attentions(model: Network) -> list[Attention]:
    """Every attention of a model."""
    return [attn for kind in every_attention(model) for attn in kind.layers]
