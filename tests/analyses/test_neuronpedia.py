"""Attribution graphs as files of viewers: nothing is lost, ids are unique, lies are refused."""

import copy
import json

import pytest
from architectures import build, tokens_of

import interp
from analyses import NeuronpediaGraph, attribution_graph
from interp import dictionaries
from interp.errors import InvalidInput

TEXT = "def f(self, name):\n    self.name ="
EVERYTHING = {"max_nodes": 10**6, "node_share": 1.0, "edge_share": 1.0}
OF_CIRCUIT_TRACER = {
    "metadata": {"slug": "a", "scan": "m", "prompt_tokens": ["<bos>", "x"], "prompt": "x"},
    "qParams": {
        "linkType": "both", "pinnedIds": [], "clickedId": "", "supernodes": [], "sg_pos": "",
    },
    "nodes": [
        {
            "node_id": "E_2_1", "feature": 1, "layer": "E", "ctx_idx": 1, "is_target_logit": False,
            "feature_type": "embedding", "token_prob": 0.0, "jsNodeId": "E_2-1", "clerp": "Emb",
            "run_idx": 0, "reverse_ctx_idx": 0, "influence": None, "activation": None,
        },
        {
            "node_id": "0_7_1", "feature": 35, "layer": "0", "ctx_idx": 1, "is_target_logit": False,
            "feature_type": "cross layer transcoder", "token_prob": 0.0, "jsNodeId": "0_7-0",
            "clerp": "", "run_idx": 0, "influence": 0.4, "activation": 1.5,
        },
        {
            "node_id": "2_9_1", "feature": 9, "layer": "2", "ctx_idx": 1, "is_target_logit": True,
            "feature_type": "logit", "token_prob": 0.9, "jsNodeId": "L_9-1", "clerp": 'Output "y"',
        },
    ],
    "links": [
        {"source": "E_2_1", "target": "0_7_1", "weight": 2.0},
        {"source": "0_7_1", "target": "2_9_1", "weight": -0.5},
    ],
}  # fmt: skip
"""A graph with the fields that circuit-tracer 0.5.0 writes."""


@pytest.mark.parametrize("units", ["neurons", "features"])
def test_a_graph_is_written_and_read_without_loss(units):
    """Through JSON text: the same edges, weights, parts and details, bit by bit."""
    model = interp.load("python-4l")
    if units == "features":
        transcoders = [dictionaries.load(f"python-4l/mlp-{layer}") for layer in range(4)]
        model = interp.with_dictionaries(model, transcoders)
    graph = attribution_graph(model, TEXT, units=units, max_nodes=40, check=4)
    read = NeuronpediaGraph.from_json(json.dumps(graph.to_neuronpedia("name")))
    assert [link.weight for link in read.links] == graph.effect.tolist()
    details = dict(zip((node.node_id for node in read.nodes), read.supplement.nodes, strict=True))
    names = [(details[x.source].name, details[x.target].name) for x in read.links]
    assert tuple(names) == graph.edges
    by_name = {node.name: node for node in graph.nodes}
    for node in read.nodes:
        whole, detail = by_name[details[node.node_id].name], details[node.node_id]
        assert (detail.effect, detail.influence) == (whole.effect, whole.influence)
        assert detail.exact == (whole.exact if whole.exact == whole.exact else None)
    for n, link in enumerate(read.supplement.links):
        total = sum(part for _, part in link.parts)
        assert total == pytest.approx(float(graph.effect[n]), abs=1e-5)
    assert read.supplement.headline == graph.headline()
    assert read.prompt_tokens == graph.tokens
    logits = [node for node in read.nodes if node.feature_type == "logit"]
    assert [node.token_prob for node in logits] == graph.probability.tolist()
    assert NeuronpediaGraph.from_json(read.to_dict()) == read


@pytest.mark.parametrize("name", ["gpt2", "mixtral", "qwen-moe"])
def test_no_two_nodes_have_one_id(name):
    """Also of layers with errors beside neurons, of which circuit-tracer's ids are the same."""
    graph = attribution_graph(build(name), tokens_of(name)[0][:1], check=0, **EVERYTHING)
    nodes = graph.to_neuronpedia("a")["nodes"]
    assert len({node["node_id"] for node in nodes}) == len(nodes) == len(graph.nodes)
    assert {node.kind for node in graph.nodes} >= {"embedding", "logit"}


def test_a_graph_of_circuit_tracer_is_read():
    graph = NeuronpediaGraph.from_json(OF_CIRCUIT_TRACER)
    assert graph.supplement is None
    frame = graph.to_frame()
    assert frame["effect"].tolist() == [2.0, -0.5]
    assert frame["writer"].tolist() == ["E_2_1", "0_7_1"]


def changed(change):
    data = copy.deepcopy(OF_CIRCUIT_TRACER)
    change(data)
    return data


LIES = {
    "has no nodes": lambda d: d.pop("nodes"),
    "metadata has no slug": lambda d: d["metadata"].pop("slug"),
    r"nodes\[1\] has no node_id": lambda d: d["nodes"][1].pop("node_id"),
    "feature_type='sae' should be one of": lambda d: d["nodes"][1].update(feature_type="sae"),
    "is no position of the prompt": lambda d: d["nodes"][1].update(ctx_idx=2),
    "should be E or an index": lambda d: d["nodes"][1].update(layer="-1"),
    "should be a finite number": lambda d: d["nodes"][1].update(activation=float("nan")),
    "should be from 0 to 1": lambda d: d["nodes"][2].update(token_prob=2.0),
    "two nodes have the id '0_7_1'": lambda d: d["nodes"].append(d["nodes"][1]),
    "is the id of no node": lambda d: d["links"][0].update(source="E_3_1"),
    r"links\[1\]\.weight=inf": lambda d: d["links"][1].update(weight=float("inf")),
    "is a second link": lambda d: d["links"].append(d["links"][0]),
    "is a logit, which nothing reads": lambda d: d["links"][0].update(source="2_9_1"),
    "which reads none": lambda d: d["links"][1].update(target="E_2_1"),
    "should be above all other nodes": lambda d: d["nodes"][2].update(layer="0"),
    "can't read one of layer": lambda d: d["links"][0].update(source="0_7_1", target="0_7_1"),
}


@pytest.mark.parametrize("message", LIES)
def test_a_file_that_lies_is_refused(message):
    with pytest.raises(InvalidInput, match=message):
        NeuronpediaGraph.from_json(changed(LIES[message]))


@pytest.mark.parametrize("text", ["", "[]", "{", '{"nodes": 1}', b"\xff", "NaN"])
def test_what_is_no_graph_is_refused(text):
    with pytest.raises(InvalidInput, match="This is no graph that can be read"):
        NeuronpediaGraph.from_json(text)


def test_details_that_do_not_fit_are_refused():
    graph = attribution_graph(interp.load("induction-by-hand"), "abcab")
    data = graph.to_neuronpedia("a")
    data["metadata"]["interp"]["links"] = []
    with pytest.raises(InvalidInput, match="has 0 entries; the graph has 1 links"):
        NeuronpediaGraph.from_json(data)
    with pytest.raises(InvalidInput, match="printable characters"):
        graph.to_neuronpedia("")
