"""JSON from anywhere ends in a value or a ValueError, in time and memory linear in its size."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import each

from interp.io.json_text import MAX_DEPTH, MAX_DIGITS, parse_json, read_json

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(values)
def test_what_json_writes_is_read_as_it_was(value):
    try:
        text = json.dumps(value, ensure_ascii=False)
        text.encode()
    except UnicodeEncodeError:
        return  # a name with half a surrogate pair
    assert parse_json(text) == value


@each(
    ("text", "message"),
    [
        ('{"a": 1, "b": 2, "a": 1}', "'a' occurs twice"),
        ('[{"a": 1, "a": 1}]', "'a' occurs twice"),
        ("NaN", "NaN is not"),
        ('{"a": -Infinity}', "-Infinity is not"),
        ("1e999", "beyond the range"),
        ("9" * (MAX_DIGITS + 1), "digits"),
        ("0." + "9" * MAX_DIGITS, "digits"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "nested deeper"),
        ("[" * 100_000 + "]" * 100_000, "nested deeper"),
        ('{"a":' * 900 + "1" + "}" * 900, "nested deeper"),
        ('"\\ud800"', "surrogates not allowed"),
        ('{"\\udfff": 1}', "surrogates not allowed"),
        ('\ufeff{"a": 1}', "BOM"),
        ("", "Expecting value"),
        ("{} {}", "Extra data"),
    ],
)
def test_what_is_no_plain_json_is_a_value_error(text, message):
    with pytest.raises(ValueError, match=message) as error:
        parse_json(text)
    assert len(str(error.value)) < 300


def test_what_is_just_within_the_bounds_is_read():
    assert parse_json("9" * MAX_DIGITS) == 10**MAX_DIGITS - 1
    deep = parse_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert json.dumps(deep) == "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert parse_json('"\\ud83d\\ude00"') == "😀"


@pytest.mark.timeout(60)
def test_many_names_of_which_the_last_occurs_twice_are_refused_in_linear_time():
    """Quadratic time would be an hour."""
    names = ",".join(f'"{n}":0' for n in range(300_000))
    with pytest.raises(ValueError, match="'299999' occurs twice"):
        parse_json(f'{{{names},"299999":1}}')


def test_a_file_of_another_encoding_or_size_is_a_value_error(tmp_path):
    path = tmp_path / "a.json"
    for content in ('{"a": 1}'.encode("utf-16"), b'{"a": "\xff"}', b'"' + b"a" * 100 + b'"'):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"codec|larger than 50 bytes"):
            read_json(path, 50)
