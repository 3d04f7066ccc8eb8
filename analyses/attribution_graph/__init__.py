"""Through which neurons and heads does one prompt become its prediction? A graph, and its checks.

    reading of a node = Σ_sources (bypass + Σ_heads part) + biases + rest

With the patterns of heads, the divisors of norms and the ratios post / pre of neurons fixed at
their values from the run, the model is linear: what a neuron or a logit reads is a sum over what
embeddings and earlier neurons wrote. Nodes are neurons at positions, embeddings and logits; each
edge is split by the heads that carry it. Or heads are nodes (``units="heads"``), and whole MLPs:
they write vectors, whose part along the answer is followed, so that what a head reads is all that
it contributes to the answer (:mod:`analyses.attribution_graph.vector_units`).

Rows are computed in order of influence on the logits; the influence of a node is the share of them
that comes through it, by sizes (Ameisen et al. 2025, "Circuit Tracing"; neurons in place of
features: arXiv 2601.22594; the ratios: Jafari et al. 2025, "RelP"). What is pruned, or too small to
be stored, is the node ``rest``, so that the edges of every node sum to what it reads.

What the graph can't show: patterns are fixed, so how queries and keys choose where a head attends
is no part of it; nor what later parts do if a node is missing. So units are set to zero, one at a
time, and what the answer loses is compared with what the graph predicts, with patterns that move
and with patterns kept. Where predictions fail, the headline begins with "NOT RELIABLE".
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.attribution_graph.checks import Measurement, measured
from analyses.attribution_graph.estimate import TERMS_BYTES, GraphEstimate
from analyses.attribution_graph.influence import completeness, pruned, replacement_score
from analyses.attribution_graph.kinds import Kinds, OfUnits
from analyses.attribution_graph.neuronpedia import NeuronpediaGraph
from analyses.attribution_graph.nodes import Placed, nodes_of, terms_of
from analyses.attribution_graph.promoted import with_promoted
from analyses.attribution_graph.result import AttributionGraph
from analyses.attribution_graph.traced import Traced
from analyses.methods.attribution import unembedding_of
from analyses.methods.finite import check_finite_weights
from analyses.methods.frozen import check_linear_once_frozen
from analyses.results import Progress, Tokens, token_ids
from interp import Transformer
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.integers import as_seed, at_least
from interp.io import as_progress, cancellable
from interp.metrics import Position, as_position, columns_read
from interp.model import Batch
from interp.sweeps import check_options

__all__ = [
    "AttributionGraph",
    "GraphEstimate",
    "NeuronpediaGraph",
    "attribution_graph",
    "estimate_attribution_graph",
]

CAPPED = "readings of logits are before their soft-cap; removals are measured after it"
PATTERNS = "patterns are fixed: where heads attend, by queries and keys, is no part of the graph"
TOGETHER = "all heads and the bypass"
"""The one carrier of edges that are not split."""
NOT_SPLIT = (
    f"edges are not split by heads: the parts would take more than {TERMS_BYTES // 2**20} MiB; "
    "lower max_nodes, node_share or edge_share to split them"
)
NO_UNITS = (
    "no unit is active: the nodes are tokens, biases and logits; of a model without MLPs, "
    'units="heads" has the heads as nodes'
)
ALONG = (
    "of the vectors that heads and whole MLPs write, edges into them follow the part along the "
    "answer: what they do to one of several logits, or several together, is approximate"
)


def attribution_graph(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    prompt: Any,  # noqa: ANN401 - what model.check reads
    *,
    targets: Tokens | None = None,
    pos: Position = None,
    units: OfUnits = "neurons",
    max_nodes: int = 300,
    node_share: float = 0.8,
    edge_share: float = 0.98,
    heads: bool = True,
    check: int = 16,
    seed: int = 0,
    memory: float | None = None,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> AttributionGraph:
    """Trace a prediction to the tokens through neurons or heads, and check what it predicts.

    Heads that are no nodes are on the edges.

    Args:
        model: a model with one stack whose stream is a sum of what is written, and whose logits are
            linear in (the norm of) it. What a mixture of experts writes is an error.
        prompt: one text, its token ids, an image or a batch of one row.
        targets: tokens (ids or texts) whose logits are traced; ``None`` for the fewest, at most 10,
            with 95 % of the probability.
        pos: the position whose logits are read, as in :func:`analyses.trace_paths`.
        units: what the nodes of an MLP are: its neurons; or, of ``interp.with_dictionaries(model,
            transcoders)``, the features of its transcoder, and the error that it leaves. The
            transcoder reads what the MLP reads, and writes what it writes, before or after a norm
            of its output; a skip carries edges, as heads do. Or the features of a cross-layer
            transcoder, given here or attached to the model: an edge from one is the sum over all
            layers that it writes, and an error is what the features of all layers leave out. Or
            ``"mlps"``: each MLP as one node at each position. ``"heads"``: heads are nodes in place
            of carriers, and MLPs pass on what they read with their ratios post / pre fixed;
            ``("heads", "neurons")``: heads beside one of the others. An MLP passes on nothing where
            the effects of its neurons cancel, as those of a step made of two do: take neurons.
        max_nodes: the most units whose rows are computed, those with the most influence first.
        node_share: share of the units' influence that stays when nodes are pruned.
        edge_share: likewise of edges.
        heads: whether edges are split by the heads that carry them, which takes a forward for every
            few sources: of a long prompt, most of the time. Without, the one carrier is all of
            them together. Parts of more than 1 GiB are not computed, which a note states.
        check: number of units that are set to zero, to compare what the answer loses with what the
            graph predicts: half of them those with the most influence, the rest drawn. Each costs
            up to two forwards.
        seed: seed for the draws.
        memory: the most bytes that the graph may take beyond the model, and the forwards of the
            checks by themselves; by default what is free, and for the forwards as
            :func:`interp.sweep`. See :func:`estimate_attribution_graph`.
        progress: called with ``(rows computed, max_nodes)``, then with ``(removals done, removals
            in total)``.
        cancelled: called after each batch of rows, and during the checks; if it returns True
            there, removals that are left are not measured.

    Raises:
        InvalidInput: several prompts; the model has two stacks, clips its queries, keys and values,
            or norms change its stream (post-norm); its logits are not linear in the stream, or one
            is NaN; there is no such position or kind of units; targets are outside the vocabulary
            or named twice; or a setting is out of range.
        InvalidTokens: a target's text is not one token; the message shows how it is split.
        OutOfResources: the graph may take more memory than allowed, or than is free; raised after
            the first forward, before any row.
        Cancelled: ``cancelled`` returned True before the graph was complete.

    Examples:
        >>> model = interp.load("induction-by-hand")
        >>> analyses.attribution_graph(model, "abcab")
        AttributionGraph(graph of c (100 %): 0 units, 1 edge; replacement 1, completeness 1)
        >>> analyses.attribution_graph(model, "abcab", units="heads", check=0).edges
        (('L1H0@5', 'logit c@5'), ('embed@3', 'L1H0@5'))
    """
    check_finite_weights(model)
    check_linear_once_frozen(model, "attribution_graph")
    check_options(model, memory, None)
    max_nodes, check = at_least(0, max_nodes, "max_nodes"), at_least(0, check, "check")
    how = Measurement(check, as_seed(seed), memory, progress, cancelled)
    shares = _share(node_share, "node_share"), _share(edge_share, "edge_share")
    kinds = Kinds.of(model, units)
    if not isinstance(heads, bool):  # pyright: ignore[reportUnnecessaryIsInstance] - of users
        raise InvalidInput(f"heads={shorten(heads)} should be True or False.")
    batch = _of_one_prompt(model, prompt)
    named, column = _named(model, targets), columns_read(batch, as_position(pos))
    with cancellable(cancelled), torch.no_grad():
        traced = Traced(model, batch, int(column[0]), named, kinds)
        estimated = traced.estimated(max_nodes, heads=heads, check=check)
        estimated.check(memory, model.device)
        placed = traced.filled(max_nodes, as_progress(progress, "rows"))
        edges = pruned(placed.filled.edges, placed.ends, *shares).in_order()
        nodes = nodes_of(placed, edges, traced.tokens, traced.labels)
        nodes = with_promoted(placed, nodes, unembedding_of(model), model.label)
        n_bytes = len(edges.target) * len(placed.rows.carriers) * 8
        is_split = heads and n_bytes <= TERMS_BYTES
        terms = terms_of(placed, edges, traced.logits) if is_split else edges.weight[:, None]
    notes = [PATTERNS] if model.config.logit_cap is None else [PATTERNS, CAPPED]
    if heads and not is_split:
        notes.append(NOT_SPLIT)
    if kinds.have_vectors:
        notes.append(ALONG)
    nodes = measured(model, batch, int(column[0]), placed, nodes, how)
    whole = placed.filled.edges
    n_active = sum(each.n_active for each in placed.rows.units.values())
    if not n_active:
        notes.append(NO_UNITS)
    n_units = [n_active, len(placed.filled.units), sum(bool(placed.ends.is_unit[n]) for n in nodes)]
    sources, readers = edges.source.tolist(), edges.target.tolist()
    return AttributionGraph(
        nodes=tuple(nodes[n] for n in sorted(nodes)),
        edges=tuple((nodes[a].name, nodes[b].name) for a, b in zip(sources, readers, strict=True)),
        effect=edges.weight,
        share=edges.share,
        terms=terms,
        carriers=placed.rows.carriers if is_split else (TOGETHER,),
        value=placed.filled.reading[placed.first_logit :],
        probability=traced.probability,
        target=tuple(traced.labels),
        target_ids=placed.ids,
        tokens=tuple(traced.tokens),
        ids=batch.ids[0, batch.is_real[0]].cpu(),
        n_layers=len(model.stacks[0].blocks),
        n_units=torch.tensor(n_units),
        replacement_score=_two(replacement_score, whole, edges, placed),
        completeness_score=_two(completeness, whole, edges, placed),
        provenance=Provenance.of(model, batch, seed=how.seed),
        notes=tuple(notes),
    )


def estimate_attribution_graph(
    model: Transformer,
    prompt: Any,  # noqa: ANN401 - what model.check reads
    *,
    units: OfUnits = "neurons",
    max_nodes: int = 300,
    heads: bool = True,
    check: int = 16,
) -> GraphEstimate:
    """Estimate what :func:`attribution_graph` takes, from one forward that counts active units.

    Args:
        model: as for :func:`attribution_graph`.
        prompt: likewise; the last position is read.
        units: likewise.
        max_nodes: likewise.
        heads: likewise.
        check: likewise.

    Returns:
        Candidates, rows, multiply-adds, the most bytes at a time, and seconds.

    Raises:
        InvalidInput: as for :func:`attribution_graph`.

    Examples:
        >>> model = interp.load("python-2l")
        >>> analyses.estimate_attribution_graph(model, "def f(self):", max_nodes=10).rows
        5
    """
    check_finite_weights(model)
    check_linear_once_frozen(model, "attribution_graph")
    max_nodes, check = at_least(0, max_nodes, "max_nodes"), at_least(0, check, "check")
    kinds = Kinds.of(model, units)
    batch = _of_one_prompt(model, prompt)
    column = columns_read(batch, as_position(None))
    with torch.no_grad():
        traced = Traced(model, batch, int(column[0]), None, kinds)
        estimated = traced.estimated(max_nodes, heads=heads, check=check)
        return estimated.timed(traced.rows.frozen.embeddings)


def _of_one_prompt(model: Transformer, prompt: object) -> Batch:
    """The batch of one prompt.

    Raises:
        InvalidInput: there are several.
    """
    (batch,) = model.batches(prompt)
    if len(batch.ids) != 1:
        raise InvalidInput(f"A graph is of one prompt; got {len(batch.ids)} prompts.")
    return batch


def _named(model: Transformer, targets: Tokens | None) -> Int[Tensor, " logit"] | None:
    """The tokens that were named; ``None`` if none was.

    Raises:
        InvalidInput: a target is named twice, or is not in the vocabulary.
    """
    if targets is None:
        return None
    n = len(targets) if isinstance(targets, list | tuple) else 1
    if not n:
        raise InvalidInput("targets=[] names no token; leave it out for the most probable ones.")
    ids = token_ids(model, targets, n, "targets").cpu()
    if len(ids.unique()) < n:
        raise InvalidInput(f"targets={shorten(targets)} names a token twice.")
    return ids


def _share(value: object, name: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    share = float(value) if is_number else 0.0  # pyright: ignore[reportArgumentType] - a number
    if not 0 < share <= 1:
        raise InvalidInput(f"{name}={shorten(value)} should be a share above 0, up to 1.")
    return share


def _two(
    score: Callable[..., float], whole: object, edges: object, placed: Placed
) -> Float[Tensor, " two"]:
    scores = [score(each, placed.ends) for each in (whole, edges)]
    return torch.tensor(scores, dtype=torch.float64)
