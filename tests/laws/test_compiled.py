"""``torch.compile`` does not change the numbers, and compiles all layers into one graph.

Only the check of the tokens is outside of that graph. Converse: code that can't be traced, in the
middle of the layers, breaks the graph.

The tests check shapes at run time, which can't be compiled, so this runs in another process.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from architectures import ARCHITECTURES, build_new, tokens_of
from torch.fx import GraphModule

NAMES = ["gpt2", "llama", "bloom", "bert", "t5"]
pytestmark = pytest.mark.slow


class Graphs:
    """A backend that counts the fused attentions in each graph, and runs it unchanged."""

    def __init__(self) -> None:
        self.attentions: list[int] = []

    def __call__(self, graph: GraphModule, _inputs: list[torch.Tensor]) -> GraphModule:
        if count := str(graph.code).count("scaled_dot_product_attention("):
            self.attentions.append(count)
        return graph


@pytest.fixture(scope="module")
def compiled() -> dict[str, Any]:
    """What was found for some architectures, all in one process, and for one with a break."""
    path = Path(__file__)
    folders = [str(path.parents[1]), str(path.parents[2])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(folders)}
    words = [sys.executable, str(path), *NAMES]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_every_layer_is_in_one_graph(compiled):
    for name in compiled.keys() - {"broken"}:
        stacks = ARCHITECTURES[name].stacks.values()
        # A decoder that reads an encoder attends twice a layer.
        layers = sum(stack.n_layers * (1 + index) for index, stack in enumerate(stacks))
        assert compiled[name]["attentions"] == [layers], name


def test_the_numbers_stay(compiled):
    assert {
        name: measurement["error"]
        for name, measurement in compiled.items()
        if measurement["error"] > 1e-12
    } == {}


def test_what_cannot_be_traced_breaks_the_graph(compiled):
    assert compiled["broken"]["attentions"] != compiled[NAMES[0]]["attentions"]


def measured(model: Any) -> dict[str, Any]:
    graphs, tokens = Graphs(), tokens_of(model.config)
    torch.compiler.reset()
    with torch.inference_mode():
        logits = torch.compile(model, backend=graphs)(*tokens)
        error = (logits - model(*tokens)).abs().max()
    return {"attentions": graphs.attentions, "error": float(error)}


def main(names: list[str]) -> None:
    measurements = {name: measured(build_new(name)) for name in names}
    broken = build_new(names[0])
    forward = broken.blocks[1].forward

    def breaking(*inputs: Any) -> torch.Tensor:
        torch._dynamo.graph_break()
        return forward(*inputs)

    broken.blocks[1].forward = breaking
    sys.stdout.write(json.dumps(measurements | {"broken": measured(broken)}))


if __name__ == "__main__":
    main(sys.argv[1:])
