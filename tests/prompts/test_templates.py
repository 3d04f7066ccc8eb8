"""Templates are filled with every entry equally often; what can't be filled is named."""

from collections import Counter

import pytest
from tables import each

import interp
from interp.errors import InvalidInput
from interp.prompts.prompts import read_prompts
from interp.prompts.template import MAX_BY_DEFAULT

NAMES = ("Ann", "Bob", "Cy", "Dan")
FILE = """
text = "{a} met {b}. {a} saw"     # a comment
corrupt = "{a} met {b}. {c} saw"
target = " {b}"
distractor = " {a}"
n = 8
seed = 2

[lists]
name = ["Ann", "Bob", "Cy", "Dan"]

[slots]
a = "name"
b = "name"
c = "name"
"""


def three(**changed):
    fields = {
        "text": "{a} met {b}. {a} saw",
        "lists": {"name": NAMES},
        "slots": dict.fromkeys("abc", "name"),
        "corrupt": "{a} met {b}. {c} saw",
        "target": " {b}",
        "distractor": " {a}",
    }
    return interp.Template(**{**fields, **changed})


def write(tmp_path, content, name="names.toml"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("n", [1, 4, 7, 12, 24])
def test_targets_distractors_and_what_is_corrupted_are_balanced(n):
    prompts = three().fill(n, seed=1)
    assert len(prompts) == n
    assert len({(prompt.text, prompt.corrupt) for prompt in prompts}) == n
    for values in (
        [prompt.target for prompt in prompts],
        [prompt.distractor for prompt in prompts],
        [(prompt.corrupt or "").split()[-2] for prompt in prompts],
    ):
        counts = Counter(values)
        assert max(counts.values()) - min(counts.values(), default=0) <= 1
        assert len(counts) == min(n, 4)


def test_the_fields_of_a_prompt_are_filled_alike():
    for prompt in three().fill(24):
        a, _, b, _ = prompt.text.replace(".", "").split()[:4]
        assert (prompt.target, prompt.distractor) == (f" {b}", f" {a}")
        assert (prompt.corrupt or "").startswith(f"{a} met {b}. ")
        assert len({a, b, (prompt.corrupt or "").split()[-2]}) == 3


def test_records_fill_a_slot_with_several_texts_and_braces_are_kept():
    template = interp.Template(
        "{{{place.country}}} has the capital",
        lists={
            "place": [
                {"country": "France", "capital": "Paris"},
                {"country": "Italy", "capital": "Rome"},
            ]
        },
        target=" {place.capital}",
    )
    targets = {prompt.text: prompt.target for prompt in template.fill()}
    assert targets == {"{France} has the capital": " Paris", "{Italy} has the capital": " Rome"}


def test_several_texts_are_variants_of_which_each_is_used_equally_often():
    template = three(
        text=["{a} met {b}. {a} saw", "{b} met {a}. {a} saw"],
        corrupt=None,
        slots=dict.fromkeys("ab", "name"),
    )
    prompts = template.fill(12)
    first = sum(prompt.text.startswith((prompt.distractor or "").strip()) for prompt in prompts)
    assert first == 6
    assert template.n_fillings == 24


def test_all_fillings_are_taken_where_no_number_is_given_and_there_are_few():
    assert len(three().fill()) == three().n_fillings == 24
    lists = {name: [str(n) for n in range(11)] for name in "xyz"}
    with pytest.raises(InvalidInput, match=r"1331 different fillings; give n"):
        interp.Template("{x} {y} {z}", lists=lists).fill()
    assert MAX_BY_DEFAULT < 11**3


def test_a_file_is_a_template_and_every_reader_of_prompts_fills_it(tmp_path):
    file = write(tmp_path, FILE)
    template = interp.read_template(file)
    assert (template.n, template.seed) == (8, 2)
    for prompts in (read_prompts(file), list(interp.iter_prompts(file)), template.fill()):
        assert [prompt.fields() for prompt in prompts] == [p.fields() for p in three().fill(8, 2)]
    source = read_prompts(file)[3].source
    assert source.startswith(f"{file}[3] (a=")


@each(
    ("old", "new", "message"),
    [
        ('target = " {b}"', 'targte = " {b}"', r"toml:4: unknown key 'targte'. Nearest: target"),
        ('target = " {b}"', 'target = " {d}"', r"toml:4: target has the slot {d}, but there is no"),
        ('target = " {b}"', 'target = " {b"', r"toml:4: expected '}' before end of string"),
        ('target = " {b}"', 'target = " {b:>3}"', r"toml:4: {b…} is not a slot"),
        ('target = " {b}"', 'target = " {b.x}"', r"toml:4: {b.x} asks for a field"),
        ('target = " {b}"', 'target = " {b}', r"toml:4: not TOML: "),
        ('target = " {b}"', "target = 3", r"toml:4: target should be a text, got 3"),
        ('target = " {b}"', "target = ['a', 'b']", r"toml:4: target has 2 texts, but text has 1"),
        ("n = 8", "n = 25", r"toml:6: 25 prompts were requested, but it has only 24 different"),
        ("n = 8", "n = 0", r"toml:6: n=0 must be an integer of at least 1"),
        ("n = 8", "n = '8'", r"toml:6: n='8' must be an integer"),
        ("seed = 2", "seed = 0.5", r"toml:7: seed=0.5 must be an integer"),
        ("[lists]", "[lists]\nn = 3", r"toml:10: n is in the table lists"),
        ("[lists]", "[lists]\nplace = ['a']", r"toml:10: no text has a slot for lists.place"),
        ('"Cy", "Dan"', '"Ann"', r"toml:10: the list 'name' holds 'Ann' twice"),
        (', "Cy", "Dan"', "", r"toml:10: the slots a, b, c draw different entries"),
        ('"Cy"', "3", r"toml:10: the list 'name' holds 3, which is not a text"),
        ('"Cy"', "{x = 'y'}", r"its entries should all be texts, or records"),
        ('["Ann", "Bob", "Cy", "Dan"]', "[]", r"toml:10: the list 'name' should be a list"),
        (
            'c = "name"',
            'c = "names"',
            r"toml:15: the slot 'c' is filled from 'names', which is not a list. Nearest: name",
        ),
        ('c = "name"', "c = 3", r"toml:15: the slot 'c' should name a list"),
        ('c = "name"', 'c = "name"\nd = "name"', r"toml:16: no text has a slot for slots.d"),
        ("{c} saw", "{a} saw", r"no text has a slot for slots.c"),
        ('text = "', 'txt = "', r"toml:2: unknown key 'txt'. Nearest: text"),
        ("[lists]", "[list]", r"toml:9: unknown key 'list'. Nearest: lists"),
    ],
)
def test_a_template_that_can_not_be_filled_is_named_with_its_line(tmp_path, old, new, message):
    assert old in FILE
    with pytest.raises(InvalidInput, match=message):
        read_prompts(write(tmp_path, FILE.replace(old, new)))


@each(
    ("content", "message"),
    [
        (b"", "has no 'text'"),
        (b'text = "a"', "has no 'lists'"),
        (b'text = "\xff"', r"names.toml:1 is not UTF-8"),
        (b'text = "a"\n\0', r"names.toml:2 holds a NUL byte"),
        (b"a = " + b"[" * 10**5, "not TOML"),
        (b'text = "a {x}"\nlists = 3', "lists are entries by name"),
        (
            b'text = "{x.b}"\n[lists]\nx = [{a = "c"}]',
            r"{x.b} is not a field of its entries; write {x.a}",
        ),
    ],
)
def test_a_file_that_is_no_template_is_refused(tmp_path, content, message):
    with pytest.raises(InvalidInput, match=message):
        interp.read_template(write(tmp_path, content))


def test_a_filling_that_is_the_same_clean_and_corrupted_is_named():
    lists = {"city": [{"name": name, "land": "Italy"} for name in ("Rome", "Milan")]}
    texts = "{x.name} and {y.name} lie in {x.land}", "{x.name} and {y.name} lie in {y.land}"
    template = interp.Template(
        texts[0], lists, {"x": "city", "y": "city"}, corrupt=texts[1], source="city.toml"
    )
    with pytest.raises(InvalidInput, match=r"city.toml\[0\] \(x=\w+, y=\w+\): corrupt should be"):
        template.fill()
