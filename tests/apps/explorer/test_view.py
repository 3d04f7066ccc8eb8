"""A view is written to an address and read back; what can't be read is left out with a note."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.explorer.validate import validated
from apps.explorer.view import (
    DEFAULT,
    MAX_FACTOR,
    MAX_SAMPLES,
    MAX_TEMPERATURE,
    MAX_TEXT,
    PAGES,
    Head,
    View,
    from_address,
)
from interp.loading import load

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
heads = st.builds(Head, st.integers(0, 99), st.integers(0, 99))
places = st.none() | st.integers(-64, 512)
views = st.builds(
    View,
    page=st.sampled_from(PAGES),
    model=texts,
    text=texts,
    target=texts,
    distractor=texts,
    corrupt=texts,
    prefix=texts,
    prompts=st.sampled_from(["", "examples"]),
    position=places,
    head=st.none() | heads,
    heads=st.lists(heads, max_size=4).map(tuple),
    query=places,
    key=places,
    method=st.sampled_from(["zero", "mean", "resample"]),
    metric=st.sampled_from(["", "loss", "logit-diff"]),
    contrast=st.integers(0, 9),
    component=st.sampled_from(["", "L1H0", "cross.L0H3", "L1.ln2.bias"]),
    trail=st.lists(st.sampled_from(["L1H0", "L0MLP", "embed"]), max_size=3).map(tuple),
    at=st.sampled_from(["resid_pre", "z"]),
    direction=st.sampled_from(["denoise", "noise"]),
    edges=st.integers(1, 99),
    units=st.sampled_from(["neurons", "features", "heads and MLPs"]),
    share=st.sampled_from([0.5, 0.8, 0.95]),
    node=st.sampled_from(["", "L1N5@3", "embed@0 → logit ·is@5", "a group"]),
    groups=st.sampled_from([(), ("a=L1N5@3",), ("a=L1N5@3+L0F7@2+L0MLP@2", "b c=L2F1@0")]),
    factor=st.floats(-MAX_FACTOR, MAX_FACTOR),
    ablated=st.booleans(),
    temperature=st.floats(0, MAX_TEMPERATURE),
    samples=st.integers(1, MAX_SAMPLES),
    asked=st.lists(st.sampled_from(["texts", "prune"]), max_size=2, unique=True).map(tuple),
)


@given(views, st.none() | views)
def test_a_view_is_read_back_from_its_address(view, pinned):
    view = replace(view, pinned=pinned)
    address = view.to_address()
    assert from_address(address) == (view, ())
    assert all(isinstance(text, str) for text in address.values())


def test_defaults_are_not_written():
    assert DEFAULT.to_address() == {"page": "heads"}
    assert from_address({}) == (DEFAULT, ())


def test_a_prompt_too_long_for_an_address_takes_its_selection_with_it():
    view = View(model="python-4l", text="a" * (MAX_TEXT + 1), position=3, head=Head(1, 2))
    address = view.to_address()
    assert address == {"page": "heads", "model": "python-4l", "omitted": "text"}
    without, notes = from_address(address)
    assert without == View(model="python-4l")
    assert notes == (
        "This link holds no prompt, since that had more than 2,000 characters; another prompt is "
        "shown.",
    )
    assert replace(view, text="a" * MAX_TEXT).to_address()["position"] == "3"
    assert replace(view, text="a", corrupt=view.text).to_address() == view.to_address()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("page", "admin"),
        ("head", "L1"),
        ("head", "../../etc"),
        ("heads", "L0H1,L1"),
        ("position", "²"),
        ("position", "1e9"),
        ("position", "9" * 4000),
        ("contrast", "nan"),
        ("contrast", "11"),
        ("pinned", "broken"),
        ("contrast", "1e99"),
        ("ablated", "1"),
        ("asked", "__import__('os')"),
        ("text", "a" * (MAX_TEXT + 1)),
        ("pinned", "page=admin"),
        ("component", "<img src=x>"),
        ("trail", "L1H0,,L0H5"),
        ("direction", "both"),
        ("edges", "0"),
        ("units", "pigeons"),
        ("share", "0"),
        ("factor", "inf"),
        ("node", "a\nb"),
        ("groups", "a=L1H0"),
        ("groups", "a=L1N5@3,a=L1N6@3"),
        ("temperature", "nan"),
        ("temperature", "10.1"),
        ("samples", "1.5"),
        ("unknown", "x"),
    ],
)
def test_what_cannot_be_read_is_left_out_with_a_note(name, text):
    view, notes = from_address({name: text})
    assert view == DEFAULT
    assert len(notes) == 1
    assert name in notes[0]
    assert len(notes[0]) < 300


def test_each_wrong_field_of_a_pinned_view_is_named():
    view, notes = from_address({"pinned": "page=admin&head=L1&model=x", "text": "abc"})
    assert view == View(text="abc")
    for note, name in zip(notes, ("'page'='admin'", "'head'='L1'"), strict=True):
        assert note.startswith("pinned: it is left out.")
        assert name in note


def test_a_view_is_fitted_to_its_model():
    model = load("induction-by-hand")
    view = View(model="induction-by-hand", text="abab", head=Head(1, 3), heads=(Head(0, 2),))
    whole, notes = validated(view, model)
    assert (whole.head, whole.heads, notes) == (view.head, view.heads, ())
    less, notes = validated(replace(view, head=Head(7, 0), heads=(Head(0, 2), Head(0, 9))), model)
    assert (less.head, less.heads) == (None, (Head(0, 2),))
    assert any("L7H0" in note for note in notes)
    assert any("L0H9" in note for note in notes)
    walked = replace(view, component="embed", trail=("L1H3", "embed"))
    assert validated(walked, model)[0].trail == walked.trail
    less, notes = validated(replace(walked, trail=("L1H9", "embed")), model)
    assert (less.component, less.trail) == ("", ())
    assert any("L1H9" in note for note in notes)
    end = model.to_tokens("abab").shape[1]
    for name in ("position", "query", "key"):
        assert validated(replace(view, **{name: end - 1}), model)[1] == ()
        less, notes = validated(replace(view, **{name: end}), model)
        assert getattr(less, name) is None
        assert notes == (f"{name}={end}: the prompt has positions 0 to {end - 1}.",)
