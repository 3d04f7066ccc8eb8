"""The result of a pass over a corpus, and what is measured after it on texts of the sample."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.methods.heads import BOS, FIRST, pattern_at
from analyses.scan_heads.corpus_pass import CorpusPass
from analyses.scan_heads.effects import effects_of
from analyses.scan_heads.massive import without_massive
from analyses.scan_heads.measure import Plan
from analyses.scan_heads.result import HeadScan, Massive, Sinks, TopTokens
from analyses.scan_heads.sequences import Text, beginning, sequences_of
from analyses.scan_heads.totals import Totals
from interp import edits, run
from interp.errors import InvalidInput
from interp.execution import Provenance
from interp.io import Progress
from interp.points import Point
from interp.prompts import no_texts

TOP = 10
"""Number of tokens and pairs that are listed of each head."""
SINK_TEXTS = 8
"""Number of texts on which massive activations are removed."""


def head_scan(
    scan: CorpusPass, *, complete: bool, targets: int, memory: object, report: Progress | None
) -> HeadScan:
    """The result of a pass.

    Args:
        scan: the pass.
        complete: whether it read the whole corpus; else there are no sequences and no effects.
        targets: on how many tokens of each class heads are ablated; 0 for none.
        memory: bytes for the sweep of ablations.
        report: called with the progress of that sweep.

    Raises:
        InvalidInput: no text has two tokens.
    """
    plan, totals = scan.plan, scan.totals
    counts, value = totals.counts, totals.value
    if not counts["texts"]:
        raise no_texts()
    if not scan.has_values:
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
        class_effects=effects_of(
            plan, texts, targets, memory=memory, rows=scan.rows, progress=report
        )
        if targets and complete
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
    longest = min(plan.max_length, plan.farthest + 1)
    cut = f"texts longer than {longest} tokens were cut, {counts['cut']} times"
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


def _labels(plan: Plan, several: Iterable[TopTokens]) -> dict[int, str]:
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
    """The mass on the first token with massive activations, and with none after any block."""
    layers = totals.massive[0].sum(-1).nonzero().flatten().tolist()
    if not layers or not texts or len(plan.model.stacks) > 1:
        return None
    model = plan.model
    (kind,) = plan.attentions
    removed = [
        edits.apply(plan.of_stream(0, layer, Point.RESID_POST), lambda x, _: without_massive(x))
        for layer in range(layers[0], len(model.blocks) - 1)
    ]
    wanted = [kind.places(number)[0] for number in range(len(kind.layers))]
    masses: list[list[Float[Tensor, " unit"]]] = [[], []]
    several = [text for text in texts if text[0].ids.shape[1] > 1][:SINK_TEXTS]
    for text in several:
        for changes, column in zip(((), removed), masses, strict=True):
            end = len(model.blocks)
            cache = run(
                model, *beginning(plan, text), record=wanted, edits=changes, stop_at_layer=end
            ).cache
            each = [pattern_at(cache, place)[0, :, 1:, 0].mean(-1) for place in wanted]
            column.append(torch.cat(each).double().cpu())
    plain, without = (torch.stack(column).mean(0) for column in masses)
    return Sinks(layers[0], plain, without, len(several))
