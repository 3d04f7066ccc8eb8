"""The page Heads: its numbers are those of the analyses, in bytes, partial or not."""

import base64
import json
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import interp
from analyses import Ablation, ablate, attention_pattern, attention_patterns, head_roles
from analyses.head_roles import has_roles
from analyses.results import Result, as_bytes, per_head, reduced
from apps.explorer.default_views import EXAMPLES, default_view, examples
from apps.explorer.offered import model_of
from apps.explorer.page import Ask
from apps.explorer.pages.heads import HEADS, ROWS
from apps.explorer.pages.heads.known import card_labels, roles
from apps.explorer.pages.heads.patterns import SMALL, patterns_sent
from apps.explorer.pages.heads.scores import of_ablation
from apps.explorer.questions import Question
from apps.explorer.view import Head, View

INDUCTION = replace(default_view("induction-by-hand"), asked=("texts",))


def decoded(sent: dict) -> np.ndarray:
    data = base64.b64decode(sent["data"])
    return np.frombuffer(data, sent["dtype"]).reshape(sent["shape"])


def questions(view: View) -> dict[str, Question]:
    asked = HEADS.asks(view, model_of(view.model))
    assert all(isinstance(ask, Ask) and isinstance(ask.question, Question) for ask in asked)
    return {ask.name: ask.question for ask in asked}


@cache
def answers(view: View) -> dict[str, Result]:
    return {name: question.run(model_of(view.model)) for name, question in questions(view).items()}


def views_by_id(view: View) -> dict[str, dict]:
    views = HEADS.views(view, model_of(view.model), answers(view))
    return {drawn["id"]: drawn for drawn in views}


def score(view: View, name: str) -> dict:
    return next(values for values in views_by_id(view)["heads"]["scores"] if values["id"] == name)


EDITED = replace(INDUCTION, prompts="", heads=(Head(0, 0), Head(1, 0)), ablated=True, asked=())
VIEWS = {
    "a decoder": INDUCTION,
    "an ablated set": EDITED,
    "cross-attention": replace(default_view("dates"), prompts=""),
    "an encoder": replace(default_view("rasp-reverse"), prompts=""),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.slow
def test_the_python_code_gives_what_the_page_shows(view):
    results = {}
    for name, question in questions(view).items():
        names = {}
        exec(question.code(), names)
        results[name] = names["result"]
    assert HEADS.views(view, model_of(view.model), results) == [*views_by_id(view).values()]


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_patterns_are_those_of_each_head(view):
    model, page = model_of(view.model), views_by_id(view)["heads"]
    pair = {"target": view.prefix, "attention": "cross"} if view.attention else {}
    edit = {"ablate": [str(head) for head in view.heads]} if view.ablated else {}
    run = attention_patterns(model, view.text, **pair, **edit)
    for layer, sent in enumerate(page["patterns"]):
        for head, pattern in enumerate(decoded(sent)):
            exact = run.of(layer, head).pattern
            assert np.abs(exact.double().numpy() - pattern / 255).max() <= 1 / 510
            if not edit:
                alone = attention_pattern(model, view.text, layer, head, **pair).pattern
                assert torch.equal(alone, exact)
    weighted = attention_patterns(model, view.text, weighted=True, **pair, **edit).patterns[0]
    assert np.abs(weighted.double().numpy() - decoded(page["weighted"][0]) / 255).max() <= 1 / 510


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=20))
def test_a_byte_is_the_nearest_of_256_steps(weights):
    """|A − u/255| ≤ 1/510."""
    exact = torch.tensor(weights)
    u = as_bytes(exact)
    assert u.dtype == torch.uint8
    assert (exact.double() - u.double() / 255).abs().max() <= 1 / 510 + 1e-15


def test_beyond_the_bytes_patterns_are_small_and_the_chosen_layer_whole():
    model = model_of("python-2l")
    patterns = attention_patterns(model, [[1 + n % 50 for n in range(2 * SMALL)]])
    sent = patterns_sent(patterns, layer=1, most=1000)
    small = decoded(sent["thumbnails"])
    assert small.shape == (2, len(patterns.patterns[0]), SMALL, SMALL)
    blocks = patterns.patterns[0].unflatten(-1, (SMALL, 2)).unflatten(-3, (SMALL, 2)).mean((-1, -3))
    torch.testing.assert_close(reduced(patterns.patterns[0], SMALL), blocks)
    assert np.abs(small[0] / 255 - blocks.numpy()).max() <= 1 / 510 + 1e-6
    assert sent["layer"]["index"] == 1
    assert np.array_equal(
        decoded(sent["layer"]["patterns"]), as_bytes(patterns.patterns[1]).numpy()
    )
    assert isinstance(patterns_sent(patterns, layer=1), list)


def test_the_map_has_the_effects_of_the_ablation():
    scores = score(INDUCTION, "ablation")
    model, texts = model_of(INDUCTION.model), [prompt.text for prompt in examples(INDUCTION.model)]
    result = ablate(model, texts, metric="loss")
    effect = result.effect.mean(-1).view(2, 4)
    assert np.allclose(decoded(scores["values"]), effect.numpy(), atol=1e-6)
    assert (decoded(scores["low"]) <= decoded(scores["values"])).all()
    assert scores["n"] == len(texts)
    most = float(effect.max())
    assert scores["scale"] == {"kind": "diverging", "low": -most, "high": most, "helps": "above"}
    assert "by chance" in scores["control"]


def test_a_fallen_logit_difference_has_the_colour_of_a_risen_loss():
    """The same head helps by both, on the side of zero that the scale names."""
    sides = {"above": 1, "below": -1, None: 0}
    for metric, side in (("loss", "above"), ("logit-diff", "below"), ("kl", None)):
        drawn = score(replace(INDUCTION, metric=metric, asked=()), "ablation")
        assert drawn["scale"]["helps"] == side
        if side:
            assert decoded(drawn["values"])[1, 0] * sides[side] > 0


def test_the_scores_of_roles_stand_beside_their_controls():
    frame = head_roles(model_of(INDUCTION.model), rows=ROWS).to_frame().set_index(["role", "name"])
    scores = score(INDUCTION, "induction")
    assert decoded(scores["values"])[1, 0] == pytest.approx(
        frame.loc[("induction", "L1H0"), "difference"], abs=1e-6
    )
    assert "without repetition" in scores["control"]
    assert scores["by"] == "value"
    row = frame.loc[("induction", "L1H0")]
    text = views_by_id(INDUCTION)["heads"]["roles"]["L1H0"]
    assert f"induction {row['score']:.2f} (control {row['control']:.2f})" in text
    assert views_by_id(INDUCTION)["heads"]["roles"]["L1H1"] == "silent: it writes nothing"


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_every_score_has_a_control_a_unit_and_a_number_of_prompts(view):
    page = views_by_id(view)["heads"]
    for scores in page["scores"]:
        assert scores["control"]
        assert scores["unit"]
        assert scores["n"] >= 1
        assert scores["scale"]["kind"] in ("diverging", "sequential")
    assert len({scores["id"] for scores in page["scores"]}) == len(page["scores"])


def test_fewer_than_five_prompts_have_no_interval_and_nothing_matters():
    of_prompt_alone = replace(INDUCTION, prompts="", asked=())
    of_prompt = ("ablation", "normalized_entropy", "bos", "previous", "self")
    for name in of_prompt:
        assert not {"low", "high"} & set(score(of_prompt_alone, name))
        assert {"low", "high"} <= set(score(INDUCTION, name))
    assert "no intervals" in score(of_prompt_alone, "ablation")["control"]
    assert "matter" not in json.dumps(views_by_id(of_prompt_alone))


def test_what_a_cancelled_sweep_did_not_come_to_has_no_value():
    model = model_of("python-2l")
    texts = [prompt.text for prompt in examples("python-2l")]
    whole = ablate(model, texts, method="zero")
    partial = ablate(model, texts, method="zero", cancelled=lambda: True)
    sizes = (8, 8)
    some, all_ = (
        decoded(of_ablation((ablation,), sizes, None)["values"]) for ablation in (partial, whole)
    )
    there = ~np.isnan(some)
    assert 0 < there.sum() < 16
    assert np.array_equal(some[there], all_[there])
    assert f"{there.sum()} of 16 heads so far" in of_ablation((partial,), sizes, None)["control"]
    assert "so far" not in of_ablation((whole,), sizes, None)["control"]


def test_estimates_stand_where_nothing_is_measured_yet():
    """First all are estimated, then a few are measured, then all."""
    model, sizes = model_of("python-2l"), (8, 8)
    texts = [prompt.text for prompt in examples("python-2l")]
    estimated, few, whole = (
        ablate(model, texts, **settings) for settings in ({"estimate": True}, {"largest": 3}, {})
    )
    first, second, last = (
        of_ablation(results, sizes, None)
        for results in ((estimated,), (estimated, few), (estimated, few, whole))
    )
    assert decoded(first["estimated"]).all()
    assert "hatched: estimated to first order, not measured yet" in first["control"]
    assert "0 of 16 heads so far" in first["control"]
    assert np.allclose(decoded(first["values"]).ravel(), estimated.effect.mean(-1), atol=1e-6)
    is_measured = decoded(second["estimated"]) == 0
    assert is_measured.sum() == 3
    assert np.isnan(decoded(second["low"]))[~is_measured].all()
    values = decoded(of_ablation((whole,), sizes, None)["values"])
    assert np.array_equal(decoded(second["values"])[is_measured], values[is_measured])
    assert "estimates of 3 heads against their measured effects: r = " in second["control"]
    assert "estimated" not in last
    assert np.array_equal(decoded(last["values"]), values)
    assert "hatched" not in last["control"]
    assert "estimates of 16 heads against" in last["control"]


def test_only_models_of_many_heads_have_a_preview():
    """Python-4l has 32 heads; KL has no gradient without ablation."""
    names = [ask.name for ask in HEADS.asks(INDUCTION, model_of(INDUCTION.model))]
    assert "estimates" not in names
    model = interp.Transformer(
        interp.Config(8, 512, 200, decoder=interp.StackConfig(5, interp.AttentionConfig(8, 4))),
        tokenizer=interp.load("python-2l").tokenizer,
    )
    view = View("heads", "python-2l", text="x = 1", metric="loss")
    asked = {ask.name: ask.question for ask in HEADS.asks(view, model)}
    assert dict(asked["estimates"].settings)["estimate"] is True
    assert dict(asked["largest effects"].settings)["largest"] == 10
    assert (
        [*asked].index("estimates") < [*asked].index("largest effects") < [*asked].index("ablation")
    )
    of_kl = [ask.name for ask in HEADS.asks(replace(view, metric="kl"), model)]
    assert "estimates" not in of_kl


def test_the_ablated_set_changes_the_loss_of_each_token():
    """Mean over tokens, Δ is the effect of ablating the heads together."""
    strip = views_by_id(EDITED)["tokens"]
    together = ablate(
        model_of(EDITED.model), EDITED.text, units={"both": ["L0H0", "L1H0"]}, metric="loss"
    )
    values = decoded(strip["values"])
    assert np.nanmean(values) == pytest.approx(together.effect.item(), abs=1e-5)
    assert np.isnan(values).tolist() == [True] + [False] * len(EDITED.text)
    assert strip["scale"]["kind"] == "diverging"
    assert "L0H0, L1H0 ablated (mean)" in strip["title"]
    assert "tokens" not in views_by_id(replace(EDITED, ablated=False))
    pick = {"view": "tokens", "pick": "position", "row": 3}
    assert HEADS.on_pick(EDITED, pick).position == 3


def test_heads_that_a_layer_lacks_have_no_value():
    frame = pd.DataFrame({"layer": [0, 1, 1], "head": [0, 0, 1], "effect": [1.0, 2.0, 3.0]})
    values = per_head(frame, "effect", (1, 2))
    assert values.isnan().tolist() == [[False, True], [False, False]]


def test_cross_attention_has_two_texts():
    view = VIEWS["cross-attention"]
    page, model = views_by_id(view)["heads"], model_of("dates")
    assert page["tokens"] == model.to_labels(model.to_tokens(view.text)[0])
    assert page["queries"] == ["<|start|>", *view.prefix]
    assert len(page["query_ids"]) == len(page["queries"])
    assert not page["causal"]
    assert page["names"][1][2] == "cross.L1H2"
    assert page["truth"]["L0H2"] == "head that aligns the month best"
    result = answers(view)["ablation"]
    assert isinstance(result, Ablation)
    effects = result.to_frame().set_index("name")["effect"]
    assert decoded(score(view, "ablation")["values"])[1, 3] == pytest.approx(
        effects["cross.L1H3"], abs=1e-6
    )
    for attention, causal in (("", True), ("encoder", False)):
        other = views_by_id(replace(view, attention=attention))["heads"]
        assert other["causal"] == causal
        assert "queries" not in other
        assert other["truth"] is None


def test_an_encoder_has_no_hidden_keys():
    assert not views_by_id(VIEWS["an encoder"])["heads"]["causal"]
    assert views_by_id(INDUCTION)["heads"]["causal"]
    assert views_by_id(INDUCTION)["heads"]["bos"]


def test_the_labels_that_a_card_gives_to_heads():
    assert card_labels("rasp-reverse", None) == dict.fromkeys(("L0H0", "L2H0"), "in the circuit")
    assert card_labels("python-2l", None) == {
        "L0H5": "best previous-token head",
        "L1H0": "best induction head",
    }
    assert card_labels("python-2l@0", None)["L1H0"] == "best induction head (after training)"
    assert card_labels("python-mlm", None) == {}


def test_before_training_no_head_attends_by_a_role():
    """Nothing is learnt at step 0."""
    model = model_of("python-2l@0")
    labels = roles(head_roles(model, rows=ROWS))
    assert len(labels) == 16
    assert all(label.startswith("no role") for label in labels.values()), labels


def test_roles_are_asked_for_where_they_can_be_measured():
    assert has_roles(model_of("python-2l"))
    for name in ("dates", "rasp-reverse", "addition-mod-113"):
        assert not has_roles(model_of(name))
        with pytest.raises(interp.InterpError):
            head_roles(model_of(name))


def test_a_row_of_the_top_texts_takes_its_prompt():
    table = views_by_id(INDUCTION)["texts"]
    assert table["title"].startswith("L0H0: where it attends most")
    row = table["rows"][0]
    pick = {"view": "texts", "pick": "row", "row": 0, "name": str(row[0])}
    taken = HEADS.on_pick(INDUCTION, pick)
    assert taken.text == examples(INDUCTION.model)[int(row[0])].text
    assert taken.head == INDUCTION.head
    assert HEADS.on_pick(INDUCTION, {"view": "heads", "pick": "collect"}) == INDUCTION


def test_top_texts_are_of_the_chosen_head():
    asked = questions(replace(INDUCTION, head=Head(1, 2)))["texts"]
    assert dict(asked.settings)["of"] == "L1H2"
    cross = replace(default_view("dates"), head=Head(1, 2), asked=("texts",))
    assert dict(questions(cross)["texts"].settings)["of"] == "cross.L1H2"
    assert "texts" not in questions(replace(cross, asked=()))


def test_sweeps_and_statistics_run_over_the_chosen_prompts():
    alone, many = (questions(replace(INDUCTION, prompts=prompts)) for prompts in ("", EXAMPLES))
    for name in ("ablation", "statistics"):
        assert alone[name] != many[name]
    assert alone["patterns"] == many["patterns"]
