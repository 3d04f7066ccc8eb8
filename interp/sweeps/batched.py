"""A batched forward: several cases as copies of one batch, each with its own edits.

The copies restart where they first differ from the baseline, at the columns from the first edit on.
Those that differ only later join the forward there, so that each block reads its weights once. In
the last block only the columns that the metric reads are computed to the end, and only the
logits that it reads.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, groupby

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.edits import Edit, EditSite
from interp.errors import InvalidInput
from interp.execution import Plan, Recorder, run
from interp.metrics import (
    AtPosition,
    Metric,
    at_least_float32,
    check_values,
    columns_read,
    measured,
)
from interp.model import Batch, Context, KeysValues, RepeatedKV, repeated, unembedding_of
from interp.points import Place, Point
from interp.sweeps.restart_map import ENTRY, Restart, RestartMap
from interp.sweeps.schedule import Case, Job


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
                stored |= attention.cached(self.tensors[key], self.tensors[value])
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


EVERY = slice(0, None)


@dataclass(frozen=True, eq=False)
class PerCaseEdit:
    """The edits of all copies at one place; the plan of the forward holds it as one edit.

    Attributes:
        edits: pairs of the index of a copy and its edit, in order.
        copies: number of copies.
        baseline: tensors of the unedited forward, for places that this forward does not compute.
    """

    edits: tuple[tuple[int, Edit], ...]
    copies: int
    baseline: Mapping[Place, Tensor] = field(default_factory=dict)

    def __call__(self, x: Tensor, site: EditSite) -> Tensor:
        """The tensor with each copy's own edits applied."""
        changed = x.clone()
        rows = changed.unflatten(0, (self.copies, -1))
        sites: dict[int, EditSite] = {}
        for copy, edit in self.edits:
            if copy not in sites:
                context = site.context.of_copy(copy, self.copies)
                sites[copy] = replace(site, context=context, earlier={}, changed_inputs={})
            copy_site = sites[copy]
            read = {place: self._earlier(place, copy, site) for place in edit.earlier}
            edit.write(rows[copy], replace(copy_site, earlier=read))
        return changed

    def _earlier(self, place: Place, copy: int, site: EditSite) -> Tensor:
        """The tensor at a place that one copy's edit reads, at the columns of this forward."""
        if place in site.earlier:
            return site.earlier[place].unflatten(0, (self.copies, -1))[copy]
        tensor = self.baseline[place]
        if place.stack != site.place.stack:
            return tensor
        return tensor[:, site.context.offset : site.context.offset + site.context.n_query]


@dataclass(eq=False)
class Stage:
    """The cases of a batched forward that have the same restarts, and the tap of their edits.

    Attributes:
        restarts: where each stack of the model restarts.
        copies: number of cases, at least one.
        edits: for each edited place, pairs of a copy and its edit, in order.
        recorder: the tap.
    """

    restarts: tuple[Restart | None, ...]
    copies: int
    edits: dict[Place, list[tuple[int, Edit]]]
    recorder: Recorder

    @classmethod
    def of(cls, baseline: Baseline, job: Job, cases: Sequence[Case]) -> "Stage":
        """The stage of some cases; without cases, that of the unedited forward."""
        restart_map, copies = baseline.restart_map, max(1, len(cases))
        edits: dict[Place, list[tuple[int, Edit]]] = {}
        for copy, case in enumerate(cases):
            for place, edit in case.for_rows(job.rows, job.n):
                edits.setdefault(place, []).append((copy, edit))
        planned = {
            place: [PerCaseEdit(tuple(changes), copies, baseline.tensors)]
            for place, changes in edits.items()
        }
        plan = Plan(
            planned,
            must_form=frozenset(planned),
            read_by_edits=frozenset(at for case in cases for at in case.earlier),
            hooks=restart_map.model.names.hooks,
            paired=restart_map.last > 0,
        )
        restarts = cases[0].restarts if cases else restart_map.restarts(())
        return cls(restarts, copies, edits, Recorder(plan))

    def tap(self, stack: str, context: Context) -> Recorder:
        """The recorder for a stack."""
        return self.recorder.scoped(stack=stack, context=context)


class BatchedForward:
    """One forward of several cases (or of none, which gives the metric of the baseline).

    Args:
        baseline: baseline of the job.
        job: the prompts and the metric.
        cases: cases in the order of their restarts; those of other restarts than the first's can
            join (see :meth:`Case.can_join`).
        first_column: the first column of the last stack that is computed.
    """

    def __init__(
        self, baseline: Baseline, job: Job, cases: tuple[Case, ...] = (), first_column: int = 0
    ) -> None:
        self.baseline, self.job, self.cases, self.first_column = baseline, job, cases, first_column
        self.restart_map, self.copies = baseline.restart_map, max(1, len(cases))
        self.model = self.restart_map.model
        alike_cases = [[*group] for _, group in groupby(cases, key=lambda case: case.restarts)]
        self.stages = [Stage.of(baseline, job, group) for group in alike_cases or [[]]]
        self.edits: dict[Place, list[Edit]] = {}
        for place, changes in chain.from_iterable(stage.edits.items() for stage in self.stages):
            self.edits.setdefault(place, []).extend(edit for _, edit in changes)

    def values(self) -> Float[Tensor, "case prompt"]:
        """The metric for each case and prompt, which may be NaN."""
        values = self._metric_values(self.read_logits())
        for stage in self.stages:
            stage.recorder.check_applied()
        return values.cpu().double()

    def read_logits(self) -> Float[Tensor, "row *pos vocab"]:
        """The logits that the metric reads, of the prompts of each case in turn.

        Those of a metric at a position are at this position, and of the columns that it reads.
        """
        output = self.baseline.encoder_output
        output = None if output is None else repeated(output, self.copies)
        for number, restart in enumerate(self.stages[0].restarts[:-1]):
            if restart is not None:
                output = self._encoder(number, restart, output)
        return self._logits_of_metric(*self._decoder(output))

    # ---- through the stacks -------------------------------------------------------------------

    def _encoder(self, number: int, restart: Restart, encoder_output: Tensor | None) -> Tensor:
        """The output of a stack other than the last."""
        stack, stage = self.model.stacks[number], self.stages[0]
        context = self._context(number, EVERY, stage.copies, encoder_output)
        tap = stage.tap(stack.name, context)
        x, layer = self._resume(stage, number, restart, EVERY, context)
        for later in range(layer, len(stack.blocks)):
            x = stack.block(later)(x, context, tap.scoped(layer=later))
        return stack.final_norm(x, tap)

    def _decoder(self, encoder_output: Tensor | None) -> tuple[Tensor, slice]:
        """The last stack's stream after its last block, and the columns that it contains."""
        number, stack = self.restart_map.last, self.model.stacks[-1]
        (first, *joining), reads = self.stages, self._read_range
        restart, last = first.restarts[-1] or ENTRY, len(stack.blocks) - 1
        columns, copies = slice(self.first_column, None), first.copies
        pointwise = all(map(self._is_pointwise, self.edits))
        if reads and pointwise and not self.restart_map.mixes_positions(restart):
            columns = reads
        context = self._context(number, columns, copies, encoder_output)
        x, layer = self._resume(first, number, restart, columns, context)
        for later in range(layer, last + 1):
            while joining and (start := joining[0].restarts[-1] or ENTRY).layer < later:
                stage = joining.pop(0)
                of_stage = self._context(number, columns, stage.copies)
                x = torch.cat([x, self._resume(stage, number, start, columns, of_stage)[0]])
                copies += stage.copies
                context = self._context(number, columns, copies)
            if later < last:
                tap = first.tap(stack.name, context)
                x = stack.block(later)(x, context, tap.scoped(layer=later))
        if layer > last:
            return x, columns
        tap = first.tap(stack.name, context)
        edited = any(place.layer == last for place in self._in_last_stack)
        if reads is None or edited or self._exit_needs_columns:
            return stack.block(last)(x, context, tap.scoped(layer=last)), columns
        window = slice(reads.start - columns.start, reads.stop - columns.start)
        return stack.block(last).at_columns(x, window, context), reads

    def _resume(
        self, stage: Stage, number: int, restart: Restart, columns: slice, context: Context
    ) -> tuple[Tensor, int]:
        """The stream after the block in which a stage restarts a stack, and the layer after it."""
        stack = self.model.stacks[number]
        tap = stage.tap(stack.name, context)
        if restart == ENTRY:
            batch = self.baseline.batches[number].repeated(stage.copies)
            return stack.embed(batch, context, tap), 0
        places = self.restart_map.state(number, restart)
        state = [
            repeated(self.baseline.tensors[place][:, columns], stage.copies) for place in places
        ]
        point = self.restart_map.point(number, restart)
        if point is None:
            return state[0], restart.layer
        block, tap = stack.block(restart.layer), tap.scoped(layer=restart.layer)
        return block.resume(point, state, context, tap), restart.layer + 1

    def _context(
        self, number: int, columns: slice, copies: int, encoder_output: Tensor | None = None
    ) -> Context:
        """The context of some columns of a stack, for the first copies."""
        kv_cache = self.baseline.kv_cache(copies, columns.start, set(self.edits))
        whole = self.baseline.contexts[number].repeated(copies, kv_cache)
        return whole.narrowed(columns, kv_cache).with_encoder(encoder_output)

    def _exit_tap(self, columns: slice) -> Recorder:
        """The tap of the last norm and the logits."""
        context = self._context(self.restart_map.last, columns, self.copies)
        return self.stages[0].tap(self.model.stacks[-1].name, context)

    # ---- the logits that the metric reads -----------------------------------------------------

    def _metric_values(self, logits: Tensor) -> Float[Tensor, "case prompt"]:
        """The metric, from the logits that it reads."""
        metric, batch = self.job.metric, self.job.batches[-1]
        if not isinstance(metric, AtPosition):
            return self._each(logits, lambda copy_logits: measured(metric, copy_logits, batch))
        if self._reads_some_columns:
            metric = metric.restricted_to_columns()
        bound = metric.for_batch(batch)
        return self._each(
            logits,
            lambda copy_logits: check_values(bound.compute(copy_logits), copy_logits.shape[0]),
        )

    def _logits_of_metric(self, x: Tensor, columns: slice) -> Tensor:
        """The logits that the metric reads, from the stream after the last block."""
        metric = self.job.metric
        if not isinstance(metric, AtPosition):
            return self._logits(*self._all_columns(x, columns))
        if self._read_range is None:
            x, columns = self._all_columns(x, columns)
        position = self._read_column.repeat(self.copies) - columns.start
        if self._exit_needs_columns:
            return at(self._logits(x, columns), position)
        here = at(x, position)[:, None]
        if not self._reads_some_columns:
            return self._logits(here, columns)[:, 0]
        some = torch.tensor(metric.columns, device=x.device)
        return unembedding_of(self.model).some(self._final_norm(here, columns), some)[:, 0]

    @property
    def _reads_some_columns(self) -> bool:
        """Whether only the columns of the vocabulary that the metric reads are computed."""
        metric = self.job.metric
        return (
            isinstance(metric, AtPosition)
            and metric.columns is not None
            and not self._exit_needs_columns
            and Place(Point.LOGITS) not in self.edits
        )

    def _each(self, logits: Tensor, measure: Callable[[Tensor], Tensor]) -> Tensor:
        """The metric for each copy."""
        values: list[Tensor] = []
        for copy, copy_logits in enumerate(logits.unflatten(0, (self.copies, -1))):
            try:
                values.append(measure(at_least_float32(copy_logits)))
            except InvalidInput as error:
                label = str(self.cases[copy]) if self.cases else "Without an edit"
                raise InvalidInput(f"{label}: {error}") from error
        if values[0].ndim == 0 and len(self.job.rows) > 1:
            raise InvalidInput(
                "In a sweep a metric gives one number per prompt; this one gave a single number "
                f"for {len(self.job.rows)} prompts."
            )
        return torch.stack(values).reshape(self.copies, -1)

    def _final_norm(self, x: Tensor, columns: slice) -> Tensor:
        return self.model.stacks[-1].final_norm(x, self._exit_tap(columns))

    def _logits(self, x: Tensor, columns: slice) -> Tensor:
        return self.model.unembed(self._final_norm(x, columns), self._exit_tap(columns))

    def _all_columns(self, x: Tensor, columns: slice) -> tuple[Tensor, slice]:
        """The stream at all columns; those before ``columns`` are taken from the baseline."""
        if columns.start == 0:
            return x, columns
        end = self.baseline.tensors[self.restart_map.end(self.restart_map.last)]
        before = repeated(end[:, : columns.start], self.copies)
        return torch.cat([before, x], dim=1), EVERY

    @cached_property
    def _read_column(self) -> Int[Tensor, " prompt"]:
        """The column that the metric reads in each prompt."""
        metric, batch = self.job.metric, self.job.batches[-1]
        if isinstance(metric, AtPosition):
            return metric.read_columns(batch)
        return columns_read(batch, -1)

    @cached_property
    def _read_range(self) -> slice | None:
        """The columns that the metric reads; ``None`` if it reads all, or others than computed.

        Also ``None`` if the last norm reads all columns.
        """
        mixes = self.model.stacks[-1].final_norm.mixes_positions
        if mixes or not isinstance(self.job.metric, AtPosition):
            return None
        first, last = int(self._read_column.min()), int(self._read_column.max())
        return slice(first, last + 1) if first >= self.first_column else None

    # ---- the edits ----------------------------------------------------------------------------

    @property
    def _in_last_stack(self) -> list[Place]:
        last = self.restart_map.last
        return [place for place in self.edits if self.restart_map.stack_of(place) == last]

    @cached_property
    def _exit_needs_columns(self) -> bool:
        """Whether the last norm, or an edit after it, needs more columns than the metric reads."""
        if self.model.stacks[-1].final_norm.mixes_positions:
            return True
        exits = [place for place in self._in_last_stack if place.point.value.region == "exit"]
        return not all(map(self._is_pointwise, exits))

    def _is_pointwise(self, place: Place) -> bool:
        """Whether the edits at a place change each column without reading the others."""
        return all(edit.pointwise for edit in self.edits[place])


def with_reference(job: Job, baseline: Baseline) -> Job:
    """The job whose metric compares with the logits of the baseline, if it lacks a reference."""
    metric = job.metric
    if not isinstance(metric, Metric) or not metric.lacks_reference:
        return job
    return replace(job, metric=metric.with_reference(BatchedForward(baseline, job).read_logits()))


def at(x: Float[Tensor, "row pos n"], column: Int[Tensor, " row"]) -> Float[Tensor, "row n"]:
    """The values of each row at its own column."""
    return x[torch.arange(x.shape[0], device=x.device), column]
