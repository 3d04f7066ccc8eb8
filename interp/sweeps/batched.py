"""How are many edited forwards run as one? Copies of the batch, each with edits of its own.

The copies enter where they part from the clean forward, in the columns from the first edit on; in
the last block, only columns that the metric reads are finished; and of the vocabulary, only what it
reads is formed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.edits import Edit, EditSite
from interp.errors import InvalidInput
from interp.execution.recorder import Listener, Plan
from interp.metrics import AtPosition, at_least_float32, check_values, measure, required_columns
from interp.model.context import Context
from interp.model.kv_cache import copied
from interp.model.network import Network
from interp.model.unembedding import Unembedding
from interp.points import EXIT, Place, Point
from interp.sweeps.baseline import Clean, Job
from interp.sweeps.cases import Item
from interp.sweeps.restart import ENTRY, Entrance

EVERY = slice(0, None)


@dataclass(frozen=True, eq=False)
class Fold:
    """Items that are run as one forward.

    Attributes:
        items: entered at the same doors, and with the same first column.
        first: the first column of the last stack that is computed.
    """

    items: tuple[Item, ...]
    first: int

    @property
    def entrances(self) -> tuple[Entrance | None, ...]:
        """Where each stack is entered."""
        return self.items[0].entrances


@dataclass(frozen=True, eq=False)
class Shared:
    """The edits of all copies at one place; in a listener, it stands for a single edit.

    Attributes:
        own: which copy makes which edit, in order.
        copies: how many copies there are.
    """

    own: tuple[tuple[int, Edit], ...]
    copies: int

    def __call__(self, x: Tensor, site: EditSite) -> Tensor:
        """Each copy with its own edits."""
        changed = x.clone()
        rows = changed.unflatten(0, (self.copies, -1))
        for copy, edit in self.own:
            own = EditSite(site.place, site.context.of_copy(copy, self.copies))
            rows[copy] = edit(rows[copy], own)
        return changed


class Folded:
    """One fold being run."""

    def __init__(self, clean: Clean, job: Job, fold: Fold) -> None:
        self.clean, self.job, self.fold = clean, job, fold
        self.ways, self.model, self.copies = clean.ways, clean.ways.model, len(fold.items)
        self.edits: dict[Place, list[tuple[int, Edit]]] = {}
        for copy, item in enumerate(fold.items):
            for place, edit in item.of_rows(job.rows, job.n):
                self.edits.setdefault(place, []).append((copy, edit))
        shared = {place: [Shared(tuple(own), self.copies)] for place, own in self.edits.items()}
        paired = self.ways.last > 0
        self.listener = Listener(Plan(shared, forms=frozenset(shared), paired=paired))

    def values(self) -> Float[Tensor, "item prompt"]:
        """The metric of each item and prompt."""
        memory = None if self.clean.memory is None else copied(self.clean.memory, self.copies)
        for number, entrance in enumerate(self.fold.entrances[:-1]):
            if entrance is not None:
                memory = self._first_stack(number, entrance, memory)
        values = self._measured(*self._last_stack(memory))
        self.listener.check_met()
        return values.cpu().double()

    # ---- through the stacks -------------------------------------------------------------------

    def _first_stack(self, number: int, entrance: Entrance, memory: Tensor | None) -> Tensor:
        """What a stack before the last gives out."""
        stack, context = self.model.stacks[number], self._context(number, EVERY, memory)
        tap = self._tap(number, context)
        x, layer = self._entered(number, entrance, EVERY, context)
        for later in range(layer, len(stack.blocks)):
            x = stack.block(later)(x, context, tap.at(layer=later))
        return stack.final_norm(x, tap)

    def _last_stack(self, memory: Tensor | None) -> tuple[Tensor, slice]:
        """The stream after the last block, and the columns that it is of."""
        number, stack = self.ways.last, self.model.stacks[-1]
        entrance, last, reads = self.fold.entrances[-1] or ENTRY, len(stack.blocks) - 1, self._reads
        nothing_mixes = self.ways.mixes_no_more(entrance) and all(map(self._pointwise, self.edits))
        columns = reads if reads and nothing_mixes else slice(self.fold.first, None)
        context = self._context(number, columns, memory)
        tap = self._tap(number, context)
        x, layer = self._entered(number, entrance, columns, context)
        for later in range(layer, last):
            x = stack.block(later)(x, context, tap.at(layer=later))
        if layer > last:
            return x, columns
        bound = any(place.layer == last for place in self._in_last_stack) or self._exits_bound
        if reads is None or bound:
            return stack.block(last)(x, context, tap.at(layer=last)), columns
        window = slice(reads.start - columns.start, reads.stop - columns.start)
        return stack.block(last).at_columns(x, window, context), reads

    def _entered(
        self, number: int, entrance: Entrance, columns: slice, context: Context
    ) -> tuple[Tensor, int]:
        """The stream after the block in which a stack is entered, and the layer that comes next."""
        stack, tap = self.model.stacks[number], self._tap(number, context)
        if entrance == ENTRY:
            batch = self.clean.batches[number].copied(self.copies)
            return stack.embed(batch, context, tap), 0
        places = self.ways.needs(number, entrance)
        given = [copied(self.clean.tensors[place][:, columns], self.copies) for place in places]
        door = self.ways.door(number, entrance)
        if door is None:
            return given[0], entrance.layer
        block, tap = stack.block(entrance.layer), tap.at(layer=entrance.layer)
        return block.enter(door, given, context, tap), entrance.layer + 1

    def _context(self, number: int, columns: slice, memory: Tensor | None = None) -> Context:
        """Of some columns of a stack, for all copies."""
        past = self.clean.past(self.copies, columns.start, set(self.edits))
        whole = self.clean.contexts[number].copied(self.copies, past)
        return whole.narrowed(columns, past).reading(memory)

    def _tap(self, number: int, context: Context) -> Listener:
        return self.listener.at(stack=self.model.stacks[number].name, context=context)

    # ---- the logits, and what the metric reads of them ----------------------------------------

    def _measured(self, x: Tensor, columns: slice) -> Tensor:
        """The metric, from the stream after the last block."""
        metric = self.job.metric
        if not isinstance(metric, AtPosition):
            logits = self._logits(*self._from_the_first(x, columns))
            return self._each(logits, lambda own: measure(metric, own, self.job.batches[-1]))
        if self._reads is None:
            x, columns = self._from_the_first(x, columns)
        place = self._read_in.repeat(self.copies) - columns.start
        if self._exits_bound:
            here = at(self._logits(x, columns), place)
        elif Place(Point.LOGITS) in self.edits or metric.columns is None:
            here = self._logits(at(x, place)[:, None], columns)[:, 0]
        else:
            metric, chosen = (
                metric.restricted_to_columns(),
                torch.tensor(metric.columns, device=x.device),
            )
            normed = self._normed(at(x, place)[:, None], columns)
            here = unembedding_of(self.model).some(normed, chosen)[:, 0]
        bound = metric.for_batch(self.job.batches[-1])
        return self._each(
            at_least_float32(here), lambda own: check_values(bound.compute(own), own.shape[0])
        )

    def _each(self, read: Tensor, measured: Callable[[Tensor], Tensor]) -> Tensor:
        """What is measured of each copy."""
        values: list[Tensor] = []
        for item, own in zip(self.fold.items, read.unflatten(0, (self.copies, -1)), strict=True):
            try:
                values.append(measured(own))
            except InvalidInput as error:
                raise InvalidInput(f"{item}: {error}") from error
        if values[0].ndim == 0 and len(self.job.rows) > 1:
            raise InvalidInput(
                "In a sweep a metric gives one number a prompt; this one gave a single number for "
                f"{len(self.job.rows)} prompts."
            )
        return torch.stack(values).reshape(self.copies, -1)

    def _normed(self, x: Tensor, columns: slice) -> Tensor:
        tap = self._tap(self.ways.last, self._context(self.ways.last, columns))
        return self.model.stacks[-1].final_norm(x, tap)

    def _logits(self, x: Tensor, columns: slice) -> Tensor:
        tap = self._tap(self.ways.last, self._context(self.ways.last, columns))
        return self.model.unembed(self._normed(x, columns), tap)

    def _from_the_first(self, x: Tensor, columns: slice) -> tuple[Tensor, slice]:
        """The stream in all columns: those that were not computed are the clean ones."""
        if columns.start == 0:
            return x, columns
        end = self.clean.tensors[self.ways.end(self.ways.last)]
        before = copied(end[:, : columns.start], self.copies)
        return torch.cat([before, x], dim=1), EVERY

    @cached_property
    def _read_in(self) -> Int[Tensor, " prompt"]:
        """The column that the metric reads, of each prompt."""
        metric, batch = self.job.metric, self.job.batches[-1]
        position = -1 if not isinstance(metric, AtPosition) or metric.pos is None else metric.pos
        return required_columns(batch, position)

    @cached_property
    def _reads(self) -> slice | None:
        """The columns that the metric reads, if not all are, and all of them are computed."""
        if not isinstance(self.job.metric, AtPosition):
            return None
        first, last = int(self._read_in.min()), int(self._read_in.max())
        return slice(first, last + 1) if first >= self.fold.first else None

    # ---- its edits ----------------------------------------------------------------------------

    @property
    def _in_last_stack(self) -> list[Place]:
        return [place for place in self.edits if self.ways.number_of(place) == self.ways.last]

    @cached_property
    def _exits_bound(self) -> bool:
        """Whether an edit after the last block needs more columns than the metric reads."""
        exits = [place for place in self._in_last_stack if is_exit(place)]
        return not all(map(self._pointwise, exits))

    def _pointwise(self, place: Place) -> bool:
        """Whether what is done there at one column does not depend on others."""
        return all(edit.pointwise for _, edit in self.edits[place])


def unembedding_of(model: Network) -> Unembedding:
    """The unembedding, which a model whose metric is measured has."""
    if not isinstance(model.unembed, Unembedding):
        raise InvalidInput("This model has no logits that a metric could measure.")
    return model.unembed


def at(x: Float[Tensor, "row pos n"], column: Int[Tensor, " row"]) -> Float[Tensor, "row n"]:
    """Each row's own column."""
    return x[torch.arange(x.shape[0], device=x.device), column]


def is_exit(place: Place) -> bool:
    """Whether a place lies after the last block (of some stack)."""
    return place.point in EXIT
