"""TOML is parsed as tomllib does, except beyond the limits, which are found before it is parsed."""

import tomllib

import pytest

from interp.io.toml_text import MAX_BARE, MAX_DEPTH, MAX_PARTS, MAX_TABLES, parse_toml


def dotted(parts, piece="a", between="."):
    return between.join([piece] * parts) + " = 1"


def nested(depth, opening="[", closing="]"):
    return f"a = {opening * depth}{closing * depth}"


@pytest.mark.parametrize(
    ("make", "limit"),
    [
        (dotted, MAX_PARTS),
        (lambda parts: dotted(parts, '"a.b"', " . "), MAX_PARTS),
        (lambda parts: f"[{dotted(parts).removesuffix(' = 1')}]", MAX_PARTS),
        (lambda parts: f'a = ["""x"""", {{{dotted(parts)}}}, "]"]', MAX_PARTS),
        (lambda parts: f"a = ['''x'''', {{{dotted(parts)}}}, ']']", MAX_PARTS),
        (nested, MAX_DEPTH),
        (lambda digits: f"a = {'9' * digits}", MAX_BARE),
        (lambda digits: f"a = 0x{'f' * (digits - 2)}", MAX_BARE),
        (lambda tables: "[[a]]\n" * tables, MAX_TABLES),
    ],
)
def test_up_to_a_limit_it_is_parsed_and_beyond_it_is_refused(make, limit):
    assert parse_toml(make(limit)) == tomllib.loads(make(limit))
    with pytest.raises(ValueError, match=r"more than|deeper than"):
        parse_toml(make(limit + 1))


@pytest.mark.parametrize(
    "text",
    [
        f"a = '{'.a' * 100}'  # {'[' * 100} {'.a' * 100}",
        f'a = """\n{dotted(100)}\n{"[" * 100}\\""" """"',
        f'a = "{"[" * 100}\\"{".a" * 100}"',
        f"a = '''{'[' * 100}\n'{'9' * 2000}''''",
        "a = [1.5, 1979-05-27T07:32:00.999Z, [0.1], {b.c = 1}]\n" * 1,
        "a.b = 1\n" + "".join(f"c{n}.d = [1]\n" for n in range(100)),
    ],
)
def test_texts_and_comments_are_not_taken_for_keys_and_lists(text):
    assert parse_toml(text) == tomllib.loads(text)


@pytest.mark.parametrize("text", ['a = "', '"\\' * 20_000, "'''" * 20_001, " " * 100_000, 'a="""x'])
def test_a_text_that_is_not_toml_is_refused(text):
    with pytest.raises(tomllib.TOMLDecodeError):
        parse_toml(text + "x")


def test_the_message_has_the_position():
    with pytest.raises(ValueError, match=r"parts \(at line 2, column 32\)"):
        parse_toml("b = 1\n" + dotted(100))
