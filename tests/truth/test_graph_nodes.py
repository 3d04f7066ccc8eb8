"""Attribution graphs of heads and neurons against known circuits: what acts on values, exactly.

Patterns are fixed in a graph, so a part that acts by queries and keys alone is no node of it. Which
these are is measured here: without them, with patterns kept, no logit of the answer changes.
"""

import pytest
import torch

import interp
from analyses import attribution_graph
from interp import Point, Transformer, edits, run
from interp.loading import MODEL_FOLDER
from interp.zoo.card import read_card

KNOWN = [name for name in interp.bundled() if read_card(MODEL_FOLDER / name).circuit is not None]
BY_PATTERNS = {
    "induction-by-hand": {"L0H0"},
    "rasp-reverse": {"L0H0", "L0MLP", "L1MLP"},
}
"""The previous-token head moves keys; the last head looks for tokens by the length of the row."""
LEAST = 1e-9
"""The least influence of a node, and the least change of a logit."""


def loaded(name: str) -> tuple[Transformer, str]:
    """The model in float64, and a prompt."""
    by_hand = name == "induction-by-hand"
    text = "abcab" if by_hand else interp.read_prompts(name)[0].text
    return interp.load(name).double(), text


def change_without(model: Transformer, text: str, part: str, *, keeps_patterns: bool) -> float:
    """The largest change of a last logit if a head or an MLP, ``L0H1`` or ``L0MLP``, is zeroed."""
    plain = run(model, text, record="all")
    layer, _, head = part[1:].partition("H")
    zero = (
        edits.zero("z", layer=int(layer), head=int(head))
        if head
        else edits.zero("post", layer=int(part[1:].removesuffix("MLP")))
    )
    patterns = [
        edits.patch(plain.cache, place) for place in plain.cache if place.point is Point.PATTERN
    ]
    logits = run(model, text, edits=[zero, *(patterns if keeps_patterns else [])]).logits
    return float((logits - plain.logits)[0, -1].abs().max())


@pytest.mark.parametrize("name", KNOWN)
@torch.no_grad()
def test_the_nodes_are_the_parts_of_the_circuit_that_act_on_values(name):
    model, text = loaded(name)
    circuit = interp.card(name).circuit
    parts = {*map(str, circuit.heads), *map(str, circuit.mlps)}
    settings = {"max_nodes": 10**6, "node_share": 1.0, "edge_share": 1.0, "check": 0}
    graph = attribution_graph(model, text, units=("heads", "neurons"), **settings)
    nodes = {
        node.name.partition("@")[0] if node.kind == "head" else f"L{node.layer}MLP"
        for node in graph.nodes
        if node.kind in ("head", "neuron") and node.influence > LEAST
    }
    by_patterns = BY_PATTERNS.get(name, set())
    assert nodes == parts - by_patterns
    assert graph.replacement_score[0] == pytest.approx(1.0, abs=LEAST)
    for part in parts:
        fixed, free = (change_without(model, text, part, keeps_patterns=x) for x in (True, False))
        assert (fixed <= LEAST) == (part in by_patterns)
        assert free > LEAST
