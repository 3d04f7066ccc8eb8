"""The page Prompt: its numbers are those of the analyses, its clicks change the view."""

import base64
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import interp
from analyses import Predictions, Steering, ablate, continuations, predictions
from apps.explorer.default_views import default_view, examples, with_prompt
from apps.explorer.metrics_offered import in_words, offered_metrics
from apps.explorer.offered import model_of
from apps.explorer.page import JOBS, Results
from apps.explorer.pages.continuation import continuation_question
from apps.explorer.pages.masking import toggled
from apps.explorer.pages.prompt import asks, on_pick, tokens_view, views
from apps.explorer.pages.view_inputs import inputs_of, metric_of, set_question, text_of_token
from apps.explorer.prediction import line_of, prediction_question
from apps.explorer.validate import cut_text, within_context
from apps.explorer.view import Head, View, from_address
from interp.errors import InvalidInput
from interp.metrics import masked_loss, measure

MODEL = "induction-by-hand"
VIEW = View("prompt", MODEL, text="abcdab", target="c", distractor="d", metric="loss")
ABLATED = replace(VIEW, heads=(Head(1, 0), Head(0, 0)), ablated=True)
MASKED = "a = [0, 1]\nb = (0,<|mask|>)"
EVIL = "<img src=x onerror=alert(1)>"


def results_and_views(view: View) -> tuple[dict[str, Any], dict[str, Any]]:
    """The answers and the views of the page, each by name."""
    model = model_of(view.model)
    asked = asks(view, model)
    for _ in range(600):
        results = Results.of(asked, JOBS)
        if not results.states:
            break
        time.sleep(0.05)
    assert not results.errors
    return results.results, {drawn["id"]: drawn for drawn in views(view, model, results.results)}


def numbers_of(encoded: dict[str, Any]) -> torch.Tensor:
    array = np.frombuffer(base64.b64decode(encoded["data"]), encoded["dtype"])
    return torch.tensor(array.copy()).reshape(encoded["shape"])


# ---- surprisal and predictions ---------------------------------------------------------------


def test_tokens_have_their_surprisal_and_the_first_has_none():
    _, drawn = results_and_views(VIEW)
    tokens, surprisal = drawn["tokens"], numbers_of(drawn["tokens"]["values"])
    model = model_of(MODEL)
    expected = model.loss("abcdab", per_token=True)[0]
    assert surprisal[0].isnan()
    torch.testing.assert_close(surprisal[1:], expected.float(), rtol=1e-5, atol=1e-6)
    assert tokens["tokens"] == model.to_labels("abcdab")
    assert tokens["ids"] == model.to_tokens("abcdab")[0].tolist()
    assert f"mean {expected.mean():.3f} nats" in tokens["title"]
    assert tokens["double"] is None
    assert "mask" not in tokens["note"]


def test_under_the_ablation_the_strip_may_have_the_change():
    results, drawn = results_and_views(replace(ABLATED, colour="change"))
    prediction = results["prediction"]
    change = numbers_of(drawn["tokens"]["values"])
    torch.testing.assert_close(change, prediction.effect[0].float(), equal_nan=True)
    assert drawn["tokens"]["scale"]["low"] == -drawn["tokens"]["scale"]["high"]
    assert "L1H0, L0H0 ablated (mean)" in drawn["tokens"]["title"]
    _, plain = results_and_views(ABLATED)
    assert numbers_of(plain["tokens"]["values"])[1:].min() >= 0


def test_bars_have_plain_and_ablated_side_by_side():
    results, drawn = results_and_views(ABLATED)
    prediction, top = results["prediction"], drawn["top"]
    ids = [*prediction.candidates()]
    assert ids[:10] == prediction.top[0, 0].tolist()
    assert set(prediction.top[1, 0].tolist()) <= set(ids)
    model = model_of(MODEL)
    for values, run in ((top["values"], 0), (top["second"]["values"], 1)):
        probabilities = numbers_of(values)
        assert probabilities.tolist() == pytest.approx(
            [prediction.candidates()[id_][run] for id_ in ids]
        )
    p = model("abcdab")[0, -1].softmax(-1)
    torch.testing.assert_close(numbers_of(top["values"]), p[ids].detach())
    assert "second" not in results_and_views(VIEW)[1]["top"]


def test_the_ablated_numbers_are_those_of_the_sweep():
    """Of the prompt alone, and with the set's means where sweeps run over the set."""
    model, group = model_of(MODEL), {"set": ["L1H0", "L0H0"]}
    alone = results_and_views(ABLATED)[0]["prediction"]
    swept = ablate(model, ["abcdab"], units=group)
    both = [swept.clean[0].item(), swept.ablated[0, 0].item()]
    assert alone.loss[:, 0].tolist() == pytest.approx(both, rel=1e-5)
    prompts = examples(MODEL)
    view = replace(with_prompt(ABLATED, prompts[3]), prompts="examples")
    over_examples = results_and_views(view)[0]["prediction"]
    over_set = ablate(model, [prompt.text for prompt in prompts], units=group)
    assert over_examples.loss[1, 0].item() == pytest.approx(over_set.ablated[0, 3].item(), rel=1e-5)


def test_a_click_reads_the_prediction_at_a_token():
    view = on_pick(VIEW, {"view": "tokens", "pick": "position", "row": 2})
    assert view == replace(VIEW, position=2)
    results, drawn = results_and_views(view)
    assert results["prediction"].pos.tolist() == [2]
    assert drawn["top"]["title"] == "Most probable tokens after 'b' (position 2)"


# ---- the prompt set --------------------------------------------------------------------------


def test_the_set_shows_which_prompts_are_right():
    results, drawn = results_and_views(VIEW)
    prediction, table = results["set"], drawn["set"]
    model = model_of(MODEL)
    for row, prompt in zip(table["rows"], examples(MODEL), strict=True):
        top = model.top(prompt.text, 1).rows[0]
        assert row[2] == top.token
        assert row[4] == ("right" if top.id == model.to_single_token(prompt.target) else "wrong")
    assert [row[3] for row in table["rows"]] == pytest.approx(prediction.loss[0].tolist(), abs=1e-4)
    assert table["columns"][3]["title"] == "loss (lower is better)"
    taken = on_pick(VIEW, {"view": "set", "pick": "row", "row": 5})
    assert taken.text == examples(MODEL)[5].text


def test_a_sweep_respects_the_filter():
    view = default_view("python-mlm", "prompt")
    model, prompts = model_of(view.model), examples(view.model)
    view = replace(view, prompts="examples")
    right = JOBS.run(set_question(view, model)).correct[0].tolist()
    assert {True, False} == set(right)
    for answered in ("right", "wrong", ""):
        taken = inputs_of(replace(view, answered=answered), model, swept=True).prompts
        wanted = [
            prompt
            for prompt, is_right in zip(prompts, right, strict=True)
            if not answered or is_right == (answered == "right")
        ]
        assert [*taken] == wanted
    alone = replace(view, answered="wrong", prompts="")
    assert len(inputs_of(alone, model, swept=True).prompts) == 1


def test_a_filter_that_no_prompt_passes_is_refused():
    view = replace(default_view("dates", "prompt"), prompts="examples", answered="wrong")
    with pytest.raises(InvalidInput, match="No prompt of the set is answered wrong"):
        inputs_of(view, model_of("dates"), swept=True)


# ---- masks -----------------------------------------------------------------------------------


def mlm(**fields: object) -> View:
    return View("prompt", "python-mlm", metric="masked-loss", **fields)


def test_a_mask_in_mid_text_is_where_the_model_is_read():
    view = mlm(text=MASKED, target=" 1")
    model = model_of(view.model)
    results, drawn = results_and_views(view)
    mask = model.position_of(MASKED, "<|mask|>")
    assert results["prediction"].pos.tolist() == [mask]
    assert 0 < mask < len(drawn["tokens"]["ids"]) - 1
    assert drawn["tokens"]["masked"] == [mask]
    surprisal = numbers_of(drawn["tokens"]["values"])
    assert surprisal.isfinite().nonzero().flatten().tolist() == [mask]
    p = model(MASKED)[0, mask].log_softmax(-1)[model.to_single_token(" 1")]
    assert surprisal[mask].item() == pytest.approx(-p.item(), rel=1e-5)
    assert str(line_of(results["prediction"])).startswith(
        '<div class="interp-prediction"><span>at <bdi>&lt;|mask|&gt;</bdi>'
    )


def test_a_double_click_masks_a_token_and_shows_it_again():
    text = "for name in names:\n    print(name)"
    view, model = mlm(text=text), model_of("python-mlm")
    ids = model.to_tokens(text)[0].tolist()
    at = ids.index(model.to_single_token(" in"))
    masked = on_pick(view, {"view": "tokens", "pick": "mask", "row": at})
    assert (masked.target, masked.position, masked.hidden) == (" in", at, text)
    assert model.to_tokens(masked.text)[0, at] == model.config.tokens.mask
    assert offered_metrics(masked, model)[0] == "masked-loss"
    metric = metric_of(masked, inputs_of(masked, model))
    assert metric == masked_loss(model.to_tokens(text))
    prediction = predictions(model, masked.text, targets=" in")
    done = interp.run(model, masked.text)
    assert prediction.loss[0, 0].item() == pytest.approx(
        measure(metric, done.logits, done.batch).item(), rel=1e-5
    )
    two = toggled(masked, model, at + 1)
    assert results_and_views(two)[0]["prediction"].surprisal.isfinite().sum() == 2
    assert on_pick(two, {"view": "tokens", "pick": "position", "row": at}).target == " in"
    back = toggled(toggled(two, model, at + 1), model, at)
    assert (back.text, back.hidden, back.target) == (text, "", "")


def test_special_tokens_and_models_without_a_mask_are_left_alone():
    view = mlm(text="for name in names:")
    assert toggled(view, model_of("python-mlm"), 0) == view
    assert on_pick(VIEW, {"view": "tokens", "pick": "mask", "row": 2}) == VIEW


def test_a_decoder_whose_tokenizer_has_a_mask_token_masks_nothing():
    """It predicts next tokens: each token has a surprisal, and a double click masks none."""
    model = model_of(MODEL)
    tokens = replace(model.config.tokens, mask=model.to_single_token("c"))
    other = interp.Transformer(replace(model.config, tokens=tokens), tokenizer=model.tokenizer)
    prediction = predictions(other, VIEW.text)
    strip = tokens_view(VIEW, other, prediction)
    assert "masked tokens" not in strip["note"]
    assert (strip["double"], strip["masked"]) == (None, [])
    assert numbers_of(strip["values"])[1:].isfinite().all()
    assert toggled(VIEW, other, 2) == VIEW


# ---- continuations ---------------------------------------------------------------------------


def test_a_continuation_is_that_of_the_edited_model():
    results, drawn = results_and_views(replace(ABLATED, asked=("continuation",), new_tokens=5))
    steering, model = results["continuation"], model_of(MODEL)
    assert isinstance(steering, Steering)
    new = model.generate("abcdab", max_new_tokens=5)[0, -5:]
    assert steering.plain[0].tolist() == new.tolist()
    strip, table = drawn["continued"], drawn["continuations"]
    assert strip["tokens"] == model.to_labels(new)
    assert len(strip["aligned"]) == len(strip["tokens"]) == 5
    assert [row[0] for row in table["rows"]] == ["plain", "edited"]
    assert strip["aligned"] != strip["tokens"]
    assert table["rows"][1][2] == str(int(steering.same[0, 0]))


def test_a_vector_of_two_texts_steers_beside_the_ablated_heads():
    view = replace(ABLATED, asked=("continuation",), positive="ab", negative="xyz", strength=50.0)
    results, drawn = results_and_views(view)
    steering = results["continuation"]
    assert (steering.strengths, steering.place) == ((50.0,), "resid_pre 1")
    assert steering.ablated_names == ("L1H0", "L0H0")
    assert [row[0] for row in drawn["continuations"]["rows"]] == [
        "plain",
        "edited",
        "random vector",
    ]


def test_an_encoder_decoder_is_continued_in_its_decoder():
    view = replace(default_view("dates", "prompt"), asked=("continuation",), heads=(Head(0, 2),))
    view = replace(view, ablated=True, attention="cross", positive="1 May 2001", negative="2/3/94")
    results, drawn = results_and_views(view)
    assert results["continuation"].ablated_names == ("cross.L0H2",)
    assert drawn["source"]["tokens"][0] == model_of("dates").to_labels(view.text)[0]
    model = model_of("dates")
    source, prefix = inputs_of(view, model).batch
    start = model.to_tokens(prefix, stack="decoder")
    plain = model.generate(source, start, max_new_tokens=view.new_tokens)[0, start.shape[1] :]
    assert results["continuation"].plain[0, : len(plain)].tolist() == plain.tolist()


CONTINUED = replace(VIEW, asked=("continuation",), new_tokens=5)


def test_without_edits_samples_are_shown_on_one_scale():
    view = replace(CONTINUED, model="python-4l", text="def f(x):", metric="loss")
    results, drawn = results_and_views(view)
    result, model = results["continuation"], model_of("python-4l")
    expected = continuations(model, ["def f(x):"], new_tokens=5, samples=3)
    assert torch.equal(result.new_ids, expected.new_ids)
    strips = [drawn[f"sample_{n}"] for n in range(3)]
    for strip, ids, surprisal in zip(
        strips, expected.new_ids[0], expected.surprisal[0], strict=True
    ):
        assert (strip["ids"], strip["tokens"]) == (ids.tolist(), model.to_labels(ids))
        torch.testing.assert_close(numbers_of(strip["values"]), surprisal)
        assert strip["scale"]["high"] == pytest.approx(expected.surprisal.max().item())
        assert "Click a token to ask why it was written" in strip["note"]
        assert f"mean {surprisal.mean():.3f} nats" in strip["title"]
    greedy = results_and_views(replace(view, temperature=0.0))[1]
    assert "Greedy continuation" in greedy["sample_0"]["title"]
    assert "sample_1" not in greedy
    edited = results_and_views(replace(view, heads=(Head(0, 1),), ablated=True))[1]
    assert "continued" in edited
    assert "sample_0" not in edited


def test_a_prompt_that_fills_the_context_is_not_continued():
    full = replace(VIEW, text="ab" * 31 + "a")
    assert model_of(MODEL).to_tokens(full.text).shape[1] == 64
    for view in (full, replace(full, heads=(Head(0, 0),), ablated=True)):
        with pytest.raises(InvalidInput, match="fills the context of 64"):
            continuation_question(view, model_of(MODEL))
    fits = continuation_question(replace(full, text=full.text[2:]), model_of(MODEL))
    assert dict(fits.settings)["new_tokens"] == 2


def clicked_token(view: View, sample: int, token: int) -> tuple[View, float]:
    """The view after a click on a token of a sample, and the surprisal that its strip shows."""
    strip = results_and_views(view)[1][f"sample_{sample}"]
    pick = {"view": strip["id"], "pick": "written", "row": token, "name": strip["tokens"][token]}
    return on_pick(view, pick), numbers_of(strip["values"])[token].item()


@pytest.mark.parametrize(
    "view",
    [
        replace(CONTINUED, corrupt="abddab", prompts="examples", component="L1H0", position=2),
        replace(CONTINUED, model="python-4l", text="for i in", distractor=" self"),
        replace(default_view("dates", "prompt"), asked=("continuation",), new_tokens=4),
    ],
)
@pytest.mark.parametrize(("sample", "token"), [(0, 0), (2, 3)])
def test_a_click_on_a_token_of_a_sample_asks_why_it_was_written(view, sample, token):
    """Of the prompt with the tokens before it, its surprisal is that of the strip."""
    model = model_of(view.model)
    result = results_and_views(view)[0]["continuation"]
    asked, surprisal = clicked_token(view, sample, token)
    left = (asked.distractor, asked.corrupt, asked.prompts, asked.component, asked.position)
    assert (asked.page, left) == ("why", ("", "", "", "", None))
    assert model.to_single_token(asked.target) == result.new_ids[0, sample, token]
    assert (asked.text != view.text) == (token > 0 and not view.prefix)
    prediction = JOBS.run(prediction_question(asked, model))
    assert isinstance(prediction, Predictions)
    log_p = prediction.answer_probability[0, 0, 0].log().item()
    assert -log_p == pytest.approx(surprisal, rel=1e-4, abs=1e-5)


def test_a_token_before_which_no_prompt_ends_is_refused():
    """At a high temperature, tokens follow that the tokenizer would join to others."""
    view = replace(CONTINUED, model="python-4l", text="for i in", temperature=8.0, new_tokens=40)
    _, drawn = results_and_views(view)
    model, n_refused = model_of("python-4l"), 0
    ids = model.to_tokens(view.text)[0].tolist()
    for token in range(0, 40, 4):
        written = drawn["sample_1"]["ids"][:token]
        text = str(model.to_string([*ids[1:], *written]))
        is_read = model.to_tokens(text)[0].tolist() == [*ids, *written]
        if is_read and text_of_token(model, drawn["sample_1"]["ids"][token]) is not None:
            assert clicked_token(view, 1, token)[0].text == text
            continue
        n_refused += 1
        with pytest.raises(InvalidInput, match="no text is read as exactly these tokens"):
            clicked_token(view, 1, token)
    assert 0 < n_refused < 10


@pytest.mark.parametrize(
    "pick", [{"row": 0, "name": "?"}, {"row": 5}, {"row": 0, "view": "sample_3"}]
)
def test_a_token_of_another_views_sample_is_refused(pick):
    with pytest.raises(InvalidInput, match="another sample"):
        on_pick(CONTINUED, {"view": "sample_0", "pick": "written", **pick})


# ---- metrics, long prompts, links ------------------------------------------------------------


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (VIEW, ["loss", "logit-diff", "prob", "logit", "kl"]),
        (replace(VIEW, distractor=""), ["loss", "prob", "logit", "kl"]),
        (replace(VIEW, distractor="ab"), ["loss", "prob", "logit", "kl"]),
        (replace(VIEW, target="ab"), ["loss", "kl"]),
        (replace(VIEW, target=""), ["loss", "logit-diff", "prob", "logit", "kl"]),
        (mlm(text=MASKED, target=" 1"), ["masked-loss", "prob", "logit", "kl"]),
        (mlm(text=MASKED), ["prob", "logit", "kl"]),
        (mlm(text="x = 1", target=" 1"), ["prob", "logit", "kl"]),
        (View("prompt", "dates", "1 May 2001", target="2001-05-01"), ["loss", "kl"]),
    ],
)
def test_metrics_are_offered_where_they_make_sense(view, expected):
    model = model_of(view.model)
    assert offered_metrics(view, model) == expected
    for metric in expected:
        with_metric = replace(view, metric=metric)
        inputs = inputs_of(with_metric, model)
        ablate(model, inputs.batch, units={"none": []}, metric=metric_of(with_metric, inputs))


def test_the_good_direction_of_a_metric_is_named():
    assert in_words("loss") == "loss (lower is better)"
    assert in_words("masked-loss") == "masked loss (lower is better)"
    assert in_words("logit-diff") == "logit difference (higher is better)"
    assert in_words("kl") == "KL divergence (0: unchanged)"


@pytest.mark.parametrize("name", [MODEL, "python-mlm"])
def test_a_long_prompt_is_cut_to_the_context(name):
    model = model_of(name)
    text = "ab" * 100 if name == MODEL else "x = [1, 2, 3]\n" * 60
    before = model.to_tokens(text).shape[1]
    end, n_cut = cut_text(model, text, model.stacks[0].name)
    assert text.endswith(end)
    assert model.to_tokens(end).shape[1] == before - n_cut == model.config.n_ctx
    view, notes = within_context(View("prompt", name, text=text, position=3), model)
    assert (view.text, view.position) == (end, None)
    assert f"its first {n_cut} tokens are left out" in notes[0]
    assert within_context(view, model) == (view, ())
    assert results_and_views(view)[1]["tokens"]["tokens"] == model.to_labels(end)


def test_what_cannot_be_read_is_not_cut():
    view = replace(VIEW, text=EVIL * 20)
    assert within_context(view, model_of(MODEL)) == (view, ())


def test_labels_are_text_whatever_the_prompt_is():
    view = View("prompt", "python-4l", text=f"x = '{EVIL}'", metric="loss")
    results, drawn = results_and_views(view)
    assert "".join(drawn["tokens"]["tokens"][1:]).replace("·", " ") == view.text
    assert "<img" not in str(line_of(results["prediction"]))


def test_a_link_carries_the_fields_of_the_page():
    view = replace(ABLATED, colour="change", answered="wrong", positive="ab", negative="x", layer=1)
    view = replace(view, strength=-2.5, new_tokens=7, hidden="abc", asked=("continuation",))
    view = replace(view, temperature=0.0, samples=10)
    assert from_address(view.to_address()) == (view, ())
    for name, odd in {
        "colour": "red",
        "answered": "x",
        "strength": "nan",
        "new_tokens": "0",
        "samples": "11",
        "temperature": "-1",
        "layer": "x",
    }.items():
        parsed, notes = from_address({name: odd})
        assert parsed == View()
        assert name in notes[0]


@pytest.mark.parametrize("view", [VIEW, ABLATED, mlm(text=MASKED, target=" 1")])
def test_the_code_gives_the_numbers_of_the_page(view):
    asked = prediction_question(view, model_of(view.model))
    names: dict[str, Any] = {}
    exec(asked.code(), names)
    from_code = names["result"]
    assert isinstance(from_code, Predictions)
    from_page = JOBS.run(asked)
    assert from_page.to_frame().equals(from_code.to_frame())
