"""The page Why: its numbers are those of the analyses, and a click leads upstream."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from answered import answers, loaded, numbers, opened, views_by_id
from architectures import build, tokens_of

from analyses import ablate, direct_logit_attribution, logit_lens, patch_paths, trace_paths
from analyses.results.number_text import number
from apps.explorer.pages import measured
from apps.explorer.pages.why import WHY
from apps.explorer.view import Head, View, from_address
from interp.metrics import logit_diff

NAME = "python-2l"


def test_contributions_stand_beside_the_effects_of_ablation():
    view = opened(WHY, NAME)
    results, errors = answers(WHY, view)
    bars = views_by_id(WHY, view, results)["components"]
    model = loaded(NAME)
    target, distractor = map(model.to_single_token, (view.target, view.distractor))
    direct = direct_logit_attribution(
        model, view.text, target=target, distractor=distractor, by="head"
    ).to_frame()
    effects = ablate(model, view.text, metric=logit_diff(target, distractor)).to_frame()
    effects = effects.set_index("name")["effect"]
    assert errors == {}
    assert bars["labels"] == direct["name"].tolist()
    np.testing.assert_allclose(numbers(bars["values"]), direct["effect"], rtol=1e-6)
    for mark, side in zip(bars["marks"], ("target", "distractor"), strict=True):
        assert mark["title"] == f"to the {side}"
        np.testing.assert_allclose(numbers(mark["values"]), direct[f"to_{side}"], rtol=1e-6)
    second = dict(zip(bars["labels"], numbers(bars["second"]["values"]), strict=True))
    assert {name for name, effect in second.items() if not np.isnan(effect)} == set(effects.index)
    for name, effect in effects.items():
        assert second[name] == pytest.approx(effect, rel=1e-6)
    assert (bars["scale"]["helps"], bars["second"]["helps"]) == ("above", "below")
    assert f"sum to {number(results['direct'].value.mean(), sign=True)} logits" in bars["note"]
    assert np.isnan(second["embed"])


@pytest.mark.slow
def test_estimated_ablations_are_marked_until_they_are_measured(monkeypatch):
    """Of heads and of MLPs; the agreement of estimates and measurements stands in the note."""
    monkeypatch.setattr(measured, "FEW", 1)
    monkeypatch.setattr(measured, "FIRST", 3)
    view = opened(WHY, "python-4l")
    results, errors = answers(WHY, view)
    assert errors == {}
    kinds = ("heads", "MLPs")
    first = {name: results[name] for name in ("direct", *(f"estimates of {k}" for k in kinds))}
    second = first | {
        f"largest effects of {kind}": results[f"largest effects of {kind}"] for kind in kinds
    }
    drawn = [views_by_id(WHY, view, each)["components"] for each in (first, second, results)]
    marks = [numbers(bars["second"]["estimated"]) for bars in drawn[:2]]
    effects = [numbers(bars["second"]["values"]) for bars in drawn]
    components = ~np.isnan(effects[0])
    assert np.array_equal(marks[0] == 1, components)
    assert 0 < (components & (marks[1] == 0)).sum() <= 6
    assert "estimated" not in drawn[2]["second"]
    assert "Hatched" in drawn[0]["note"]
    assert "Hatched" not in drawn[2]["note"]
    assert "Estimates of 3 heads against their measured effects" in drawn[1]["note"]
    assert "Estimates of 3 MLPs against their measured effects" in drawn[1]["note"]
    exact = dict(zip(drawn[2]["labels"], effects[2], strict=True))
    for name, effect, is_estimate in zip(drawn[1]["labels"], effects[1], marks[1], strict=True):
        if not (is_estimate or np.isnan(effect)) and name in exact:
            assert effect == exact[name]


def test_effects_that_are_not_measured_yet_are_missing():
    view = opened(WHY, NAME)
    (ablation,) = (ask for ask in WHY.asks(view, loaded(NAME)) if ask.name == "ablation of heads")
    cells = []
    part = ablation.question.run(
        loaded(NAME), lambda *at: cells.append(at), cancelled=lambda: bool(cells)
    )
    results = {"direct": answers(WHY, view)[0]["direct"], "ablation of heads": part}
    bars = views_by_id(WHY, view, results)["components"]
    second = dict(zip(bars["labels"], numbers(bars["second"]["values"]), strict=True))
    measured = dict(zip(part.cells["name"], part.effect[:, 0].tolist(), strict=True))
    assert 0 < np.isnan(list(measured.values())).sum() < len(measured)
    for name, effect in measured.items():
        assert second[name] == pytest.approx(effect, nan_ok=True, rel=1e-6)


@pytest.mark.slow
def test_the_trail_leads_from_an_induction_head_to_the_previous_token_head():
    """L1H0 finds its keys by what L0H5 writes, which attends to the token before."""
    view = opened(WHY, NAME)
    view = WHY.on_pick(view, {"view": "components", "pick": "row", "row": 0, "name": "L1H0"})
    assert (view.component, view.trail, view.head) == ("L1H0", ("L1H0",), Head(1, 0))
    results, _ = answers(WHY, view)
    views = views_by_id(WHY, view, results)
    upstream = views["upstream"]
    keys = numbers(upstream["values"])[:, upstream["columns"].index("key")]
    assert "L0H5" in [upstream["rows"][row] for row in np.abs(keys).argsort()[-2:]]
    exact = patch_paths(
        loaded(NAME),
        view.text,
        edges=[("L0H5", "L1H0.k")],
        method="mean",
        metric=logit_diff(*map(loaded(NAME).to_single_token, (view.target, view.distractor))),
    )
    assert keys[upstream["rows"].index("L0H5")] == pytest.approx(float(exact.effect), rel=1e-6)
    sources = numbers(views["sources"]["values"])
    assert views["sources"]["tokens"][int(sources.argmax())].endswith("th")
    term = dict(zip(results["direct"].parts, results["direct"].effect[:, 0].tolist(), strict=True))
    assert sources.sum() == pytest.approx(
        next(effect for part, effect in term.items() if part.name == "L1H0"), rel=1e-5
    )

    view = WHY.on_pick(
        view, {"view": "upstream", "pick": "cell", "name": "upstream L0H5, read as key"}
    )
    assert (view.component, view.trail, view.head) == ("L0H5", ("L1H0", "L0H5"), Head(0, 5))
    upstream = views_by_id(WHY, view, answers(WHY, view)[0])["upstream"]
    assert upstream["rows"] == ["embed"]
    view = WHY.on_pick(
        view, {"view": "upstream", "pick": "cell", "name": "upstream embed, read as key"}
    )
    assert "upstream" not in answers(WHY, view)[0]
    end = views_by_id(WHY, view, {})["upstream"]
    assert end["kind"] == "tokens"
    assert "embed reads no other component" in end["title"]
    assert from_address(view.to_address()) == (view, ())


def test_a_head_is_described_by_attention_both_sides_and_ablation():
    """With a label on a prompt set, and none on a single prompt or without a distractor."""
    view = opened(WHY, NAME, component="L1H0", prompts="examples")
    results, errors = answers(WHY, view)
    assert errors == {}
    table = views_by_id(WHY, view, results)["head"]
    assert table["title"].startswith("L1H0: moves the target")
    quantities = [row[0] for row in table["rows"]]
    assert quantities[0] == "attention on target"
    assert quantities[-4:] == ["to the target", "to the distractor", "difference", "ablation"]
    result = results["head"]
    assert result.cells["name"] == ("L1H0",)
    bars = views_by_id(WHY, view, results)["components"]
    place = bars["labels"].index("L1H0")
    assert numbers(bars["values"])[place] == pytest.approx(float(result.direct.mean()), rel=1e-5)
    assert numbers(bars["second"]["values"])[place] == pytest.approx(float(result.effect.mean()))
    single = opened(WHY, NAME, component="L1H0")
    title = views_by_id(WHY, single, answers(WHY, single)[0])["head"]["title"]
    assert "no label (no intervals with fewer than 5 prompts)" in title
    bare = replace(single, distractor="")
    assert "head" not in {ask.name for ask in WHY.asks(bare, loaded(NAME))}


def test_another_step_from_the_middle_of_a_trail_leaves_out_what_came_after():
    view = opened(WHY, NAME, component="L1H0", trail=("L1H0", "L0H5", "embed"))
    view = WHY.on_pick(
        view, {"view": "upstream", "pick": "cell", "name": "upstream L0H3, read as key"}
    )
    assert (view.component, view.trail) == ("L0H3", ("L1H0", "L0H3"))


@pytest.mark.slow
def test_resampling_reads_the_corrupted_prompt_and_needs_one():
    """What is much the same on both prompts, as what L0H5 writes, carries next to nothing."""
    view = opened(WHY, NAME, component="L1H0", method="resample")
    results, errors = answers(WHY, view)
    assert errors == {}
    upstream = views_by_id(WHY, view, results)["upstream"]
    assert np.abs(numbers(upstream["values"])[upstream["rows"].index("L0H5")]).max() < 0.1
    assert np.abs(numbers(upstream["values"])).max() > 1
    _, errors = answers(WHY, replace(view, corrupt=""))
    assert "corrupt" in errors["upstream"]
    assert set(errors) == {"ablation of heads", "upstream"}


def test_the_lens_shows_tokens_and_the_ranks_of_the_answers():
    view = opened(WHY, NAME)
    results, _ = answers(WHY, view)
    views = views_by_id(WHY, view, results)
    model = loaded(NAME)
    lens = logit_lens(model, view.text, targets=view.target, top=1)
    np.testing.assert_array_equal(numbers(views["lens"]["values"]), lens.probability[:, 0, :, 0])
    assert views["lens"]["texts"][-1][-1] == lens.token_labels[int(lens.top[-1, 0, -1, 0])] == "·th"
    probability, rank = (
        {curve["name"]: curve["y"] for curve in panel["curves"]}
        for panel in views["ranks"]["panels"]
    )
    assert rank["target"] == lens.rank[:, 0, -1].tolist()
    assert probability["target"] == lens.target_probability[:, 0, -1].tolist()
    assert rank["target"][-1] == 1 < rank["distractor"][-1]


def test_a_click_in_the_lens_asks_at_its_position():
    view = opened(WHY, NAME)
    view = WHY.on_pick(view, {"view": "lens", "pick": "cell", "row": 1, "column": 9})
    results, _ = answers(WHY, view)
    expected = direct_logit_attribution(
        loaded(NAME), view.text, target=view.target, distractor=view.distractor, pos=9
    )
    torch.testing.assert_close(results["direct"].value, expected.value, rtol=0, atol=0)
    assert "position 9" in views_by_id(WHY, view, results)["components"]["title"]
    assert "9 ·th" in views_by_id(WHY, view, results)["ranks"]["title"]


@pytest.mark.parametrize("position", [None, 9])
def test_without_a_target_the_most_probable_token_is_explained(position):
    view = opened(WHY, NAME, target="", distractor="", position=position)
    results, errors = answers(WHY, view)
    model = loaded(NAME)
    top = model(view.text)[0, -1 if position is None else position].argmax()
    expected = direct_logit_attribution(model, view.text, target=int(top), pos=position)
    assert errors == {}
    torch.testing.assert_close(results["direct"].value, expected.value, rtol=0, atol=0)
    assert f"Why {model.label(int(top))}?" in views_by_id(WHY, view, results)["components"]["title"]


@pytest.mark.slow
def test_the_lens_is_scrolled_to_the_position_that_is_asked_about():
    for position, column in ((None, -1), (9, 9)):
        view = opened(WHY, NAME, position=position)
        lens = views_by_id(WHY, view, answers(WHY, view)[0])["lens"]
        columns = range(len(lens["columns"]))
        assert lens["at"] == [len(lens["rows"]) - 1, columns[column]]


def test_a_position_that_the_prompt_lacks_is_an_error():
    view = opened(WHY, NAME, position=99)
    results, errors = answers(WHY, view)
    assert all("99" in text for text in errors.values())
    assert set(views_by_id(WHY, view, results)) == {"lens"}


@pytest.mark.parametrize("name", ["dates", "python-mlm"])
def test_what_cannot_be_asked_of_a_model_leaves_the_other_views(name):
    """Both normalize the stream itself; the logits of the second are no sum of contributions."""
    component = {"dates": "cross.L1H0", "python-mlm": "L1H0"}[name]
    view = opened(WHY, name, component=component)
    results, errors = answers(WHY, view)
    assert "no edges" in errors["upstream"]
    views = views_by_id(WHY, view, results)
    assert {"components", "lens", "ranks"} <= set(views)
    assert ("direct" in errors) == (name == "python-mlm")
    assert ("second" in views["components"]) == (name == "dates")
    assert ("sources" in views) == (name == "dates")


def test_over_a_prompt_set_the_means_are_shown():
    view = opened(WHY, "rasp-reverse", prompts="examples")
    results, _ = answers(WHY, view)
    bars = views_by_id(WHY, view, results)["components"]
    assert len(results["direct"].value) == 36
    assert "36 prompts" in bars["title"]
    frame = results["direct"].to_frame()
    np.testing.assert_allclose(numbers(bars["values"]), frame["effect"], rtol=1e-6)
    np.testing.assert_allclose(numbers(bars["low"]), frame["low"], rtol=1e-6)


@pytest.mark.parametrize("fields", [{"component": "L1H0"}, {"prompts": "examples", "position": 3}])
def test_its_python_code_gives_its_numbers(fields):
    view = opened(WHY, "induction-by-hand", **fields)
    model = loaded(view.model)
    for ask in WHY.asks(view, model):
        names: dict[str, object] = {}
        exec(ask.question.code(), names)
        expected = ask.question.run(model).to_frame()
        assert names["result"].to_frame().equals(expected)


def test_a_head_of_cross_attention_reads_two_stacks():
    """Its query reads the decoder, its key and value the encoder."""
    model = build("t5")
    source, target = tokens_of("t5")
    results = {"upstream": patch_paths(model, (source, target), into="cross.L0H1", method="mean")}
    view = View(model="t5", component="cross.L0H1")
    (upstream,) = WHY.views(view, model, results)
    assert upstream["columns"] == ["query", "key", "value"]
    values = numbers(upstream["values"])
    of_encoder = np.array([name.startswith("encoder.") for name in upstream["rows"]])
    assert of_encoder.any()
    assert not of_encoder.all()
    np.testing.assert_array_equal(np.isnan(values[:, 0]), of_encoder)
    np.testing.assert_array_equal(np.isnan(values[:, 1:]), ~of_encoder[:, None].repeat(2, 1))


def test_of_many_components_the_largest_are_shown_and_the_rest_summed():
    view = opened(WHY, "python-4l")
    results, _ = answers(WHY, view)
    bars = views_by_id(WHY, view, results)["components"]
    direct = results["direct"]
    terms = dict(zip(map(str, direct.parts), direct.effect[:, 0].tolist(), strict=True))
    assert 0 < len(bars["labels"]) < len(terms)
    hidden = [name for name in terms if name not in bars["labels"]]
    rest = sum(terms[name] for name in hidden)
    smaller = f"{len(hidden)} smaller contributions are not shown; they sum to "
    assert f"{smaller}{number(rest, 2, sign=True)}" in bars["note"]
    sizes = {name: abs(effect) for name, effect in terms.items()}
    for name in ("ablation of heads", "ablation of MLPs"):
        for row in results[name].to_frame().itertuples():
            sizes[row.name] = max(sizes[row.name], abs(row.effect))
    assert min(sizes[name] for name in bars["labels"]) >= max(sizes[name] for name in hidden)


# ---- paths -------------------------------------------------------------------------------------


def pick_of(views, name):
    """The click on a node or an edge of the graph."""
    nodes = [node["name"] for node in views["paths"]["nodes"]]
    kind = {"pick": "node", "row": nodes.index(name)} if name in nodes else {"pick": "edge"}
    return {"view": "paths", "name": name, "row": 0, **kind}


def test_the_graph_of_paths_is_that_of_the_analysis():
    view = opened(WHY, "induction-by-hand")
    results, errors = answers(WHY, view)
    assert errors == {}
    paths = views_by_id(WHY, view, results)["paths"]
    model = loaded("induction-by-hand")
    expected = trace_paths(model, view.text, target=view.target, distractor=view.distractor)
    edges = {(edge[0], edge[1]) for edge in paths["edges"]}
    assert len(paths["edges"]) == len(expected.edges) >= len(edges) > 3
    np.testing.assert_allclose(
        sorted(weight for _, _, weight, *_ in paths["edges"]), sorted(expected.effect.tolist())
    )
    assert paths["nodes"][paths["root"]]["name"].startswith("logits@")
    assert expected.to_path_frame()["name"][0] in paths["note"]


def test_a_click_on_an_edge_selects_head_query_and_key_and_shows_the_pattern():
    view = opened(WHY, "induction-by-hand")
    frame = answers(WHY, view)[0]["paths"].to_frame()
    row = frame[(frame["part"] == "v") & frame["reader"].str.startswith("L1H0")].iloc[0]
    views = views_by_id(WHY, view, answers(WHY, view)[0])
    view = WHY.on_pick(view, pick_of(views, row["name"]))
    query = int(row["reader"].partition("@")[2])
    assert (view.head, view.query, view.key) == (Head(1, 0), query, row["pos"])
    assert from_address(view.to_address()) == (view, ())
    results, errors = answers(WHY, view)
    assert errors == {}
    views = views_by_id(WHY, view, results)
    pattern = numbers(views["path_pattern"]["values"])
    assert pattern[view.query].argmax() == view.key
    assert views["path_pattern"]["pick"] == "pair"
    assert "promoted" in views["path_promoted"]["id"]
    assert "around" not in views
    # What a query reads is of no key.
    (of_query,) = frame["name"][frame["part"] == "q"][:1]
    assert WHY.on_pick(view, pick_of(views, of_query)).key is None


def test_a_chosen_node_has_what_it_reads_and_what_the_answer_loses_without_it():
    """Without the previous-token head at the key, the induction head copies nothing."""
    view = opened(WHY, "induction-by-hand")
    results, _ = answers(WHY, view)
    frame = results["paths"].to_frame()
    node = frame["writer"][frame["reader"].str.startswith("L1H0.k") & (frame["effect"] > 1)].iloc[0]
    views = views_by_id(WHY, view, results)
    view = WHY.on_pick(view, pick_of(views, node))
    assert view.traced == node
    assert "removed" not in answers(WHY, view)[0]
    view = replace(view, asked=("removed",))
    results, errors = answers(WHY, view)
    assert errors == {}
    views = views_by_id(WHY, view, results)
    names = [row[0] for row in views["around"]["rows"]]
    assert any(name.startswith(f"{node} → L1H0.k") for name in names)
    assert any(
        name.startswith("embed") and name.endswith(node.replace("@", ".v@")) for name in names
    )
    removed = dict(views["removed"]["rows"])
    assert views["removed"]["title"] == f"Without {node}"
    assert float(removed["measured loss"]) == pytest.approx(12.0, abs=0.01)
    assert removed["the answer with it"] == "+12"
    wrong = replace(view, traced="L1H3@5")
    _, errors = answers(WHY, wrong)
    assert "no prompt has such a node or edge" in errors["removed"]


def test_a_model_whose_stream_is_no_sum_has_no_paths():
    view = opened(WHY, NAME)
    assert "paths" in {ask.name for ask in WHY.asks(view, loaded(NAME))}
    assert "paths" not in {ask.name for ask in WHY.asks(view, build("opt-post"))}
