"""The calls: a scan of all heads over a corpus, and its estimate."""

from collections.abc import Callable
from dataclasses import dataclass
from math import nan
from time import perf_counter
from typing import Any

import torch

from analyses.methods.corpus import texts_of
from analyses.methods.finite import check_finite_weights
from analyses.scan_heads.assemble import head_scan
from analyses.scan_heads.corpus_pass import CorpusPass, check_memory, planned
from analyses.scan_heads.effects import check_effects
from analyses.scan_heads.measure import measured
from analyses.scan_heads.partial import PartialScan, ScanInterrupted, check_same
from analyses.scan_heads.result import HeadScan
from interp import Harvest, Transformer
from interp.errors import InvalidInput
from interp.execution import size_of
from interp.integers import at_least
from interp.io import ProgressLike, as_progress
from interp.prompts import no_texts, pools_of

FEW = 16
"""Number of texts by which a scan is estimated."""


def scan_heads(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    texts: Any,  # noqa: ANN401 - what interp.prompts.pools_of reads
    *,
    offsets: int = 4,
    max_length: int = 1024,
    sample: int = 100,
    shuffled: int = 8,
    effects: bool = False,
    targets: int = 8,
    seed: int = 0,
    rows: int = 64,
    memory: object = None,
    progress: ProgressLike = None,
    cancelled: Callable[[], bool] | None = None,
    resume: PartialScan | None = None,
) -> HeadScan:
    """Measure every head of a model on a corpus, in one pass whose memory does not grow with it.

    Each text is a sample: a statistic is averaged over its queries, then over texts. A text longer
    than ``max_length`` is cut into several. Patterns are formed for one layer at a time, after a
    forward with fused attention. A scan that was cancelled or stopped has ``partial``, from which
    ``resume`` continues with the same numbers, bit for bit; the texts that were read before are
    read again, but not run. With :func:`interp.use`, forwards run on workers; the numbers stay the
    same.

    Args:
        model: the model; of an encoder–decoder, all three attentions are measured.
        texts: the path of a file with one text per line, or one JSON object with a ``text`` per
            line (``.jsonl``); an iterator of texts, or of rows of token ids, which is read once; or
            all at once: texts, token ids padded with ``interp.PAD``, images, a batch, or
            ``(source, target)`` for an encoder–decoder (in a file, ``text`` and ``target``). Or an
            ``interp.Harvest`` of this model, whose texts are run again as they are stored: a head
            is measured by its patterns, which rows of single tokens do not have.
        offsets: number of positions before (and after) the query at which to measure masses.
        max_length: maximum number of tokens of a text, if the context is not shorter: the time and
            the memory of patterns grow with its square. Token ids given as rows are not cut.
        sample: number of texts that are drawn, of which deciles and sequences are.
        shuffled: of how many texts one is also measured with its tokens in random order, the
            control of induction and duplicate tokens.
        effects: whether to measure, for next-token models, the mean ablation of each head on tokens
            of the sample, by their class, in one sweep over all heads.
        targets: number of tokens of each class for ``effects``.
        seed: seed of the sample and of random orders.
        rows: maximum number of texts per forward; the numbers do not depend on it, but for rounding
            and for sketches that are not exact.
        memory: bytes that the numbers kept may take, and the sweep of ``effects``; by default half
            of the free memory.
        progress: called after each forward with the amount read and the total: bytes of a file,
            else texts (for an iterator, the same number twice).
        cancelled: called after each forward, once a text had two tokens; if it returns True, the
            result covers what was read.
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
        HeadScan(python-2l: of 16 heads on 8 texts, 80 tokens, L0H6 (same punctuation 0.97, control
        0.15), L0H5 (previous 0.96, control 0.22), L0H0 (self 0.69, control 0.22) stand out most)
    """
    check_finite_weights(model)
    plan, sizes = planned(model, offsets, max_length, sample, shuffled, seed)
    rows, targets = at_least(1, rows, "rows"), at_least(1, targets, "targets")
    if not isinstance(effects, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"effects={effects!r:.80} should be True or False.")
    if effects:
        check_effects(plan)
    check_memory(plan, sizes, memory)
    scan = CorpusPass(plan, sizes, rows)
    if resume is not None:
        scan.resume(check_same(resume, scan.settings))
    report = as_progress(progress, "texts")
    try:
        complete = scan.read(texts, report, cancelled)
        return head_scan(
            scan,
            complete=complete,
            targets=targets if effects else 0,
            memory=memory,
            report=report,
        )
    except KeyboardInterrupt as error:
        raise ScanInterrupted(scan.partial) from error
    except Exception as error:
        setattr(error, "result", scan.partial)  # noqa: B010 - also on another library's
        raise


@dataclass(frozen=True)
class ScanEstimate:
    """What a scan takes, from its first texts.

    Attributes:
        seconds: time of the whole pass; NaN for an iterator, whose length is not known.
        tokens_per_second: tokens that are measured in a second.
        nbytes: the most bytes of the numbers that are kept, whatever the size of the corpus.
    """

    seconds: float
    tokens_per_second: float
    nbytes: int

    def __str__(self) -> str:
        return (
            f"about {self.seconds:.3g} s, {self.tokens_per_second:.3g} tokens a second; "
            f"at most {size_of(self.nbytes)} kept"
        )


def estimate_scan_heads(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    texts: Any,  # noqa: ANN401 - what pools_of reads
    *,
    offsets: int = 4,
    max_length: int = 1024,
    sample: int = 100,
    shuffled: int = 8,
    seed: int = 0,
    rows: int = 64,
) -> ScanEstimate:
    """Estimate the time and the memory of :func:`scan_heads` from the first 16 texts.

    Args:
        model: the model.
        texts: as for :func:`scan_heads`; of an iterator, the first texts are consumed.
        offsets: likewise.
        max_length: likewise.
        sample: likewise.
        shuffled: likewise.
        seed: likewise.
        rows: likewise.

    Returns:
        Seconds, tokens a second, and bytes.

    Raises:
        InvalidInput: as for :func:`scan_heads`.

    Examples:
        >>> texts = ["def f(self): return self", "class A(object): pass"] * 4
        >>> analyses.estimate_scan_heads(interp.load("python-2l"), texts).nbytes
        10657920
    """
    check_finite_weights(model)
    plan, sizes = planned(model, offsets, max_length, sample, shuffled, seed)
    rows, tokens = at_least(1, rows, "rows"), 0
    pool = next(iter(pools_of(model, texts_of(model, texts), FEW, max_length)), None)
    if pool is None:
        raise no_texts()
    few = torch.arange(min(FEW, len(pool.sources)), device=pool.batches[0].ids.device)
    batches = [batch.rows(few) for batch in pool.batches]
    began = perf_counter()
    for numbers, some in plan.forwards(batches, rows):
        tokens += measured(plan, sizes, (numbers.cpu(), some)).counts["tokens"]
    seconds = perf_counter() - began
    if isinstance(texts, Harvest):
        n_texts = texts.n_texts
    else:
        is_known = isinstance(texts, str) or not hasattr(texts, "__next__")
        n_texts = pool.total / pool.done * len(pool.sources) if is_known else nan
    return ScanEstimate(seconds * n_texts / len(few), tokens / seconds, sizes.nbytes)
