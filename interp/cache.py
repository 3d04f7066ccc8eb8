"""What did the forward compute? A cache keeps the least from which all that was asked follows.

Scores and pattern follow from q and k, result from z, a norm's output from the stream, and so
on, by the very functions that the forward applies (see :mod:`interp.model.recipe`). So a
cache of everything keeps the streams and q, k, v, z, and derives the rest when it is read.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from interp.errors import NotRecorded, StaleCache
from interp.model.context import Context
from interp.model.network import Network
from interp.model.recipe import Recipe
from interp.points import Place, PlaceLike, Point
from interp.values import version_of

GRAD = "_grad"


class Cache:
    """The activations of one run, on the model's device.

    Read as ``cache["pattern", 0]``, ``cache["resid_post", -1]``, ``cache["scale", 4, "ln1"]``,
    ``cache["blocks.0.attn.hook_pattern"]``; with gradients, ``cache["z_grad", 0]``. What is handed
    out is the reader's own: changing it changes nothing here.

    What is derived is derived from the model's weights as they were: a change of theirs by an
    optimizer, in place or by loading is noticed and refused. A write through ``weight.data``, which
    torch does not count, is not.
    """

    def __init__(
        self,
        model: Network,
        asked: list[Place],
        kept: dict[Place, Tensor],
        contexts: dict[str | None, Context],
        gradients: dict[Place, Tensor] | None = None,
    ) -> None:
        self._model = model
        self._layout = model.layout
        self._asked = dict.fromkeys(asked)
        self._kept = {place: _versioned(tensor) for place, tensor in kept.items()}
        self._contexts = contexts
        self._gradients = gradients or {}
        self._weights = _fingerprint(model)

    def __getitem__(self, name: PlaceLike) -> Tensor:
        """The tensor at a place (or, with ``_grad`` behind the name, its gradient).

        Raises:
            UnknownPlace: the model has no such place.
            NotRecorded: this run did not record it.
            StaleCache: it would have to be derived, and the weights have changed since; or a
                tensor that the cache shares with the run (its logits) was changed in place.
        """
        plain, wants_gradient = _without_grad(name)
        place = self._model.atlas.find(plain)
        if wants_gradient:
            return self._gradient(place)
        if place not in self._asked:
            raise NotRecorded(
                f"{place} was not recorded; this run holds {self._held()}. "
                "Add it to run(..., record=)."
            )
        return self._tensor(place).clone()

    def __contains__(self, name: PlaceLike) -> bool:
        """Whether the place was recorded; a misspelt one raises, as when it is read."""
        plain, wants_gradient = _without_grad(name)
        place = self._model.atlas.find(plain)
        return place in (self._gradients if wants_gradient else self._asked)

    def __iter__(self) -> Iterator[Place]:
        """The places recorded, in the order of the forward."""
        return iter(self._asked)

    def __len__(self) -> int:
        """How many places were recorded."""
        return len(self._asked)

    def keys(self) -> list[Place]:
        """The places recorded, in the order of the forward."""
        return list(self._asked)

    def items(self) -> Iterator[tuple[Place, Tensor]]:
        """Each place recorded with its tensor, derived one at a time."""
        return ((place, self[place]) for place in self._asked)

    @property
    def kept(self) -> list[Place]:
        """The places whose tensors are held; the others recorded are derived from these."""
        return list(self._kept)

    @property
    def nbytes(self) -> int:
        """Bytes held on the device, each storage counted once."""
        tensors = [tensor for tensor, _ in self._kept.values()] + list(self._gradients.values())
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
        return sum(storages.values())

    def _gradient(self, place: Place) -> Tensor:
        if place not in self._gradients:
            raise NotRecorded(
                f"No gradient of {place} was taken; ask for it with "
                "run(..., record=[...], gradients_of=metric)."
            )
        return self._gradients[place].clone()

    def _held(self) -> str:
        names = [str(place) for place in self._asked]
        shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")  # noqa: PLR2004 - a line
        return shown or "nothing"

    def _tensor(self, place: Place) -> Tensor:
        """The tensor itself, kept or derived; for reading alone."""
        if place in self._kept:
            tensor, version = self._kept[place]
            if version_of(tensor) != version:
                raise StaleCache(
                    f"{place} was changed in place after the run (it is shared with the run's own "
                    "result); work on a .clone() of it."
                )
            return tensor
        recipe = self._layout[place]
        if recipe.make is None:
            raise NotRecorded(f"{place} was not kept, and nothing kept tells what it was.")
        if _fingerprint(self._model) != self._weights:
            raise StaleCache(
                f"{place} is derived from the model's weights, and they have changed since the "
                "run; read it before changing them, or record it by name."
            )
        block = replace(place, layer=_layer_of(self._model, place))
        reader = _BlockReader(self._tensor, block, self._contexts[place.stack])
        with torch.no_grad():
            return recipe.make(self._part(place, recipe), reader)

    def _part(self, place: Place, recipe: Recipe) -> object:
        stack = self._model.stack(place.stack)
        owner = stack if place.layer is None else stack.block(place.layer)
        return getattr(owner, recipe.part) if recipe.part else owner


class _BlockReader:
    """Reads other places of one block on behalf of a recipe (of the last one, at the exit)."""

    def __init__(self, read: Callable[[Place], Tensor], block: Place, context: Context) -> None:
        self._read, self._block = read, block
        self.context = context

    def __call__(self, point: Point, norm: str | None = None) -> Tensor:
        layer = self._block.layer if point.in_block else None
        return self._read(Place(point, layer, norm, self._block.stack))


def _versioned(tensor: Tensor) -> tuple[Tensor, int]:
    """A tensor and how often it was changed; in inference mode nobody counts, so a copy."""
    own = tensor.clone() if tensor.is_inference() else tensor
    return own, version_of(own)


def _fingerprint(model: Network) -> tuple[tuple[int, int], ...]:
    """Changes whenever a weight is changed in place or swapped."""
    return tuple((p.data_ptr(), version_of(p)) for p in model.parameters())


def _without_grad(name: PlaceLike) -> tuple[PlaceLike, bool]:
    if isinstance(name, str) and name.endswith(GRAD):
        return name.removesuffix(GRAD), True
    if isinstance(name, tuple) and name and isinstance(name[0], str) and name[0].endswith(GRAD):
        return (name[0].removesuffix(GRAD), *name[1:]), True
    return name, False


def _layer_of(model: Network, place: Place) -> int:
    """The block that a recipe reads: the place's own, or the last one for the exit."""
    return len(model.stack(place.stack).blocks) - 1 if place.layer is None else place.layer


def needs_of(model: Network, place: Place, recipe: Recipe) -> set[Place]:
    """The places of this model that the recipe of ``place`` reads."""
    layer = _layer_of(model, place)
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
