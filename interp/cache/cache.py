"""What did the forward compute? A cache keeps the least from which all that was asked follows.

Scores and pattern follow from q and k, result from z, a norm's output from the stream, and so
on, by the very functions that the forward applies (see :mod:`interp.model.recipe`). So a
cache of everything keeps the streams and q, k, v, z, and derives the rest when it is read.
"""

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor

from interp.cache.compact import cheaper_formed, compact, converted, is_fresh
from interp.cache.derive import Derivation
from interp.cache.format import Contents, write_contents
from interp.errors import InvalidInput, NotRecorded, StaleCache
from interp.model.context import Context
from interp.model.network import Network
from interp.points import Place, PlaceLike, Point
from interp.tensor_data import version_of
from interp.weights.hash import weight_hash

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
        self._asked = dict.fromkeys(asked)
        self._kept = _versioned(converted(kept, _owned))
        self._gradients = gradients or {}
        self._derive = Derivation(model, contexts)
        self._weight_hash: str | None = None
        self._device: torch.device | None = None
        self._dtype: torch.dtype | None = None

    @classmethod
    def restored(cls, model: Network, contents: Contents) -> "Cache":
        """The cache that was saved as ``contents``; ``model`` ran, or has its structure alone."""
        cache = cls(model, contents.asked, contents.kept, contents.contexts, contents.gradients)
        cache._dtype, cache._weight_hash = contents.dtype, contents.weights
        return cache

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
            raise self._not_recorded(place)
        if place in self._kept:
            return self._held(place).clone()
        made = self._derived(place)
        kept = (tensor for tensor, _ in self._kept.values())
        others = chain(kept, self._model.parameters(), self._model.buffers())
        return made if is_fresh(made, others) else made.clone()

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

    # ---- what is held, where and how ---------------------------------------------------------

    def keep(self, places: PlaceLike | Iterable[PlaceLike]) -> "Cache":
        """Form what would be derived and hold it: reading it again costs no more than a copy.

        What is held no longer depends on the weights, and is rounded but once by :meth:`to`.

        Args:
            places: ``"all"``, a place or several; a bare label means every layer recorded.

        Returns:
            This cache.

        Raises:
            UnknownPlace: the model has no such place.
            NotRecorded: this run did not record it.
            StaleCache: as when it is read.
        """
        for place in self._asked_by(places):
            if place not in self._kept:
                self._kept |= _versioned({place: self._derived(place)})
        return self

    def trim(self) -> None:
        """Form what is smaller than what it would be derived from, and let go of that."""
        for makes, sources in cheaper_formed(self._model, self._asked, self._all_held()):
            self.keep(makes)
            for place in sources:
                del self._kept[place]
        self._kept = _versioned(compact(self._all_held()))

    def to(self, target: torch.device | torch.dtype | str) -> "Cache":
        """The same activations and gradients elsewhere, or in another type.

        What is derived is still computed where the model is and in the model's own type, and then
        moved or cast. So on another device, and in a wider type, it is the same numbers. After
        narrowing it follows from what was rounded: :meth:`keep` first what is to be rounded alone.

        Args:
            target: a device or its name, or a floating-point type.

        Returns:
            A new cache; this one stays as it is.

        Raises:
            InvalidInput: there is no such device, or the type holds no fractions.
            StaleCache: as when it is read.
        """
        moved = copy(self)
        if isinstance(target, torch.dtype):
            if not target.is_floating_point:
                raise InvalidInput(f"A cache can't be cast to {target}: it holds fractions.")
            moved._dtype = target
        else:
            moved._device = _checked_device(target)
        moved._kept = _versioned(converted(self._all_held(), moved._placed))
        moved._gradients = converted(self._gradients, moved._placed)
        return moved

    def save(self, path: str | Path) -> None:
        """Write the cache, complete or not at all; :func:`interp.load_cache` reads it.

        Raises:
            OutOfResources: the file can't be written.
            StaleCache: the weights have changed since the run, or a tensor was.
        """
        if self._derive.is_stale:
            raise StaleCache(
                "The weights have changed since the run, and the file must say which they were; "
                "save a cache before changing them."
            )
        contents = Contents(
            config=self._model.config,
            weights=self._weight_hash or weight_hash(self._model),
            asked=list(self._asked),
            kept=self._all_held(),
            gradients=self._gradients,
            contexts=self._derive.contexts,
            dtype=self._dtype,
        )
        write_contents(contents, Path(path))

    # ---- reading -----------------------------------------------------------------------------

    def _asked_by(self, places: PlaceLike | Iterable[PlaceLike]) -> list[Place]:
        if isinstance(places, str) and places == "all":
            return list(self._asked)
        alone = isinstance(places, str | tuple | Place | Point)
        found: list[Place] = []
        for name in [places] if alone else places:
            meant = self._model.atlas.find_all(name)
            recorded = [place for place in meant if place in self._asked]
            if not recorded:
                raise self._not_recorded(meant[0])
            found += recorded
        return found

    def _not_recorded(self, place: Place) -> NotRecorded:
        names = [str(place) for place in self._asked]
        shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")  # noqa: PLR2004 - a line
        return NotRecorded(
            f"{place} was not recorded; this run holds {shown or 'nothing'}. "
            "Add it to run(..., record=)."
        )

    def _gradient(self, place: Place) -> Tensor:
        if place not in self._gradients:
            raise NotRecorded(
                f"No gradient of {place} was taken; ask for it with "
                "run(..., record=[...], gradients_of=metric)."
            )
        return self._gradients[place].clone()

    def _held(self, place: Place) -> Tensor:
        """The tensor kept at a place, for reading alone."""
        tensor, version = self._kept[place]
        if version_of(tensor) != version:
            raise StaleCache(
                f"{place} was changed in place after the run (it is shared with the run's own "
                "result); work on a .clone() of it."
            )
        return tensor

    def _all_held(self) -> dict[Place, Tensor]:
        return {place: self._held(place) for place in self._kept}

    def _derived(self, place: Place) -> Tensor:
        """The tensor that follows from those kept, for reading alone."""

        def read(source: Place) -> Tensor:
            return self._as_computed(self._held(source))

        return self._placed(self._derive(place, self._kept, read))

    def _placed(self, tensor: Tensor) -> Tensor:
        """The tensor where and in the type that the readers of this cache want it."""
        return tensor.to(self._device or tensor.device, self._dtype or tensor.dtype)

    def _as_computed(self, tensor: Tensor) -> Tensor:
        """The tensor where and in the type that the model computes it."""
        device = tensor.device if self._device is None else self._model.device
        return tensor.to(device, tensor.dtype if self._dtype is None else self._model.dtype)


def _checked_device(target: torch.device | str) -> torch.device:
    try:
        return torch.empty(0, device=target).device
    except (RuntimeError, AssertionError) as error:
        raise InvalidInput(
            f"{target!r} is no device that tensors can be moved to (nor a torch.dtype): {error}"
        ) from error


def _owned(tensor: Tensor) -> Tensor:
    """The tensor; in inference mode, where nobody counts how often it is changed, a copy."""
    return tensor.clone() if tensor.is_inference() else tensor


def _versioned(tensors: Mapping[Place, Tensor]) -> dict[Place, tuple[Tensor, int]]:
    """Each with how often it was changed until now."""
    return {place: (tensor, version_of(tensor)) for place, tensor in tensors.items()}


def _without_grad(name: PlaceLike) -> tuple[PlaceLike, bool]:
    if isinstance(name, str) and name.endswith(GRAD):
        return name.removesuffix(GRAD), True
    if isinstance(name, tuple) and name and isinstance(name[0], str) and name[0].endswith(GRAD):
        return (name[0].removesuffix(GRAD), *name[1:]), True
    return name, False
