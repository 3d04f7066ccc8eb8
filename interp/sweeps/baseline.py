"""The baseline: the unedited forward of a job, and the tensors that edited forwards need from it.

These are the states to restart from; keys and values of the columns that edited forwards do not
compute; and, for an encoder–decoder, the encoder's output.
"""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain

from torch import Tensor

from interp.execution import run
from interp.model import Batch, Context, KeysValues, RepeatedKV
from interp.points import Place
from interp.sweeps.restart_map import RestartMap
from interp.sweeps.schedule import Job


@dataclass(frozen=True, eq=False)
class Baseline:
    """The unedited forward of a job's prompts.

    Attributes:
        restart_map: restart points of the model.
        batches: the tokens of each stack.
        contexts: the context of each stack.
        tensors: the stored tensors, by place.
    """

    restart_map: RestartMap
    batches: tuple[Batch, ...]
    contexts: tuple[Context, ...]
    tensors: dict[Place, Tensor]

    @classmethod
    def of(
        cls, restart_map: RestartMap, job: Job, batches: tuple[Batch, ...] | None = None
    ) -> "Baseline":
        """Run a job's prompts (or ``batches`` of the same shapes) and store what its cases need."""
        model, needed = restart_map.model, needed_by(restart_map, job)
        batches = job.batches if batches is None else batches
        stop = restart_map.exit(restart_map.last).layer
        done = run(model, *batches, record=needed, stop_at_layer=stop)
        tensors = {place: done.cache[place] for place in needed}
        return cls(restart_map, batches, tuple(model.contexts(batches)), tensors)

    @property
    def encoder_output(self) -> Tensor | None:
        """The output of the encoder; ``None`` in a model with a single stack."""
        return None if self.restart_map.last == 0 else self.tensors[self.restart_map.output(0)]

    def kv_cache(self, copies: int, columns: int, edited: Collection[Place]) -> RepeatedKV:
        """Keys and values that edited forwards attend to and no edit changes."""
        stored: dict[object, KeysValues] = {}
        for attention, key, value in chain.from_iterable(self.restart_map.kv_places):
            across = attention.is_cross and not changes_source(edited, key, value)
            if key in self.tensors and (across or (columns > 0 and not attention.is_cross)):
                stored[attention] = self.tensors[key], self.tensors[value]
        return RepeatedKV(stored, copies, columns)


def needed_by(restart_map: RestartMap, job: Job) -> list[Place]:
    """The places to store for the cases of a job, in the order of the forward."""
    needed: set[Place] = {restart_map.end(restart_map.last)}
    if restart_map.last > 0:
        needed.add(restart_map.output(0))
    for number in range(restart_map.last + 1):
        for restart in {case.restarts[number] for case in job.cases}:
            needed |= set() if restart is None else set(restart_map.state(number, restart))
    for case in job.cases:
        needed |= {at for at in case.earlier if not restart_map.passes(at, case.restarts)}
    earlier = any(case.first_column(restart_map, job.batches) > 0 for case in job.cases)
    for attentions in restart_map.kv_places[_first_layer(job) :]:
        for attention, key, value in attentions:
            needed |= {key, value} if earlier or attention.is_cross else set()
    return [place for place in restart_map.model.layout if place in needed]


def _first_layer(job: Job) -> int:
    """The first layer of the last stack that an edited forward computes."""
    layers = [case.restarts[-1].layer for case in job.cases if case.restarts[-1] is not None]
    return max(0, min(layers, default=0))


def changes_source(edited: Collection[Place], key: Place, value: Place) -> bool:
    """Whether edits change these keys and values of cross-attention."""
    return any(place in (key, value) or place.stack not in (None, key.stack) for place in edited)
