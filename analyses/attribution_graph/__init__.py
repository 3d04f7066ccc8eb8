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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any, Literal

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.attribution_graph.checks import Measurement, Predicted, measured
from analyses.attribution_graph.estimate import TERMS_BYTES, GraphEstimate, estimate_of
from analyses.attribution_graph.filling import Filling, stored_share
from analyses.attribution_graph.groups import groups_by_sources, groups_by_tokens
from analyses.attribution_graph.influence import (
    Edges,
    completeness,
    effects,
    pruned,
    replacement_score,
)
from analyses.attribution_graph.kinds import Kinds, OfUnits
from analyses.attribution_graph.neuronpedia import NeuronpediaGraph
from analyses.attribution_graph.nodes import LETTERS, GraphNode, Placed, nodes_of, terms_of
from analyses.attribution_graph.promoted import with_promoted
from analyses.attribution_graph.rows import Readers
from analyses.methods.attribution import logit_direction, unembedding_of
from analyses.methods.finite import check_finite_weights
from analyses.methods.frozen import FrozenModel, check_linear_once_frozen
from analyses.results import (
    Network,
    Node,
    Progress,
    Result,
    Tokens,
    counted,
    number,
    percent,
    places_of,
    plotted,
    signed,
    token_ids,
)
from interp import Transformer, estimate, run
from interp.errors import InvalidInput, nearest, shorten
from interp.execution import Provenance
from interp.integers import as_seed, at_least
from interp.io import as_progress, cancellable, return_freed_memory
from interp.metrics import Position, as_position, at_least_float32, columns_read
from interp.model import Batch
from interp.sweeps import check_options

__all__ = [
    "AttributionGraph",
    "GraphEstimate",
    "NeuronpediaGraph",
    "attribution_graph",
    "estimate_attribution_graph",
]

ENOUGH = 0.95
"""The probability that the logits of a graph have together, if no targets are given."""
MOST_LOGITS = 10
"""The most logits of a graph without targets."""
ROUNDINGS = 16
"""Units of rounding of the largest part of an edge, up to which parts count as 0."""
DRAWN = 60
"""The most edges that a figure draws."""
DRAWN_NODES = 24
"""The most nodes that a figure draws, without logits."""
MOST_DRAWN, MOST_DRAWN_NODES = 1000, 150
"""The same of a graph of one logit on a page, whose readers choose how many they see."""
DRAWN_LOGITS = 3
"""The most logits that a figure draws."""
ROUNDED = 10_000
"""The number of active units from which it is rounded to thousands."""
LEAST_PROBABILITY = 0.5
"""The probability of the graph's logits below which they are no prediction."""
LEAST_REPLACEMENT = 0.5
"""The replacement score below which a graph leaves most of the influence unexplained."""
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
Names = tuple[str, str]
Groups = Mapping[str, Sequence[str]]


@dataclass(frozen=True, eq=False, repr=False)
class AttributionGraph(Result):
    """The graph of one prompt, pruned, with the checks of what it predicts.

    Attributes:
        nodes: its nodes; see :class:`analyses.attribution_graph.nodes.GraphNode`.
        edges: source and target of each edge, by name.
        effect: what the source contributes to what the target reads; of logits, in logits.
        share: its size, as a share of all that the target reads.
        terms: the part of each edge that each carrier carries; they sum to it.
        carriers: ``bypass``, the heads, and the skips of transcoders, each for the routes of which
            it is the last one; where heads are nodes, ``bypass`` alone.
        value: what each logit reads: the logit minus the mean of all logits, before any soft-cap.
        probability: the probability of each logit's token.
        target: the label of each logit's token.
        target_ids: the ids of these tokens.
        tokens: the label of each token.
        ids: the ids of the tokens; 0 for patches of an image.
        n_layers: number of layers of the model.
        n_units: numbers of units: those that are active, those with rows, those that stay.
        replacement_score: share of the influence that comes from tokens, not from errors or the
            rest; before and after pruning.
        completeness_score: share of what nodes read, by influence, that is no error and not the
            rest; likewise.
        provenance: model, tokens and settings that the numbers depend on.
        notes: notes on how the numbers were computed.
    """

    nodes: tuple[GraphNode, ...]
    edges: tuple[Names, ...]
    effect: Float[Tensor, " edge"]
    share: Float[Tensor, " edge"]
    terms: Float[Tensor, "edge carrier"]
    carriers: tuple[str, ...]
    value: Float[Tensor, " logit"]
    probability: Float[Tensor, " logit"]
    target: tuple[str, ...]
    target_ids: Int[Tensor, " logit"]
    tokens: tuple[str, ...]
    ids: Int[Tensor, " pos"]
    n_layers: int
    n_units: Int[Tensor, " three"]
    replacement_score: Float[Tensor, " two"]
    completeness_score: Float[Tensor, " two"]
    provenance: Provenance
    notes: tuple[str, ...] = ()

    @property
    def predicted(self) -> Predicted:
        """How predicted effects compare with those of removals from the model."""
        return Predicted.of(self._of_units("effect"), self._of_units("exact"))

    @property
    def predicted_frozen(self) -> Predicted:
        """How they compare with those of removals with all patterns kept."""
        return Predicted.of(self._of_units("effect"), self._of_units("exact_frozen"))

    @property
    def failures(self) -> tuple[str, ...]:
        """Why the graph should not be relied on; empty if nothing speaks against it."""
        probability, replacement = float(self.probability.sum()), float(self.replacement_score[1])
        predicted = self.predicted
        reasons: list[str] = []
        is_chosen = len(self.target) >= MOST_LOGITS  # fewer have enough, or were named
        if is_chosen and probability < LEAST_PROBABILITY:
            reasons.append(f"its logits have {percent(probability)} of the probability")
        if replacement < LEAST_REPLACEMENT:
            reasons.append(f"{percent(replacement)} of the influence is from tokens")
        elif isnan(replacement):  # neither tokens nor errors have any
            reasons.append("all influence is from biases; where heads attend is fixed")
        if predicted.fails:
            reasons.append(f"of {predicted.n} predicted removals, {percent(predicted.near)} hold")
        return tuple(reasons)

    def to_frame(self) -> pd.DataFrame:
        """One row per edge, those into logits first, the largest share of each target first.

        Columns:
            name, writer, reader: the edge.
            effect: what it contributes to what the target reads.
            share: its size as a share of all that the target reads.
            carrier: the head with the largest part of it, or ``bypass``.
            carried: that part.
        """
        largest = self.terms.abs().argmax(1) if len(self.edges) else self.terms.new_zeros(0).long()
        return pd.DataFrame(
            {
                "name": [" → ".join(edge) for edge in self.edges],
                "writer": [source for source, _ in self.edges],
                "reader": [target for _, target in self.edges],
                "effect": self.effect.numpy(),
                "share": self.share.numpy(),
                "carrier": [self.carriers[n] for n in largest.tolist()],
                "carried": self.terms[torch.arange(len(self.edges)), largest].numpy(),
            }
        )

    def to_node_frame(self) -> pd.DataFrame:
        """One row per node, most influence first: the fields of :class:`GraphNode`."""
        columns = list(GraphNode.__dataclass_fields__)
        rows = [[getattr(node, name) for name in columns] for node in self.nodes]
        frame = pd.DataFrame(rows, columns=pd.Index(columns))
        frame = frame.astype(dict.fromkeys(("layer", "neuron", "head", "pos"), "Int64"))
        return frame.sort_values("influence", ascending=False, kind="stable", ignore_index=True)

    def to_carrier_frame(self) -> pd.DataFrame:
        """One row per part of an edge that is not 0 but for rounding: name, carrier, effect."""
        edge, carrier = self.parts()
        return pd.DataFrame(
            {
                "name": [" → ".join(self.edges[n]) for n in edge.tolist()],
                "carrier": [self.carriers[n] for n in carrier.tolist()],
                "effect": self.terms[edge, carrier].numpy(),
            }
        )

    def parts(self) -> tuple[Int[Tensor, " part"], Int[Tensor, " part"]]:
        """Edge and carrier of each part of an edge that is not 0 but for rounding."""
        sizes = self.terms.abs()
        largest = float(sizes.max()) if len(self.edges) else 0.0
        rounding = ROUNDINGS * torch.finfo(sizes.dtype).eps * largest
        edge, carrier = (sizes > rounding).nonzero().unbind(1)
        return edge, carrier

    def to_neuronpedia(
        self,
        slug: str,
        *,
        scan: str | None = None,
        prompt: str | None = None,
        groups: Groups | None = None,
    ) -> dict[str, Any]:
        """The graph as the JSON of Neuronpedia's and Anthropic's viewers, for :func:`json.dumps`.

        Neurons, features and whole MLPs are nodes of the type ``cross layer transcoder``, heads of
        the type ``lorsa``, since viewers show no other units: they have layer, index and
        activation, but no page of a feature. Biases and the
        rest are of the type ``mlp reconstruction error`` at the entry of the model, so that the
        share of errors that a viewer states includes them. ``influence`` is cumulative, as viewers
        prune by it. Heads on edges, shares, checks and what pruning lost are in
        ``metadata.interp``; see
        :class:`analyses.attribution_graph.neuronpedia.Supplement`.

        Args:
            slug: the name of the graph in the viewer.
            scan: what the viewer takes for the model; by default its name.
            prompt: the text of the prompt; by default the labels of its tokens.
            groups: names of nodes that viewers show as one, by the name of their group.

        Raises:
            InvalidInput: there is no such slug, a number of the graph is not finite, or a group has
                a node that the graph does not have.
        """
        from analyses.attribution_graph.to_file import file_of  # noqa: PLC0415 - it reads this class

        return file_of(self, slug, scan, prompt, groups or {}).to_dict()

    def more_frames(self) -> dict[str, pd.DataFrame]:
        """The tables of nodes and of the parts of edges."""
        return {"nodes": self.to_node_frame(), "carriers": self.to_carrier_frame()}

    def drawing(self, groups: Groups | None = None) -> Network:
        """Tokens across, layers upwards: the nodes and edges with the most influence.

        Of a graph of one logit, these are the lines that lead to it from a size on, which pages
        let their readers choose.

        Args:
            groups: names of nodes that are drawn as one, by the name of their group; it stands
                where the one with the most influence does.
        """
        logits = [node for node in self.nodes if node.kind == "logit"]
        has_root = len(logits) == 1
        most = MOST_DRAWN_NODES if has_root else DRAWN_NODES
        ranked = sorted(
            (node for node in self.nodes if node.pos is not None), key=lambda x: -x.influence
        )
        drawn = [node for node in ranked if node.kind != "logit"][:most] + logits[:DRAWN_LOGITS]
        group_of = {name: group for group, names in (groups or {}).items() for name in names}
        places: dict[str, list[GraphNode]] = {}
        for node in drawn:
            places.setdefault(group_of.get(node.name, node.name), []).append(node)
        in_order = sorted(drawn, key=lambda node: (node.layer or 0, node.kind != "head"))
        of_layers = [_row_of(node) for node in in_order if node.layer is not None]
        rows = ["embed", *dict.fromkeys(of_layers), "logits"]
        index = {node.name: n for n, nodes in enumerate(places.values()) for node in nodes}
        influence = {node.name: node.influence for node in drawn}
        lines: dict[tuple[int, int], float] = {}
        for (source, target), share in zip(self.edges, self._signed_shares(), strict=True):
            ends = index.get(source, -1), index.get(target, -1)
            if min(ends) >= 0 and ends[0] != ends[1]:
                lines[ends] = lines.get(ends, 0.0) + share * influence[target]
        sizes = sorted(map(abs, lines.values()), reverse=True)[: MOST_DRAWN if has_root else DRAWN]
        least = sizes[-1] if sizes else 0.0
        return Network(
            [
                Node(
                    name,
                    float(nodes[0].pos or 0),
                    float(rows.index(_row_of(nodes[0]))),
                    note=_note_of(nodes[0]) if nodes[0].name == name else _note_of_group(nodes),
                )
                for name, nodes in places.items()
            ],
            {ends: weight for ends, weight in lines.items() if abs(weight) >= least},
            title=f"Attribution graph of {self.target[0]}",
            unit="share of the influence",
            columns=[f"{n} {token}" for n, token in enumerate(self.tokens)],
            rows=rows,
            root=[*places].index(logits[0].name) if has_root else None,
            least=sizes[:DRAWN][-1] if sizes and has_root else 0.0,
        )

    figure = plotted(drawing)

    def summary(self, top: int = 10) -> str:
        """The conclusion, and the ``top`` nodes with the most influence."""
        top = at_least(1, top, "top")
        frame = self.to_node_frame()
        rows = frame[~frame["kind"].isin(("logit",))].head(top).to_dict("records")
        places = places_of([row["effect"] for row in rows])
        lines = [
            f"{percent(row['influence'])} of the influence  "
            f"{' '.join(filter(None, (row['name'], row['token'])))}: "
            f"contributes {signed(row['effect'], places)} logits"
            for row in rows
        ]
        return "\n".join([*self.conclusion(), *lines, *self.notes])

    def conclusion(self) -> list[str]:
        """See :meth:`Result.conclusion`."""
        active, filled, units = self.n_units.tolist()
        replacement, complete = _both(self.replacement_score), _both(self.completeness_score)
        lines = [
            self.headline(),
            f"{_active(active)}, {filled} with rows, {units} in the graph; pruning "
            f"takes the replacement score from {replacement}, the completeness from {complete}",
        ]
        if self.predicted.n:
            lines += [
                f"{counted(self.predicted.n, 'unit')} set to zero, predicted and measured: "
                f"{self.predicted}",
                f"with patterns kept: {self.predicted_frozen}",
            ]
        return lines

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        failures = self.failures
        warning = f"NOT RELIABLE ({'; '.join(failures)}): " if failures else ""
        logits = (
            f"{self.target[0]} ({percent(self.probability[0])})"
            if len(self.target) == 1
            else f"{len(self.target)} logits ({percent(self.probability.sum())})"
        )
        checked = f"; predicted removals: {self.predicted}" if self.predicted.n else ""
        scores = [number(x[1], 2) for x in (self.replacement_score, self.completeness_score)]
        return (
            f"{warning}graph of {logits}: {counted(int(self.n_units[2]), 'unit')}, "
            f"{counted(len(self.edges), 'edge')}; replacement {scores[0]}, "
            f"completeness {scores[1]}{checked}"
        )

    def predicted_effect(
        self, units: Sequence[str], factor: float = 0.0
    ) -> Float[Tensor, " logit"]:
        """What is added to each logit if units are scaled together, as the graph predicts.

        :func:`analyses.scale_units` measures it. Units that were pruned have no effect here. Of
        heads and whole MLPs, the prediction is exact (but for what was pruned, and what is fixed)
        for one of them and the answer as a whole.

        Args:
            units: names of nodes.
            factor: what their activations are multiplied by.

        Raises:
            InvalidInput: the graph has no such node, or one that is no unit.
        """
        number_of = {node.name: n for n, node in enumerate(self.nodes)}
        for name in units:
            if name not in number_of:
                raise InvalidInput(
                    f"The graph has no node {shorten(name)}.{nearest(name, number_of)}"
                )
        chosen = [number_of[name] for name in units]
        if not all(self.nodes[n].kind in LETTERS for n in chosen):
            raise InvalidInput(f"{shorten(units)} has a node that is no unit, and can't be scaled.")
        source, target = (
            torch.tensor([number_of[edge[end]] for edge in self.edges], dtype=torch.long)
            for end in (0, 1)
        )
        edges = Edges(target, source, self.effect.double(), self.share.double())
        is_logit = torch.tensor([node.kind == "logit" for node in self.nodes])
        reading = torch.tensor([node.value for node in self.nodes], dtype=torch.float64)
        reading[reading.isnan() | is_logit] = 1.0
        changes: list[float] = []
        for logit in is_logit.nonzero()[:, 0].tolist():
            start = torch.zeros_like(reading).index_fill(0, torch.tensor([logit]), 1.0)
            contributed = effects(edges, start, reading, chosen)[chosen].sum()
            changes.append((factor - 1.0) * float(contributed))
        return torch.tensor(changes, dtype=torch.float64)

    def groups(self, by: Literal["tokens", "sources"]) -> dict[str, list[str]]:
        """Units that belong together, by the name of their group: for :meth:`drawing`.

        Args:
            by: ``tokens``: units that promote nearly the same tokens; ``sources``: units that read
                nearly the same of the same nodes. See :mod:`analyses.attribution_graph.groups`.

        Raises:
            InvalidInput: ``by`` is something else.
        """
        ranked = sorted(self.nodes, key=lambda node: -node.influence)
        units = [node for node in ranked if node.kind in LETTERS]
        if by == "tokens":
            return groups_by_tokens(units)
        if by != "sources":
            raise InvalidInput(f'by={shorten(by)} should be "tokens" or "sources".')
        read: dict[str, dict[str, float]] = {}
        for (source, target), effect in zip(self.edges, self.effect.tolist(), strict=True):
            read.setdefault(target, {})[source] = effect
        return groups_by_sources(units, read)

    # ---- parts of texts and figures ------------------------------------------------------------

    def _of_units(self, name: str) -> Float[Tensor, " node"]:
        values = [getattr(node, name) for node in self.nodes]
        return torch.tensor(values, dtype=torch.float64)

    def _signed_shares(self) -> list[float]:
        return (self.share * self.effect.sign()).tolist()


def _active(n: int) -> str:
    """The number of active units; where it is large, rounding decides which of them are 0."""
    return counted(n, "active unit") if n < ROUNDED else f"about {round(n, -3)} active units"


def _both(scores: Float[Tensor, " two"]) -> str:
    return f"{number(scores[0], 2)} to {number(scores[1], 2)}"


def _note_of_group(nodes: Sequence[GraphNode]) -> str:
    names = ", ".join(node.name for node in nodes)
    return f"{counted(len(nodes), 'node')}: {names}"


def _row_of(node: GraphNode) -> str:
    if node.layer is not None:
        return f"L{node.layer} heads" if node.kind == "head" else f"L{node.layer}"
    return "embed" if node.kind == "embedding" else "logits"


def _note_of(node: GraphNode) -> str:
    text = f"{percent(node.influence)} of the influence; contributes "
    text += f"{number(node.effect, 3, sign=True)} logits"
    if node.exact == node.exact:
        text += f"; without it, the answer loses {number(node.exact, 3, sign=True)}"
    return f"{text}; promotes {node.promoted_tokens}" if node.promoted_tokens else text


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
        traced = _Traced(model, batch, int(column[0]), named, kinds)
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


class _Traced:
    """The rows of one prompt.

    Attributes:
        logits: what the logits read.
        probability: the probability of each.
        start: the share of each in the answer.
        labels: the label of each logit's token.
        tokens: the label of the token at each position; of an image patch, its number.
    """

    def __init__(
        self,
        model: Transformer,
        batch: Batch,
        column: int,
        named: Int[Tensor, " logit"] | None,
        kinds: Kinds,
    ) -> None:
        places = kinds.places(model)
        self.run = estimate(model, batch, record=places)
        done = run(model, batch, record=places)
        if done.logits is None:
            raise InvalidInput("This model has no logits, so there is nothing to trace.")
        probabilities = done.logits[0, column].double().softmax(-1).cpu()
        if not bool(probabilities.isfinite().all()):
            cache = done.cache.items()
            culprit = next((place for place, x in cache if not bool(x.isfinite().all())), "logits")
            raise InvalidInput(
                "The logits of this prompt are NaN or infinite, so no graph sums to them; of what "
                f"was recorded, {culprit} is the first that is not finite. Look for non-finite "
                "weights before it."
            )
        cache = done.cache
        del done  # with the logits of all positions
        return_freed_memory()
        ids = _most_probable(probabilities) if named is None else named
        self.probability = probabilities[ids]
        real = batch.is_real[0].nonzero()[:, 0]
        pos = int((real == column).nonzero())
        frozen = FrozenModel(model, cache, real)
        self.pos, self.ids = pos, ids
        self.logits = _read_by_logits(model, frozen, ids.to(real.device), pos)
        self.start = self.probability / self.probability.sum()
        self.rows = kinds.rows(model, frozen, self.logits.mean(self.start))
        self.labels = [model.label(token) for token in ids.tolist()]
        is_image = batch.images is not None
        labels = map(str, range(len(real))) if is_image else model.to_labels(batch.ids[0, real])
        self.tokens = [*labels]

    def filled(self, max_nodes: int, progress: Callable[[int, int], None] | None) -> Placed:
        """Where the nodes are, once the rows of up to ``max_nodes`` units are computed."""
        filling = Filling(self.rows, self.logits, self.start, self._share(max_nodes))
        filling.fill(max_nodes, progress)
        return Placed(filling.filled(), self.rows, self.pos, self.ids, self.start)

    def _share(self, max_nodes: int) -> float:
        """The share of a row from which an entry is stored."""
        n_active = sum(each.n_active for each in self.rows.units.values())
        return stored_share(min(max_nodes, n_active) + len(self.ids), self.rows.columns.n)

    def estimated(self, max_nodes: int, *, heads: bool, check: int) -> GraphEstimate:
        """What the graph takes."""
        sizes = {"n_logits": len(self.ids), "max_nodes": max_nodes}
        return estimate_of(self.rows, self.run, **sizes, heads=heads, check=check)


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
        traced = _Traced(model, batch, int(column[0]), None, kinds)
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


def _read_by_logits(
    model: Transformer, frozen: FrozenModel, ids: Int[Tensor, " logit"], pos: int
) -> Readers:
    """What logits read, minus what the mean of all logits reads."""
    unembed = unembedding_of(model)
    direction, _ = logit_direction(unembed, ids)
    direction = direction - at_least_float32(unembed.W_U.mean(1))
    direction, bias = frozen.logits_direction(direction, pos)
    if unembed.b_U is not None:
        b_U = at_least_float32(unembed.b_U)
        bias = bias + b_U[ids] - b_U.mean()
    n = len(ids)
    where = torch.full((n,), pos, device=ids.device)
    before = torch.full_like(where, len(frozen.parts))
    return Readers.of_stream(before, where, direction, bias)


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


def _most_probable(probabilities: Float[Tensor, " vocab"]) -> Int[Tensor, " logit"]:
    """The fewest tokens with enough of the probability."""
    values, ids = probabilities.topk(min(MOST_LOGITS, len(probabilities)))
    return ids[values.cumsum(0) - values < ENOUGH]


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
