"""What is kept of the clean forward? What edited ones enter with, and what they look back at.

That is: the stream (and what heads or neurons say) where they part from it; keys and values of the
columns that they do not compute again; and, in a pair, what the encoder gave out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from interp.metrics import Metric, MetricLike
from interp.model.attention import Attention
from interp.model.context import Batch, Context
from interp.model.network import Network
from interp.model.past import Copied
from interp.model.recipe import Layout
from interp.points import Place
from interp.run import run
from interp.sweep.items import ENTRY, Entrance, Item, needs_of, placed


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

    def looks_back(self, model: Network) -> bool:
        """Whether some item leaves the first columns as they were."""
        return any(item.first_column(model, self.batches) > 0 for item in self.items)


@dataclass(frozen=True, eq=False)
class Clean:
    """The clean forward of a job's prompts.

    Attributes:
        model: whose forward.
        batches: the tokens, of each stack.
        contexts: of each stack.
        tensors: what was kept.
        memory: what the encoder of a pair gave out.
    """

    model: Network
    batches: tuple[Batch, ...]
    contexts: tuple[Context, ...]
    tensors: dict[Place, Tensor]
    memory: Tensor | None

    @classmethod
    def of(cls, model: Network, job: Job) -> "Clean":
        """Run the prompts of ``job`` and keep what its items need."""
        wanted = wanted_by(model, job)
        tokens = [batch.tokens for batch in job.batches]
        done = run(model, *tokens, record=wanted, stop_at_layer=len(model.stacks[-1].blocks))
        memory = done.cache[given_out(model, 0)] if len(model.stacks) > 1 else None
        tensors = {place: done.cache[place] for place in wanted}
        return cls(model, job.batches, tuple(model.contexts(job.batches)), tensors, memory)

    def past(self, copies: int, columns: int, edited: set[Place]) -> Copied:
        """Keys and values to look back at, where no edit changes them."""
        held: dict[object, tuple[Tensor, Tensor]] = {}
        for layer in range(len(self.model.stacks[-1].blocks)):
            for attention, (key, value) in recalled(self.model, layer, back=columns > 0):
                anew = attention.looks_across and changes_across(edited, key, value)
                if not anew and key in self.tensors:
                    held[attention] = self.tensors[key], self.tensors[value]
        return Copied(held, copies, columns)


def wanted_by(model: Network, job: Job) -> list[Place]:
    """The places to keep for the items of a job, in the order of the forward."""
    wanted: set[Place] = set()
    for number in range(len(model.stacks)):
        entrances = {item.entrances[number] for item in job.items}
        for entrance in entrances - {None}:
            wanted |= set(needs_of(model, number, entrance or ENTRY))
    wanted |= set(needs_of(model, len(model.stacks) - 1, Entrance(len(model.stacks[-1].blocks))))
    if len(model.stacks) > 1:
        wanted.add(given_out(model, 0))
    last, back = model.stacks[-1], job.looks_back(model)
    for layer in range(_earliest(job), len(last.blocks)):
        for _, places in recalled(model, layer, back=back):
            wanted |= set(places)
    return [place for place in model.layout if place in wanted]


def _earliest(job: Job) -> int:
    """The first layer of the last stack that an edited forward passes."""
    entered = [item.entrances[-1] for item in job.items]
    return max(0, min((entrance.layer for entrance in entered if entrance is not None), default=0))


def recalled(
    model: Network, layer: int, *, back: bool
) -> list[tuple[Attention, tuple[Place, Place]]]:
    """The attentions of a block whose keys and values are not computed again, and where these are.

    Args:
        model: its last stack is meant.
        layer: which block.
        back: whether the first columns are not computed again.
    """
    stack = model.stacks[-1]
    block = stack.block(layer)
    here = Place(stack.end.point, layer, None, stack.name if len(model.stacks) > 1 else None)
    own = [block.attn] if back else []
    across = [block.cross_attn] if isinstance(getattr(block, "cross_attn", None), Attention) else []
    found: list[tuple[Attention, tuple[Place, Place]]] = []
    for attention in [*own, *across]:
        key, value = (placed(Place(point), here) for point in attention.recalled)
        found.append((attention, (key, value)))
    return found


def changes_across(edited: set[Place], key: Place, value: Place) -> bool:
    """Whether edits change the keys and values that are made of another stack's output."""
    return any(place in (key, value) or place.stack not in (None, key.stack) for place in edited)


def given_out(model: Network, number: int) -> Place:
    """Where what a stack gives out is found."""
    stack = model.stacks[number]
    layout: Layout = stack.final_norm.layout(stack.end)
    name = stack.name if len(model.stacks) > 1 else None
    last = list(layout)[-1] if layout else stack.end
    layer = len(stack.blocks) - 1 if last.point.in_block else None
    return Place(last.point, layer, last.norm, name)


def lengths(batches: Sequence[Batch]) -> list[tuple[int, ...]]:
    """How many tokens each prompt has, in each stack."""
    counts = [batch.is_real.sum(-1).tolist() for batch in batches]
    return list(zip(*counts, strict=True))
