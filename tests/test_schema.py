"""Every value of parsed JSON that has another type than the schema is refused by its path."""

from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import each

from interp.errors import InvalidConfig
from interp.io.schema import build, without_version


@dataclass(frozen=True)
class Part:
    size: int
    rate: float = 0.5


@dataclass(frozen=True)
class Whole:
    name: str
    part: Part
    kind: Literal["one", "two"] = "one"
    flag: bool = False
    maybe: Part | None = None
    figures: dict[str, float | int | str] = field(default_factory=dict)
    steps: dict[int, list[float]] = field(default_factory=dict)
    pairs: tuple[tuple[str, int], ...] = ()


VALID = {
    "name": "a",
    "part": {"size": 1, "rate": 2},
    "kind": "two",
    "flag": True,
    "maybe": None,
    "figures": {"x": 1, "y": 0.5, "z": "w"},
    "steps": {"3": [1, 2.5]},
    "pairs": [["a", 1], ["b", 2]],
}
MEANT = Whole(
    "a", Part(1, 2.0), "two", True, None, {"x": 1, "y": 0.5, "z": "w"}, {3: [1.0, 2.5]},
    (("a", 1), ("b", 2)),
)  # fmt: skip
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def test_what_has_the_types_of_the_schema_is_read():
    assert build(Whole, VALID, "file") == MEANT


@given(st.sampled_from(sorted(VALID)), json_values)
def test_any_other_value_is_read_or_refused_by_its_field(name, value):
    message = refusal(VALID | {name: value})
    assert message is None or (name in message and len(message) < 400)


def refusal(values) -> str | None:
    """The message of the error, if there is one; no other error is expected."""
    try:
        build(Whole, values, "file")
    except InvalidConfig as error:
        return str(error)
    return None


@each(
    ("change", "message"),
    [
        ({"name": 1}, r"file\.name should be of type str, got 1"),
        ({"part": {"size": True}}, r"file\.part\.size should be of type int, got True"),
        ({"part": {"size": 1.0}}, r"file\.part\.size should be of type int"),
        ({"part": {"size": 1, "rate": 10**400}}, r"file\.part\.rate is too large"),
        ({"part": {}}, r"file\.part: .*size"),
        ({"part": []}, r"file\.part should be an object"),
        ({"kind": "three"}, "kind='three' must be one of one, two"),
        ({"kind": []}, "must be one of one, two"),
        ({"figures": {"x": None}}, r"file\.figures\['x'\] should be of type float or int or str"),
        ({"steps": {"-1": []}}, r"file\.steps\['-1'\]: the name should be an integer"),
        ({"steps": {"9" * 5000: []}}, "the name should be an integer"),
        ({"pairs": [["a"]]}, r"file\.pairs\[0\] should have 2 values"),
        ({"pairs": [["a", "b"]]}, r"file\.pairs\[0\]\[1\] should be of type int"),
        ({"other": 1}, "file has no field 'other'"),
    ],
)
def test_a_wrong_value_is_named_by_its_path(change, message):
    with pytest.raises(InvalidConfig, match=message):
        build(Whole, VALID | change, "file")


def test_a_version_that_is_missing_or_known_is_read_and_a_newer_one_refused():
    for version in ({}, {"version": 1}, {"version": 2}):
        assert without_version({"a": 1, **version}, 2, "file") == {"a": 1}
    with pytest.raises(InvalidConfig, match=r"version 3 .*up to 2\. Update interp"):
        without_version({"version": 3}, 2, "file")
    for wrong in (0, -1, "2", True, None, 2.0):
        with pytest.raises(InvalidConfig, match="should be an integer"):
            without_version({"version": wrong}, 2, "file")
