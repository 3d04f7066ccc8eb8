"""An edit is data: equal, hashed and written by its content."""

import json
from dataclasses import FrozenInstanceError

import pytest
import torch
from architectures import assert_identical, build, tokens_of
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import each

from interp import Place, Point, edits, run
from interp.edits import Edit
from interp.errors import InvalidEdit
from interp.io.tensor_data import TensorData

names = st.sampled_from(["z", "resid_pre", Point.PATTERN, ("scale", 0, "ln1"), Place(Point.Q, 1)])
indices = st.none() | st.integers(-9, 9) | st.lists(st.integers(-9, 9), min_size=1, unique=True)
numbers = st.floats(allow_nan=False, allow_infinity=False)
dtypes = st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16])


@st.composite
def tensors(draw) -> torch.Tensor:
    shape = draw(st.lists(st.integers(1, 3), max_size=3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    return torch.randn(shape, generator=generator).to(draw(dtypes))


@st.composite
def selections(draw) -> dict[str, object]:
    asked = {axis: draw(indices) for axis in ("batch", "pos", "head", "key", "unit")}
    layer = draw(st.none() | st.integers(-3, 3))
    return asked | ({} if layer is None else {"layer": layer})


@st.composite
def descriptions(draw) -> tuple[str, tuple[object, ...], dict[str, object]]:
    """Kind, arguments and keywords of an edit."""
    name, where = draw(names), draw(selections())
    if isinstance(name, tuple | Place):
        where.pop("layer", None)
    kind = draw(st.sampled_from(["zero", "scale", "add", "replace", "mean", "resample"]))
    arguments = {
        "zero": st.tuples(),
        "scale": st.tuples(numbers),
        "add": st.tuples(numbers | tensors()),
        "replace": st.tuples(numbers | tensors()),
        "mean": st.tuples(st.none() | tensors()),
        "resample": st.tuples(st.none() | tensors(), st.integers(0, 9)),
    }
    return kind, (name, *draw(arguments[kind])), where


def made(description: tuple[str, tuple[object, ...], dict[str, object]]) -> Edit:
    kind, arguments, where = description
    return getattr(edits, kind)(*arguments, **where)


@settings(max_examples=80)
@given(description=descriptions())
def test_what_is_written_as_json_is_read_back_equal(description):
    edit = made(description)
    again = edits.from_dict(json.loads(json.dumps(edit.to_dict())))
    assert again == edit
    assert hash(again) == hash(edit)
    assert again.digest == edit.digest
    assert again.pointwise == edit.pointwise


@settings(max_examples=80)
@given(first=descriptions(), second=descriptions())
def test_edits_are_equal_exactly_if_their_contents_are(first, second):
    first, second = made(first), made(second)
    assert (
        (first == second)
        == (first.digest == second.digest)
        == (first.to_dict() == second.to_dict())
    )


def test_the_ways_to_name_a_place_make_one_edit():
    expected = edits.zero("z", layer=1, head=4)
    assert edits.zero(("z", 1), head=4) == expected
    assert edits.zero(Point.Z, layer=1, head=4) == expected
    assert edits.zero(Place(Point.Z, 1), head=4) == expected
    assert edits.zero((Point.Z, 1), head=4) == expected
    assert {expected: "found"}[edits.zero("z", layer=1, head=4)] == "found"
    assert edits.zero("z", layer=1, head=[4]) != expected


def test_an_edit_read_back_does_the_same():
    model, tokens = build("gpt2"), tokens_of("gpt2")
    values = torch.linspace(-1, 1, 12, dtype=torch.float64)
    edit = edits.add(("resid_pre", 1), values, pos=[0, -1])
    again = edits.from_dict(json.loads(json.dumps(edit.to_dict())))
    expected = run(model, *tokens, edits=[edit]).logits
    assert_identical(run(model, *tokens, edits=[again]).logits, expected)


def test_a_digest_does_not_change_from_day_to_day():
    """It stands in results that are read later."""
    edit = edits.scale("z", 0.5, layer=1, head=[0, 2])
    fields = {"factor": 0.5, "head": [0, 2], "kind": "scale", "where": ["z", 1]}
    assert edit.to_dict() == fields
    assert edit.digest == "21bcf6da6f6d14cd13e0b44440dbf4039ee98147b28b5329a96f6fe463b6f35f"


def test_an_edit_is_frozen():
    with pytest.raises(FrozenInstanceError):
        edits.zero("z", layer=1).where = ("z", 2)


def test_a_function_is_not_data():
    edit = edits.apply("z", lambda z, hook: z, layer=0)
    with pytest.raises(InvalidEdit, match=r"apply.*JSON"):
        edit.to_dict()
    assert edit == edit  # noqa: PLR0124 - it has an identity all the same
    assert len({edit, edit}) == 1
    assert edit.digest != edits.apply("z", print, layer=0).digest


ADD = {"kind": "add", "where": ["z", 0]}


@each(
    ("written", "message"),
    [
        ({}, "kind"),
        ({"where": ["z", 0]}, "kind"),
        ({"kind": "nil", "where": ["z", 0]}, "kind among zero"),
        ({"kind": "apply", "where": ["z", 0]}, "kind among"),
        ({"kind": "zero", "where": ["z", 0], "heads": 1}, "heads"),
        ({"kind": "zero", "where": ["z", 0], "factor": 1.0}, "factor"),
        ({"kind": "zero", "where": ["z", 0], "head": []}, "different indices"),
        ({"kind": "zero", "where": ["z", 0], "head": "x"}, "head"),
        ({"kind": "zero"}, "where"),
        ({"kind": "zero", "where": 3}, "where"),
        ({"kind": "scale", "where": ["z", 0], "factor": "x"}, "factor"),
        ({"kind": "zero", "where": ["z", 0], "head": False}, "head"),
        ({"kind": "zero", "where": ["z", 0], "pos": [0, True]}, "pos"),
        ({"kind": "zero", "where": ["z", False]}, "where"),
        ({"kind": "scale", "where": ["z", 0], "factor": True}, "factor"),
        ({"kind": "scale", "where": ["z", 0], "factor": 10**400}, "factor"),
        ({"kind": "mean", "where": ["z", 0]}, "values"),
        ({"kind": "mean", "where": ["z", 0], "values": None}, "values"),
        ({"kind": "mean", "where": ["z", 0], "values": 1.5}, "values"),
        ({"kind": "mean", "where": ["z", 0], "values": "of the batch"}, "values"),
        ({"kind": "resample", "where": ["z", 0], "seed": 1}, "values"),
        ({"kind": "resample", "where": ["z", 0], "values": "batch"}, "seed"),
        ({"kind": "resample", "where": ["z", 0], "values": "batch", "seed": [1, 2]}, "seed"),
        ({"kind": "resample", "where": ["z", 0], "values": "batch", "seed": True}, "seed"),
        (ADD | {"values": "batch"}, "values"),
        (ADD | {"values": {"shape": [1]}}, "values"),
        (ADD | {"values": "x"}, "values"),
        (ADD | {"values": [1.0]}, "values"),
        (ADD | {"values": {"dtype": "torch.save", "shape": [1], "data": ""}}, "values"),
        (ADD | {"values": {"dtype": "torch.float32", "shape": [9], "data": "AAAA"}}, "values"),
        (ADD | {"values": {"dtype": "torch.float32", "shape": [1], "data": "?"}}, "values"),
    ],
)
def test_what_is_no_edit_is_refused(written, message):
    """Reports and workers read edits from files: whatever stands there, the message names it."""
    with pytest.raises(InvalidEdit, match=message):
        edits.from_dict(written)


@pytest.mark.parametrize("kind", [edits.mean, edits.resample])
def test_json_records_whether_values_were_given(kind):
    """Values that got lost on the way are not those of the run's batch."""
    of_tensor, of_batch = kind("z", torch.ones(4), layer=0).to_dict(), kind("z", layer=0).to_dict()
    assert of_batch["values"] == "batch"
    assert edits.from_dict(of_batch) == kind("z", layer=0)
    for lost in (
        {**of_tensor, "values": None},
        {k: v for k, v in of_tensor.items() if k != "values"},
    ):
        with pytest.raises(InvalidEdit, match="needs 'values'"):
            edits.from_dict(lost)


@settings(max_examples=60)
@given(
    description=descriptions(), name=st.sampled_from(["head", "values", "seed", "where", "factor"])
)
def test_a_field_that_is_lost_is_refused_or_was_not_there(description, name):
    """No edit becomes another one when something is missing."""
    written = made(description).to_dict()
    less = {key: value for key, value in written.items() if key != name}
    try:
        again = edits.from_dict(less)
    except InvalidEdit:
        return
    assert name not in written or name == "head"
    assert again == made(description) or name == "head"


def test_reading_an_edit_leaves_what_was_read_alone():
    written = edits.add("z", torch.ones(2), layer=0).to_dict()
    before = json.dumps(written)
    edits.from_dict(written)
    assert json.dumps(written) == before


@settings(max_examples=20)
@given(tensor=tensors())
def test_values_are_equal_by_content(tensor):
    data, copy = TensorData(tensor), TensorData(tensor.clone())
    assert data == copy
    assert hash(data) == hash(copy)
    assert TensorData.from_json(json.loads(json.dumps(data.to_json()))) == data
    assert TensorData(tensor + 1) != data
    assert TensorData(tensor[None]) != data
    assert TensorData(tensor.to(torch.complex64)) != data


@each(
    "written",
    [
        None,
        [1],
        {"kind": "scale", "where": ["z", 0]},
        {"kind": "add", "where": ["z", 0]},
        {"kind": "replace", "where": ["z", 0], "values": None},
        {"kind": "resample", "where": ["z", 0], "seed": "x"},
    ],
)
def test_an_edit_without_what_it_writes_is_refused(written):
    """It would do nothing, and say nothing."""
    with pytest.raises(InvalidEdit):
        edits.from_dict(written)


def test_a_result_is_not_the_edits_own_data():
    values = torch.ones(2, 3, 13, dtype=torch.float64)
    edit = edits.replace("logits", values)
    run(build("gpt2"), torch.tensor([[1, 2, 3], [4, 5, 6]]), edits=[edit]).logits.zero_()
    assert (edit.values.tensor == 1).all()


def test_functions_with_other_code_have_other_digests():
    edit, other = (edits.apply("z", fn, layer=0) for fn in (lambda z, _: z, lambda z, _: 2 * z))
    assert edit.digest != other.digest
