"""Attribution graphs are those of circuit-tracer 0.5.0, on a small model with the same transcoders.

Not compared are features and errors at the first position, which circuit-tracer takes for those of
a BOS and leaves out, and biases, which are no nodes there.
"""

from functools import cache
from pathlib import Path

import pytest
import torch
from architectures import assert_close
from safetensors.torch import load_file

import interp
from analyses import attribution_graph
from analyses.attribution_graph import filling
from analyses.attribution_graph.influence import (
    Edges,
    Ends,
    completeness,
    influence,
    replacement_score,
)
from interp import compat, dictionaries
from tools.clients.models import fields

REFERENCES = Path(__file__).with_name("references")
SET, CROSS_LAYER = "circuit_tracer-graph", "circuit_tracer-cross-layer-graph"
GRAPHS = {name: load_file(REFERENCES / name / "graph.safetensors") for name in (SET, CROSS_LAYER)}
N_LAYERS, N_POS = 2, len(GRAPHS[SET]["tokens"])
BOUND = 1e-5
"""Of differences in float32; the largest effect is about 1."""


@cache
def model_and_units(name: str) -> tuple[interp.Transformer, object]:
    """The model with the set of transcoders, or the model and the cross-layer transcoder."""
    folder = REFERENCES / name
    model = compat.HookedTransformer(fields("llama"))
    model.load_state_dict(load_file(folder / "model.safetensors"))
    if name == CROSS_LAYER:
        return model.core, dictionaries.load_cross_layer(folder)
    return interp.with_dictionaries(model.core, dictionaries.load_set(folder)), "features"


def names(reference: dict[str, torch.Tensor]) -> list[str]:
    """Our names of circuit-tracer's nodes; of logits, by their tokens."""
    return [
        *(f"L{layer}F{feature}@{pos}" for layer, pos, feature in reference["features"].tolist()),
        *(f"L{layer}error@{pos}" for layer in range(N_LAYERS) for pos in range(N_POS)),
        *(f"embed@{pos}" for pos in range(N_POS)),
        *(f"logit {token}@{N_POS - 1}" for token in reference["logits"].tolist()),
    ]


@pytest.mark.parametrize("of", GRAPHS)
def test_every_edge_is_that_of_circuit_tracer(of, monkeypatch):
    reference, (model, units) = GRAPHS[of], model_and_units(of)
    monkeypatch.setattr(filling, "STORED", 0.0)
    graph = attribution_graph(
        model,
        reference["tokens"][None],
        targets=reference["logits"].tolist(),
        units=units,
        max_nodes=10**6,
        node_share=1.0,
        edge_share=1.0,
        check=0,
    )
    assert_close(graph.probability.float(), reference["probabilities"], BOUND)
    index = {name: n for n, name in enumerate(names(reference))}
    A = torch.zeros(len(index), len(index), dtype=torch.float64)
    others = set()
    for (source, target), effect in zip(graph.edges, graph.effect, strict=True):
        if {source, target} <= index.keys():
            A[index[target], index[source]] = effect
        else:
            others |= {source, target} - index.keys()
    assert {name for name in others if not name.endswith("@0")} <= {"bias", "rest"}
    nodes = {node.name for node in graph.nodes}
    rows = [n for name, n in index.items() if name in nodes]
    is_first = [name.endswith("@0") and not name.startswith("embed") for name in index]
    columns = (~torch.tensor(is_first)).nonzero()[:, 0]
    expected = reference["A"].double()[rows][:, columns]
    assert_close(A[rows][:, columns], expected, BOUND)
    assert len(rows) > 50
    assert (expected != 0).sum() > (1000 if of == SET else 900)
    # Features that no logit reads, such as those of the last layer elsewhere, are no nodes here.
    left_out = {name for name in index if "F" in name} - nodes
    assert all(name.startswith("L1") and not name.endswith(f"@{N_POS - 1}") for name in left_out)


def edges_of_circuit_tracer(reference: dict[str, torch.Tensor]) -> tuple[Edges, Ends]:
    """Its matrix as edges, with one more node as the rest, which it has not."""
    A = reference["A"].double()
    target, source = A.nonzero().unbind(1)
    shares = A.abs() / A.abs().sum(1, keepdim=True).clamp(min=1e-10)
    n, n_features, n_logits = len(A), len(reference["features"]), len(reference["logits"])
    numbers = torch.arange(n + 1)
    start = torch.zeros(n + 1, dtype=torch.float64)
    start[n - n_logits : n] = reference["probabilities"].double()
    first_token = n - n_logits - N_POS
    ends = Ends(
        start,
        is_unit=numbers < n_features,
        is_token=(numbers >= first_token) & (numbers < n - n_logits),
        is_error=(numbers >= n_features) & (numbers < first_token),
        rest=n,
    )
    return Edges(target, source, A[target, source], shares[target, source]), ends


@pytest.mark.parametrize("reference", GRAPHS.values(), ids=GRAPHS)
def test_influence_and_scores_are_computed_alike(reference):
    edges, ends = edges_of_circuit_tracer(reference)
    assert_close(influence(edges, ends.start)[:-1], reference["influence"].double(), 1e-6)
    replaced, complete = reference["scores"].tolist()
    assert replacement_score(edges, ends) == pytest.approx(replaced, abs=1e-6)
    # circuit-tracer counts rows without entries, such as those of tokens, as complete.
    total = influence(edges, ends.start) + ends.start
    reads = torch.zeros_like(total).index_fill(0, edges.target, 1.0)
    of_readers = completeness(edges, ends) * float((total * reads).sum())
    of_others = float((total * (1 - reads)).sum())
    assert (of_readers + of_others) / float(total.sum()) == pytest.approx(complete, abs=1e-6)
