"""Paths of a circuit from the inputs to the logits, and circuits of the highest-ranked edges."""

from itertools import pairwise

import pytest
import torch
from architectures import build, covering

from analyses.explain.faithful import candidates, faithfulness, random_circuit
from analyses.methods.circuits.paths import closed, inputs_of, next_writers, strongest_paths
from interp import computation_graph

ARCHITECTURES = ["gpt2", "llama", "gemma2", "neox", "t5"]


def graph_and_weights(name, seed=0):
    graph = computation_graph(build(name))
    edges = [(writer.name, reader.name) for writer, reader in graph.edges]
    drawn = torch.randn(len(edges), generator=torch.Generator().manual_seed(seed)).tolist()
    return graph, dict(zip(edges, drawn, strict=True))


def every_path(graph, edges):
    """By brute force."""
    following = next_writers(graph)

    def from_(writer):
        for edge in edges:
            if edge[0] == writer:
                if edge[1] == "logits":
                    yield (edge,)
                for after in following[edge[1]]:
                    yield from ((edge, *rest) for rest in from_(after))

    return [path for writer in inputs_of(graph) for path in from_(writer)]


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_closed_edges_are_those_of_all_paths(name):
    graph, weights = graph_and_weights(name)
    some = list(weights)[:: 3 if len(weights) < 300 else 9]
    on_paths = {edge for path in every_path(graph, some) for edge in path}
    assert set(closed(graph, some)) == on_paths
    assert len(on_paths) < len(some)


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_the_strongest_path_through_each_writer(name):
    """Its weakest edge is as strong as that of any path through it."""
    graph, weights = graph_and_weights(name)
    some = dict(list(weights.items())[:: 2 if len(weights) < 300 else 7])
    paths = every_path(graph, some)
    strongest = strongest_paths(graph, some)
    assert all(path.edges in paths for path in strongest)
    assert [path.strength for path in strongest] == sorted(
        (path.strength for path in strongest), reverse=True
    )
    for writer in {edge[0] for path in paths for edge in path}:
        through = [path for path in paths if writer in {edge[0] for edge in path}]
        best = max(min(abs(some[edge]) for edge in path) for path in through)
        assert best in {path.strength for path in strongest if writer in path.writers}


def test_heads_of_a_group_share_their_keys():
    following = next_writers(computation_graph(build("llama")))
    assert following["L1KV1.k"] == ("L1H2", "L1H3")
    assert following["L1H2.q"] == ("L1H2",)
    assert following["logits"] == ()


def test_candidates_rise_and_are_of_the_highest_ranked():
    graph, weights = graph_and_weights("gpt2")
    order = sorted(weights, key=lambda edge: -abs(weights[edge]))
    circuits = candidates(graph, order, 40)
    assert all(set(smaller) < set(larger) for smaller, larger in pairwise(circuits))
    assert circuits[-1] == closed(graph, order[:40])
    assert candidates(graph, order, len(order))[-1] == closed(graph, order)


@pytest.mark.parametrize("count", [1, 7, 30])
def test_a_random_circuit_has_so_many_edges_on_paths(count):
    graph, _ = graph_and_weights("gpt2")
    circuit = random_circuit(graph, count, torch.Generator().manual_seed(count))
    assert len(circuit) >= count
    assert closed(graph, circuit) == circuit


def test_errors_of_both_signs_do_not_cancel():
    whole, empty = torch.tensor([1.0, 1.0]), torch.tensor([0.0, 0.0])
    values = torch.stack([whole, empty, torch.tensor([1.5, 0.5])])
    assert faithfulness(values, whole, empty).tolist() == [1.0, 0.0, 0.5]
