"""An attribution graph as the JSON of Neuronpedia's viewer.

    neuron: layer_neuron_pos   embedding: E_token_pos   logit: (n_layers + 1)_token_pos
    error: error_layer_pos     bias, rest: bias_0_0, rest_0_0
    head: head_layer_head_pos  whole MLP: mlp_layer_0_pos

The ids of neurons, embeddings and logits are those that circuit-tracer 0.5.0 gives to features,
embeddings and logits; its error nodes (``0_layer_pos``) have ids of features of layer 0, ours have
not. Viewers know no types but those of :data:`analyses.attribution_graph.neuronpedia.TYPES`, so
neurons and whole MLPs have that of features, heads that of parts of attention (``lorsa``), and
biases and the rest that of errors, at the entry of the model.
"""

from collections.abc import Mapping
from math import isnan

import torch

from analyses.attribution_graph.neuronpedia import (
    ATTENTION,
    EMBEDDING,
    ENTRY,
    ERROR,
    FEATURE,
    LOGIT,
    VERSION,
    FileLink,
    FileNode,
    LinkDetail,
    NeuronpediaGraph,
    NodeDetail,
    Supplement,
)
from analyses.attribution_graph.nodes import GraphNode
from analyses.attribution_graph.result import AttributionGraph, Groups
from interp.errors import InvalidInput, nearest, shorten

MOST_CHARACTERS = 200
"""The most characters of a slug."""
NEVER_PRUNED = ("bias", "rest", "logit")
"""The kinds of nodes that viewers should not prune."""


def file_of(
    graph: AttributionGraph, slug: str, scan: str | None, prompt: str | None, groups: Groups
) -> NeuronpediaGraph:
    """The file of a graph; see :meth:`AttributionGraph.to_neuronpedia`."""
    if not 0 < len(slug) <= MOST_CHARACTERS or not slug.isprintable():
        raise InvalidInput(
            f"slug={shorten(slug)} should be a name of 1 to {MOST_CHARACTERS} printable characters."
        )
    nodes = _nodes(graph)
    ids = {node.name: entry.node_id for node, entry in zip(graph.nodes, nodes, strict=True)}
    pairs = zip(graph.edges, graph.effect.tolist(), strict=True)
    grouped = [[name, *(_id_of(ids, node) for node in names)] for name, names in groups.items()]
    return NeuronpediaGraph(
        slug=slug,
        scan=graph.provenance.model if scan is None else scan,
        prompt="".join(graph.tokens) if prompt is None else prompt,
        prompt_tokens=graph.tokens,
        nodes=nodes,
        links=tuple(FileLink(ids[source], ids[target], x) for (source, target), x in pairs),
        q_params={
            "pinnedIds": [node_id for _, *group in grouped for node_id in group],
            "supernodes": grouped,
            "linkType": "both",
            "clickedId": "",
            "sg_pos": "",
        },
        others={
            "schema_version": 1,
            "info": {
                "description": f"{graph.headline()}. Circles are units; bias "
                "and rest (all that is left out) have no position.",
                "generator": {
                    "name": "interp",
                    "version": graph.provenance.versions.get("interp", ""),
                },
            },
        },
        supplement=_supplement(graph),
    )


def _id_of(ids: Mapping[str, str], name: str) -> str:
    """The id of a node.

    Raises:
        InvalidInput: the graph has no such node.
    """
    if name not in ids:
        raise InvalidInput(f"The graph has no node {shorten(name)}.{nearest(name, ids)}")
    return ids[name]


def _nodes(graph: AttributionGraph) -> tuple[FileNode, ...]:
    """The nodes, in their order."""
    ids, target_ids = graph.ids.tolist(), iter(graph.target_ids.tolist())
    probabilities = iter(graph.probability.tolist())
    cumulative, n_logits = _cumulative(graph.nodes), 0
    nodes: list[FileNode] = []
    for node in graph.nodes:
        if node.kind == "logit":
            token, probability = next(target_ids), next(probabilities)
            nodes.append(_logit(graph, node, token, probability, is_first=not n_logits))
            n_logits += 1
        else:
            token = ids[node.pos] if node.kind == "embedding" and node.pos is not None else 0
            nodes.append(_node(node, token, cumulative.get(node.name)))
    return tuple(nodes)


def _logit(
    graph: AttributionGraph, node: GraphNode, token: int, probability: float, *, is_first: bool
) -> FileNode:
    pos, layer = node.pos or 0, graph.n_layers + 1
    return FileNode(
        node_id=f"{layer}_{token}_{pos}",
        feature=token,
        layer=str(layer),
        ctx_idx=pos,
        feature_type=LOGIT,
        jsNodeId=f"L_{token}-{pos}",
        clerp=f'Output "{node.token}" (p={probability:.3f})',  # viewers search for (p=
        is_target_logit=is_first,
        token_prob=probability,
    )


def _node(node: GraphNode, token: int, influence: float | None) -> FileNode:
    """A node that is no logit; ``token`` is the id of an embedding's token."""
    pos, layer, number = node.pos or 0, node.layer or 0, node.neuron or node.head or 0
    if node.kind == "embedding":
        kind, place, node_id, feature = EMBEDDING, ENTRY, f"E_{token}_{pos}", pos
    elif node.kind in NEVER_PRUNED:
        number = NEVER_PRUNED.index(node.kind)
        kind, place, node_id, feature = ERROR, ENTRY, f"{node.kind}_0_0", -1 - number
    elif node.kind == "error":
        kind, place, node_id, feature = ERROR, str(layer), f"error_{layer}_{pos}", -1
    else:
        prefix = f"{node.kind}_" if node.kind in ("head", "mlp") else ""
        kind, place = ATTENTION[0] if node.kind == "head" else FEATURE, str(layer)
        node_id, feature = f"{prefix}{layer}_{number}_{pos}", _paired(layer, number)
    return FileNode(
        node_id=node_id,
        feature=feature,
        layer=place,
        ctx_idx=pos,
        feature_type=kind,
        jsNodeId=f"{node_id.rpartition('_')[0]}-{pos if kind == EMBEDDING else 0}",
        clerp=f"{node.name} {node.token}".rstrip(),
        influence=influence,
        activation=_or_none(node.activation),
    )


def _paired(x: int, y: int) -> int:
    """The Cantor pairing of two numbers, from which viewers read layer and index of a feature."""
    return (x + y) * (x + y + 1) // 2 + y


def _cumulative(nodes: tuple[GraphNode, ...]) -> dict[str, float]:
    """For each node that may be pruned, the share of the influence down to it."""
    pruned = [node for node in nodes if node.kind not in NEVER_PRUNED]
    pruned.sort(key=lambda node: -node.influence)
    sizes = torch.tensor([node.influence for node in pruned], dtype=torch.float64)
    total = float(sizes.sum()) or 1.0
    shares = (sizes.cumsum(0) / total).clamp(max=1.0).tolist()
    return {node.name: share for node, share in zip(pruned, shares, strict=True)}


def _supplement(graph: AttributionGraph) -> Supplement:
    """What viewers don't show."""
    edge, carrier = graph.parts()
    parts: list[list[tuple[int, float]]] = [[] for _ in graph.edges]
    for n, number, value in zip(
        edge.tolist(), carrier.tolist(), graph.terms[edge, carrier].tolist(), strict=True
    ):
        parts[n].append((number, value))
    shares = graph.share.tolist()
    active, filled, stays = graph.n_units.tolist()
    replacement, complete = (
        (_or_none(before), _or_none(after))
        for before, after in (graph.replacement_score.tolist(), graph.completeness_score.tolist())
    )
    return Supplement(
        version=VERSION,
        headline=graph.headline(),
        failures=graph.failures,
        notes=graph.notes,
        carriers=graph.carriers,
        n_units=(active, filled, stays),
        replacement_score=replacement,
        completeness_score=complete,
        provenance=graph.provenance.to_dict() | {"edits": [*graph.provenance.edits]},
        nodes=tuple(map(_detail, graph.nodes)),
        links=tuple(LinkDetail(x, tuple(y)) for x, y in zip(shares, parts, strict=True)),
    )


def _detail(node: GraphNode) -> NodeDetail:
    return NodeDetail(
        name=node.name,
        kind=node.kind,
        token=node.token,
        influence=node.influence,
        effect=node.effect,
        value=_or_none(node.value),
        exact=_or_none(node.exact),
        exact_frozen=_or_none(node.exact_frozen),
        promoted_tokens=node.promoted_tokens,
    )


def _or_none(value: float) -> float | None:
    return None if isnan(value) else value
