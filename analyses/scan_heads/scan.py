"""The pass over a corpus, and what follows it: sequences, sinks without massive activations."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.corpus import Pool, by_length, pools_of
from analyses.methods.heads import BOS, FIRST, pattern_at
from analyses.scan_heads.effects import check_effects, effects_of
from analyses.scan_heads.massive import without_massive
from analyses.scan_heads.measure import Plan, add_batch
from analyses.scan_heads.partial import PartialScan, ScanInterrupted, check_same
from analyses.scan_heads.result import HeadScan, Massive, Sinks, TopTokens
from analyses.scan_heads.sequences import LONGEST, Text, sequences_of
from analyses.scan_heads.totals import Sizes, Totals
from interp import Transformer, edits, run
from interp.errors import InvalidInput, OutOfResources
from interp.execution import Provenance, free_bytes, size_of
from interp.integers import as_seed, at_least, within
from interp.io import Progress, ProgressLike, as_progress
from interp.points import Point
from interp.weights import check_finite_weights, weight_hash

POOL = 256
"""Number of texts in memory at a time, which are sorted by length and divided into batches."""
CHUNK = 2**25
"""The most attention weights of a layer over all texts of a batch, which may be one text alone."""
FARTHEST = 2**10
"""The largest number of offsets."""
TOP = 10
"""Number of tokens and pairs that are listed of each head."""
COUNTERS = 1024
"""Number of tokens, and of pairs, whose masses each head keeps."""
SINK_TEXTS = 8
"""Number of texts on which massive activations are removed."""


def scan_heads(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    texts: Any,  # noqa: ANN401 - what interp.corpus.texts.pools_of reads
    *,
    offsets: int = 4,
    sample: int = 100,
    shuffled: int = 8,
    effects: bool = False,
    seed: int = 0,
    rows: int = 64,
    memory: object = None,
    progress: ProgressLike = None,
    cancelled: Callable[[], bool] | None = None,
    resume: PartialScan | None = None,
) -> HeadScan:
    """Measure every head of a model on a corpus, in one pass whose memory does not grow with it.

    Each text is a sample: a statistic is averaged over its queries, then over texts. A text longer
    than the context is cut into several. Patterns are formed for one layer at a time, after a
    forward with fused attention. A scan that was cancelled or stopped has ``partial``, from which
    ``resume`` goes on with the same numbers, bit for bit; the texts that were read before are read
    again, but not run.

    Args:
        model: the model; of an encoder–decoder, all three attentions are measured.
        texts: the path of a file with one text per line, or one JSON object with a ``text`` per
            line (``.jsonl``); an iterator of texts, or of rows of token ids, which is read once; or
            all at once: texts, token ids padded with ``interp.PAD``, images, a batch, or
            ``(source, target)`` for an encoder–decoder (in a file, ``text`` and ``target``).
        offsets: number of positions before (and after) the query at which to measure masses.
        sample: number of texts that are drawn, of which deciles and sequences are.
        shuffled: of how many texts one is also measured with its tokens in random order, the
            control of induction and duplicate tokens.
        effects: whether to measure, for next-token models, the mean ablation of each head on tokens
            of the sample, by their class. It takes a forward per head, in one sweep.
        seed: seed of the sample and of random orders.
        rows: maximum number of texts per forward; the numbers do not depend on it, but for rounding
            and for sketches that are not exact.
        memory: bytes that the numbers kept may take, and the sweep of ``effects``; by default half
            of the free memory.
        progress: called after each forward with the amount read and the total: bytes of a file,
            else texts (for an iterator, the same number twice).
        cancelled: called after each forward; if it returns True, the result covers what was read.
        resume: the ``partial`` of a scan of the same texts that was stopped.

    Returns:
        Statistics, histograms, tokens, sequences, massive activations and effects of all heads.

    Raises (an error during the pass holds what was done as its attribute ``result``):
        InvalidInput: a corpus without a text of two tokens, a line that can't be read (the message
            has its number), activations that are not finite, settings out of range, ``effects`` of
            a model that does not predict next tokens, or ``resume`` of another scan.
        OutOfResources: the numbers kept take more than ``memory``.

    Examples:
        >>> texts = ["def f(self): return self", "class A(object): pass"] * 4
        >>> analyses.scan_heads(interp.load("python-2l"), texts)
        HeadScan()
    """
    check_finite_weights(model)
    plan, sizes = _planned(model, offsets, sample, shuffled, seed)
    rows = at_least(1, rows, "rows")
    if not isinstance(effects, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"effects={effects!r:.80} should be True or False.")
    if effects:
        check_effects(plan)
    _check_memory(plan, sizes, memory)
    scan = _Pass(plan, sizes, rows)
    if resume is not None:
        scan.resume(check_same(resume, scan.settings))
    report = as_progress(progress, "texts")
    try:
        complete = scan.read(texts, report, cancelled)
        return _result(scan, complete=complete, effects=effects, memory=memory, report=report)
    except KeyboardInterrupt as error:
        raise ScanInterrupted(scan.partial) from error
    except Exception as error:
        setattr(error, "result", scan.partial)  # noqa: B010 - also on another library's
        raise


@dataclass(frozen=True)
class ScanEstimate:
    """What a scan takes, from its first forwards.

    Attributes:
        seconds: time of the pass; NaN for an iterator, whose length is not known.
        tokens_per_second: tokens that are measured in a second.
        kept: bytes of the numbers that are kept, whatever the size of the corpus.
        peak: bytes of one layer's patterns and of the recorded activations, in the largest of the
            forwards that were run.
    """

    seconds: float
    tokens_per_second: float
    kept: int
    peak: int

    def __str__(self) -> str:
        return (
            f"about {self.seconds:.3g} s ({self.tokens_per_second:.3g} tokens a second), "
            f"{size_of(self.peak)} in a forward, {size_of(self.kept)} kept"
        )


# ---- the pass -----------------------------------------------------------------------------------


def _planned(
    model: Transformer, offsets: int, sample: int, shuffled: int, seed: int
) -> tuple[Plan, Sizes]:
    offsets = within(1, FARTHEST, offsets, "offsets")
    sample, shuffled = at_least(10, sample, "sample"), at_least(1, shuffled, "shuffled")
    plan = Plan(model, offsets, shuffled, as_seed(seed))
    sizes = Sizes(
        units=len(plan.heads),
        statistics=len(plan.statistics),
        stacks=len(model.stacks),
        vocab=0 if plan.reads_images else model.d_vocab,
        layers=sum(len(stack.blocks) for stack in model.stacks),
        d_model=model.d_model,
        farthest=plan.farthest,
        longest=min(LONGEST, plan.farthest + 1) if plan.is_cut else plan.farthest + 1,
        sample=sample,
        counters=COUNTERS,
    )
    return plan, sizes


def _check_memory(plan: Plan, sizes: Sizes, memory: object) -> None:
    """Check that what is kept is within the memory.

    Raises:
        OutOfResources: it is not.
    """
    allowed = free_bytes(plan.model.device) / 2 if memory is None else memory
    if not isinstance(allowed, int | float) or isinstance(allowed, bool) or not allowed > 0:
        raise InvalidInput(f"memory={memory!r:.80} should be a number of bytes above 0.")
    if sizes.nbytes > allowed:
        raise OutOfResources(
            f"{sizes.statistics} statistics of {sizes.units} heads with {sizes.sample} texts keep "
            f"{size_of(sizes.nbytes)}; {size_of(int(allowed))} are allowed. Give fewer offsets=, a "
            "smaller sample=, or more memory=."
        )


class _Pass:
    """The pass over a corpus.

    Attributes:
        plan: what is measured.
        rows: maximum number of texts per forward.
        totals: the numbers so far.
        texts: the texts of the sample, by their numbers.
        sources: where they were read.
    """

    def __init__(self, plan: Plan, sizes: Sizes, rows: int) -> None:
        self.plan, self.rows = plan, rows
        self.totals = Totals(sizes)
        self.texts: dict[int, Text] = {}
        self.sources: dict[int, str] = {}
        self._digest = hashlib.sha256()
        self._resumed: PartialScan | None = None
        self._saved: tuple[dict[str, Tensor], str] = self.totals.snapshot(), ""

    @property
    def settings(self) -> dict[str, Any]:
        """What the numbers depend on, but the texts."""
        model, plan = self.plan.model, self.plan
        return {
            "model": model.config.name or "unnamed",
            "config": model.config.digest,
            "weights": weight_hash(model),
            "dtype": str(model.dtype).removeprefix("torch."),
            "offsets": plan.offsets,
            "sample": self.totals.sizes.sample,
            "shuffled": plan.shuffled,
            "seed": plan.seed,
            "rows": self.rows,
        }

    @property
    def partial(self) -> PartialScan:
        """The numbers up to the last forward that was added whole."""
        tensors, digest = self._saved
        return PartialScan({**self.settings, "texts": digest}, tensors)

    def resume(self, partial: PartialScan) -> None:
        """Go on from a scan that was stopped.

        Raises:
            InvalidInput: its numbers are damaged.
        """
        try:
            self.totals.restore(partial.tensors)
        except ValueError as error:
            raise InvalidInput(
                f"resume= is damaged: {error}. Leave it out to start from the beginning."
            ) from error
        self._resumed, self._saved = partial, (partial.tensors, partial.settings.get("texts", ""))

    def read(
        self,
        texts: Any,  # noqa: ANN401
        report: Progress | None,
        cancelled: Callable[[], bool] | None,
    ) -> bool:
        """Measure all texts that were not measured before; False if it was cancelled."""
        read, counts = 0, self.totals.counts
        for pool in pools_of(self.plan.model, texts, POOL):
            goes_on = pool.first >= counts["first"]
            if goes_on and not counts["batches"]:
                self._check_digest()
            pool.digest(self._digest)
            if goes_on:
                self._check_digest()
                counts["cut"] += 0 if counts["batches"] else pool.n_cut
                if not self._read_pool(pool, read, report, cancelled):
                    return False
                counts["first"], counts["batches"] = pool.first + len(pool.sources), 0
                self._save()
            else:
                self._keep(pool, torch.arange(len(pool.sources)), pool.batches)
            read = pool.done
        self._check_digest()
        return True

    def _read_pool(
        self,
        pool: Pool,
        read: int,
        report: Progress | None,
        cancelled: Callable[[], bool] | None,
    ) -> bool:
        n_heads = max(layer.n_heads for kind in self.plan.attentions for layer in kind.layers)
        done, counts = 0, self.totals.counts
        for number, (rows, batches) in enumerate(
            by_length(pool.batches, self.rows, CHUNK // n_heads)
        ):
            done += len(rows)
            if number < counts["batches"]:
                self._keep(pool, rows, batches)
                continue
            add_batch(self.plan, self.totals, batches, rows.cpu() + pool.first)
            counts["batches"] = number + 1
            self._keep(pool, rows, batches)
            self._save()
            if report is not None:
                report(read + (pool.done - read) * done // len(pool.sources), pool.total)
            if cancelled is not None and cancelled():
                return False
        return True

    def _save(self) -> None:
        self._resumed = None
        self._saved = self.totals.snapshot(), self._digest.hexdigest()

    def _check_digest(self) -> None:
        """Check, where a stopped scan goes on, that the texts before are those that it read.

        Raises:
            InvalidInput: they are not.
        """
        if self._resumed is None:
            return
        if self._digest.hexdigest() != self._resumed.settings.get("texts"):
            raise InvalidInput(
                "resume= is a scan of other texts: those that it read have changed. Give the same "
                "texts, from the first on, or leave out resume=."
            )
        self._resumed = None

    def _keep(self, pool: Pool, rows: Int[Tensor, " row"], batches: Sequence[Any]) -> None:
        """Keep the texts of the sample, and drop those that have left it."""
        sampled = set(self.totals.sampled.tolist())
        self.texts = {n: text for n, text in self.texts.items() if n in sampled}
        for row, number in enumerate((rows.cpu() + pool.first).tolist()):
            if number in sampled:
                index = torch.tensor([row], device=batches[0].ids.device)
                self.texts[number] = tuple(batch.rows(index).padded_right() for batch in batches)
                self.sources[number] = pool.sources[number - pool.first]

    @property
    def digest(self) -> str:
        """The hash of all texts so far."""
        return self._digest.hexdigest()


# ---- the result ---------------------------------------------------------------------------------


def _result(
    scan: _Pass, *, complete: bool, effects: bool, memory: object, report: Progress | None
) -> HeadScan:
    plan, totals = scan.plan, scan.totals
    counts, value = totals.counts, totals.value
    if not counts["texts"]:
        raise InvalidInput(
            "The corpus holds no text: give a file with one text per line, texts, or token ids."
        )
    if not bool((value.n[0, :, 0] > 0).any()):
        raise InvalidInput(
            f"None of the {counts['texts']} texts has two tokens, so every head's attention is "
            "forced. Give longer texts."
        )
    texts = [scan.texts[number] for number in totals.sampled.tolist()] if complete else []
    sequences = None
    if complete:
        sources = [scan.sources[number] for number in totals.sampled.tolist()]
        arguments = texts, totals.sampled.clone(), sources, totals.values.clone()
        sequences = sequences_of(plan, *arguments, scan.rows)
    low, high = value.ends()
    has = value.n > 0
    summed, n_control = totals.control
    top = {name: _top_tokens(plan, totals, name) for name in totals.sketches}
    distances, uniform = (x / x.sum((1, 2), keepdim=True) for x in totals.distances)
    return HeadScan(
        attentions=tuple(kind.name or "" for kind, _, _ in plan.heads),
        layers=torch.tensor([layer for _, layer, _ in plan.heads]),
        heads=torch.tensor([head for _, _, head in plan.heads]),
        names=tuple(kind.head_name(layer, head) for kind, layer, head in plan.heads),
        statistics=_named(plan, begins_with_bos=not counts["without_bos"]),
        mean=value.mean.where(has, torch.nan),
        low=low,
        high=high,
        n=value.n.long(),
        control=summed / n_control,
        lower_ends=torch.tensor(plan.lower_ends),
        distances=distances,
        uniform_distances=uniform,
        top_queries=top["queries"],
        top_keys=top["keys"],
        top_pairs=top["pairs"],
        token_labels=_labels(plan, top.values()),
        sequences=sequences,
        massive=_massive(plan, totals),
        sinks=_sinks(plan, totals, texts),
        effects=effects_of(plan, texts, memory=memory, rows=scan.rows, progress=report)
        if effects and complete
        else None,
        n_texts=counts["texts"],
        n_tokens=counts["tokens"],
        provenance=replace(Provenance.of(plan.model, seed=plan.seed), tokens=scan.digest),
        notes=_notes(plan, counts, complete=complete),
        partial=None if complete else scan.partial,
    )


def _named(plan: Plan, *, begins_with_bos: bool) -> tuple[str, ...]:
    return tuple(BOS if name == FIRST and begins_with_bos else name for name in plan.statistics)


def _notes(plan: Plan, counts: dict[str, int], *, complete: bool) -> tuple[str, ...]:
    cut = f"texts longer than the context were cut, {counts['cut']} times"
    notes = [cut] if counts["cut"] else []
    if not plan.reads_images and plan.model.tokenizer is None:
        notes.append("no tokenizer: no classes of tokens and no words")
    elif not plan.reads_images and plan.kinds.begins is None:
        notes.append("the tokens of this model do not show where words begin: no mass on the word")
    return (*notes, *([] if complete else [f"cancelled after {counts['texts']} texts"]))


def _top_tokens(plan: Plan, totals: Totals, name: str) -> TopTokens:
    """The tokens, or pairs, of each head with the largest masses, beside their frequencies."""
    sketch, vocab = totals.sketches[name], max(1, totals.sizes.vocab)
    keys, mass = sketch.top(TOP)
    total = sketch.total.clamp(min=1e-300)[:, None]
    frequency = torch.full(mass.shape, torch.nan, dtype=torch.float64)
    ids = torch.stack([keys // vocab, keys % vocab], -1) if name == "pairs" else keys[..., None]
    if totals.sizes.vocab:
        shares = totals.tokens / totals.tokens.sum(-1, keepdim=True)
        queries = torch.tensor([kind.query for kind, _, _ in plan.heads])[:, None]
        of_keys = torch.tensor([kind.key for kind, _, _ in plan.heads])[:, None]
        index = ids.clamp(min=0)
        of_query, of_key = shares[queries, index[..., 0]], shares[of_keys, index[..., -1]]
        frequency = {"queries": of_query, "keys": of_key, "pairs": of_query * of_key}[name]
    ids = ids.where((mass > 0)[..., None], -1)
    return TopTokens(ids, mass / total, frequency, sketch.error / total[:, 0])


def _labels(plan: Plan, several: Any) -> dict[int, str]:  # noqa: ANN401 - an iterable
    ids = {id_ for top in several for id_ in top.ids.unique().tolist() if id_ >= 0}
    return {id_: plan.model.label(id_) for id_ in sorted(ids)}


def _massive(plan: Plan, totals: Totals) -> Massive:
    """The layers and dimensions with massive activations, the largest first."""
    n, first, largest, token = totals.massive
    layer, dimension = n.nonzero().unbind(-1)
    order = largest[layer, dimension].argsort(descending=True, stable=True)
    layer, dimension = layer[order], dimension[order]
    stacks = [stack.name or "" for stack in plan.model.stacks for _ in stack.blocks]
    within_stack = [number for stack in plan.model.stacks for number in range(len(stack.blocks))]
    at = layer, dimension
    ids = token[at].long().tolist()
    return Massive(
        tuple(stacks[number] if len(plan.model.stacks) > 1 else "" for number in layer.tolist()),
        torch.tensor([within_stack[number] for number in layer.tolist()], dtype=torch.long),
        dimension,
        n[at].long(),
        first[at].long(),
        largest[at],
        tuple(str(id_) if plan.reads_images else plan.model.label(id_) for id_ in ids),
    )


@torch.no_grad()
def _sinks(plan: Plan, totals: Totals, texts: Sequence[Text]) -> Sinks | None:
    """The mass on the first token with and without massive activations where they begin."""
    layers = totals.massive[0].sum(-1).nonzero().flatten()
    if not len(layers) or not texts or len(plan.model.stacks) > 1:
        return None
    layer, model = int(layers[0]), plan.model
    (kind,) = plan.attentions
    edit = edits.apply(plan.of_stream(0, layer, Point.RESID_POST), lambda x, _: without_massive(x))
    wanted = [kind.places(number)[0] for number in range(len(kind.layers))]
    masses: list[list[Float[Tensor, " unit"]]] = [[], []]
    several = [text for text in texts if text[0].ids.shape[1] > 1][:SINK_TEXTS]
    for text in several:
        for changes, column in zip(((), (edit,)), masses, strict=True):
            end = len(model.blocks)
            cache = run(model, *text, record=wanted, edits=changes, stop_at_layer=end).cache
            each = [pattern_at(cache, place)[0, :, 1:, 0].mean(-1) for place in wanted]
            column.append(torch.cat(each).double().cpu())
    plain, without = (torch.stack(column).mean(0) for column in masses)
    return Sinks(layer, plain, without, len(several))
