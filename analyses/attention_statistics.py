"""What does each head attend to, on average? Entropy, distance and masses of attention.

    entropy of query i    −Σ_j A_ij log A_ij        and the same over log n_i, n_i keys visible
    distance              Σ_j A_ij |i − j|          in tokens
    mass on a set K       Σ_{j ∈ K} A_ij            K: BOS, self, previous, …, a class of tokens

(Clark et al. 2019, "What Does BERT Look At?"). Each is averaged over the queries of a prompt for
which it is defined; entropy, distance and the mass on the query itself leave out queries that see
one key only, such as the first of a causal model, whose attention is forced. A large attention
weight need not move much: a head may attend where its values are short. Each number is therefore
also computed with the weights A_ij ‖v_j W_O‖, divided by their sum over j (Kobayashi et al. 2020,
"Attention is Not Only a Weight"). The control for both is the number for equal weights on all
visible keys.

These numbers describe attention alone: that a head attends somewhere does not show that the model
uses what it moves (ablation does), nor whether the vectors that it moves add up or cancel.

Prompts are held in memory, with a number each, or read one window after another from a file or an
iterator: then only the moments of each number are kept, which are merged exactly.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from analyses.methods.finite import check_finite_weights
from analyses.methods.heads import (
    BOS,
    DISTANCE,
    ENTROPY,
    FIRST,
    NORMALIZED,
    VARIANCE,
    WEIGHTINGS,
    AttentionName,
    Attentions,
    AveragesOfLayers,
    Classes,
    Measured,
    attentions_of,
    offsets_by_name,
    output_factor,
    pattern_at,
    selected_tokens,
    tokens_of_classes,
    value_weights,
    visible_keys,
    written_norms,
)
from analyses.results import (
    Drawing,
    Heatmap,
    Moments,
    Result,
    SeparatePrompts,
    counted,
    fixed,
    grid,
    mean_frame,
    number,
    plotted,
    prompt_frame,
)
from interp import Transformer, run
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.executors import map_batches
from interp.integers import within
from interp.io import Progress, as_progress
from interp.model import Batch, tokens_first
from interp.prompts import Pool, by_length, no_texts, pools_of

NAMED = 3
"""The most heads that a conclusion names."""
FARTHEST = 2**16
"""The largest number of offsets."""
CHUNK = 2**24
"""The most attention weights of a layer that are formed at a time."""
RECORDED = 2**28
"""The most bytes of queries, keys and values that a forward records; one prompt may take more."""
ROWS = 128
"""The most prompts at a time, which are of similar length, so that little is spent on padding."""
WINDOW = 1024
"""Number of prompts of a file or an iterator that are in memory at a time."""
_Parts = tuple[Tensor, Tensor]
"""Numbers of attention, and of uniform weights; see :func:`_measure`."""


@dataclass(frozen=True, eq=False, repr=False)
class AttentionStatistics(Result):
    """Averages of each head's attention over the queries of each prompt.

    Attributes:
        value: the averages with the weights A_ij, and with A_ij ‖v_j W_O‖ renormalised. NaN where
            a prompt has no query that a statistic is defined for, or a head's values are all zero;
            tables and means leave these prompts out, and ``n`` counts those that remain.
        uniform: the control: the averages with equal weights on all visible keys.
        statistics: names of the statistics: ``entropy`` (nats), ``normalized entropy`` (0 to 1),
            ``distance`` (tokens; not across stacks), and masses (0 to 1).
        attention: which attention of an encoder–decoder; ``None`` with one stack.
        provenance: model and tokens that the numbers depend on.
    """

    value: Float[Tensor, "weighting layer head prompt statistic"]
    uniform: Float[Tensor, "layer prompt statistic"]
    statistics: tuple[str, ...]
    attention: AttentionName | None
    provenance: Provenance

    def separate_prompts(self) -> SeparatePrompts | None:
        """See :meth:`Result.separate_prompts`."""
        return SeparatePrompts()

    @property
    def masses(self) -> tuple[str, ...]:
        """The statistics that are masses."""
        return tuple(s for s in self.statistics if s not in (ENTROPY, NORMALIZED, DISTANCE))

    def of(self, statistic: str, weighting: str = "attention") -> Float[Tensor, "layer head"]:
        """The mean of one statistic over the prompts that have it."""
        if weighting not in WEIGHTINGS:
            choices = " or ".join(WEIGHTINGS)
            raise InvalidInput(f"weighting={shorten(weighting)} should be {choices}.")
        return self.value[WEIGHTINGS.index(weighting), ..., self._index(statistic)].nanmean(-1)

    def to_frame(self) -> pd.DataFrame:
        """One row per head, statistic and weighting, without those that no prompt has.

        Columns:
            layer, head, name: the head; its name is that in :func:`interp.computation_graph`.
            statistic: its name.
            weighting: ``attention`` or ``value-weighted``.
            mean, low, high: mean over prompts, and its 95 % interval (NaN below five prompts).
            n: number of prompts.
            uniform: the control, with equal weights on all visible keys.
        """
        frame = self._means()
        uniform = self.uniform.nanmean(1)[:, None].expand((*self.value.shape[1:3], -1))
        frame["uniform"] = uniform.flatten().repeat(len(WEIGHTINGS)).numpy()
        return frame[frame["n"] > 0].reset_index(drop=True)

    def to_prompt_frame(self) -> pd.DataFrame:
        """One row per head, statistic, weighting and prompt that has it, with its ``value``."""
        return prompt_frame(self._cells, value=self._by_cell).dropna(ignore_index=True)

    def to_largest_frame(self) -> pd.DataFrame:
        """For each head, the mass that is furthest above uniform attention; furthest first.

        Columns: those of :meth:`to_frame` without ``weighting`` and n, and ``value-weighted``, the
        mean with those weights.
        """
        frame = self.to_frame()
        masses = frame[frame["statistic"].isin(self.masses)]
        keys = ["layer", "head", "name", "statistic"]
        plain, weighted = (
            masses[masses["weighting"] == name].drop(columns="weighting") for name in WEIGHTINGS
        )
        both = plain.merge(
            weighted[[*keys, "mean"]].rename(columns={"mean": WEIGHTINGS[1]}), "left", on=keys
        )
        excess = both["mean"] - both["uniform"]
        order = both.assign(excess=excess).sort_values("excess", ascending=False, kind="stable")
        columns = [*keys, "mean", "low", "high", WEIGHTINGS[1], "uniform"]
        return order.drop_duplicates("name")[columns].reset_index(drop=True)

    def drawing(self, weighting: str = "attention") -> Drawing:
        """Heatmap of the numbers from 0 to 1: heads down, normalized entropy and masses across."""
        columns = [s for s in (NORMALIZED, *self.masses) if not self.of(s).isnan().all()]
        table = torch.stack([self.of(column, weighting).flatten() for column in columns], -1)
        return Heatmap(
            table,
            title=f"Where heads attend ({self._which}{weighting})",
            rows=self._heads,
            columns=columns,
            axes=("head", "statistic"),
            unit="0 to 1",
            top=1.0,
        )

    figure = plotted(drawing)

    def summary(self) -> str:
        """For each mass, the head that exceeds uniform attention most; then what has no value."""
        absent = [s for s in self.statistics if self.of(s).isnan().all()]
        moved = self.of(ENTROPY, WEIGHTINGS[1]).flatten()
        silent = [self._heads[number] for number in moved.isnan().nonzero().flatten().tolist()]
        lines = [self._line(statistic) for statistic in self.masses if statistic not in absent]
        lines += [f"no prompt has a query for: {', '.join(absent)}"] if absent else []
        lines += [f"write nothing (no value weights): {', '.join(silent)}"] * bool(silent)
        return "\n".join([self.headline(), *lines])

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        return self._furthest(1)

    def conclusion(self) -> list[str]:
        """The headline, with more heads."""
        return [self._furthest(NAMED)]

    def _furthest(self, n: int) -> str:
        """The entropy, and the ``n`` heads that exceed uniform attention most."""
        heads = self.to_largest_frame().head(n)
        columns = zip(heads["name"], heads["statistic"], heads["mean"], strict=True)
        texts = (f"{name} ({mass} {fixed(mean, 2)})" for name, mass, mean in columns)
        return (
            f"{self._which}{counted(len(self._heads), 'head')} on "
            f"{counted(self._n_prompts, 'prompt')}: entropy "
            f"{number(self.of(ENTROPY).nanmean(), 3)} nats on average; furthest above uniform "
            f"attention: {', '.join(texts) or 'none'}"
        )

    def _line(self, statistic: str) -> str:
        control = self.uniform[..., self._index(statistic)].nanmean(-1)
        mass, weighted = self.of(statistic), self.of(statistic, WEIGHTINGS[1])
        best = int((mass - control[:, None]).flatten().nan_to_num(-1.0).argmax())
        layer, width = best // mass.shape[1], max(map(len, self._heads))
        return (
            f"{statistic:<14} {self._heads[best]:<{width}} {fixed(mass.flatten()[best], 3)}  "
            f"(value-weighted {fixed(weighted.flatten()[best], 3)}, uniform "
            f"{fixed(control[layer], 3)})"
        )

    def _index(self, statistic: str) -> int:
        if statistic not in self.statistics:
            raise InvalidInput(
                f"{shorten(statistic)} was not measured; there are {', '.join(self.statistics)}."
            )
        return self.statistics.index(statistic)

    def _means(self) -> pd.DataFrame:
        """One row per cell: mean, low, high and n, as :func:`mean_frame` gives them."""
        return mean_frame(self._cells, self._by_cell)

    @property
    def _n_prompts(self) -> int:
        return self.uniform.shape[1]

    @property
    def _which(self) -> str:
        return f"{self.attention} attention, " if self.attention else ""

    @property
    def _heads(self) -> list[str]:
        stack = f"{self.attention}." if self.attention else ""
        layers, heads = (range(n) for n in self.value.shape[1:3])
        return [f"{stack}L{layer}H{head}" for layer in layers for head in heads]

    @property
    def _by_cell(self) -> Float[Tensor, "cell prompt"]:
        return self.value.movedim(-2, -1).flatten(0, -2)

    @property
    def _cells(self) -> dict[str, list[object]]:
        layers, heads = (range(n) for n in self.value.shape[1:3])
        cells = grid(weighting=WEIGHTINGS, layer=layers, head=heads, statistic=self.statistics)
        each = len(self.statistics)
        return {
            "layer": cells["layer"],
            "head": cells["head"],
            "name": [name for name in self._heads for _ in range(each)] * len(WEIGHTINGS),
            "statistic": cells["statistic"],
            "weighting": cells["weighting"],
        }


@dataclass(frozen=True, eq=False, repr=False)
class StreamedAttention(AttentionStatistics):
    """Averages over prompts of a file or an iterator, without those of each prompt.

    ``value`` and ``uniform`` hold the means over all prompts, as if of a single prompt. Means,
    intervals and counts are those of the same prompts in a list, up to rounding.

    Attributes:
        moments: the moments over prompts of each average.
        n_prompts: number of prompts; each part of a text that was cut counts as one.
    """

    moments: Moments
    n_prompts: int

    def to_prompt_frame(self) -> pd.DataFrame:
        """Refused, as no numbers of single prompts are kept.

        Raises:
            InvalidInput: always.
        """
        raise InvalidInput(
            "These prompts were read as a stream, of which no numbers of single prompts are kept. "
            "Give the prompts as a list, or to run_in_parts, which writes the numbers to files."
        )

    def _means(self) -> pd.DataFrame:
        low, high = self.moments.ends()
        columns = {"mean": self.value[..., 0, :], "low": low, "high": high}
        return pd.DataFrame(self._cells).assign(
            **{name: column.flatten().numpy() for name, column in columns.items()},
            n=self.moments.n.flatten().long().numpy(),
        )

    @property
    def _n_prompts(self) -> int:
        return self.n_prompts


def attention_statistics(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    prompts: Any,  # noqa: ANN401 - what model.check reads
    *,
    classes: Classes | None = None,
    offsets: int = 8,
    attention: AttentionName | None = None,
    queries: Tensor | None = None,
    progress: Progress | None = None,
) -> AttentionStatistics:
    """Measure the entropy, distance and masses of every head's attention.

    The masses, and the queries over which each is averaged: the first token of a prompt over all
    later queries, called ``bos`` where all prompts begin with BOS, else ``first position``;
    ``self``, ``previous``, ``next`` (if attention is bidirectional) and the tokens at each further
    offset over the queries that see a token there and another one; each class of ``classes`` over
    all queries. The masses on disjoint classes and ``other`` sum to 1 (with sinks, to the part of a
    row that is not the sink's; entropy is then that of the weights on keys, not renormalised).
    There are no offsets across stacks. Entropy and distance are averaged over the queries that see
    two keys or more: with one, they are 0 whatever the head does.

    Args:
        model: the model.
        prompts: texts, token ids padded with ``interp.PAD``, images, or a batch that
            ``model.batch`` made; ``(source, target)`` for an encoder–decoder. Or prompts of any
            number, which are not held in memory: an iterator of texts or of rows of token ids (for
            an encoder–decoder, of pairs), or the ``Path`` of a file with a text per line
            (``.txt``) or an object with a ``text`` per line (``.jsonl``). Texts of these that are
            longer than the context are cut, and each part counts as a prompt.
        classes: classes of key tokens, by name: ids and texts of one token each, or a boolean
            tensor ``[prompt pos]`` (over the keys' tokens, padding included) that marks them.
            Tokens in none of them are ``other``.
        offsets: number of positions before (and after) the query at which to measure masses.
        attention: for an encoder–decoder, ``"encoder"``, ``"decoder"`` or ``"cross"``.
        queries: boolean ``[prompt pos]``, which queries count; by default all.
        progress: called with ``(prompts done, prompts in total)``; for a file in bytes, and for an
            iterator with the same number twice.

    Returns:
        Averages by weighting, layer, head, prompt and statistic; of an iterator or a file a
        :class:`StreamedAttention`.

    Raises:
        InvalidInput: classes that are not tokens of the model, are named like another statistic or
            have another shape; no query to count; attention that is not finite; ``attention`` does
            not match the model's stacks; or, of an iterator or a file, no prompt, a prompt that
            can't be read, or ``queries`` or classes that mark the tokens of each prompt.

    Examples:
        >>> model, texts = interp.load("python-2l"), ["def f(x): return x", "class A(B): pass"]
        >>> print(analyses.attention_statistics(model, texts, offsets=1).summary())
        16 heads on 2 prompts: entropy 0.699 nats on average; furthest above uniform attention: L0H5
        (previous 0.97)
        bos            L1H0 0.905  (value-weighted 0.617, uniform 0.214)
        self           L0H0 0.738  (value-weighted 0.730, uniform 0.214)
        previous       L0H5 0.968  (value-weighted 0.967, uniform 0.214)
    """
    check_finite_weights(model)
    kind = attentions_of(model, attention)
    report = as_progress(progress, "prompts")
    chosen = _Chosen(classes, within(1, FARTHEST, offsets, "offsets"), queries)
    if isinstance(prompts, Iterator | Path):
        return _of_stream(model, kind, prompts, chosen, report)
    batches = tuple(model.batches(prompts))
    n = len(batches[0].ids)
    pool = Pool(batches, 0, tuple(f"prompt {row}" for row in range(n)), 0, n, n)
    ((_, parts, statistics),) = _of_pools(model, kind, [pool], chosen, report)
    return AttentionStatistics(*parts, statistics, attention, Provenance.of(model, *batches))


@dataclass(frozen=True)
class _Chosen:
    """What is measured, as :func:`attention_statistics` takes it."""

    classes: Classes | None
    offsets: int
    queries: Tensor | None

    def check_stream(self) -> None:
        """Check that all can be measured before the last prompt is read.

        Raises:
            InvalidInput: tokens of each prompt are marked, or a class has a reserved name.
        """
        marks = self.classes.values() if isinstance(self.classes, Mapping) else ()
        if self.queries is not None or any(isinstance(each, Tensor) for each in marks):
            raise InvalidInput(
                "queries= and classes given as tensors mark the tokens of prompts in memory, but "
                "these prompts are read as a stream. Give them as a list, or classes as tokens."
            )
        if isinstance(self.classes, Mapping) and {BOS, FIRST} & self.classes.keys():
            raise InvalidInput(
                f"A class can't be called {BOS} or {FIRST}, which are names of a statistic. "
                "Rename the class."
            )


def _of_stream(
    model: Transformer,
    kind: Attentions,
    prompts: Iterator[Any] | Path,
    chosen: _Chosen,
    report: Progress | None,
) -> StreamedAttention:
    """The moments over prompts, which are read window by window."""
    chosen.check_stream()
    totals: list[Moments] | None = None
    n_prompts, are_bos = 0, True
    digest, names = hashlib.sha256(), tuple[str, ...]()
    pools = pools_of(model, prompts, WINDOW)
    for pool, parts, names in _of_pools(model, kind, pools, chosen, report):
        pool.digest(digest)
        moments = [Moments.of(part.movedim(-2, -1)) for part in parts]
        if totals is not None:
            moments = [total.merged(new) for total, new in zip(totals, moments, strict=True)]
        totals = moments
        n_prompts += len(pool.sources)
        are_bos = are_bos and BOS in names
    if totals is None:
        raise no_texts()
    value, uniform = (each.mean.where(each.n > 0, torch.nan).unsqueeze(-2) for each in totals)
    statistics = tuple(
        (BOS if are_bos else FIRST) if name in (BOS, FIRST) else name for name in names
    )
    provenance = replace(Provenance.of(model), tokens=digest.hexdigest())
    return StreamedAttention(
        value, uniform, statistics, kind.name, provenance, totals[0], n_prompts
    )


@dataclass(frozen=True, eq=False)
class _Rows:
    """The prompts of a forward.

    Attributes:
        pool: the prompts that were read with them.
        rows: which of these they are.
        statistics: the names of what is measured.
    """

    pool: Pool
    rows: Int[Tensor, " row"]
    statistics: tuple[str, ...]

    def __str__(self) -> str:
        return self.pool.names(self.rows)


_Texts = tuple[tuple[Batch, ...], Measured]
"""The tokens of the prompts of a forward, and what is measured of them."""


def _of_pools(
    model: Transformer,
    kind: Attentions,
    pools: Iterable[Pool],
    chosen: _Chosen,
    report: Progress | None,
) -> Iterator[tuple[Pool, _Parts, tuple[str, ...]]]:
    """Yield the numbers of each prompt of some prompts, and the names of the statistics."""
    forwards = (each for pool in pools for each in _forwards(model, kind, pool, chosen))
    function = partial(_measure, model, kind, [output_factor(attn) for attn in kind.layers])
    order, parts, read = list[Tensor](), list[_Parts](), 0
    with closing(map_batches(model, function, forwards)) as results:
        for some, measured in results:
            order.append(some.rows)
            parts.append(measured)
            done, n = sum(map(len, order)), len(some.pool.sources)
            report_rows = some.pool.progress(report, read)
            if report_rows is not None:
                report_rows(done, n)
            if done < n:
                continue
            prompt, read = torch.cat(order).argsort().cpu(), some.pool.done
            values, uniform = (
                torch.cat(each, dim=-2)[..., prompt, :] for each in zip(*parts, strict=True)
            )
            order, parts = [], []
            yield some.pool, (values, uniform), some.statistics


def _forwards(
    model: Transformer, kind: Attentions, pool: Pool, settings: _Chosen
) -> Iterator[tuple[_Rows, _Texts]]:
    """The prompts of each forward, with what is measured of them."""
    query_batch, key_batch = pool.batches[kind.query], pool.batches[kind.key]
    chosen = query_batch.is_real
    if settings.queries is not None:
        chosen = selected_tokens(settings.queries, query_batch, "queries=")
    if not bool(chosen.any()):
        raise InvalidInput("queries= selects no token, so there is nothing to average over.")
    is_bidirectional = kind.is_bidirectional
    near = (
        {} if kind.is_cross else offsets_by_name(settings.offsets, bidirectional=is_bidirectional)
    )
    classes = settings.classes
    named = {} if classes is None else tokens_of_classes(model, classes, key_batch)
    start = BOS if _begin_with_bos(model, key_batch) else FIRST
    statistics = (ENTROPY, NORMALIZED, *([] if kind.is_cross else [DISTANCE]), start, *near, *named)
    if len(set(statistics)) < len(statistics):
        raise InvalidInput(
            f"A class can't be called {', '.join(sorted(set(named) & {start, *near}))}, which is "
            "the name of another statistic. Rename the class."
        )
    n_heads = kind.layers[0].n_heads
    projected = sum((attn.n_heads + 2 * attn.kv_heads) * attn.d_head for attn in kind.layers)
    most_tokens = RECORDED // (projected * model.dtype.itemsize)
    for rows, texts in by_length(pool.batches, ROWS, CHUNK // n_heads, most_tokens):
        counted_queries = _on_the_left(chosen[rows], query_batch.rows(rows))
        members = {
            name: _on_the_left(each[rows], key_batch.rows(rows)) for name, each in named.items()
        }
        measured = Measured(counted_queries, start, near, {}, members, kind.is_cross)
        yield _Rows(pool, rows, statistics), (texts, measured)


# ---- what is measured ---------------------------------------------------------------------------


def _on_the_left(marks: Bool[Tensor, "prompt pos"], batch: Batch) -> Bool[Tensor, "prompt used"]:
    """Marks of tokens in the columns that the tokens have in ``batch.padded_right()``."""
    width = int(batch.is_real.sum(-1).max())
    return marks.gather(-1, tokens_first(batch.is_real)[:, :width])


def _begin_with_bos(model: Transformer, batch: Batch) -> bool:
    """Whether the first token of every prompt is BOS."""
    bos, is_first = model.config.tokens.bos, batch.is_real & (batch.is_real.cumsum(-1) == 1)
    return bos is not None and bool((batch.ids[is_first] == bos).all())


@torch.no_grad()
def _measure(
    model: Transformer, kind: Attentions, factors: Sequence[Tensor], some: _Texts
) -> _Parts:
    """``[weighting layer head prompt statistic]``, and for uniform weights ``[layer prompt …]``."""
    batches, measured = some
    context, n_key = model.contexts([*batches])[kind.query], batches[kind.key].ids.shape[1]
    places = [kind.places(layer) for layer in range(len(kind.layers))]
    wanted, end = [place for pair in places for place in pair], len(model.stacks[-1].blocks)
    cache = run(model, *batches, record=wanted, stop_at_layer=end).cache  # no logits
    reported = [n for n, name in enumerate(measured.names) if name != VARIANCE]
    averages_of_layers, values, uniform = AveragesOfLayers(measured), list[Tensor](), list[Tensor]()
    for attn, factor, (place, v) in zip(kind.layers, factors, places, strict=True):
        pattern = pattern_at(cache, place)
        averages = averages_of_layers.of(visible_keys(attn, context, n_key), pattern.dtype)
        both = pattern, value_weights(pattern, written_norms(factor, attn.values(cache[v])))
        values.append(torch.stack([averages.of_all(each)[..., reported] for each in both]))
        uniform.append(averages.of_uniform[..., reported])
    return torch.stack(values, 1).transpose(2, 3).cpu(), torch.stack(uniform).cpu()
