"""Activation patching: activations of a model on some prompts replace those of its run on others.

    denoising   the run on the corrupted prompts gets activations of the clean ones
    noising     the run on the clean prompts gets activations of the corrupted ones

(Meng et al. 2022, "Locating and Editing Factual Associations in GPT"; the names are those of
Heimersheim and Nanda 2024, "How to Use and Interpret Activation Patching".) Prompts are minimal
pairs, :mod:`analyses.methods.components.minimal_pairs`, so that both runs have the same columns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp import edits
from interp.edits import EditSite, Replace, Selection
from interp.errors import InvalidInput, shorten
from interp.execution import run
from interp.metrics import Metric, measure
from interp.model import Batch, Context, Network
from interp.points import Place

HEADS = ("head", "kv_head")
"""Names of axes that index heads."""


@dataclass(frozen=True, eq=False)
class Recorded:
    """Activations of a model on some prompts, and a metric of its predictions.

    Attributes:
        model: the model.
        batches: the prompts, one batch per stack.
        activations: the tensor at each place.
        measured: the metric of each prompt.
    """

    model: Network
    batches: Sequence[Batch]
    activations: Mapping[Place, Tensor]
    measured: Float[Tensor, " prompt"]

    @classmethod
    def of(
        cls,
        model: Network,
        batches: Sequence[Batch],
        places: Sequence[Place],
        metric: Metric,
        rows: int = 64,
    ) -> "Recorded":
        """Run the model on the prompts, ``rows`` of them per forward.

        Raises:
            InvalidInput: the model has no logits, or the metric can't be computed from them.
        """
        n, metric = len(batches[0].ids), metric.with_ids(model.to_single_token)
        recorded: list[dict[Place, Tensor]] = []
        measured: list[Tensor] = []
        for part in torch.arange(n, device=batches[0].ids.device).split(rows):
            done = run(model, *(batch.rows(part) for batch in batches), record=list(places))
            recorded.append({place: done.cache[place] for place in places})
            part_metric = metric.for_rows(part.tolist(), n)
            measured.append(measure(part_metric, done.require_logits(), done.batch).cpu().double())
        activations = {
            place: torch.cat([tensors[place] for tensors in recorded]) for place in places
        }
        return cls(model, batches, activations, torch.cat(measured))

    def is_real(self, stack: str | None = None) -> Bool[Tensor, "prompt column"]:
        """Which columns are tokens of each prompt, in one stack; by default in the last."""
        return self.batches[self._stack_index(stack)].is_real

    def lengths(self, stack: str | None = None) -> Int[Tensor, " prompt"]:
        """Number of tokens of each prompt in one stack; by default in the last."""
        return self.is_real(stack).sum(-1).cpu()

    def n_heads(self, place: Place) -> int | None:
        """Number of heads of the tensor at a place; ``None`` if it has no head axis."""
        sizes = zip(place.point.axes, self.activations[place].shape, strict=True)
        return next((size for axis, size in sizes if axis in HEADS), None)

    def edit(self, place: Place, head: int | None = None, pos: int | None = None) -> Replace:
        """The edit that writes the recorded tensor of a place, or its part of a head or position.

        It applies to prompts of the same lengths, with the same padding. Prompts that are too short
        to have the position are not edited.

        Raises:
            InvalidEdit: there is no such part.
        """
        rows = None
        if pos is not None:
            has = self.lengths(place.stack) > pos
            rows = None if bool(has.all()) else tuple(has.nonzero()[:, 0].tolist())
        select, whole = Selection(batch=rows, head=head, pos=pos), self.activations[place]
        site = EditSite(place, self._contexts[self._stack_index(place.stack)])
        values = whole[site.index(select, whole.shape)]
        return edits.replace(place, values, batch=rows, head=head, pos=pos)

    @cached_property
    def _contexts(self) -> list[Context]:
        return self.model.contexts(self.batches)

    def _stack_index(self, stack: str | None) -> int:
        """The index of a stack, given by its name; by default that of the last."""
        return [each.name for each in self.model.stacks].index(self.model.stack(stack).name)


def places_of(model: Network, at: Sequence[str], stack: str) -> dict[str, list[Place]]:
    """The places of each point in every layer, by the label of the point.

    Raises:
        InvalidInput: no point is given, some layers lack a point, or it is not a point of a block.
        UnknownPlace: the model has no such point.
    """
    by_label: dict[str, list[Place]] = {}
    for point in at:
        name = (point, stack) if len(model.stacks) > 1 else point
        places = model.names.every_layer(name)
        if places is None:
            model.names.resolve_all(point)
            raise InvalidInput(
                f"at={shorten(point)} should be the label of a point that every layer has, such as "
                "resid_pre or z."
            )
        by_label[places[0].point.label] = places
    if not by_label:
        raise InvalidInput("at= names no point; give at least one, such as resid_pre.")
    return by_label
