"""The values that replace an ablated component: zero, a mean, or those of another prompt.

    zero      0
    mean      the mean over reference prompts (Wang et al. 2022, "Interpretability in the Wild")
    resample  the value on another prompt, at the same position (Chan et al. 2022, "Causal
              Scrubbing")

A mean is taken over all tokens, or over those at the same position. The mean of an attention
pattern is taken over prompts for each pair of positions, so reference prompts must have as many
tokens as the prompts themselves. Donors are drawn from all prompts before any is run; what differs
from prompt to prompt is then computed for as many of them as run together, if there are many.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.methods.components.components import Component
from analyses.methods.components.gathered import (
    Donors,
    Gathered,
    Masks,
    MeanByPosition,
    MeanOfPatterns,
    MeanOfTokens,
    Pairs,
    Resampled,
    ResampledPatterns,
)
from analyses.methods.components.replaced_values import ReplacedValues
from analyses.methods.finite import check_no_nan
from interp import edits
from interp.cache import Cache
from interp.edits import Edit
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance, run
from interp.io import ComputedRows
from interp.metrics import Metric, measure, parts_of_rows
from interp.model import Batch, Network
from interp.points import Place

METHODS = ("zero", "mean", "resample")


def check_method(method: object) -> None:
    """Check that a method is one of ``METHODS``.

    Raises:
        InvalidInput: it is not.
    """
    if method not in METHODS:
        raise InvalidInput(
            f"method={shorten(method)} is not known; it is one of {', '.join(METHODS)}."
        )


@dataclass(frozen=True, eq=False)
class Replacements:
    """The edits that ablate components on some prompts.

    Attributes:
        model: the model.
        batches: the prompts, one batch per stack.
        method: ``zero``, ``mean`` or ``resample``.
        reference: the prompts whose values are used; ``None`` for the prompts themselves.
        per_position: whether a mean is taken over tokens at the same position only.
        seed: seed of the choice of donor prompts.
        rows: prompts per forward while values are gathered, which takes the memory of one forward
            and at most 64 MiB of values, whatever the number of prompts and reference prompts. If
            the values of all prompts are more, the edits have those of the prompts that they are
            applied to, computed at that time: the same numbers within rounding, as the donors run
            in other batches.
    """

    model: Network
    batches: Sequence[Batch]
    method: str
    reference: Sequence[Batch] | None = None
    per_position: bool = False
    seed: int = 0
    rows: int = 64

    def __post_init__(self) -> None:
        check_method(self.method)
        if not isinstance(self.per_position, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(
                f"per_position={shorten(self.per_position)} should be True or False."
            )
        if self.per_position and self.method != "mean":
            raise InvalidInput('per_position=True applies to method="mean" only.')
        if self.reference is not None and self.method == "zero":
            raise InvalidInput(
                'method="zero" has no use for reference=; give method="mean" or "resample".'
            )

    def edits(self, components: Iterable[Component]) -> dict[str, Edit]:
        """The edit that ablates each component, by the name of the component.

        Raises:
            InvalidInput: a single prompt is resampled, no reference prompt has a position, or
                patterns are replaced on prompts that differ in length.
        """
        each = {component.name: component for component in components}
        if self.method == "zero":
            return {name: edits.zero(c.place, head=c.head, unit=c.unit) for name, c in each.items()}
        values = self._values_of(each.values())
        kind = edits.mean if self.method == "mean" else edits.resample
        made = dict[str, Edit]()
        for place in dict.fromkeys(component.place for component in each.values()):
            x = values.take(place)  # the edits have copies
            for name, c in each.items():
                if c.place == place:
                    part = None if x is None else _part(x, c)
                    edit = kind(place, part, head=c.head, unit=c.unit)
                    computed = None if x is not None else self._computed(values, c)
                    made[name] = edit if computed is None else replace(edit, values=computed)
        return {name: made[name] for name in each}

    def edits_of(self, components: Sequence[Component]) -> tuple[tuple[Place, Edit], ...]:
        """The edits that ablate several components together, each with its place.

        Raises:
            InvalidInput: see :meth:`edits`.
        """
        made = self.edits(components) if components else {}
        return tuple((component.place, made[component.name]) for component in components)

    def first_order_effects(
        self, components: Iterable[Component], metric: Metric
    ) -> tuple[Float[Tensor, " prompt"], dict[str, Float[Tensor, " prompt"]]]:
        """The metric, and the first-order estimate of each component's effect on it.

        Σ ∂m/∂x · (replacement − x) over the component's tensor x: one forward and one backward pass
        for all components (attribution patching, Nanda 2023). In float64, on the CPU.

        Raises:
            InvalidInput: see :meth:`edits`; or the metric has no gradient.
        """
        each = {component.name: component for component in components}
        places = list(dict.fromkeys(component.place for component in each.values()))
        values = None if self.method == "zero" else self._values_of(each.values())
        clean, effects = list[Tensor](), {name: list[Tensor]() for name in each}
        tokens = self.batches[-1]
        shape = (*tokens.ids.shape, self.model.config.n_logits)
        for rows in parts_of_rows(shape, tokens.ids.device, most=self.rows):
            part_metric = metric.for_rows(rows.tolist(), len(tokens.ids))
            batches = [batch.rows(rows) for batch in self.batches]
            done = run(self.model, *batches, record=places, gradients_of=part_metric)
            check_no_nan(self.model, batches, done.require_logits())
            clean.append(measure(part_metric, done.require_logits(), batches[-1]))
            for place in places:
                x, gradient = done.cache[place], gradient_at(done.cache, place)
                value = x.new_zeros(()) if values is None else values.on(place, rows.tolist())
                change = gradient * (value - x)
                for name, component in each.items():
                    if component.place == place:
                        effects[name].append(_part(change, component).flatten(1).sum(-1))
        joined = {name: torch.cat(parts).cpu().double() for name, parts in effects.items()}
        return torch.cat(clean).cpu().double(), joined

    def _values_of(self, components: Iterable[Component]) -> ReplacedValues:
        """What replaces the tensors of components, by their places."""
        gathered = {c.place: self._gathered(c.place) for c in components}
        return ReplacedValues(self.model, self.batches, gathered, self._fill)

    def _computed(self, values: ReplacedValues, component: Component) -> ComputedRows:
        """What replaces a component, computed for the prompts that an edit is applied to."""
        place, dtype = component.place, self.model.dtype
        shape = self.model.shape_at(self.batches, place)
        part = _part(torch.empty(shape, dtype=dtype, device="meta"), component)
        name = [self._digest, *place.to_json(), component.head, component.unit]
        digest = hashlib.sha256(json.dumps(name).encode()).hexdigest()
        return ComputedRows(
            part.shape, dtype, digest, lambda rows: _part(values.on(place, rows), component)
        )

    @cached_property
    def _digest(self) -> str:
        """Hash of what the values depend on: the model, all prompts and the settings."""
        of = Provenance.of(self.model, *self.batches, *(self.reference or ()))
        made_of = [of.config, of.weights, of.tokens, of.dtype, self.reference is None]
        settings = [self.method, self.per_position, self.seed]
        return hashlib.sha256(json.dumps([made_of, settings]).encode()).hexdigest()

    def _fill(self, gathered: Mapping[Place, Gathered]) -> None:
        """Run the donors that are needed, and add their tensors."""
        needed = [each.needed for each in gathered.values() if len(each.needed)]
        if not needed:
            return
        for rows in torch.cat(needed).unique().split(self.rows):
            batches = [batch.rows(rows) for batch in self._donors]
            cache = run(self.model, *batches, record=[*gathered]).cache
            check_no_nan(self.model, batches, *(cache[place] for place in gathered))
            for place, values in gathered.items():
                values.add(rows, cache[place])

    def _gathered(self, place: Place) -> Gathered:
        """What gathers the replacement of the tensor at a place."""
        if place.point.is_matrix:
            query, key = (self._stack_of(place, axis) for axis in place.point.axes[2:])
            pairs = Pairs.of(self._masks[query], self._masks[key])
            if self.method == "resample":
                return ResampledPatterns(pairs, self._drawn[query])
            return MeanOfPatterns(pairs)
        number = self._stack_of(place, place.point.axes[1])
        if self.method == "resample":
            return Resampled(self._drawn[number])
        masks = self._masks[number]
        return MeanByPosition(masks) if self.per_position else MeanOfTokens(masks)

    @cached_property
    def _donors(self) -> Sequence[Batch]:
        return self.batches if self.reference is None else self.reference

    @cached_property
    def _masks(self) -> list[Masks]:
        """Which columns of each stack are tokens."""
        both = zip(self.batches, self._donors, strict=True)
        return [Masks(batch.is_real, donors.is_real) for batch, donors in both]

    @cached_property
    def _drawn(self) -> list[Donors]:
        """The donors of each stack."""
        is_reference = self.reference is not None
        return [Donors.drawn(each, self.seed, is_reference=is_reference) for each in self._masks]

    def _stack_of(self, place: Place, axis: str) -> int:
        """The index of the stack whose tokens are on an axis."""
        stacks = [stack.name for stack in self.model.stacks]
        return stacks.index("encoder" if axis == "source" else place.stack or stacks[-1])


def _part(values: Tensor, component: Component) -> Tensor:
    """The part of the values of a place that belongs to a component."""
    if component.head is not None:
        return values.select(-3 if component.place.point.is_matrix else -2, component.head)
    return values if component.unit is None else values[..., component.unit]


def gradient_at(cache: Cache, place: Place) -> Tensor:
    """The gradient with respect to the tensor at a place."""
    name = (f"{place.point.label}_grad", place.layer, place.norm, place.stack)
    return cache[tuple(part for part in name if part is not None)]
