"""What replaces tensors on prompts: of all of them, or computed for some of them at a time.

Values that differ from prompt to prompt take as much memory as the activations of all prompts.
Where that is more than ``MOST``, only prompts that run together have theirs: a mean by position is
written at their columns, and the donors that were drawn for them are run.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod

import torch
from torch import Tensor

from analyses.methods.components.gathered import Gathered
from interp.model import Batch, Network
from interp.points import Place

MOST = 2**26
"""Maximum bytes of values that differ from prompt to prompt, besides those of one forward."""


class ReplacedValues:
    """What replaces the tensors at some places.

    Args:
        model: the model.
        batches: the prompts, one batch per stack.
        gathered: what replaces the tensor at each place.
        fill: runs the reference prompts that are needed, and adds their tensors.
    """

    def __init__(
        self,
        model: Network,
        batches: Sequence[Batch],
        gathered: Mapping[Place, Gathered],
        fill: Callable[[Mapping[Place, Gathered]], None],
    ) -> None:
        self._fill, self._device = fill, batches[0].ids.device
        self._by_prompt = {place for place, made in gathered.items() if made.by_prompt}
        shapes = [model.shape_at(batches, place) for place in self._by_prompt]
        self._row_bytes = sum(prod(shape[1:]) for shape in shapes) * model.dtype.itemsize
        self._of_rows = dict[tuple[int, ...], dict[Place, Tensor]]()
        n = len(batches[0].ids)
        later = self._by_prompt if n > 1 and n * self._row_bytes > MOST else set[Place]()
        fill({at: made for at, made in gathered.items() if at not in later or made.is_mean})
        self._whole = {at: made.values() for at, made in gathered.items() if at not in later}
        self._later = {at: gathered[at] for at in gathered if at in later}

    def take(self, place: Place) -> Tensor | None:
        """What replaces the tensor at a place on all prompts, which is then no longer here.

        ``None`` if it is computed for some prompts at a time.
        """
        return self._whole.pop(place, None)

    def on(self, place: Place, rows: Sequence[int]) -> Tensor:
        """What replaces the tensor at a place on some prompts: a value for each, or one for all."""
        if place in self._whole:
            value = self._whole[place]
            return value[list(rows)] if place in self._by_prompt else value
        together = tuple(rows)
        if together not in self._of_rows:
            self._evict_for(len(together))
            chosen = torch.tensor(together, device=self._device)
            part = {at: made.for_rows(chosen) for at, made in self._later.items()}
            self._fill(part)
            self._of_rows[together] = {at: made.values() for at, made in part.items()}
        return self._of_rows[together][place]

    def _evict_for(self, n: int) -> None:
        """Drop the earliest values until those of ``n`` prompts can be added."""
        while self._of_rows and (n + sum(map(len, self._of_rows))) * self._row_bytes > MOST:
            del self._of_rows[next(iter(self._of_rows))]
