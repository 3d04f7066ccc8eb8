"""The values that replace an ablated component: zero, a mean, or those of another prompt.

    zero      0
    mean      the mean over reference prompts (Wang et al. 2022, "Interpretability in the Wild")
    resample  the value on another prompt, at the same position (Chan et al. 2022, "Causal
              Scrubbing")

A mean is taken over all tokens, or over those at the same position. The mean of an attention
pattern is taken over prompts for each pair of positions, so reference prompts must have as many
tokens as the prompts themselves.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.methods.components.components import Component
from analyses.methods.components.gathered import (
    Gathered,
    Masks,
    MeanByPosition,
    MeanOfPatterns,
    MeanOfTokens,
    Resampled,
    ResampledPatterns,
)
from interp import edits
from interp.cache import Cache
from interp.edits import Edit
from interp.errors import InvalidInput, shorten
from interp.execution import check_no_nan, run
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
            and that of the values, whatever the number of reference prompts.
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
        for place in list(values):
            x = values.pop(place)  # the edits have copies
            for name, c in each.items():
                if c.place == place:
                    made[name] = kind(place, _part(x, c), head=c.head, unit=c.unit)
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
        values = {} if self.method == "zero" else self._values_of(each.values())
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
                value = values.get(place, x.new_zeros(()))
                is_by_prompt = value.ndim == x.ndim and len(value) > 1
                change = gradient * ((value[rows] if is_by_prompt else value) - x)
                for name, component in each.items():
                    if component.place == place:
                        effects[name].append(_part(change, component).flatten(1).sum(-1))
        joined = {name: torch.cat(parts).cpu().double() for name, parts in effects.items()}
        return torch.cat(clean).cpu().double(), joined

    def _values_of(self, components: Iterable[Component]) -> dict[Place, Tensor]:
        """What replaces the tensors of components, by their places."""
        gathered = {c.place: self._gathered(c.place) for c in components}
        if not gathered:
            return {}
        needed = torch.cat([each.needed for each in gathered.values()]).unique()
        for rows in needed.split(self.rows):
            batches = [batch.rows(rows) for batch in self._donors]
            cache = run(self.model, *batches, record=[*gathered]).cache
            check_no_nan(self.model, batches, *(cache[place] for place in gathered))
            for place, values in gathered.items():
                values.add(rows, cache[place])
        return {place: values.values() for place, values in gathered.items()}

    def _gathered(self, place: Place) -> Gathered:
        """What gathers the replacement of the tensor at a place."""
        is_reference = self.reference is not None
        if place.point.is_matrix:
            query, key = (self._masks(place, axis) for axis in place.point.axes[2:])
            if self.method == "resample":
                return ResampledPatterns(query, key, self.seed, is_reference=is_reference)
            return MeanOfPatterns(query, key)
        masks = self._masks(place, place.point.axes[1])
        if self.method == "resample":
            return Resampled(masks, self.seed, is_reference=is_reference)
        return MeanByPosition(masks) if self.per_position else MeanOfTokens(masks)

    @cached_property
    def _donors(self) -> Sequence[Batch]:
        return self.batches if self.reference is None else self.reference

    def _masks(self, place: Place, axis: str) -> Masks:
        """Which columns of an axis are tokens."""
        stacks = [stack.name for stack in self.model.stacks]
        name = "encoder" if axis == "source" else place.stack or stacks[-1]
        number = stacks.index(name)
        return Masks(self.batches[number].is_real, self._donors[number].is_real)


def _part(values: Tensor, component: Component) -> Tensor:
    """The part of the values of a place that belongs to a component."""
    if component.head is not None:
        return values.select(-3 if component.place.point.is_matrix else -2, component.head)
    return values if component.unit is None else values[..., component.unit]


def gradient_at(cache: Cache, place: Place) -> Tensor:
    """The gradient with respect to the tensor at a place."""
    name = (f"{place.point.label}_grad", place.layer, place.norm, place.stack)
    return cache[tuple(part for part in name if part is not None)]
