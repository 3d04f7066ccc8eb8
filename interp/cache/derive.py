"""What follows from what is held? Each place by its recipe, from the weights as they were."""

from collections.abc import Callable, Collection
from dataclasses import replace

import torch
from torch import Tensor

from interp.errors import NotRecorded, StaleCache
from interp.model.context import Context
from interp.model.network import Network
from interp.model.recipe import Recipe
from interp.points import Place, Point
from interp.tensor_data import AsItWas


class Derivation:
    """How the places of one run follow from one another.

    Attributes:
        model: what ran; on the meta device if only its structure is known.
        contexts: positions and padding of the run, by stack.
    """

    def __init__(self, model: Network, contexts: dict[str | None, Context]) -> None:
        self.model, self.contexts = model, contexts
        self._weights = [AsItWas.of(weight) for weight in model.parameters()]

    @property
    def has_weights(self) -> bool:
        """Whether the model is there, and not its structure alone."""
        return self.model.device.type != "meta"

    @property
    def is_stale(self) -> bool:
        """Whether a weight was changed in place or swapped since the run."""
        now = list(self.model.parameters())
        return len(now) != len(self._weights) or not all(
            weight.is_still(one) for weight, one in zip(self._weights, now, strict=True)
        )

    def __call__(
        self, place: Place, held: Collection[Place], read: Callable[[Place], Tensor]
    ) -> Tensor:
        """The tensor at ``place``, which is not among those ``held``; ``read`` gives those.

        It may be one of them itself, or share its memory.

        Raises:
            NotRecorded: nothing held tells what it was, or the weights are not there.
            StaleCache: the weights have changed since the run.
        """
        if not self.has_weights:
            raise NotRecorded(
                f"{place} is derived from the model's weights, and this cache was loaded without "
                "them: load_cache(path, model=), or .keep(...) it before saving."
            )
        if self.is_stale:
            raise StaleCache(
                f"{place} is derived from the model's weights, and they have changed since the "
                "run, or the model was moved; read it before that, or record it by name."
            )

        def made(place: Place) -> Tensor:
            if place in held:
                return read(place)
            recipe = self.model.layout[place]
            if recipe.make is None:
                raise NotRecorded(f"{place} was not kept, and nothing kept tells what it was.")
            block = replace(place, layer=layer_of(self.model, place))
            reader = BlockReader(made, held, block, self.contexts[place.stack])
            return recipe.make(self._part(place, recipe), reader)

        with torch.no_grad():
            return made(place)

    def _part(self, place: Place, recipe: Recipe) -> object:
        stack = self.model.stack(place.stack)
        owner = stack if place.layer is None else stack.block(place.layer)
        return owner.get_submodule(recipe.part)


class BlockReader:
    """Reads other places of one block on behalf of a recipe (of the last one, at the exit)."""

    def __init__(
        self,
        read: Callable[[Place], Tensor],
        held: Collection[Place],
        block: Place,
        context: Context,
    ) -> None:
        self._read, self._held, self._block = read, held, block
        self.context = context

    def __call__(self, point: Point, norm: str | None = None) -> Tensor:
        """The tensor at that place of the same block."""
        return self._read(self._place(point, norm))

    def derives(self, point: Point) -> bool:
        """Whether that tensor is made anew for whoever reads it, and so may be written into."""
        return self._place(point) not in self._held

    def _place(self, point: Point, norm: str | None = None) -> Place:
        return Place(point, self._block.layer if point.in_block else None, norm, self._block.stack)


def layer_of(model: Network, place: Place) -> int:
    """The block that a recipe reads: the place's own, or the last one for the exit."""
    return len(model.stack(place.stack).blocks) - 1 if place.layer is None else place.layer


def needs_of(model: Network, place: Place, recipe: Recipe) -> set[Place]:
    """The places of this model that the recipe of ``place`` reads."""
    layer = layer_of(model, place)
    return {
        Place(need.point, layer if need.point.in_block else None, need.norm, place.stack)
        for need in recipe.needs
    }


def leaves(model: Network, place: Place, edited: Collection[Place]) -> set[Place]:
    """The places that must be kept so that ``place`` can be read.

    A tensor that every forward forms is kept itself, and so is one that is edited; one that fused
    kernels go without is derived, and what it needs is kept instead.
    """
    recipe = model.layout[place]
    if place in edited or not recipe.on_demand:
        return {place}
    needs = needs_of(model, place, recipe)
    return {leaf for need in needs for leaf in leaves(model, need, edited)}


def sources_of(model: Network, place: Place, held: Collection[Place]) -> set[Place]:
    """The places held that ``place`` is derived from; itself, if it is held."""
    if place in held:
        return {place}
    needs = needs_of(model, place, model.layout[place])
    return {source for need in needs for source in sources_of(model, need, held)}
