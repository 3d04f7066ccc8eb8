"""``interp graph``: what it prints and writes, and what it refuses."""

import json

import pandas as pd
import torch
from safetensors.torch import save_file

from analyses import NeuronpediaGraph
from interp import dictionaries

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


def test_a_graph_of_a_cross_layer_transcoder(command, tmp_path):
    """Its features are nodes, and write to the JSON of a viewer as such."""
    several = [dictionaries.load(f"python-4l/mlp-{layer}") for layer in range(4)]
    names = {"feature_input_hook": "mlp.hook_in", "feature_output_hook": "mlp.hook_out"}
    lines = {"model_kind": "cross_layer_transcoder", **names}
    for layer, each in enumerate(several):
        tensors = {"W_enc": each.w_enc.T, "b_enc": each.b_enc, "b_dec": each.b_dec}
        tensors["threshold"] = each.tensors()["activation.threshold"]
        named = {f"{name}_{layer}": x.contiguous() for name, x in tensors.items()}
        save_file(named, tmp_path / f"W_enc_{layer}.safetensors")
        decoders = torch.zeros(2048, 4 - layer, 256)
        decoders[:, 0] = each.w_dec
        save_file({f"W_dec_{layer}": decoders}, tmp_path / f"W_dec_{layer}.safetensors")
    text = "".join(f"{name}: {value}\n" for name, value in lines.items())
    (tmp_path / "config.yaml").write_text(text)
    words = ["--model", "python-4l", "--cross-layer", tmp_path, "--max-nodes", "20", "--check", "2"]
    done = command("graph", TEXT, *words, "--out", tmp_path / "g")
    assert done.exit_code == 0, done.output
    nodes = pd.read_csv(tmp_path / "g" / "nodes.csv")
    assert {"feature", "error"} <= set(nodes["kind"])
    done = command("graph", TEXT, *words, "--units", "neurons")
    assert (done.exit_code in (2, 3), "units of MLPs" in done.stderr) == (
        True,
        True,
    ), done.output
    done = command("graph", TEXT, *words[:2], "--cross-layer", tmp_path / "g")
    assert (done.exit_code in (2, 3), "config.yaml" in done.stderr) == (True, True), done.output


def test_heads_are_nodes_beside_mlps(command, tmp_path):
    words = ["--model", "python-4l", "--units", "heads", "--units", "mlps", "--check", "2"]
    done = command("graph", TEXT, *words, "--out", tmp_path / "g")
    assert done.exit_code == 0, done.output
    nodes = pd.read_csv(tmp_path / "g" / "nodes.csv")
    assert {"head", "mlp"} <= set(nodes["kind"])
    read = NeuronpediaGraph.from_json(json.loads((tmp_path / "g" / "neuronpedia.json").read_text()))
    assert [node.clerp.split()[0] for node in read.nodes if node.feature_type == "lorsa"]
    done = command("graph", TEXT, *words, "--units", "neurons")
    assert (done.exit_code in (2, 3), "heads with one" in done.stderr) == (True, True), done.output


def test_neurons_are_traced_without_a_dictionary_and_nothing_is_written(command, tmp_path):
    done = command("graph", "abcab", "--model", "induction-by-hand")
    assert done.exit_code == 0, done.output
    assert "graph of c (100 %)" in done.stdout
    assert "multiply-adds, about" in done.stdout.splitlines()[0]
    wrong = {
        ("--dictionary", tmp_path): "should be the folder of one dictionary",
        ("--target", "two tokens"): "token",
        ("--units", "features"): "takes a model with transcoders",
        ("--max-nodes", "-1"): "max-nodes",
    }
    for words, message in wrong.items():
        done = command("graph", "abcab", "--model", "induction-by-hand", *words)
        assert (done.exit_code in (2, 3), message in done.stderr) == (True, True), done.output
