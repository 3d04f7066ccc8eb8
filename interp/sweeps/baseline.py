"""What is kept of the clean forward? What edited ones enter with, and what they look back at.

That is: the stream (and what heads or neurons say) where they part from it; keys and values of the
columns that they do not compute again; and, in a pair, what the encoder gave out.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain

from torch import Tensor

from interp.execution.run import run
from interp.metrics import Metric, MetricLike
from interp.model.batch import Batch
from interp.model.context import Context
from interp.model.kv_cache import Copied
from interp.points import Place
from interp.sweeps.cases import Item
from interp.sweeps.restart import Ways


@dataclass(frozen=True, eq=False)
class Job:
    """Some prompts and the items that are run on them.

    Attributes:
        rows: which of the sweep's prompts.
        batches: their tokens, of each stack.
        metric: what is measured of them.
        items: what is done to them, in the order in which it is run.
        n: how many prompts the sweep has in all.
    """

    rows: tuple[int, ...]
    batches: tuple[Batch, ...]
    metric: Metric | MetricLike
    items: tuple[Item, ...]
    n: int


@dataclass(frozen=True, eq=False)
class Clean:
    """The clean forward of a job's prompts.

    Attributes:
        ways: of the model whose forward it is.
        batches: the tokens, of each stack.
        contexts: of each stack.
        tensors: what was kept.
    """

    ways: Ways
    batches: tuple[Batch, ...]
    contexts: tuple[Context, ...]
    tensors: dict[Place, Tensor]

    @classmethod
    def of(cls, ways: Ways, job: Job) -> "Clean":
        """Run the prompts of ``job`` and keep what its items need."""
        model, wanted = ways.model, wanted_by(ways, job)
        done = run(model, *job.batches, record=wanted, stop_at_layer=ways.exit(ways.last).layer)
        tensors = {place: done.cache[place] for place in wanted}
        return cls(ways, job.batches, tuple(model.contexts(job.batches)), tensors)

    @property
    def memory(self) -> Tensor | None:
        """What the encoder of a pair gave out."""
        return None if self.ways.last == 0 else self.tensors[self.ways.output(0)]

    def past(self, copies: int, columns: int, edited: Collection[Place]) -> Copied:
        """Keys and values to look back at, where no edit changes them."""
        held: dict[object, tuple[Tensor, Tensor]] = {}
        for attention, key, value in chain.from_iterable(self.ways.recalled):
            across = attention.looks_across and not changes_across(edited, key, value)
            if key in self.tensors and (across or (columns > 0 and not attention.looks_across)):
                held[attention] = self.tensors[key], self.tensors[value]
        return Copied(held, copies, columns)


def wanted_by(ways: Ways, job: Job) -> list[Place]:
    """The places to keep for the items of a job, in the order of the forward."""
    wanted: set[Place] = {ways.end(ways.last)}
    if ways.last > 0:
        wanted.add(ways.output(0))
    for number in range(ways.last + 1):
        for entrance in {item.entrances[number] for item in job.items}:
            wanted |= set() if entrance is None else set(ways.needs(number, entrance))
    back = any(item.first_column(ways, job.batches) > 0 for item in job.items)
    for attentions in ways.recalled[_earliest(job) :]:
        for attention, key, value in attentions:
            wanted |= {key, value} if back or attention.looks_across else set()
    return [place for place in ways.model.layout if place in wanted]


def _earliest(job: Job) -> int:
    """The first layer of the last stack that an edited forward passes."""
    entered = [item.entrances[-1] for item in job.items]
    return max(0, min((entrance.layer for entrance in entered if entrance is not None), default=0))


def changes_across(edited: Collection[Place], key: Place, value: Place) -> bool:
    """Whether edits change the keys and values that are made of another stack's output."""
    return any(place in (key, value) or place.stack not in (None, key.stack) for place in edited)


def lengths(batches: Sequence[Batch]) -> list[tuple[int, ...]]:
    """How many tokens each prompt has, in each stack."""
    counts = [batch.is_real.sum(-1).tolist() for batch in batches]
    return list(zip(*counts, strict=True))
