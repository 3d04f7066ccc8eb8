"""``interp graph``: what it prints and writes, and what it refuses."""

import json

import pandas as pd

from analyses import NeuronpediaGraph

TEXT = "def f(self, name):\n    self.name ="


def test_a_graph_of_features_is_written_as_a_viewer_reads_it(command, tmp_path):
    names = [f"python-4l/mlp-{layer}" for layer in range(4)]
    words = [word for name in names for word in ("--dictionary", name)]
    few = ["--max-nodes", "30", "--check", "2", "--target", " name", "--group", "sources"]
    done = command("graph", TEXT, "--model", "python-4l", *words, *few, "--out", tmp_path / "g")
    assert done.exit_code == 0, done.output
    assert "NOT RELIABLE" in done.stdout
    data = json.loads((tmp_path / "g" / "neuronpedia.json").read_text())
    read = NeuronpediaGraph.from_json(data)
    assert data["qParams"]["supernodes"]
    for name, *members in data["qParams"]["supernodes"]:
        assert len(members) > 1
        assert f"{name}: " in done.stdout
    assert (read.slug, read.scan, read.prompt) == ("g", "python-4l", TEXT)
    nodes = pd.read_csv(tmp_path / "g" / "nodes.csv")
    assert len(nodes) == len(read.nodes)
    assert {"feature", "error"} <= set(nodes["kind"])
    assert len(pd.read_csv(tmp_path / "g" / "edges.csv")) == len(read.links)
    assert "attribution graph" in (tmp_path / "g" / "report.html").read_text().lower()


def test_neurons_are_traced_without_a_dictionary_and_nothing_is_written(command, tmp_path):
    done = command("graph", "abcab", "--model", "induction-by-hand")
    assert done.exit_code == 0, done.output
    assert "graph of c (100 %)" in done.stdout
    wrong = {
        ("--dictionary", tmp_path): "should be the folder of one dictionary",
        ("--target", "two tokens"): "token",
        ("--units", "features"): "takes a model with transcoders",
        ("--max-nodes", "-1"): "max-nodes",
    }
    for words, message in wrong.items():
        done = command("graph", "abcab", "--model", "induction-by-hand", *words)
        assert (done.exit_code in (2, 3), message in done.stderr) == (True, True), done.output
