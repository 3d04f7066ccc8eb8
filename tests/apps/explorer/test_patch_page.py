"""The page Patch: the pair, the preview beside exact patching, and the circuit."""

from dataclasses import replace

import numpy as np
import pytest
from answered import answers, loaded, numbers, opened, views_by_id

from analyses import attribute_edges, attribute_nodes, patch_activations, prune
from apps.explorer import page
from apps.explorer.default_views import examples
from apps.explorer.pages import measured
from apps.explorer.pages.patch import PATCH
from apps.explorer.view import Head
from interp.metrics import logit_diff

NAME = "python-2l"


def pair(view):
    metric = logit_diff(*map(loaded(view.model).to_single_token, (view.target, view.distractor)))
    return view.text, view.corrupt, metric


def test_the_pair_is_aligned_token_by_token():
    view = opened(PATCH, NAME)
    strips = views_by_id(PATCH, view, {})["strips"]
    model = loaded(NAME)
    assert strips["tokens"] == model.to_labels(model.to_tokens(view.text)[0])
    assert strips["aligned"] == model.to_labels(model.to_tokens(view.corrupt)[0])
    assert len(strips["tokens"]) == len(strips["aligned"]) == len(strips["ids"])
    assert PATCH.on_pick(view, {"view": "strips", "pick": "position", "row": 9}).position == 9


@pytest.mark.parametrize("direction", ["denoise", "noise"])
def test_exact_patching_by_position(direction):
    view = opened(PATCH, NAME, direction=direction)
    results, errors = answers(PATCH, view)
    assert errors == {}
    exact = views_by_id(PATCH, view, results)["patching"]
    clean, corrupt, metric = pair(view)
    result = patch_activations(loaded(NAME), clean, corrupt, metric=metric, direction=direction)
    frame = result.to_frame().set_index(["layer", "pos"])["effect"]
    for (layer, pos), effect in frame.items():
        assert numbers(exact["values"])[layer, pos] == pytest.approx(effect, rel=1e-6)
    verb = {"denoise": "restores", "noise": "removes"}[direction]
    assert f"resid_pre of each layer and position {verb}" in exact["title"]
    assert "all cells of resid_pre together +1.00" in exact["note"]
    chosen = PATCH.on_pick(view, {"view": "patching", "pick": "cell", "row": 1, "column": 9})
    assert chosen.position == 9
    # A chosen position is one that is patched; the answer is still read where the model gives it.
    assert PATCH.asks(chosen, loaded(NAME)) == PATCH.asks(view, loaded(NAME))


@pytest.mark.parametrize("at", ["z", "pattern"])
def test_exact_patching_by_head(at):
    view = opened(PATCH, NAME, at=at)
    results, _ = answers(PATCH, view)
    exact = views_by_id(PATCH, view, results)["patching"]
    clean, corrupt, metric = pair(view)
    settings = {"metric": metric, "at": at, "over": ("layer", "head")}
    frame = patch_activations(loaded(NAME), clean, corrupt, **settings).to_frame()
    for layer, head, effect in zip(frame["layer"], frame["head"], frame["effect"], strict=True):
        assert numbers(exact["values"])[layer, head] == pytest.approx(effect, rel=1e-6)
    assert exact["pick"] == "head"
    pick = {"view": "patching", "pick": "head", "row": 1, "column": 5}
    assert PATCH.on_pick(view, pick).head == Head(1, 5)


@pytest.mark.parametrize("direction", ["denoise", "noise"])
def test_positions_have_the_same_labels_in_all_views(direction):
    """The token of the clean prompt first, then that of the corrupted one."""
    view = opened(PATCH, NAME, direction=direction)
    views = views_by_id(PATCH, view, answers(PATCH, view)[0])
    assert views["preview"]["columns"] == views["patching"]["columns"]
    pairs = zip(views["strips"]["tokens"], views["strips"]["aligned"], strict=True)
    labels = [f"{a}/{b}" for a, b in pairs if a != b]
    assert labels
    assert all(any(label in column for column in views["preview"]["columns"]) for label in labels)


def test_the_preview_estimates_what_exact_patching_measures():
    view = opened(PATCH, NAME, at="z")
    results, _ = answers(PATCH, view)
    preview = views_by_id(PATCH, view, results)["preview"]
    clean, corrupt, metric = pair(view)
    settings = {"metric": metric, "method": "atp", "positions": True, "check": 16}
    result = attribute_nodes(loaded(NAME), corrupt, clean, **settings)
    assert result.by_position is not None
    assert preview["rows"] == [name for name in result.names if "." not in name]
    rows = [result.names.index(name) for name in preview["rows"]]
    np.testing.assert_allclose(
        numbers(preview["values"]), result.by_position[rows, 0], rtol=1e-6, atol=1e-12
    )
    assert f"16 nodes: {result.agreement}" in preview["note"]
    pick = {
        "view": "preview",
        "pick": "cell",
        "row": 8,
        "column": 9,
        "name": "node L1H0.v, position 9 ·th",
    }
    chosen = PATCH.on_pick(view, pick)
    assert (chosen.head, chosen.component, chosen.position) == (Head(1, 0), "L1H0", 9)
    shared = PATCH.on_pick(view, pick | {"name": "node L1KV0.v, position 9 ·th"})
    assert (shared.head, shared.component, shared.position) == (view.head, "", 9)


@pytest.mark.parametrize("at", ["resid_pre", "z"])
def test_estimates_stand_where_no_cell_is_measured_yet(at):
    """First all are estimated, then the largest are measured, then all."""
    view = opened(PATCH, NAME, at=at)
    clean, corrupt, metric = pair(view)
    over = ("layer", "head" if at == "z" else "pos")
    settings = {"metric": metric, "at": at, "over": over}
    estimated, few, whole = (
        patch_activations(loaded(NAME), clean, corrupt, **settings, **more)
        for more in ({"estimate": True}, {"largest": 5}, {})
    )
    first, second, last = (
        views_by_id(PATCH, view, results)["patching"]
        for results in (
            {"estimates": estimated},
            {"estimates": estimated, "largest effects": few},
            {"estimates": estimated, "largest effects": few, "patching": whole},
        )
    )
    assert numbers(first["estimated"]).all()
    assert "Hatched: estimated to first order, not measured yet" in first["note"]
    assert "control" not in first["note"], "no control was measured"
    np.testing.assert_allclose(numbers(first["values"]), estimated.mean_effect[0], rtol=1e-6)
    is_measured = numbers(second["estimated"]) == 0
    assert is_measured.sum() == 5
    assert np.array_equal(
        numbers(second["values"])[is_measured], numbers(last["values"])[is_measured]
    )
    assert "estimates of 5 cells against their measured effects".capitalize() in second["note"]
    assert f"5 of {is_measured.size} cells so far" in second["note"]
    np.testing.assert_allclose(numbers(last["values"]), whole.mean_effect[0], rtol=1e-6)
    assert "estimated" not in last
    assert "hatched" not in last["note"].lower()


def test_of_many_heads_cells_are_estimated_then_the_largest_measured(monkeypatch):
    """Each step is asked once the one before it is answered; of few heads, all at once."""
    names = ["estimates", "largest effects", "patching"]
    view = opened(PATCH, NAME)
    asked = [ask.name for ask in PATCH.asks(view, loaded(NAME))]
    assert asked[0] == "patching"
    monkeypatch.setattr(measured, "FEW", 1)
    steps = [ask for ask in PATCH.asks(view, loaded(NAME)) if ask.name in names]
    assert [ask.name for ask in steps] == names
    assert [len(ask.after) for ask in steps] == [0, 1, 2]
    assert steps[2].after == (steps[0].question, steps[1].question)
    monkeypatch.setattr(page, "model_of", loaded)
    due = {ask.name for ask in page.asks_of(PATCH, view)} & {*names}
    assert due == {"estimates"}
    page.JOBS.store.put(steps[0].question, steps[0].question.run(loaded(NAME)))
    due = {ask.name for ask in page.asks_of(PATCH, view)} & {*names}
    assert due == {"estimates", "largest effects"}


def test_edges_are_estimated_until_circuits_have_run():
    view = opened(PATCH, NAME, edges=13, asked=("circuit",))
    results, _ = answers(PATCH, view)
    estimates, scores = results["edge estimates"], results["edge scores"]
    first = views_by_id(PATCH, view, {"edge estimates": estimates})["circuit"]
    second = views_by_id(PATCH, view, {"edge estimates": estimates, "edge scores": scores})[
        "circuit"
    ]
    assert first["estimated"] is second["estimated"] is True
    assert "against" not in first["note"]
    assert "Estimates of 16 edges against their measured effects: r = " in second["note"]
    strongest = sorted(scores.scores.items(), key=lambda item: -abs(item[1]))[:13]
    drawn = sum(abs(weight) for *_, weight in second["edges"])
    assert 0 < drawn <= sum(abs(score) for _, score in strongest) + 1e-9
    assert "13 strongest of 257 edges" in second["title"]
    assert "estimated" not in views_by_id(PATCH, view, results)["circuit"]


def test_cells_that_are_not_measured_yet_are_missing():
    view = opened(PATCH, NAME)
    exact = next(ask for ask in PATCH.asks(view, loaded(NAME)) if ask.name == "patching")
    calls = iter([False, False])
    part = exact.question.run(loaded(NAME), cancelled=lambda: next(calls, True))
    values = numbers(views_by_id(PATCH, view, {"patching": part})["patching"]["values"])
    assert 0 < np.isnan(values).sum() < values.size


def test_the_circuit_is_drawn_on_request_with_the_number_of_edges_it_hides():
    view = opened(PATCH, NAME, edges=13)
    assert "circuit" not in answers(PATCH, view)[0]
    view = replace(view, asked=("circuit",))
    results, _ = answers(PATCH, view)
    views = views_by_id(PATCH, view, results)
    clean, corrupt, metric = pair(view)
    scores = attribute_edges(loaded(NAME), clean, corrupt, metric=metric, check=0).scores
    result = prune(scores, loaded(NAME), clean, corrupt, metric=metric)
    circuit = views["circuit"]
    names = [node["name"] for node in circuit["nodes"]]
    drawn = {(names[writer], names[reader]): weight for writer, reader, weight in circuit["edges"]}
    expected: dict[tuple[str, str], float] = {}
    for (writer, reader), score in zip(result.circuit(13), result.score, strict=False):
        ends = writer, reader.partition(".")[0]
        expected[ends] = expected.get(ends, 0) + score
    assert drawn == pytest.approx(expected)
    assert f"The 13 highest-ranked of {len(result.edges)} edges, 244 hidden" in circuit["title"]
    faithfulness = result.faithfulness[result.counts.index(13)]
    assert f"13 edges keep {faithfulness:.0%}" in circuit["note"]
    assert any(
        drawn["pick"] == "x" for name, drawn in views.items() if name.startswith("faithfulness")
    )


@pytest.mark.parametrize(
    ("name", "component"),
    [("embed → L0H0", "L0H0"), ("L0H0 → L1H0", "L0H0"), ("L1H5", "L1H5"), ("embed", "embed")],
)
def test_a_click_in_the_circuit_chooses_a_head_and_shows_what_it_promotes(name, component):
    view = opened(PATCH, NAME, asked=("circuit",))
    view = PATCH.on_pick(view, {"view": "circuit", "pick": "edge", "name": name})
    assert view.component == component
    asked = {ask.name for ask in PATCH.asks(view, loaded(NAME))}
    assert ("promoted" in asked) == (component != "embed")
    assert PATCH.on_pick(view, {"view": "faithfulness", "pick": "x", "x": 51.0}).edges == 51


def test_a_pair_of_unequal_length_is_shown_with_its_alignment():
    view = opened(PATCH, NAME, corrupt=" an al de")
    results, errors = answers(PATCH, view)
    assert results == {}
    assert "each token needs its counterpart" in errors["pair"]
    assert "corrupt" in errors["pair"]
    table = views_by_id(PATCH, view, results)["pairs"]
    assert len(table["rows"]) == len(examples(NAME)) == 36
    taken = PATCH.on_pick(view, {"view": "pairs", "pick": "row", "row": 3})
    assert taken.corrupt == examples(NAME)[3].corrupt
    assert set(views_by_id(PATCH, taken, {})) == {"strips"}


def test_a_model_without_pairs_explains_what_it_needs():
    view = opened(PATCH, "induction-by-hand")
    results, errors = answers(PATCH, view)
    assert list(errors) == ["pair"]
    assert "needs a corrupted prompt" in errors["pair"]
    assert "choose one below" in errors["pair"]
    assert {*views_by_id(PATCH, view, results)} == {"swaps"}
    without_words = replace(view, text="abcab")
    results, errors = answers(PATCH, without_words)
    assert "below" not in errors["pair"]
    assert views_by_id(PATCH, without_words, results) == {}


def test_what_cannot_be_asked_of_an_encoder_decoder_leaves_exact_patching():
    """Nothing that is patched in the encoder is a position of a prediction."""
    view = opened(PATCH, "dates", asked=("circuit",), attention="encoder")
    results, errors = answers(PATCH, view)
    assert set(errors) == {"preview", "edge estimates", "edge scores", "circuit"}
    views = views_by_id(PATCH, view, results)
    assert set(views) == {"strips", "patching"}
    differs = [
        n
        for n, token in enumerate(views["strips"]["tokens"])
        if token != views["strips"]["aligned"][n]
    ]
    values = numbers(views["patching"]["values"])
    assert int(np.abs(values[0]).argmax()) in differs
    pick = {"view": "patching", "pick": "cell", "row": 0, "column": 8}
    assert PATCH.on_pick(view, pick) == view


@pytest.mark.parametrize(
    "fields", [{"asked": ("circuit",), "component": "L1H0"}, {"prompts": "examples"}]
)
def test_its_python_code_gives_its_numbers(fields):
    view = opened(PATCH, "rasp-reverse", **fields)
    for ask in PATCH.asks(view, loaded(view.model)):
        names: dict[str, object] = {}
        exec(ask.question.code(), names)
        expected = ask.question.run(loaded(view.model)).to_frame()
        assert names["result"].to_frame().equals(expected)
