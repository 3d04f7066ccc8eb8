"""The views of scanned heads, against the numbers of the scan."""

import base64
from functools import cache

import numpy as np
import pytest
import torch
from architectures import assert_close

import interp
from analyses import HeadScan, scan_heads
from apps.widget.head_views import (
    distance_view,
    effects_view,
    scatter_axes,
    scatter_view,
    statistics_view,
    texts_view,
    token_view,
)
from interp.errors import InvalidInput

UNIT = 5


@cache
def scanned() -> HeadScan:
    texts = [prompt.text for prompt in interp.read_prompts("repeated")]
    return scan_heads(interp.load("python-2l"), texts, shuffled=1, effects=True)


def decoded(sent) -> torch.Tensor:
    data = np.frombuffer(base64.b64decode(sent["data"]), sent["dtype"]).copy()
    return torch.from_numpy(data).view(sent["shape"])


def cells_of(text) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    count, key, weight = (decoded(text[name]) for name in ("count", "key", "weight"))
    query = torch.repeat_interleave(torch.arange(len(count)), count.long())
    return query, key.long(), weight


def test_the_texts_have_the_cells_that_the_scan_stored():
    scan = scanned()
    view = texts_view(scan, UNIT)
    for text in view["texts"]:
        query, key, weight = scan.sequences.cells(UNIT, text["number"])
        assert [x.tolist() for x in cells_of(text)[:2]] == [query.tolist(), key.tolist()]
        assert_close(cells_of(text)[2], weight.float(), 0)
        assert text["tokens"] == [*scan.sequences.query_labels[""][text["number"]]]


def test_bytes_of_weights_are_within_half_a_step():
    scan = scanned()
    for text in texts_view(scan, UNIT, most=10**6)["texts"]:
        weight = scan.sequences.cells(UNIT, text["number"])[2].double()
        sent = cells_of(text)[2]
        assert sent.dtype == torch.uint8
        assert float((sent / 255 - weight).abs().max()) <= 1 / 510 + 1e-6


def test_the_deciles_are_those_of_the_scan():
    scan = scanned()
    view = texts_view(scan, UNIT)
    frame = scan.to_sequence_frame()
    for statistic in view["statistics"]:
        chosen = frame["statistic"].eq(statistic["name"]) & frame["name"].eq(scan.names[UNIT])
        expected = frame[chosen][["decile", "source", "value"]].to_numpy().tolist()
        rows = [[d, view["texts"][at]["source"], v] for d, at, v in statistic["rows"]]
        assert rows == expected
    with pytest.raises(InvalidInput, match="was not measured"):
        texts_view(scan, UNIT, "nothing")


def test_a_bounded_view_keeps_the_first_text_of_each_decile_longest():
    scan = scanned()
    sizes = [
        len(labels) + 2 * len(scan.sequences.cells(UNIT, text)[0])
        for text, labels in enumerate(scan.sequences.query_labels[""])
    ]
    whole = [text["number"] for text in texts_view(scan, UNIT, "previous")["texts"]]
    most = 3 * sum(sizes[text] for text in whole) // 4
    view = texts_view(scan, UNIT, "previous", most=most)
    assert 0 < len(view["texts"]) < len(whole)
    assert sum(sizes[text["number"]] for text in view["texts"]) <= most
    deciles = [decile for decile, _, _ in view["statistics"][0]["rows"]]
    assert {*deciles} == {10, 8, 6, 4, 2}
    assert "left out" in view["note"]


def test_ranks_and_intervals_are_those_of_the_scan():
    scan = scanned()
    assert scan.names[UNIT] == "L0H5"
    rows = {row[0].split(" (")[0]: row for row in statistics_view(scan, UNIT)["rows"]}
    previous = rows["previous"]
    at = scan.statistics.index("previous")
    assert previous[1] == pytest.approx(float(scan.mean[0, UNIT, at]))
    assert previous[3] == pytest.approx(float(scan.control[0, UNIT, at]))
    assert previous[4] == previous[8] == "1 of 16"
    for n, name in enumerate(scan.statistics):
        if name in rows:
            above = int((scan.mean[0, :, n] > scan.mean[0, UNIT, n]).sum())
            assert rows[name][4].startswith(f"{1 + above} of ")


def test_the_histogram_sums_to_one_and_a_previous_token_head_looks_one_token_back():
    view = distance_view(scanned(), UNIT)
    head, control = (decoded(curve["y"]) for curve in view["panels"][0]["curves"])
    x = decoded(view["panels"][0]["curves"][0]["x"])
    assert x[head.argmax()] == 1
    assert_close(head.sum(), torch.tensor(1.0), 1e-5)
    assert_close(control.sum(), torch.tensor(1.0), 1e-5)


def test_tokens_and_effects_are_those_of_the_frames():
    scan = scanned()
    frame = scan.to_token_frame()
    frame = frame[frame["name"] == scan.names[UNIT]]
    rows = token_view(scan, UNIT)["rows"]
    assert [row[3] for row in rows] == frame["share"].tolist()
    assert [row[1] for row in rows] == [
        x if isinstance(x, str) else None for x in frame["query_token"]
    ]
    effects = scan.to_effect_frame()
    effects = effects[effects["name"] == scan.names[UNIT]]
    assert [row[1] for row in effects_view(scan, UNIT)["rows"]] == effects["effect"].tolist()


def test_any_statistic_its_excess_and_the_effect_can_be_axes():
    scan = scanned()
    axes = scatter_axes(scan)
    assert {"previous", "previous − control", "effect"} <= {*axes}
    at = scan.statistics.index("previous")
    for weighting, n in (("attention", 0), ("value-weighted", 1)):
        view = scatter_view(scan, "previous − control", "effect", weighting=weighting)
        expected = (scan.mean - scan.control)[n, :, at]
        assert_close(decoded(view["x"]).double(), expected, 1e-6)
    assert view["units"] == ["0 to 1", "nats"]
    for axis in axes:
        assert len(scatter_view(scan, axis, "previous")["labels"]) > 0
