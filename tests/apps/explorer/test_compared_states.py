"""Pinned states: what is subtracted from what, and which run of the model each figure is of."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from answered import answers, loaded, numbers, opened

import interp
from analyses import ablate, predictions
from apps.explorer.clicks import checked
from apps.explorer.links import completed
from apps.explorer.navigation import PAGES
from apps.explorer.page import Results, clicked, columns_of, described, drawn_columns
from apps.explorer.pages.heads import HEADS
from apps.explorer.pages.prompt import PROMPT
from apps.explorer.view import Head, View
from interp.errors import InvalidInput

NAME = "induction-by-hand"
SET = (Head(1, 0), Head(0, 0))


def drawn(page: Any, view: View) -> list[list[dict[str, Any]]]:
    """The columns of a page, with all answers."""
    columns = []
    for _, each in columns_of(view):
        results, errors = answers(page, each)
        assert not errors
        columns.append((each, Results(results=results)))
    return drawn_columns(page, columns)


def compared(page: Any, view: View, pinned: View) -> dict[str, dict[str, Any]]:
    """The differences of a page, by the ids of its views."""
    (views,) = drawn(page, replace(view, pinned=pinned, subtract=True))
    assert {each["kind"] for each in views} == {"difference"}
    return {each["id"]: each for each in views}


def test_a_difference_takes_what_is_computed_from_the_pinned_view_and_the_rest_from_this_one():
    pinned = opened(HEADS, NAME, heads=SET, method="zero", head=Head(0, 3), score="self", query=1)
    view = opened(HEADS, NAME, text="xyxy", head=Head(1, 2), query=3, key=2, score="ablation")
    names = columns_of(replace(view, pinned=pinned, subtract=True))
    a, b = (each for _, each in names)
    assert [name for name, _ in names] == ["A: ", "B: "]
    assert (a.text, a.heads, a.method) == (pinned.text, SET, "zero")
    assert (a.head, a.query, a.key, a.score) == (Head(1, 2), 3, 2, "ablation")
    assert (b.text, b.heads) == ("xyxy", ())
    side = dict(columns_of(replace(view, pinned=pinned)))
    assert side["A: "] == pinned


def test_patterns_and_tokens_of_plain_and_ablated_are_of_their_runs():
    plain = opened(HEADS, NAME)
    ablated = replace(plain, heads=SET, ablated=True, method="zero")
    made = compared(HEADS, ablated, plain)
    model = loaded(NAME)
    edits = [interp.edits.zero("z", layer=head.layer, head=head.head) for head in SET]
    for side, edited in (("a", []), ("b", edits)):
        run = interp.run(model, model.to_tokens(plain.text), record="pattern", edits=edited)
        heads = made["heads"][side]
        for layer in range(2):
            sent = numbers(heads["patterns"][layer]) / 255
            exact = run.cache["pattern", layer][0].double()
            assert (exact - torch.tensor(sent)).abs().max() <= 1 / 510 + 1e-9
        losses = -run.logits[0, :-1].double().log_softmax(-1)
        expected = losses.gather(-1, model.to_tokens(plain.text)[0, 1:, None])[:, 0]
        surprisal = torch.tensor(numbers(made["tokens"][side]["values"])).double()[1:]
        torch.testing.assert_close(surprisal, expected, rtol=1e-4, atol=1e-5)
    assert not torch.equal(*(torch.tensor(numbers(made["heads"][s]["patterns"][1])) for s in "ab"))


def test_predictions_of_every_token_are_those_of_the_runs_and_number_one_vocabulary():
    plain = opened(PROMPT, NAME)
    ablated = replace(plain, heads=SET, ablated=True)
    top = compared(PROMPT, ablated, plain)["top"]
    model = loaded(NAME)
    p = model(plain.text)[0, -1].softmax(-1).detach()
    every = {side: torch.tensor(numbers(top[side]["every"]["values"])) for side in "ab"}
    torch.testing.assert_close(every["a"], p, rtol=1e-5, atol=1e-7)
    group = {"set": [str(head) for head in SET]}
    swept = ablate(model, [plain.text], units=group, metric=interp.metrics.prob(5, pos=-1))
    torch.testing.assert_close(every["b"][5].double(), swept.ablated[0, 0], rtol=1e-4, atol=1e-7)
    for side in "ab":
        bars = top[side]
        assert numbers(bars["values"]).tolist() == every[side][bars["every"]["ids"]].tolist()
        assert "second" not in bars
    assert top["a"]["every"]["of"] == top["b"]["every"]["of"]
    other = compared(PROMPT, plain, opened(PROMPT, "rasp-duplicates"))["top"]
    assert other["a"]["every"]["of"] != other["b"]["every"]["of"]


def test_a_difference_names_what_is_subtracted():
    plain = opened(PROMPT, NAME)
    ablated = replace(plain, heads=SET, ablated=True)
    for made in compared(PROMPT, ablated, plain).values():
        assert made["title"].startswith("A − B: ")
        states = f"A (pinned): {described(plain)}; B: {described(ablated)}"
        run = "plain, not with" if made["id"] == "set" else "with"
        assert made["run"] == f"{states}; B: Run: {run} L1H0, L0H0 ablated (mean)"
    assert described(plain) == f"{NAME}, “{plain.text}”, plain"
    assert described(ablated) == f"{NAME}, “{plain.text}”, L1H0, L0H0 ablated (mean)"


@pytest.mark.parametrize("page", [PROMPT, HEADS, PAGES["why"]], ids=lambda page: page.name)
def test_each_figure_of_an_ablated_state_names_its_run(page):
    plain = opened(page, NAME, asked=("continuation",), new_tokens=2)
    for view, has_run in ((replace(plain, heads=SET, ablated=True), True), (plain, False)):
        (views,) = drawn(page, view)
        for each in views:
            assert ("Run" in each.get("run", "")) == has_run, each["id"]
            if has_run:
                assert "L1H0, L0H0" in each["run"], each["id"]


def test_figures_of_weights_have_no_run():
    (views,) = drawn(PAGES["weights"], opened(PAGES["weights"], NAME, heads=SET, ablated=True))
    assert all("run" not in each for each in views)


def test_a_pin_starts_side_by_side_and_ends_the_difference():
    view = opened(HEADS, NAME)
    pinned, _ = clicked(HEADS, view, {"pick": "pin"})
    assert (pinned.pinned, pinned.subtract) == (view, False)
    unpinned, _ = clicked(HEADS, replace(pinned, subtract=True), {"pick": "pin"})
    assert unpinned == view


def test_a_link_to_a_difference_without_a_pin_is_left_out_with_a_note():
    view = opened(HEADS, NAME, subtract=True)
    without, notes = completed(view, NAME)
    assert not without.subtract
    assert "subtract=True: no view is pinned" in notes[0]
    both, notes = completed(replace(view, pinned=replace(view, subtract=False)), NAME)
    assert both.subtract
    assert notes == ()


def test_a_head_on_the_map_of_a_difference_can_be_clicked():
    heads = {"kind": "heads", "id": "heads", "tokens": ["a"]}
    pick = {"view": "heads", "pick": "head", "row": 1, "column": 2}
    view, notes = clicked(HEADS, opened(HEADS, NAME), checked(pick, [heads]))
    assert (view.head, notes) == (Head(1, 2), ())
    beyond, notes = clicked(HEADS, opened(HEADS, NAME), checked({**pick, "row": 99}, [heads]))
    assert beyond.head is None
    assert "L99H2" in notes[0]
    with pytest.raises(InvalidInput):
        checked({**pick, "column": None}, [heads])


def test_the_line_of_the_ablation_has_its_own_numbers():
    """A state with the ablation has the mean loss of both runs in the title of its tokens."""
    view = opened(PROMPT, NAME, heads=SET, ablated=True)
    (views,) = drawn(PROMPT, view)
    result = predictions(loaded(NAME), [view.text], ablate=[str(head) for head in SET])
    title = next(each["title"] for each in views if each["id"] == "tokens")
    assert f"mean {result.loss[0, 0]:.3f} → {result.loss[1, 0]:.3f} nats" in title
