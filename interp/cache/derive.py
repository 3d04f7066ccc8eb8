"""Derives tensors that are not stored from those that are, each with the recipe of its place."""

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from interp.errors import NotRecorded, StaleCache
from interp.model import Context, Network, Recipe, WeightVersion
from interp.points import Place, Point

Contexts = dict[str | None, Context]
Stored = Collection[Place]
Read = Callable[[Place], Tensor]


class Derivation:
    """Derives the places of one run from one another, with the weights of that run.

    It is created before the forward, so that a change of the weights during the run is also
    detected.

    Attributes:
        model: the model that ran; on the meta device if only its structure is known.
        contexts: positions and padding of the run, by stack.
        keep_graph: whether derived tensors are part of the autograd graph of the stored ones.
    """

    def __init__(self, model: Network, contexts: Contexts, *, keep_graph: bool = False) -> None:
        self.model, self.contexts, self.keep_graph = model, contexts, keep_graph
        self._weights: dict[str, WeightVersion] | None = _versions_of(model)

    @property
    def has_weights(self) -> bool:
        """Whether the model has weights, and not only its structure."""
        return self.model.device.type != "meta"

    @property
    def is_stale(self) -> bool:
        """Whether a weight was changed in place, replaced or parametrized since the run began."""
        now = weights_of(self.model)
        return (
            self._weights is None
            or now.keys() != self._weights.keys()
            or not all(version.matches(now[name]) for name, version in self._weights.items())
        )

    def __call__(self, place: Place, stored: Stored, read: Read) -> Tensor:
        """The tensor at ``place``, derived from the ``stored`` places, which ``read`` returns.

        The result may be one of the stored tensors, or share its memory.

        Raises:
            NotRecorded: it can't be derived from the stored tensors, or there are no weights.
            StaleCache: the weights have changed since the run.
        """
        self.require_weights(place)
        return self.unchecked(place, stored, read)

    def unchecked(self, place: Place, stored: Stored, read: Read) -> Tensor:
        """The same without a check of the weights, for many places after one check."""
        contexts = self.contexts
        if self.keep_graph:  # otherwise masks and biases, which are shared, would share their graph
            contexts = {stack: context.stored() for stack, context in contexts.items()}

        with torch.set_grad_enabled(self.keep_graph and torch.is_grad_enabled()):
            return self._tensor_at(contexts, stored, read, place)

    # No closure, which would refer to itself, and so outlive the call with all that was stored.
    def _tensor_at(self, contexts: Contexts, stored: Stored, read: Read, place: Place) -> Tensor:
        if place in stored:
            return read(place)
        recipe = self.model.layout[place]
        if recipe.compute is None:
            raise NotRecorded(f"{place} is not stored, and does not follow from what is.")
        block = replace(place, layer=layer_of(self.model, place))
        tensor_at = partial(self._tensor_at, contexts, stored, read)
        reader = BlockReader(tensor_at, stored, block, contexts[place.stack])
        return recipe.compute(self._part(place, recipe), reader)

    def weight(self, name: str) -> Tensor:
        """A weight of the run.

        Raises:
            NotRecorded: there are no weights.
            StaleCache: the weights have changed since the run.
        """
        self.require_weights(name)
        part, _, weight_name = name.rpartition(".")
        return getattr(
            self.model.get_submodule(part), weight_name
        )  # the value, if it is parametrized

    def require_weights(self, what: object) -> None:
        """Make sure that ``what`` can be derived from the weights of the run.

        Raises:
            NotRecorded: there are no weights.
            StaleCache: the weights have changed since the run.
        """
        if not self.has_weights:
            raise NotRecorded(
                f"{what} is derived from the model's weights, and this cache was loaded without "
                "them: load_cache(path, model=), or .keep(...) it before saving."
            )
        if self.is_stale:
            raise StaleCache(
                f"{what} is derived from the model's weights, which have changed or moved since "
                "the run began; read it before that, or store it: run(..., store=)."
            )

    def __getstate__(self) -> dict[str, Any]:
        """The state without the identity of the weights, as a copied model has its own weights."""
        contexts = {stack: context.stored() for stack, context in self.contexts.items()}
        return {"model": self.model, "contexts": contexts, "is_stale": self.is_stale}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state with the weights of the copied model, without an autograd graph."""
        self.model, self.contexts, self.keep_graph = state["model"], state["contexts"], False
        self._weights = None if state["is_stale"] else _versions_of(self.model)

    def _part(self, place: Place, recipe: Recipe) -> object:
        stack = self.model.stack(place.stack)
        owner = stack if place.layer is None else stack.block(place.layer)
        return owner.get_submodule(recipe.part)


class BlockReader:
    """Reads other places of one block for a recipe (of the last block for places at the exit)."""

    def __init__(self, read: Read, stored: Stored, block: Place, context: Context) -> None:
        self._read, self._stored, self._block = read, stored, block
        self.context = context

    def __call__(self, point: Point, norm: str | None = None) -> Tensor:
        """The tensor at this place of the same block."""
        return self._read(self._place(point, norm))

    def is_scratch(self, point: Point) -> bool:
        """Whether the tensor is computed anew for each reader, so that it may be overwritten."""
        return self._place(point) not in self._stored and not torch.is_grad_enabled()

    def _place(self, point: Point, norm: str | None = None) -> Place:
        return Place(point, self._block.layer if point.in_block else None, norm, self._block.stack)


def layer_of(model: Network, place: Place) -> int:
    """The block that a recipe reads: that of the place, or the last one for places at the exit."""
    return len(model.stack(place.stack).blocks) - 1 if place.layer is None else place.layer


def needs_of(model: Network, place: Place, recipe: Recipe) -> set[Place]:
    """The places of this model that the recipe of ``place`` reads."""
    layer = layer_of(model, place)
    return {
        Place(need.point, layer if need.point.in_block else None, need.norm, place.stack)
        for need in recipe.needs
    }


def required_places(model: Network, place: Place, edited: Collection[Place]) -> set[Place]:
    """The places that must be stored so that ``place`` can be read.

    A tensor that every forward forms is stored itself, as is one that is edited. For a tensor that
    fused kernels skip, the places that it is derived from are stored instead.
    """
    recipe = model.layout[place]
    if place in edited or not recipe.absent_when_fused:
        return {place}
    needs = needs_of(model, place, recipe)
    return {required for need in needs for required in required_places(model, need, edited)}


def sources_of(model: Network, place: Place, stored: Collection[Place]) -> set[Place]:
    """The stored places that ``place`` is derived from; only ``place`` itself if it is stored."""
    if place in stored:
        return {place}
    needs = needs_of(model, place, model.layout[place])
    return {source for need in needs for source in sources_of(model, need, stored)}


def weights_of(model: Network) -> dict[str, Tensor]:
    """Parameters and buffers by name; the tensor of a parametrized weight has another name."""
    weights: dict[str, Tensor | None] = {}
    modules: list[tuple[str, Module]] = [("", model)]
    while modules:  # the nested generators of named_parameters take five times as long
        path, module = modules.pop()
        tensors = vars(module)["_parameters"] | vars(module)["_buffers"]
        weights |= {path + name: tensor for name, tensor in tensors.items()}
        modules += [(f"{path}{name}.", part) for name, part in module.named_children()]
    return {name: weight for name, weight in weights.items() if weight is not None}


def _versions_of(model: Network) -> dict[str, WeightVersion]:
    return {name: WeightVersion.of(weight) for name, weight in weights_of(model).items()}
