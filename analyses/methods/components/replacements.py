"""The values that replace an ablated component: zero, a mean, or those of another prompt.

    zero      0
    mean      the mean over reference prompts (Wang et al. 2022, "Interpretability in the Wild")
    resample  the value on another prompt, at the same position (Chan et al. 2022, "Causal
              Scrubbing")

A mean is taken over all tokens, or over those at the same position. The mean of an attention
pattern is taken over prompts for each pair of positions, so reference prompts must have as many
tokens as the prompts themselves.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from analyses.methods.components.components import Component
from interp import edits
from interp.cache import Cache
from interp.edits import Edit, donor_tokens, summing_dtype, token_mean
from interp.errors import InvalidInput, shorten
from interp.execution import check_no_nan, run
from interp.metrics import Metric, measure, parts_of_rows
from interp.model import Batch, Network, tokens_first
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
        rows: prompts per forward while values are recorded.
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
        return {
            name: kind(c.place, _part(values[c.place], c), head=c.head, unit=c.unit)
            for name, c in each.items()
        }

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
                change = gradient * ((value[rows] if value.ndim == x.ndim else value) - x)
                for name, component in each.items():
                    if component.place == place:
                        effects[name].append(_part(change, component).flatten(1).sum(-1))
        joined = {name: torch.cat(parts).cpu().double() for name, parts in effects.items()}
        return torch.cat(clean).cpu().double(), joined

    def _values_of(self, components: Iterable[Component]) -> dict[Place, Tensor]:
        """What replaces the tensors of components, by their places."""
        places = list(dict.fromkeys(component.place for component in components))
        summed = [place for place in places if not place.point.is_matrix] if self._sums else []
        others = [place for place in places if place not in summed]
        values = self._means(summed) if summed else {}
        if others:
            values |= {place: self._values(place, x) for place, x in self._record(others).items()}
        return values

    @property
    def _sums(self) -> bool:
        """Whether means over all tokens are summed, one forward after another."""
        many = len(self._donors[0].ids) > self.rows
        return self.method == "mean" and not self.per_position and many

    def _means(self, places: Sequence[Place]) -> dict[Place, Tensor]:
        """The mean over all tokens at each place, without the tensors of all reference prompts."""
        sums, counts = dict[Place, Tensor](), dict[Place, int]()
        dtypes = dict[Place, torch.dtype]()
        for part, batches in self._donor_parts():
            cache = run(self.model, *batches, record=places).cache
            check_no_nan(self.model, batches, *(cache[place] for place in places))
            for place in places:
                x, (_, of) = cache[place], self._token_masks(place, place.point.axes[1])
                real = of[part]
                total = x[real].sum(0, dtype=torch.float64)
                sums[place] = total if place not in sums else sums[place] + total
                counts[place] = counts.get(place, 0) + int(real.sum())
                dtypes[place] = x.dtype
        return {place: (sums[place] / counts[place]).to(dtypes[place]) for place in places}

    @cached_property
    def _donors(self) -> Sequence[Batch]:
        return self.batches if self.reference is None else self.reference

    def _donor_parts(self) -> Iterator[tuple[Int[Tensor, " row"], list[Batch]]]:
        """The reference prompts of one forward after another, and their rows."""
        first = self._donors[0].ids
        for part in torch.arange(len(first), device=first.device).split(self.rows):
            yield part, [batch.rows(part) for batch in self._donors]

    def _record(self, places: Sequence[Place]) -> dict[Place, Tensor]:
        """The tensors at these places for all reference prompts."""
        caches = [
            run(self.model, *batches, record=places).cache for _, batches in self._donor_parts()
        ]
        recorded = {place: torch.cat([cache[place] for cache in caches]) for place in places}
        check_no_nan(self.model, self._donors, *recorded.values())
        return recorded

    def _values(self, place: Place, x: Tensor) -> Tensor:
        """The replacement of the tensor at a place, given the tensor of the reference prompts.

        It has the axes of the point, without batch and position if it is a single mean.
        """
        if place.point.is_matrix:
            return self._matrices(place, x)
        to, of = self._token_masks(place, place.point.axes[1])
        if self.method == "resample":
            return x[donor_tokens(to, self.seed, self._given_mask(of))]
        if self.per_position:
            return _means_by_position(x, of)[_positions(to, of)]
        return token_mean(x, of)[0, 0]

    def _matrices(self, place: Place, x: Tensor) -> Tensor:
        """The replacement of a pattern, ``[batch head query key]``."""
        (to_query, of_query), (to_key, of_key) = (
            self._token_masks(place, a) for a in place.point.axes[2:]
        )
        of = _columns_of_positions(of_query, to_query), _columns_of_positions(of_key, to_key)
        to = _columns_of_positions(to_query, of_query), _columns_of_positions(to_key, of_key)
        values = x.movedim(1, -1)[_mesh(*of)]
        if self.method == "resample":
            rows, _ = donor_tokens(to_query, self.seed, self._given_mask(of_query))
            values = values[rows.gather(1, to[0][:, :1])[:, 0]]
        else:
            values = values.mean(0, keepdim=True)
        values_at = x.new_zeros(len(to_query), to_query.shape[1], to_key.shape[1], x.shape[1])
        values_at[_mesh(*to)] = values
        return values_at.movedim(-1, 1)

    def _token_masks(
        self, place: Place, axis: str
    ) -> tuple[Bool[Tensor, "batch pos"], Bool[Tensor, "donor column"]]:
        """Which columns of an axis are tokens: of the prompts, and of the reference prompts."""
        stacks = [stack.name for stack in self.model.stacks]
        name = "encoder" if axis == "source" else place.stack or stacks[-1]
        number = stacks.index(name)
        return self.batches[number].is_real, self._donors[number].is_real

    def _given_mask(self, of: Bool[Tensor, "donor column"]) -> Bool[Tensor, "donor column"] | None:
        return None if self.reference is None else of


def _part(values: Tensor, component: Component) -> Tensor:
    """The part of the values of a place that belongs to a component."""
    if component.head is not None:
        return values.select(-3 if component.place.point.is_matrix else -2, component.head)
    return values if component.unit is None else values[..., component.unit]


def gradient_at(cache: Cache, place: Place) -> Tensor:
    """The gradient with respect to the tensor at a place."""
    name = (f"{place.point.label}_grad", place.layer, place.norm, place.stack)
    return cache[tuple(part for part in name if part is not None)]


def _means_by_position(
    x: Float[Tensor, "donor column ..."], real: Bool[Tensor, "donor column"]
) -> Float[Tensor, "column ..."]:
    """The mean at each position over the prompts that have the position."""
    order, lengths = tokens_first(real), real.sum(-1, keepdim=True)
    has = torch.arange(real.shape[1], device=real.device) < lengths
    tokens = x[torch.arange(len(x), device=x.device)[:, None], order]
    wide = summing_dtype(x.dtype)
    tokens = tokens * has.to(wide).reshape(*has.shape, *[1] * (x.ndim - 2))
    counts = has.sum(0).clamp(min=1).to(wide).reshape(-1, *[1] * (x.ndim - 2))
    return (tokens.sum(0) / counts).to(x.dtype)


def _positions(
    real: Bool[Tensor, "batch pos"], reference: Bool[Tensor, "donor column"]
) -> Int[Tensor, "batch pos"]:
    """The position of each column among the tokens of its row; 0 at padding before them.

    Raises:
        InvalidInput: the longest prompt is longer than every reference prompt.
    """
    longest, reference_length = int(real.sum(-1).max()), int(reference.sum(-1).max())
    if longest > reference_length:
        raise InvalidInput(
            f"A mean per position needs reference prompts as long as the prompts: they have up to "
            f"{reference_length} tokens, the prompts up to {longest}. Give longer reference "
            "prompts, or per_position=False."
        )
    return (real.cumsum(-1) - 1).clamp(min=0)


def _columns_of_positions(
    real: Bool[Tensor, "batch pos"], other: Bool[Tensor, "donor column"]
) -> Int[Tensor, "batch position"]:
    """The column of each position of each row.

    Raises:
        InvalidInput: not all rows, of both batches, have the same length.
    """
    lengths = torch.cat([real.sum(-1), other.sum(-1)])
    shortest, longest = int(lengths.min()), int(lengths.max())
    if shortest < longest:
        raise InvalidInput(
            "To replace a pattern, all prompts must have the same length; these have "
            f'{shortest} to {longest} tokens. Give prompts of one length, or part="z".'
        )
    return tokens_first(real)[:, :longest]


def _mesh(
    query: Int[Tensor, "batch query"], key: Int[Tensor, "batch key"]
) -> tuple[Tensor, Tensor, Tensor]:
    """The index of each pair of columns in each row."""
    row = torch.arange(len(query), device=query.device)
    return row[:, None, None], query[:, :, None], key[:, None, :]
