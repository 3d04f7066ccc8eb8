"""Activations of labelled prompts at one position, to which probes and erasures are fitted."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from numbers import Real
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.components.patching import places_of
from interp.edits import Selection
from interp.errors import InvalidInput, shorten
from interp.execution import run
from interp.harvests import Harvest
from interp.integers import integer
from interp.metrics import required_columns
from interp.model import Batch, Network
from interp.points import Place
from interp.prompts import read_batches
from interp.transformer import TextNetwork


@dataclass(frozen=True, eq=False)
class Labelled:
    """Labelled prompts, and their activations at one position.

    Attributes:
        batches: the prompts, one batch per stack.
        places: the places of each point in every layer, by the label of the point.
        activations: the activations at each place, ``[prompt 1 …]``.
        labels: the label of each prompt.
        classes: the different labels, in alphabetical order.
        pos: the position.
    """

    batches: Sequence[Batch]
    places: Mapping[str, Sequence[Place]]
    activations: Mapping[Place, Tensor]
    labels: tuple[str, ...]
    classes: tuple[str, ...]
    pos: int

    @property
    def targets(self) -> Int[Tensor, " prompt"]:
        """The index of each prompt's class."""
        return torch.tensor([self.classes.index(label) for label in self.labels])

    @property
    def every_place(self) -> list[Place]:
        """All places, in the order of points and layers."""
        return [place for point_places in self.places.values() for place in point_places]

    @property
    def cells(self) -> dict[str, list[Any]]:
        """The columns point, layer and name, with one entry per place."""
        points = [point for point, point_places in self.places.items() for _ in point_places]
        return place_cells(points, [place.layer for place in self.every_place])

    def rows_at(self, place: Place) -> Float[Tensor, "prompt dim"]:
        """The activations at a place in float64, with all axes but the first flattened."""
        return self.activations[place].flatten(1).cpu().double()


@torch.no_grad()
def labelled_activations(  # noqa: PLR0913 - the prompts, and what is read from them
    model: TextNetwork,
    prompts: Any,  # noqa: ANN401 - what model.check reads
    labels: Iterable[object],
    *,
    at: str | Sequence[str],
    pos: int,
    stack: str | None = None,
    rows: int = 64,
) -> Labelled:
    """Run the model on prompts with labels.

    Args:
        model: the model.
        prompts: the prompts, as an analysis takes them, or a harvest of the points.
        labels: one label per prompt: texts, numbers or booleans.
        at: the label of a point that every layer has, or several labels.
        pos: the position among each prompt's tokens.
        stack: for an encoder–decoder, the name of the stack that is read; by default the decoder.
        rows: prompts per forward.

    Raises:
        InvalidInput: the number of labels is not that of the prompts; there is a single class, or a
            class with a single prompt; a point has no position axis; a prompt is too short to have
            the position; or activations are not finite.
        UnknownPlace: the model has no such point.
        NotRecorded: the harvest has not stored it.
    """
    batches = batches_of(model, prompts)
    names = labels_of(labels, len(batches[0].ids))
    read, pos = model.stack(stack), integer(pos, "pos")
    required_columns(batches[model.stacks.index(read)], pos)
    points: list[Any] = list(at) if isinstance(at, list | tuple) else [at]
    places = places_of(model, points, read.name)
    every = [place for point_places in places.values() for place in point_places]
    for place in every:
        if place.point.axes[1] != "pos":
            raise InvalidInput(
                f"at={place.point.label} has the axes [{' '.join(place.point.axes)}]; a probe "
                "reads a point that has a value at each position, such as resid_pre, mlp_out or z."
            )
    if isinstance(prompts, Harvest):
        activations = _stored(prompts, every, pos)
    else:
        activations = _recorded(model, batches, every, pos, rows)
    for place, activation in activations.items():
        if not bool(activation.isfinite().all()):
            raise InvalidInput(f"{place} is not finite: the model computes NaN on these prompts.")
    return Labelled(batches, places, activations, names, tuple(sorted(set(names))), pos)


def batches_of(model: TextNetwork, prompts: Any) -> list[Batch]:  # noqa: ANN401 - as above
    """The prompts of an analysis, or the texts of a harvest, one batch per stack."""
    if isinstance(prompts, Harvest):
        return [*prompts.batches(model)]
    return read_batches(model, prompts)


def _recorded(
    model: Network, batches: Sequence[Batch], places: Sequence[Place], pos: int, rows: int
) -> dict[Place, Tensor]:
    """The activations of prompts at one position, recorded in forwards."""
    collected: dict[Place, list[Tensor]] = {place: [] for place in places}
    for part in torch.arange(len(batches[0].ids), device=batches[0].ids.device).split(rows):
        cache = run(model, *(batch.rows(part) for batch in batches), record=places).cache
        for place, parts in collected.items():
            parts.append(cache.part(place, Selection(pos=pos)))
    return {place: torch.cat(parts) for place, parts in collected.items()}


def _stored(harvest: Harvest, places: Sequence[Place], pos: int) -> dict[Place, Tensor]:
    """The activations of the texts of a harvest at one position."""
    read = Harvest(harvest.folder, places=[*places])
    rows = harvest.first_rows() + (pos if pos >= 0 else harvest.lengths() + pos)
    values = read.rows(rows)
    return {stored.as_place: values[stored.name][:, None] for stored in read.places}


def place_cells(points: Sequence[str], layers: Sequence[Any]) -> dict[str, list[Any]]:
    """The columns point, layer and name (such as ``resid_post 2``) of places."""
    names = [f"{point} {layer}" for point, layer in zip(points, layers, strict=True)]
    return {"point": [*points], "layer": [*layers], "name": names}


def labels_of(labels: Iterable[object], n: int) -> tuple[str, ...]:
    """The labels of ``n`` prompts as texts.

    Raises:
        InvalidInput: the number of labels is not ``n``; a label is missing (``None`` or NaN); there
            is a single class, or a class with a single prompt.
    """
    if not isinstance(labels, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"labels={shorten(labels)} should be one label per prompt.")
    listed = labels.tolist() if isinstance(labels, Tensor) else list(labels)
    for row, label in enumerate(listed):
        if label is None or (isinstance(label, Real) and isnan(label)):
            raise InvalidInput(f"labels= has no label for prompt {row}; leave that prompt out.")
    names = tuple(str(label) for label in listed)
    if len(names) != n:
        raise InvalidInput(f"{len(names)} labels were given for {n} prompts.")
    counts = {name: names.count(name) for name in names}
    if len(counts) < 2:  # noqa: PLR2004 - a probe needs two classes
        raise InvalidInput("All prompts have the same label; a probe needs two or more classes.")
    alone = [name for name, count in counts.items() if count == 1]
    if alone:
        raise InvalidInput(
            f"Only one prompt has the label {shorten(alone[0])}, but a probe that predicts it must "
            "be fitted to other prompts with that label. Give two or more prompts of each label."
        )
    return names
