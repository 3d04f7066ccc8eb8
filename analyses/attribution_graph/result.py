"""The graph of one prompt: its tables, its figure, and what it says of removals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any, Literal

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.attribution_graph.checks import Predicted
from analyses.attribution_graph.groups import groups_by_sources, groups_by_tokens
from analyses.attribution_graph.influence import Edges, effects
from analyses.attribution_graph.nodes import LETTERS, GraphNode
from analyses.attribution_graph.traced import MOST_LOGITS
from analyses.results import (
    Network,
    Node,
    Result,
    counted,
    number,
    percent,
    places_of,
    plotted,
    signed,
)
from interp.errors import InvalidInput, nearest, shorten
from interp.execution import Provenance
from interp.integers import at_least

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
