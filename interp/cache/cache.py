"""The activations of a run: a cache stores only what all recorded places can be derived from.

Scores and pattern are derived from q and k, result from z, a norm's output from the stream, and so
on, with the functions that the forward itself applies (see :mod:`interp.model.recipe`). A cache of
all places stores the streams and q, k, v, z, and derives the rest when it is read.
"""

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.cache.compact import cheaper_formed, compacted, converted, is_fresh, storage_of
from interp.cache.contents import Contents
from interp.cache.derive import Derivation, weights_of
from interp.cache.shapes import in_bytes, listing
from interp.edits import EditSite, Selection
from interp.errors import InvalidInput, NotRecorded, StaleCache
from interp.graph import computation_graph
from interp.io import Table, as_path
from interp.model import Network, version_of, weight_hash
from interp.names import Request
from interp.points import Place, PlaceLike

Writes = dict[str, Float[Tensor, "batch pos d_model"]]
Join = Callable[[Tensor], Tensor]
"""Gives a whole tensor for this process's part of it; all processes with parts must call it."""


@dataclass(frozen=True)
class Placement:
    """A device and a dtype.

    Attributes:
        device: the device; ``None`` for the device where a tensor was computed.
        dtype: the dtype; ``None`` for the dtype of the run.
    """

    device: torch.device | None = None
    dtype: torch.dtype | None = None

    def changed(self, target: torch.device | torch.dtype | str) -> "Placement":
        """The same placement with another device, or another dtype.

        Raises:
            InvalidInput: there is no such device, or the dtype is not floating-point.
        """
        if not isinstance(target, torch.dtype):
            return replace(self, device=_checked_device(target))
        if not target.is_floating_point:
            raise InvalidInput(f"A cache can't be cast to {target}, which is not floating-point.")
        return replace(self, dtype=target)

    def placed(self, tensor: Tensor) -> Tensor:
        """The tensor on this device and in this dtype."""
        return tensor.to(self.device or tensor.device, self.dtype or tensor.dtype)

    def as_computed(self, tensor: Tensor, model: Network) -> Tensor:
        """A placed tensor, moved and cast back to the model's device and dtype."""
        device = tensor.device if self.device is None else model.device
        return tensor.to(device, tensor.dtype if self.dtype is None else model.dtype)


def _checked_device(target: torch.device | str) -> torch.device:
    try:
        return torch.empty(0, device=target).device
    except (RuntimeError, AssertionError) as error:
        raise InvalidInput(
            f"{target!r} is neither an available device nor a torch.dtype: {error}"
        ) from error


class Stored(MutableMapping[Place, Tensor]):
    """Tensors by place, in the order in which they were stored; readers must not change them."""

    def __init__(self, tensors: Mapping[Place, Tensor]) -> None:
        self._versioned: dict[Place, tuple[Tensor, int]] = {}
        self.update(tensors)

    def __getitem__(self, place: Place) -> Tensor:
        """The tensor stored at a place.

        Raises:
            StaleCache: the tensor was changed in place after it was stored.
        """
        tensor, version = self._versioned[place]
        if version_of(tensor) != version:
            raise StaleCache(
                f"{place} was changed in place after the run (it is shared with the run's own "
                "result); work on a .clone() of it."
            )
        return tensor

    def __setitem__(self, place: Place, tensor: Tensor) -> None:
        """Store a tensor with its present version."""
        self._versioned[place] = tensor, version_of(tensor)

    def __delitem__(self, place: Place) -> None:
        """Drop the tensor stored at a place."""
        del self._versioned[place]

    def __contains__(self, place: object) -> bool:
        """Whether a tensor is stored at a place, changed or not."""
        return place in self._versioned

    def __iter__(self) -> Iterator[Place]:
        """The places."""
        return iter(self._versioned)

    def __len__(self) -> int:
        """Number of stored tensors."""
        return len(self._versioned)

    def unchecked(self) -> dict[Place, Tensor]:
        """The tensors, changed or not; only for their shapes and storages, not their values."""
        return {place: tensor for place, (tensor, _) in self._versioned.items()}


GRAD = "_grad"


class Cache:
    """The activations of one run, on the model's device.

    Read it as ``cache["pattern", 0]``, ``cache["resid_post", -1]``, ``cache["scale", 4, "ln1"]`` or
    ``cache["blocks.0.attn.hook_pattern"]``; with gradients, ``cache["z_grad", 0]``. Without a layer
    all layers are stacked: ``cache["pattern"]`` is ``[layer batch head query key]``. Each read
    returns a new tensor: changing it in place does not change the cache.

    Derived tensors are computed with the model's weights, which must be those of the run: a change
    by an optimizer, in place or by loading is detected and raises :class:`StaleCache`, even if it
    was made during the run. A write through ``weight.data``, which PyTorch does not track, is not
    detected.

    A cache is pickled together with its model, so that everything can be read afterwards
    (:meth:`save` writes a file without the weights); ``copy.deepcopy`` shares the model. Processes
    that hold a model together (:func:`interp.parallel`) each store a part of some tensors, and must
    read the same places in the same order: a read joins the parts.

    Examples:
        >>> cache = interp.run(interp.load("python-2l"), "def f(x):", record=["z", "pattern"]).cache
        >>> cache["z", 0].shape, cache["pattern"].shape
        (torch.Size([1, 6, 8, 32]), torch.Size([2, 1, 8, 6, 6]))
    """

    def __init__(
        self,
        derivation: Derivation,
        recorded: list[Place],
        stored: dict[Place, Tensor],
        gradients: dict[Place, Tensor] | None = None,
        joins: Mapping[Place, Join] | None = None,
    ) -> None:
        self._model, self._derive = derivation.model, derivation
        self._recorded = dict.fromkeys(recorded)
        self._stored = Stored(converted(stored, _with_version_counter))
        self._gradients = gradients or {}
        self._joins = dict(joins or {})  # of the tensors of which this process stores a part
        self._weight_hash: str | None = None
        self._placement = Placement(self._model.device if self._model.other_devices else None)

    @classmethod
    def restored(cls, model: Network, contents: Contents) -> "Cache":
        """The cache of a file; ``model`` is the one that ran, or only has its structure."""
        derivation = Derivation(model, contents.contexts)
        cache = cls(derivation, contents.recorded, contents.stored, contents.gradients)
        cache._placement, cache._weight_hash = Placement(dtype=contents.dtype), contents.weights
        return cache

    def __getitem__(self, name: PlaceLike) -> Tensor:
        """The tensor at a place (or its gradient, if the name ends with ``_grad``).

        The name of a block's point without a layer gives the tensors of all layers, stacked along a
        first axis ``layer``.

        Raises:
            UnknownPlace: the model has no such place.
            NotRecorded: this run did not record it (in every layer, if they are stacked).
            StaleCache: the tensor must be derived and the weights have changed since the run; or a
                tensor that the cache shares with the run (its logits) was changed in place.
            InvalidInput: layers can't be stacked, because they differ in shape or some lack the
                point.
        """
        plain, wants_gradient = _without_grad(name)
        read = self._gradient if wants_gradient else self._tensor
        layers = self._model.names.every_layer(plain)
        if layers is None:
            return read(self._model.names.resolve(plain))
        return _stacked([read(place) for place in layers], layers)

    def _tensor(self, place: Place) -> Tensor:
        if place not in self._recorded:
            raise self._not_recorded(place)
        if place in self._stored:
            return self._placement.placed(self._whole(place)).clone()
        derived, stored = self._derived(place), self._stored.unchecked().values()
        others = chain(stored, weights_of(self._model).values())
        return derived if is_fresh(derived, others) else derived.clone()

    def part(self, name: PlaceLike, select: Selection) -> Tensor:
        """The part of the tensor at a place that an edit with this selection would change.

        Raises:
            InvalidEdit: the selection is outside the tensor.
            NotRecorded: this run did not record the place.
        """
        place = self._model.names.resolve(name)
        whole, site = self[place], EditSite(place, self._derive.contexts[place.stack])
        return whole[site.index(select, whole.shape)]

    def writes(self, stack: str | None = None) -> Writes:
        """All terms added to the stream, by name; their sum is the stream after the last block.

        The names are those of :mod:`interp.graph`, except that the output bias of an MLP is a
        separate term: ``embed``, ``pos_embed``, ``L0H1``, ``L0.b_O``, ``L0MLP``, ``L0.b_out``. If a
        norm follows a sub-layer's output, the whole output is one term, ``L0ATTN``, which includes
        the bias of the norm. Changes made by edits of the stream, or of a whole output, are not
        among the terms.

        Args:
            stack: the stack of an encoder–decoder whose stream is meant; by default the decoder.

        Returns:
            Tensors ``[batch pos d_model]``, in the order of the forward.

        Raises:
            InvalidInput: a norm changes the stream itself, which is then not such a sum.
            NotRecorded: the run lacks the embeddings, ``result`` or ``mlp_out``.
            StaleCache: a term must be derived and the weights have changed since the run.
        """
        name = self._model.stack(stack).name_in_places
        writers = [
            writer for writer in computation_graph(self._model).writers if writer.stack == name
        ]
        writes: Writes = {}
        for place, place_writers in groupby(writers, lambda writer: writer.place):
            whole = None if place is None else self[place]
            for writer in place_writers:
                if writer.parameter is not None:
                    writes[writer.name] = self._bias(writer.parameter, writes)
                elif whole is not None:
                    writes[writer.name] = whole if writer.head is None else whole[:, :, writer.head]
                if writer.bias is not None:
                    bias = self._bias(writer.bias, writes)
                    writes[writer.name] = writes[writer.name] - bias
                    writes[f"{writer.name.removesuffix('MLP')}.b_out"] = bias
        return writes

    def _bias(self, name: str, writes: Writes) -> Tensor:
        """A bias of the run, at every position of the terms before it."""
        weight = self._derive.weight(name)
        bias = self._placement.placed(weight if self._derive.keep_graph else weight.detach())
        return bias.expand_as(next(iter(writes.values()))).clone()

    def __contains__(self, name: PlaceLike) -> bool:
        """Whether a place was recorded (in every layer); an unknown name raises UnknownPlace."""
        plain, wants_gradient = _without_grad(name)
        layers = self._model.names.every_layer(plain)
        places = [self._model.names.resolve(plain)] if layers is None else layers
        tensors = self._gradients if wants_gradient else self._recorded
        return all(place in tensors for place in places)

    def __iter__(self) -> Iterator[Place]:
        """The recorded places, in the order of the forward."""
        return iter(self._recorded)

    def __len__(self) -> int:
        """Number of recorded places."""
        return len(self._recorded)

    def __repr__(self) -> str:
        return self.description().to_text()

    def _repr_html_(self) -> str:
        return self.description().to_html()

    def description(self) -> Table:
        """A table of the recorded places: shape, whether stored or derived, and bytes."""
        title = (
            f"Cache of {len(self)} places, {len(self._stored)} tensors stored: "
            f"{in_bytes(self.nbytes)}"
        )
        stored, contexts = self._stored.unchecked(), self._derive.contexts
        rows = listing(self._recorded, stored, self._joins, contexts, self._model)
        return Table(title, ("place", "shape", "", "bytes"), rows)

    def keys(self) -> list[Place]:
        """The recorded places, in the order of the forward."""
        return list(self._recorded)

    def items(self) -> Iterator[tuple[Place, Tensor]]:
        """Each recorded place with its tensor; tensors are derived one at a time."""
        return ((place, self[place]) for place in self._recorded)

    @property
    def stored(self) -> list[Place]:
        """The places whose tensors are stored; other recorded places are derived from them."""
        return list(self._stored)

    @property
    def nbytes(self) -> int:
        """Bytes of what this process stores, gradients too, with each storage counted once."""
        tensors = [*self._stored.unchecked().values(), *self._gradients.values()]
        storages = {storage_of(tensor): tensor.untyped_storage().nbytes() for tensor in tensors}
        return sum(storages.values())

    # ---- what is stored, where and in which dtype ---------------------------------------------

    def keep(self, places: Request) -> "Cache":
        """Derive tensors now and store them, so that reading them again only takes a copy.

        Stored tensors no longer depend on the weights, and :meth:`to` rounds them only once. Those
        that are divided among processes are then whole in each.

        Args:
            places: ``"all"``, a place or several; a bare label means every recorded layer.

        Returns:
            This cache.

        Raises:
            UnknownPlace: the model has no such place.
            NotRecorded: this run did not record it.
            StaleCache: the weights have changed since the run.
        """
        for place in self._named(places):
            if place in self._joins:
                if place in self._gradients:
                    self._gradients[place] = self._joined(place, self._gradients[place])
                self._stored[place] = self._whole(place)
                del self._joins[place]
            elif place not in self._stored:
                self._stored[place] = self._derived(place)
        return self

    def compact(self) -> None:
        """Store tensors that are smaller than those they would be derived from, and drop those.

        If the weights changed during the run, nothing can be derived, and nothing is dropped.
        Nothing is derived from parts of tensors, which would have to be joined.
        """
        every = cheaper_formed(self._model, self._recorded, dict(self._stored))
        groups = [group for group in every if not self._joins.keys() & group[1]]
        for smaller, sources in () if groups and self._derive.is_stale else groups:
            for place in smaller:
                self._stored[place] = self._derived(place, self._derive.unchecked)
            for place in sources:
                del self._stored[place]
        self._stored = Stored(compacted(dict(self._stored)))

    def to(self, target: torch.device | torch.dtype | str) -> "Cache":
        """The same activations and gradients on another device or in another dtype.

        Derived tensors are still computed on the model's device and in its dtype, and then moved
        or cast: on another device, or in a wider dtype, they have the same values. In a narrower
        dtype they are derived from rounded tensors; call :meth:`keep` first on those that should be
        rounded only once.

        Args:
            target: a device or its name, or a floating-point dtype.

        Returns:
            A new cache; this one is unchanged.

        Raises:
            InvalidInput: there is no such device, or the dtype is not floating-point.
            StaleCache: a stored tensor was changed in place.
        """
        placement = self._placement.changed(target)
        moved = self._converted(placement.placed)
        moved._placement = placement
        return moved

    def save(self, path: str | Path) -> None:
        """Write the cache to a file, atomically; :func:`interp.load_cache` reads it.

        Of several processes that hold the model, all must call it, and the first writes.

        Raises:
            InvalidInput: there is no such folder, or the path is a folder.
            OutOfResources: the file can't be written.
            StaleCache: the weights have changed since the run, or a stored tensor has.
        """
        file, contents = as_path(path), self.contents()
        write = import_module("interp.saved").write_cache  # of a package above this one
        self._model.write_once(lambda: write(contents, file))

    def contents(self) -> Contents:
        """What the cache is restored from; all processes that hold the model must call it.

        Raises:
            StaleCache: the weights have changed since the run, or a stored tensor has.
        """
        if self._derive.is_stale:
            raise StaleCache(
                "The weights have changed since the run, and the file must say which they were; "
                "save a cache before changing them."
            )
        wholes = ((place, self._whole(place)) for place in self._stored)
        stored = {place: whole for place, whole in wholes if self._model.is_writer}
        return Contents(
            config=self._model.config,
            weights=self._weight_hash or weight_hash(self._model),
            recorded=list(self._recorded),
            stored=converted(stored, torch.Tensor.detach),
            gradients={at: self._joined(at, part) for at, part in self._gradients.items()},
            contexts=self._derive.contexts,
            dtype=self._placement.dtype,
        )

    def __getstate__(self) -> dict[str, Any]:
        """The state with each tensor in its own storage: pickles don't share storages of views."""

        def contiguous_copy(tensor: Tensor) -> Tensor:
            return tensor.detach().clone(memory_format=torch.contiguous_format)

        return {**self.__dict__, "_stored": converted(dict(self._stored), contiguous_copy)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state, with the present in-place versions of the tensors."""
        self.__dict__ = {**state, "_stored": Stored(state["_stored"])}

    def __deepcopy__(self, memo: dict[int, Any]) -> "Cache":
        """A cache with copies of the tensors that shares the model."""
        return self._converted(torch.clone)

    def _converted(self, convert: Callable[[Tensor], Tensor]) -> "Cache":
        """The cache of the converted tensors."""
        stored, gradients = (converted(t, convert) for t in (dict(self._stored), self._gradients))
        made = Cache(self._derive, list(self._recorded), stored, gradients, self._joins)
        made._weight_hash, made._placement = self._weight_hash, self._placement
        return made

    # ---- reading -----------------------------------------------------------------------------

    def _named(self, names: Request) -> list[Place]:
        def absent(name: PlaceLike) -> NotRecorded:
            return self._not_recorded(self._model.names.resolve_all(name)[0])

        return self._model.names.requested(names, list(self._recorded), absent)

    def _not_recorded(self, place: Place) -> NotRecorded:
        names = [str(place) for place in self._recorded]
        listed_names = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")  # noqa: PLR2004 - a line
        return NotRecorded(
            f"{place} was not recorded; this run holds {listed_names or 'nothing'}. "
            "Add it to run(..., record=)."
        )

    def _gradient(self, place: Place) -> Tensor:
        if place not in self._gradients:
            raise NotRecorded(
                f"No gradient of {place} was recorded; request it with "
                "run(..., record=[...], gradients_of=metric)."
            )
        return self._placement.placed(self._joined(place, self._gradients[place])).clone()

    def _whole(self, place: Place) -> Tensor:
        return self._joined(place, self._stored[place])

    def _joined(self, place: Place, tensor: Tensor) -> Tensor:
        """The tensor at a place; a part is joined with others on the model's device."""
        join = self._joins.get(place)
        return tensor if join is None else join(tensor.to(self._model.device)).to(tensor.device)

    def _derived(self, place: Place, derive: Callable[..., Tensor] | None = None) -> Tensor:
        """The tensor derived from the stored ones; it may share memory with them."""
        derive = derive or self._derive

        def read(source: Place) -> Tensor:
            return self._placement.as_computed(self._whole(source), self._model)

        return self._placement.placed(derive(place, self._stored, read))


def _with_version_counter(tensor: Tensor) -> Tensor:
    """The tensor, or a copy of an inference tensor, whose in-place changes are not counted."""
    return tensor.clone() if tensor.is_inference() else tensor


def _stacked(tensors: list[Tensor], places: list[Place]) -> Tensor:
    """The tensors stacked along a first axis ``layer``.

    Raises:
        InvalidInput: the tensors differ in shape.
    """
    for tensor, place in zip(tensors, places, strict=True):
        if tensor.shape != tensors[0].shape:
            raise InvalidInput(
                f"{places[0]} is {tuple(tensors[0].shape)} and {place} is {tuple(tensor.shape)}, "
                "which can't be stacked; read the layers one by one."
            )
    return torch.stack(tensors)


def _without_grad(name: PlaceLike) -> tuple[PlaceLike, bool]:
    if isinstance(name, str) and name.endswith(GRAD):
        return name.removesuffix(GRAD), True
    if isinstance(name, tuple) and name and isinstance(name[0], str) and name[0].endswith(GRAD):
        return (name[0].removesuffix(GRAD), *name[1:]), True
    return name, False
