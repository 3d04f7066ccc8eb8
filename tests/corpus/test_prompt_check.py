"""A check finds every prompt that a model can't read, and how many it gets right."""

import json
from dataclasses import replace
from importlib import import_module

import pytest
import torch
from tables import each

import analyses
import interp
from analyses.methods.components.minimal_pairs import aligned_prompts
from interp.errors import InvalidInput
from interp.prompts import Prompt, logit_diff_of_prompts

GOOD = Prompt("abcab", "c", "b", "good:1", corrupt="abdab")


@pytest.fixture(scope="module")
def model():
    return interp.load("induction-by-hand")


def check(model, *prompts, **options):
    return analyses.check_prompts(model, iter(prompts), **options)


@pytest.mark.parametrize(
    ("name", "prompts"),
    [
        ("induction-by-hand", "letters"),
        ("python-2l", "python-2l-pairs"),
        ("dates", "dates-pairs"),
        ("dates", "dates"),
        ("python-mlm", "python-masked"),
        ("rasp-reverse", "rasp-reverse-pairs"),
    ],
)
def test_the_bundled_sets_hold(name, prompts):
    loaded, prompt_set = interp.load(name), interp.read_prompts(prompts)
    report = analyses.check_prompts(loaded, prompt_set)
    assert report.holds, report.problems
    assert report.n == len(prompt_set)
    # An encoder–decoder without a prefix reads its targets, and predicts none of them.
    assert report.accuracy.of == (0 if prompts == "dates" else len(prompt_set))


def test_accuracy_is_that_of_one_forward_of_all(model):
    prompts = [*interp.read_prompts("letters"), Prompt("abcab", "b", "c"), Prompt("abcab", "d")]
    report = analyses.check_prompts(model, prompts, rows=5)
    both = prompts[:-1]
    logits = interp.run(model, [prompt.text for prompt in both])
    metric = logit_diff_of_prompts(model.to_single_token, both)
    larger = int((metric(logits.logits, logits.batch) > 0).sum())
    assert report.preferred == (larger, len(both))
    top = [int(model(model.to_tokens(p.text))[0, -1].argmax()) for p in prompts]
    right = sum(
        i == model.to_single_token(p.target or "") for i, p in zip(top, prompts, strict=True)
    )
    assert report.accuracy == (right, len(prompts))
    assert right < len(prompts)


@each(
    ("changed", "field", "message"),
    [
        ({"text": "a" * 99}, "text", "100 tokens, over the model's context of 64"),
        ({"text": "aé"}, "text", "can't be encoded"),
        ({"target": "cd"}, "target", "'cd' splits into 2 tokens: c d"),
        ({"target": "é"}, "target", "can't be encoded"),
        ({"target": ""}, "target", "'' splits into 0 tokens: nothing"),
        ({"distractor": "xyzxyz"}, "distractor", "splits into 6 tokens: x y z x …"),
        ({"distractor": "c"}, "distractor", "'c' is the same token as the target"),
        (
            {"corrupt": "abdcab"},
            "corrupt",
            "7 tokens, the text has 6; from position 3: d c a b against c a b",
        ),
        ({"corrupt": "abé"}, "corrupt", "can't be encoded"),
    ],
)
def test_what_is_wrong_is_found_and_the_rest_holds(model, changed, field, message):
    bad = replace(GOOD, source="bad:2", **changed)
    report = check(model, GOOD, bad, GOOD)
    assert not report.holds
    assert (report.n, report.n_wrong) == (3, 1)
    ((source, about, problem),) = report.problems
    assert (source, about) == ("bad:2", field)
    assert message in problem
    assert report.wrong == {field: 1}
    # A pair that does not align can be predicted all the same.
    assert report.accuracy == ((3, 3) if field == "corrupt" else (2, 2))


def test_a_pair_is_a_problem_exactly_if_it_can_not_be_patched(model):
    for corrupt in ("abdab", "abda", "abdabb", "xbdab"):
        prompt = replace(GOOD, corrupt=corrupt)
        try:
            aligned_prompts(model, [prompt])
            can_be = True
        except InvalidInput:
            can_be = False
        assert check(model, prompt).holds == can_be


def test_lengths_differ_only_if_they_should_not(model):
    prompts = [GOOD, replace(GOOD, text="abcdab", corrupt=None, source="other:2")]
    assert check(model, *prompts).holds
    report = check(model, *prompts, same_length=True)
    (problem,) = report.problems
    assert problem == ("other:2", "length", "7 tokens, the first prompt has 6: <|bos|> a b c d a b")
    assert report.accuracy.of == 2
    assert check(model, GOOD, GOOD, same_length=True).holds


def test_lengths_are_counted(model):
    report = check(model, *(Prompt("a" * n) for n in (3, 1, 3, 2, 3, 99)))
    assert list(report.lengths.items()) == [(2, 1), (3, 1), (4, 3), (100, 1)]  # with BOS
    assert (report.median_length, report.context) == (4, 64)


def test_two_masks_and_a_missing_prefix_are_problems():
    report = check(interp.load("python-mlm"), Prompt("<|mask|> = <|mask|>", source="m:1"))
    assert "2 mask tokens" in report.problems[0].problem
    report = check(interp.load("dates"), Prompt("7 June 2030", source="d:1"))
    assert report.problems[0].field == "prefix"
    assert "reads a 'prefix' or a 'target'" in report.problems[0].problem


def test_problems_are_counted_and_the_first_are_kept(model, monkeypatch):
    monkeypatch.setattr(import_module("analyses.check_prompts"), "MOST_PROBLEMS", 3)
    report = check(model, *(Prompt("ab", "cd", source=f"x:{n}") for n in range(9)))
    assert (report.n_wrong, len(report.problems)) == (9, 3)


def test_a_check_is_json_and_a_table(model):
    report = check(model, GOOD, Prompt("ab", "cd", source="x:2"))
    read = json.loads(json.dumps(report.to_dict()))
    assert (read["holds"], read["prompts"]) == (False, 2)
    assert read["wrong"] == {"prompts": 1, "target": 1}
    assert read["problems"][0]["source"] == "x:2"
    assert "targets" in repr(report)
    assert "<table>" in report._repr_html_()
    empty = check(model, Prompt("ab"))
    assert empty.to_dict()["accuracy"]["share"] is None


def test_models_without_text_or_tokens_are_refused_or_checked_as_far_as_they_go(model):
    plain = interp.Transformer(model.config)
    with pytest.raises(InvalidInput, match="no tokenizer"):
        check(plain, GOOD)
    config = replace(model.config, n_classes=3)
    classifier = interp.Transformer(config, model.tokenizer)
    report = check(classifier, GOOD)
    assert report.holds
    assert report.accuracy.of == 0


def test_logits_that_are_not_numbers_are_refused(model):
    broken = interp.Transformer(model.config, model.tokenizer)
    with torch.no_grad():
        next(broken.parameters())[:] = torch.nan
    with pytest.raises(InvalidInput, match="NaN"):
        check(broken, GOOD)
