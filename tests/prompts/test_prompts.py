"""Prompt files are read whole, or the bad line is named."""

import pytest
from tables import each

import interp
from interp.errors import InvalidInput
from interp.prompts import logit_diff_of_prompts
from interp.prompts.prompts import MAX_BYTES, MAX_PROMPTS, read_prompts


def write(tmp_path, content, name="prompts.jsonl"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_json_lines_and_plain_lines(tmp_path):
    (first, second) = read_prompts(
        write(tmp_path, '{"text": "a b"}\n\n{"text": "c", "target": "d"}\n')
    )
    assert (first.text, second.target, second.distractor) == ("a b", "d", None)
    assert second.source.endswith("prompts.jsonl:3")
    assert [p.text for p in read_prompts(write(tmp_path, "one\ntwo\n", "p.txt"))] == ["one", "two"]


def test_a_minimal_pair_is_a_text_and_its_corrupted_one(tmp_path):
    line = '{"text": "7 June", "corrupt": "7 July", "prefix": "0", "target": "6"}'
    (prompt,) = read_prompts(write(tmp_path, line))
    assert (prompt.text, prompt.corrupt, prompt.prefix) == ("7 June", "7 July", "0")


def test_bundled_sets_fit_their_models():
    assert {"letters", "repeated"} <= set(interp.bundled_prompts())
    for name, model in (("letters", "induction-by-hand"), ("repeated", "python-2l")):
        prompts = interp.read_prompts(name)
        loaded = interp.load(model)
        metric = logit_diff_of_prompts(loaded.to_single_token, prompts)
        done = interp.run(loaded, [prompt.text for prompt in prompts])
        assert (metric(done.logits, done.batch) > 0).all()


@each(
    ("content", "message"),
    [
        (b"", "holds no prompts"),
        (b"\n \n", "holds no prompts"),
        (b'{"text": "a"}\n{"text": ', r"prompts.jsonl:2: not a JSON object"),
        (b'["a"]', r"prompts.jsonl:1: expected an object"),
        (b'{"txt": "a"}', r"prompts.jsonl:1: expected an object"),
        (b'{"text": "a", "goal": "b"}', r"prompts.jsonl:1: unknown field 'goal'"),
        (b'{"text": "a", "target": 3}', r"prompts.jsonl:1: target should be a text"),
        (b'{"text": ""}', r"prompts.jsonl:1: the prompt is empty"),
        (b'{"text": "a", "corrupt": 3}', r"prompts.jsonl:1: corrupt should be a text"),
        (b'{"text": "a", "corrupt": ""}', r"prompts.jsonl:1: corrupt should be a text other than"),
        (b'{"text": "a", "corrupt": "a"}', r"prompts.jsonl:1: corrupt should be a text other than"),
        (b'{"text": "\xff"}', "not UTF-8"),
    ],
)
def test_bad_files_are_named(tmp_path, content, message):
    with pytest.raises(InvalidInput, match=message):
        read_prompts(write(tmp_path, content))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InvalidInput, match=r"sets: .*, letters, .*, repeated"):
        read_prompts(tmp_path / "none.jsonl")


@each(
    ("line", "message"),
    [
        (
            '{"text": "ab", "target": "cd", "distractor": "e"}',
            "prompts.jsonl:1: target: .*2 tokens",
        ),
        ('{"text": "ab", "target": "c"}', "prompts.jsonl:1: .*'distractor'"),
    ],
)
def test_a_target_must_be_one_token(tmp_path, line, message):
    prompts = read_prompts(write(tmp_path, line))
    with pytest.raises(InvalidInput, match=message):
        logit_diff_of_prompts(interp.load("induction-by-hand").to_single_token, prompts)


def test_only_line_feeds_end_a_line_and_a_byte_order_mark_is_no_text(tmp_path):
    (plain,) = read_prompts(write(tmp_path, "\ufeffone\x0ctwo\n".encode(), "p.txt"))
    assert plain.text == "one\x0ctwo"
    (spoken,) = read_prompts(write(tmp_path, '{"text": "a\u2028b"}\n'))
    assert spoken.text == "a\u2028b"


@pytest.mark.timeout(60)
@pytest.mark.slow
def test_a_file_of_very_many_or_very_long_prompts_is_refused(tmp_path, monkeypatch):
    assert len(read_prompts(write(tmp_path, "a\n" * MAX_PROMPTS, "p.txt"))) == MAX_PROMPTS
    with pytest.raises(InvalidInput, match="more than 100000 prompts"):
        read_prompts(write(tmp_path, "a\n" * (MAX_PROMPTS + 1), "p.txt"))
    with (tmp_path / "long.txt").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(InvalidInput, match="larger than"):
        read_prompts(tmp_path / "long.txt")


@each("line", ['{"text": "a", "text": "b"}', "[" * 1000 + "]" * 1000, '{"text": "\\ud800"}'])
def test_a_line_that_is_no_plain_json_is_named(tmp_path, line):
    with pytest.raises(InvalidInput, match=r"prompts.jsonl:1: not a JSON object"):
        read_prompts(write(tmp_path, line))


def test_a_message_shows_little_of_a_long_line(tmp_path):
    with pytest.raises(InvalidInput) as error:
        read_prompts(write(tmp_path, f'["{"x" * 10**6}"]'))
    assert len(str(error.value)) < 400


def test_all_ends_of_lines_are_the_same(tmp_path):
    for end in ("\n", "\r\n", "\r"):
        prompts = read_prompts(write(tmp_path, f"one{end}two{end}", "p.txt"))
        assert [prompt.text for prompt in prompts] == ["one", "two"]
