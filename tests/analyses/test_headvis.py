"""The files of HeadVis: what they hold is of the scan, and they are read as one."""

import json
import re
import shutil

import pytest
import torch
from architectures import assert_close, build, tokens_of

import interp
from analyses import scan_heads
from analyses.scan_heads import HeadScan
from interp.errors import InvalidInput

CODE = [prompt.text for prompt in interp.read_prompts("repeated")][:30]


@pytest.fixture(scope="module")
def scan():
    return scan_heads(interp.load("python-2l"), CODE, effects=True)


@pytest.fixture(scope="module")
def folder(scan, tmp_path_factory):
    path = tmp_path_factory.mktemp("headvis") / "files"
    scan.to_headvis(path, "repeated")
    return path


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_folder_has_the_files_and_names_of_headvis(scan, folder):
    config = read(folder / "config.json")
    assert config["heads"] == [[layer, head] for layer in range(2) for head in range(8)]
    assert config["n_intervals"] == 5
    assert {"self_attention_score", "prev_token_score", "pattern_entropy", "qk_distance"} < {
        *config["metrics"]
    }
    settings = {**config, **config["pipeline_config"]}
    required = ("model_name", "dataset_name", "n_sequences", "seq_len", "dtype")
    assert all(settings[name] for name in (*required, "attn_implementation"))
    for name in ("server_config.json", "attributions/manifest.json"):
        assert read(folder / name) == {}
    rows = read(folder / "scatter_data.json")
    for unit, row in enumerate(rows):
        assert abs(row["prev_token_score"] - float(scan.of("previous")[unit])) <= 5e-5
        assert abs(row["ablation_effect"] - float(scan.of("effect")[unit])) <= 5e-5
        assert set(row) == {"layer", "head", *config["metrics"]}


def test_sequences_have_the_weights_of_the_scan_and_lie_in_fifths_of_their_largest(scan, folder):
    chosen = scan.sequences
    row_of = {int(number): row for row, number in enumerate(chosen.text)}
    for unit in (0, 11):
        sequences = read(folder / "heads" / f"{scan.names[unit]}.json")["sequences"]
        largest = {n: [] for n in range(1, 6)}
        for sequence in sequences:
            query, key, weight = chosen.cells(unit, row_of[sequence["sequence_id"]])
            n = sequence["seq_len"]
            assert n == len(sequence["tokens"])
            pattern = torch.zeros(n, n)
            pattern[query.long(), key.long()] = weight.float()
            stored = torch.zeros(n * n)
            stored[sequence["attention_indices"]] = torch.tensor(sequence["attention_values"])
            assert_close(stored.view(n, n), pattern, 1e-4)
            assert abs(sequence["max_activation"] - float(pattern[1:, 1:].max())) <= 1e-4
            largest[sequence["interval"]].append(sequence["max_activation"])
        assert [len(largest[n]) for n in range(1, 6)] == [3, 3, 3, 3, min(10, len(row_of) // 5 + 1)]
        assert all(max(largest[n]) <= min(largest[n + 1]) for n in range(1, 5))
        assert min(largest[1]) < max(largest[5])


def test_distances_are_those_of_the_scan_in_wider_bins(scan, folder):
    histogram = read(folder / "heads" / "L0H5.json")["qk_distance_histogram"]
    frame = scan.to_distance_frame()
    frame = frame[frame["name"] == "L0H5"]
    edges = histogram["bin_edges"]
    for low, high, value in zip(edges, edges[1:], histogram["bin_values"], strict=False):
        expected = frame[frame["offset"].between(low, high - 1)]["share"].sum()
        assert abs(value - expected) <= 1e-3
    assert max(histogram["bin_values"][1:]) > 0.5


def test_what_was_written_is_read(scan, folder, tmp_path):
    again = HeadScan.from_headvis(folder)
    assert again.names == scan.names
    for statistic in scan.statistics:
        assert_close(again.of(statistic).nan_to_num(-9), scan.of(statistic).nan_to_num(-9), 1e-4)
    frame = again.to_sequence_frame()
    assert set(frame["statistic"]) == {"activation"}
    assert sorted(set(frame["decile"])) == [2, 4, 6, 8, 10]
    assert set(again.to_token_frame()["kind"]) == {"query", "key"}
    top = scan.to_token_frame().query("kind == 'key'").groupby("name")["key_token"].first()
    assert (
        again.to_token_frame().query("kind == 'key'").groupby("name")["key_token"].first() == top
    ).all()
    assert "no controls" in again.summary()
    again.scatter_figure("self", "previous")
    again.to_headvis(tmp_path / "again", "repeated")
    for name in ("heads/L1H2.json", "scatter_data.json"):
        first, second = (read(path / name) for path in (folder, tmp_path / "again"))
        if name.startswith("heads"):
            first, second = ({s["sequence_id"] for s in x["sequences"]} for x in (first, second))
            assert second <= first
            assert len(second) > len(first) // 2
        else:
            assert [{**row, "activation": 0} for row in first] == [
                {**row, "activation": 0} for row in second
            ]


def test_a_tree_with_the_fields_of_other_programs_alone_is_read(tmp_path):
    """Written by hand as the pipeline of Neuronpedia writes it: six metrics, decoded tokens."""
    (tmp_path / "heads").mkdir()
    metrics = ["self_attention_score", "prev_token_score"]
    config = {"metrics": metrics, "n_intervals": 5, "model_name": "m", "n_sequences": 7}
    (tmp_path / "config.json").write_text(json.dumps(config))
    rows = [{"layer": 3, "head": h, metrics[0]: 0.25 * h, metrics[1]: None} for h in range(2)]
    (tmp_path / "scatter_data.json").write_text(json.dumps(rows))
    sequence = {
        "sequence_id": 41,
        "interval": 5,
        "tokens": ["The", " cat\n", " sat"],
        "attention_indices": [3, 7, 8],
        "attention_values": [1.0, 0.75, 0.25],
        "seq_len": 3,
        "max_activation": 0.75,
    }
    head = {
        "sequences": [sequence],
        "qk_distance_histogram": {"bin_edges": [0, 1, 2], "bin_values": [1.0, 3.0]},
        "top_query_tokens": [{"token": " sat", "weight": 2.0}],
        "top_key_tokens": [],
        "histogram": {"bin_edges": [0.0, 1.0], "bin_values": [7]},
        "statistics": {"n_samples": 1, "mean_max_activation": 0.5},
    }
    for h in range(2):
        (tmp_path / "heads" / f"L3H{h}.json").write_text(json.dumps(head))
    scan = HeadScan.from_headvis(tmp_path)
    assert scan.names == ("L3H0", "L3H1")
    assert scan.of("self").tolist() == [0.0, 0.25]
    assert scan.of("previous").isnan().all()
    assert scan.n[0, 0].tolist() == [7, 0, 7]
    query, key, weight = scan.sequences.cells(1, 0)
    assert (query.tolist(), key.tolist()) == ([1, 2, 2], [0, 1, 2])
    assert weight.tolist() == [1.0, 0.75, 0.25]
    assert scan.sequences.query_labels[""] == (("The", "·cat↵", "·sat"),)
    assert scan.to_distance_frame()["share"].tolist() == [0.25, 0.75] * 2
    assert scan.to_token_frame()["query_token"].tolist() == ["·sat"] * 2


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: (path / "config.json").unlink(), "config.json can't be read"),
        (lambda path: (path / "config.json").write_text("{}"), "another version of them: KeyError"),
        (lambda path: (path / "scatter_data.json").write_text("{}"), "expected a JSON list"),
        (lambda path: (path / "scatter_data.json").write_text("[]"), "one row for each head"),
        (lambda path: (path / "heads" / "L1H0.json").unlink(), "L1H0.json can't be read"),
        (lambda path: (path / "heads" / "L1H0.json").write_text('{"sequences": 3'), "L1H0.json"),
    ],
)
def test_a_damaged_folder_is_refused(folder, tmp_path, damage, message):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    damage(copy)
    with pytest.raises(InvalidInput, match=re.escape(message)):
        HeadScan.from_headvis(copy)


def test_weights_outside_of_the_tokens_are_refused(folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    path = copy / "heads" / "L0H0.json"
    head = read(path)
    head["sequences"][0]["attention_indices"][0] = 10**6
    path.write_text(json.dumps(head))
    with pytest.raises(InvalidInput, match="weights outside of its tokens"):
        HeadScan.from_headvis(copy)


def test_an_encoder_decoder_and_a_folder_of_other_files_are_refused(scan, tmp_path):
    with pytest.raises(InvalidInput, match="one attention per layer"):
        scan_heads(build("t5"), tokens_of("t5")).to_headvis(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine.txt").write_text("mine")
    with pytest.raises(InvalidInput, match=re.escape("mine.txt")):
        scan.to_headvis(tmp_path / "b")
    assert (tmp_path / "b" / "mine.txt").read_text() == "mine"


def test_a_scan_that_was_cancelled_is_written_without_sequences(tmp_path):
    partial = scan_heads(interp.load("python-2l"), CODE, rows=4, cancelled=lambda: True)
    partial.to_headvis(tmp_path / "files")
    assert read(tmp_path / "files" / "heads" / "L0H0.json")["sequences"] == []
    assert not len(HeadScan.from_headvis(tmp_path / "files").to_sequence_frame())
