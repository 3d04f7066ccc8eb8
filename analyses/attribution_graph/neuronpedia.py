"""Graphs in the JSON that the viewers of Anthropic, circuit-tracer and Neuronpedia read.

    metadata: slug, scan, prompt, prompt_tokens      qParams: pinnedIds, supernodes, …
    nodes: node_id, feature, layer, ctx_idx, …       links: source, target, weight

A file is checked as a whole: an id that two nodes have, a link to no node, a weight that is no
number, a position outside of the prompt are errors that name the entry. Fields of nodes that are
not listed here are not read. What these viewers can't show (heads on edges, shares, removals) is in
``metadata.interp``; see :class:`Supplement`.

Schema: ``graph-schema.json`` of https://github.com/hijohnnylin/neuronpedia; circuit-tracer 0.5.0
writes the same.
"""

import re
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from math import isfinite
from typing import Any, TypeVar

import pandas as pd

from interp.errors import InterpError, InvalidInput, shorten
from interp.io import as_object, build, parse_json, value_of

FEATURE = "cross layer transcoder"
"""The type of units: features of transcoders, and neurons."""
ERROR = "mlp reconstruction error"
EMBEDDING = "embedding"
LOGIT = "logit"
ATTENTION = ("lorsa", "lorsa error")
"""The types of parts of attention, which the MLP of the same layer may read."""
READERS = (FEATURE, "unexplored node", "lorsa", LOGIT)
"""The types of nodes that read others."""
TYPES = (*READERS, EMBEDDING, ERROR, "lorsa error")
ENTRY = "E"
"""The layer of embeddings."""
SUPPLEMENT = "interp"
"""The entry of the metadata for what other programs don't read."""
MOST_BYTES = 2**28
"""The most bytes of a JSON text that is read."""
MOST_NODES = 10**6
"""The most nodes of a graph that is read."""
MOST_LINKS = 10**7
"""The most links."""
_LAYER = re.compile("[0-9]{1,4}")
_Part = TypeVar("_Part")


@dataclass(frozen=True)
class FileNode:
    """A node as it is in a file.

    Attributes:
        node_id: its id, which no other node has.
        feature: a number of what it is: of a neuron or feature, the Cantor pairing of layer and
            index; of a logit, the id of its token; of an embedding, its position.
        layer: the index of its layer; ``E`` for embeddings, one above all others for logits.
        ctx_idx: its position in the prompt.
        feature_type: its type, one of :data:`TYPES`.
        jsNodeId: another id, of viewers.
        clerp: its label.
        influence: the share of the influence that this node and those with more have together, by
            which viewers prune; ``None`` for nodes that are never pruned.
        activation: its activation; ``None`` if it has none.
        is_target_logit: whether it is the first logit.
        token_prob: the probability of a logit's token; 0 for other nodes.
    """

    node_id: str
    feature: int | None
    layer: str | int
    ctx_idx: int
    feature_type: str
    jsNodeId: str  # noqa: N815 - as in the files
    clerp: str
    influence: float | None = None
    activation: float | None = None
    is_target_logit: bool = False
    token_prob: float = 0.0

    @property
    def depth(self) -> int:
        """The index of its layer; −1 for the entry of the model."""
        return -1 if self.layer == ENTRY else int(self.layer)


@dataclass(frozen=True)
class FileLink:
    """An edge as it is in a file.

    Attributes:
        source: the id of the node that is read.
        target: the id of the node that reads.
        weight: what the source contributes to the target's reading.
    """

    source: str
    target: str
    weight: float


@dataclass(frozen=True)
class NodeDetail:
    """What the supplement has of a node: see :class:`analyses.attribution_graph.nodes.GraphNode`.

    Numbers that are NaN there are ``None`` here.
    """

    name: str
    kind: str
    token: str
    influence: float
    effect: float
    value: float | None
    exact: float | None
    exact_frozen: float | None
    promoted_tokens: str = ""


@dataclass(frozen=True)
class LinkDetail:
    """What the supplement has of a link.

    Attributes:
        share: its size as a share of all that its target reads.
        parts: the parts that carriers carry, each with the index of its carrier; those that are 0
            but for rounding are left out.
    """

    share: float
    parts: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Supplement:
    """What the viewers of these files don't show.

    Attributes:
        version: the version of this format.
        headline: the headline of the graph, with a warning if its predictions fail.
        failures: why the graph should not be relied on; empty if nothing speaks against it.
        notes: notes on how the numbers were computed.
        carriers: ``bypass``, and the heads.
        n_units: numbers of units: active, with rows, in the graph.
        replacement_score: before and after pruning: what was lost by it.
        completeness_score: likewise.
        provenance: model, tokens and settings that the numbers depend on.
        nodes: details of the nodes, in their order.
        links: details of the links, in their order.
    """

    version: int
    headline: str
    failures: tuple[str, ...]
    notes: tuple[str, ...]
    carriers: tuple[str, ...]
    n_units: tuple[int, int, int]
    replacement_score: tuple[float | None, float | None]
    completeness_score: tuple[float | None, float | None]
    provenance: dict[str, Any]
    nodes: tuple[NodeDetail, ...]
    links: tuple[LinkDetail, ...]


VERSION = 1
"""The version of :class:`Supplement` that is written and read."""


@dataclass(frozen=True)
class NeuronpediaGraph:
    """A graph as the JSON of Anthropic, circuit-tracer and Neuronpedia has it, checked.

    Attributes:
        slug: its name.
        scan: the model, and what its units are.
        prompt: the text of the prompt.
        prompt_tokens: its tokens.
        nodes: its nodes.
        links: its edges.
        q_params: what a viewer has pinned and grouped.
        others: the other entries of the metadata, as they are.
        supplement: what only graphs of this package have; ``None`` for other graphs.

    Raises:
        InvalidInput: the parts don't fit together; see :meth:`from_json`.
    """

    slug: str
    scan: str
    prompt: str
    prompt_tokens: tuple[str, ...]
    nodes: tuple[FileNode, ...]
    links: tuple[FileLink, ...]
    q_params: dict[str, Any] = field(default_factory=dict[str, Any])
    others: dict[str, Any] = field(default_factory=dict[str, Any])
    supplement: Supplement | None = None

    def __post_init__(self) -> None:
        """Check that the parts fit together."""
        for number, node in enumerate(self.nodes):
            _check_node(node, f"nodes[{number}]", len(self.prompt_tokens))
        by_id = _by_id(self.nodes)
        _check_logits(self.nodes)
        _check_links(self.links, by_id)
        if self.supplement is not None:
            _check_supplement(self.supplement, len(self.nodes), len(self.links))

    @staticmethod
    def from_json(data: "str | bytes | Mapping[str, Any]") -> "NeuronpediaGraph":
        """Read a graph that this package, circuit-tracer, Neuronpedia or Anthropic wrote.

        Args:
            data: the text of the file, or what :func:`json.loads` makes of it.

        Raises:
            InvalidInput: it is no JSON of a graph: something is missing, too large, of another
                type or no finite number; two nodes have one id; a link has an end that is no node,
                that doesn't read, or that is above what reads it; a position or layer is out of
                range. The message names the entry.

        Examples:
            >>> graph = analyses.attribution_graph(interp.load("induction-by-hand"), "abcab")
            >>> read = analyses.NeuronpediaGraph.from_json(graph.to_neuronpedia("abcab"))
            >>> [(link.source, link.target) for link in read.links]
            [('E_3_3', '3_3_5')]
        """
        try:
            return _graph(_parsed(data))
        except InterpError as error:
            raise InvalidInput(f"This is no graph that can be read: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """The contents of the file, for :func:`json.dumps`."""
        metadata: dict[str, Any] = {
            "slug": self.slug,
            "scan": self.scan,
            "prompt_tokens": [*self.prompt_tokens],
            "prompt": self.prompt,
            **self.others,
        }
        if self.supplement is not None:
            metadata[SUPPLEMENT] = asdict(self.supplement)
        return {
            "metadata": metadata,
            "qParams": self.q_params,
            "nodes": [asdict(node) for node in self.nodes],
            "links": [asdict(link) for link in self.links],
        }

    def to_frame(self) -> pd.DataFrame:
        """One row per link, in their order: its ends by their ids, and its weight.

        Columns:
            name, writer, reader: the edge.
            effect: what it contributes to what the target reads.
        """
        return pd.DataFrame(
            {
                "name": [f"{link.source} → {link.target}" for link in self.links],
                "writer": [link.source for link in self.links],
                "reader": [link.target for link in self.links],
                "effect": [link.weight for link in self.links],
            }
        )


# ---- reading -----------------------------------------------------------------------------------


def _parsed(data: object) -> dict[Any, Any]:
    """The JSON object of a text; an object as it is."""
    if isinstance(data, Mapping):
        return dict(data)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if not isinstance(data, str | bytes):
        raise InvalidInput(f"expected the text or the object of a JSON file, got {shorten(data)}.")
    if len(data) > MOST_BYTES:
        raise InvalidInput(
            f"it has {len(data)} bytes; at most {MOST_BYTES} are read. Prune it before it is "
            "written: lower node_share= or edge_share=."
        )
    try:
        return as_object(parse_json(data if isinstance(data, str) else data.decode()), "the file")
    except ValueError as error:
        raise InvalidInput(f"it is no JSON object: {str(error).rstrip('.')}.") from error


def _graph(data: dict[Any, Any]) -> NeuronpediaGraph:
    for name in ("metadata", "qParams", "nodes", "links"):
        if name not in data:
            raise InvalidInput(f"it has no {name}; a graph has metadata, qParams, nodes and links.")
    metadata = dict(as_object(data["metadata"], "metadata"))
    slug, scan, prompt = (
        value_of(str, _taken(metadata, x), f"metadata.{x}") for x in ("slug", "scan", "prompt")
    )
    tokens = value_of(tuple[str, ...], _taken(metadata, "prompt_tokens"), "metadata.prompt_tokens")
    supplement = metadata.pop(SUPPLEMENT, None)
    return NeuronpediaGraph(
        slug,
        scan,
        prompt,
        tokens,
        nodes=_entries(FileNode, data["nodes"], "nodes", MOST_NODES),
        links=_entries(FileLink, data["links"], "links", MOST_LINKS),
        q_params=_q_params(data["qParams"]),
        others=metadata,
        supplement=None if supplement is None else _supplement(supplement),
    )


def _taken(metadata: dict[Any, Any], name: str) -> Any:  # noqa: ANN401 - JSON
    if name not in metadata:
        raise InvalidInput(f"metadata has no {name}.")
    return metadata.pop(name)


def _entries(kind: type[_Part], values: object, path: str, most: int) -> tuple[_Part, ...]:
    """The nodes or links of a file, without the fields that are not read."""
    if not isinstance(values, list | tuple):
        raise InvalidInput(f"{path} should be a list, got {shorten(values)}.")
    if len(values) > most:  # pyright: ignore[reportUnknownArgumentType] - JSON
        raise InvalidInput(f"it has {len(values)} {path}; at most {most} are read.")  # pyright: ignore[reportUnknownArgumentType]
    every = fields(kind)  # pyright: ignore[reportArgumentType] - a dataclass
    required = [x.name for x in every if x.default is MISSING]
    names = [x.name for x in every]
    entries: list[_Part] = []
    for number, value in enumerate(values):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        place = f"{path}[{number}]"
        entry = as_object(value, place)
        missing = next((name for name in required if name not in entry), None)
        if missing is not None:
            raise InvalidInput(f"{place} has no {missing}; it needs {', '.join(required)}.")
        entries.append(build(kind, {name: entry[name] for name in names if name in entry}, place))
    return tuple(entries)


def _q_params(values: object) -> dict[str, Any]:
    """What a viewer has pinned and grouped, as it is."""
    entries = as_object(values, "qParams")
    value_of(list[str], entries.get("pinnedIds", []), "qParams.pinnedIds")
    value_of(list[list[str]], entries.get("supernodes", []), "qParams.supernodes")
    return dict(entries)


def _supplement(values: object) -> Supplement:
    path = f"metadata.{SUPPLEMENT}"
    version = as_object(values, path).get("version")
    if version != VERSION:
        raise InvalidInput(
            f"{path}.version={shorten(version)} should be {VERSION}. If it is larger, update: "
            "pip install --upgrade interp."
        )
    return build(Supplement, values, path)


# ---- checks ------------------------------------------------------------------------------------


def _check_node(node: FileNode, place: str, n_tokens: int) -> None:
    """Check the values of one node.

    Raises:
        InvalidInput: one is out of range.
    """
    if node.feature_type not in TYPES:
        raise InvalidInput(
            f"{place}.feature_type={shorten(node.feature_type)} should be one of "
            f"{', '.join(TYPES)}."
        )
    if node.layer != ENTRY and not _LAYER.fullmatch(str(node.layer)):
        raise InvalidInput(
            f"{place}.layer={shorten(node.layer)} should be {ENTRY} or an index from 0 to 9999."
        )
    if not 0 <= node.ctx_idx < n_tokens:
        raise InvalidInput(
            f"{place}.ctx_idx={node.ctx_idx} is no position of the prompt, which has {n_tokens} "
            "prompt_tokens."
        )
    for name in ("influence", "activation"):
        value = getattr(node, name)
        if value is not None and not isfinite(value):
            raise InvalidInput(f"{place}.{name}={value} should be a finite number or null.")
    if not 0 <= node.token_prob <= 1:
        raise InvalidInput(f"{place}.token_prob={node.token_prob} should be from 0 to 1.")


def _by_id(nodes: tuple[FileNode, ...]) -> dict[str, FileNode]:
    """The nodes by their ids.

    Raises:
        InvalidInput: two have one id.
    """
    by_id: dict[str, FileNode] = {}
    for node in nodes:
        if node.node_id in by_id:
            both = " and ".join(
                f"{x.feature_type} of layer {x.layer}" for x in (by_id[node.node_id], node)
            )
            raise InvalidInput(
                f"two nodes have the id {shorten(node.node_id)} ({both}), so links to it have two "
                "meanings. circuit-tracer gives the error of layer n and feature n of layer 0 one "
                "id: rename the node in the program that wrote the file."
            )
        by_id[node.node_id] = node
    return by_id


def _check_logits(nodes: tuple[FileNode, ...]) -> None:
    """Check that logits are above all other nodes.

    Raises:
        InvalidInput: one is not.
    """
    logits = [node for node in nodes if node.feature_type == LOGIT]
    others = [node.depth for node in nodes if node.feature_type != LOGIT]
    lowest = min(logits, key=lambda node: node.depth, default=None)
    if lowest is not None and lowest.depth <= max(others, default=-1):
        raise InvalidInput(
            f"the logit {shorten(lowest.node_id)} is in layer {lowest.layer}, which should be "
            f"above all other nodes: one is in layer {max(others)}."
        )


def _check_links(links: tuple[FileLink, ...], by_id: Mapping[str, FileNode]) -> None:
    """Check the ends and the weight of each link.

    Raises:
        InvalidInput: one is no node, does not read or is not read; or the weight is no number.
    """
    seen: set[tuple[str, str]] = set()
    for number, link in enumerate(links):
        place = f"links[{number}]"
        for name in ("source", "target"):
            if getattr(link, name) not in by_id:
                raise InvalidInput(
                    f"{place}.{name}={shorten(getattr(link, name))} is the id of no node."
                )
        if not isfinite(link.weight):
            raise InvalidInput(f"{place}.weight={link.weight} should be a finite number.")
        if (link.source, link.target) in seen:
            raise InvalidInput(f"{place} is a second link {link.source} → {link.target}.")
        seen.add((link.source, link.target))
        _check_ends(by_id[link.source], by_id[link.target], place)


def _check_ends(source: FileNode, target: FileNode, place: str) -> None:
    """Check that one node can read another."""
    edge = f"{place} ({source.node_id} → {target.node_id})"
    if target.feature_type not in READERS:
        raise InvalidInput(
            f"{edge}: its target is of type {target.feature_type}, which reads none."
        )
    if source.feature_type == LOGIT:
        raise InvalidInput(f"{edge}: its source is a logit, which nothing reads.")
    same = any(node.feature_type in ATTENTION for node in (source, target))
    if source.depth > target.depth or (source.depth == target.depth and not same):
        raise InvalidInput(
            f"{edge}: a node of layer {target.layer} can't read one of layer {source.layer}; "
            "sources are in earlier layers."
        )


def _check_supplement(supplement: Supplement, n_nodes: int, n_links: int) -> None:
    """Check that details fit to the nodes and links, and are finite.

    Raises:
        InvalidInput: they don't, or one is not.
    """
    path = f"metadata.{SUPPLEMENT}"
    for name, n in (("nodes", n_nodes), ("links", n_links)):
        if len(getattr(supplement, name)) != n:
            raise InvalidInput(
                f"{path}.{name} has {len(getattr(supplement, name))} entries; the graph has {n} "
                f"{name}."
            )
    names = {node.name for node in supplement.nodes}
    if len(names) < n_nodes:
        raise InvalidInput(f"{path}.nodes has one name twice.")
    for number, node in enumerate(supplement.nodes):
        numbers = (node.influence, node.effect, node.value, node.exact, node.exact_frozen)
        if not all(isfinite(x) for x in numbers if x is not None):
            raise InvalidInput(f"{path}.nodes[{number}] has a number that is not finite.")
    for number, link in enumerate(supplement.links):
        _check_parts(link, len(supplement.carriers), f"{path}.links[{number}]")


def _check_parts(link: LinkDetail, n_carriers: int, place: str) -> None:
    """Check the parts of one link.

    Raises:
        InvalidInput: a number is not finite, or there is no such carrier.
    """
    if not all(isfinite(x) for x in (link.share, *(part for _, part in link.parts))):
        raise InvalidInput(f"{place} has a number that is not finite.")
    outside = next((x for x, _ in link.parts if not 0 <= x < n_carriers), None)
    if outside is not None:
        raise InvalidInput(f"{place} has a part of carrier {outside}; there are {n_carriers}.")
