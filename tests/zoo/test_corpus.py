"""The corpus is the same wherever it is read, and its encoding loses nothing."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from interp.errors import InvalidInput, InvalidTokens
from training.bpe import BOS, encode_corpus, train_bpe
from training.corpus import TOPICS, Corpus, is_held_out, read_corpus, stdlib_files

MODULES = [f"m{n}.py" for n in range(100)]


def write(root: Path, names: list[str]) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"name = {name!r}\n", encoding="utf-8")
    return root


# The real one.


def test_the_corpus_is_about_ten_megabytes(corpus: Corpus):
    assert 5e6 < corpus.train_bytes + corpus.held_out_bytes < 20e6
    assert 0.02 < corpus.held_out_bytes / corpus.train_bytes < 0.08


def test_the_corpus_has_source_and_manual_but_no_tests_or_tables(corpus: Corpus):
    names = {document.name for document in corpus.train + corpus.held_out}
    assert {"json/decoder.py", "pydoc_data/topics/lambda.txt"} <= names
    assert not {"encodings/cp1252.py", "html/entities.py", TOPICS} & names
    assert not any("/test/" in name or "site-packages" in name for name in names)


def test_documents_are_distinct_sorted_and_not_empty(corpus: Corpus):
    for documents in (corpus.train, corpus.held_out):
        assert all(document.text.strip() for document in documents)
    names = [document.name for document in corpus.train + corpus.held_out]
    assert len({*names}) == len(names)


def test_the_manual_reads_as_text(corpus: Corpus):
    chapter = next(d.text for d in corpus.train if d.name == "pydoc_data/topics/lambda.txt")
    assert chapter.startswith("Lambdas\n")
    assert r"\n" not in chapter


# Small ones.


def test_files_are_sorted_by_their_path_with_slashes(tmp_path):
    # As paths, a/b.py sorts before a-b.py; as strings "-" comes before "/".
    write(tmp_path, ["a/b.py", "a-b.py", "B.py"])
    names = [path.relative_to(tmp_path).as_posix() for path in stdlib_files(tmp_path)]
    assert names == ["B.py", "a-b.py", "a/b.py"]


@pytest.mark.parametrize(
    "junk",
    [
        "site-packages/torch/nn.py",
        "unittest/test/support.py",
        "lib2to3/tests/data/README.py",
        "encodings/cp037.py",
        "_sysconfigdata__linux.py",
        "config-3.11/python-config.py",
        "lib/notes.txt",
    ],
)
def test_junk_is_left_out(tmp_path, junk: str):
    write(tmp_path, ["kept.py", junk])
    assert stdlib_files(tmp_path) == [tmp_path / "kept.py"]


def test_the_split_goes_by_name_alone(tmp_path):
    few = read_corpus(write(tmp_path / "few", MODULES[:50]))
    many = read_corpus(write(tmp_path / "many", [*reversed(MODULES)]))
    assert {*few.held_out} == {*many.held_out} & {*few.train, *few.held_out}
    assert all(is_held_out(document.name) for document in many.held_out)
    assert not any(is_held_out(document.name) for document in many.train)


def test_about_one_file_in_twenty_is_held_out():
    share = sum(is_held_out(f"package/{n}.py") for n in range(10_000)) / 10_000
    assert share == pytest.approx(0.05, abs=0.01)


def test_the_hash_distinguishes_texts_and_names(tmp_path):
    root = write(tmp_path / "a", MODULES)
    before = read_corpus(root).sha256
    assert read_corpus(write(tmp_path / "b", MODULES)).sha256 == before
    (root / "m0.py").write_text("name = 'other'\n")
    changed = read_corpus(root).sha256
    (root / "m1.py").rename(root / "n1.py")
    assert len({before, changed, read_corpus(root).sha256}) == 3


def test_line_ends_and_declared_encodings_do_not_matter(tmp_path):
    write(tmp_path, MODULES)
    source = "# -*- coding: {} -*-\nname = 'é'\n"
    (tmp_path / "m0.py").write_bytes(source.format("latin-1").encode("latin-1"))
    (tmp_path / "m1.py").write_bytes(source.format("utf-8").replace("\n", "\r\n").encode())
    texts = {document.name: document.text for document in read_corpus(tmp_path).train}
    assert texts["m0.py"] == source.format("latin-1")
    assert texts["m1.py"] == source.format("utf-8")


def test_chapters_of_the_manual_become_documents(tmp_path):
    write(tmp_path, [*MODULES, TOPICS])
    (tmp_path / TOPICS).write_text(r"topics = {'b': 'Two\n', 'a': 'One \'quoted\'\n', 'c': ''}")
    chapters = [d for d in read_corpus(tmp_path).train if d.name.startswith("pydoc_data")]
    assert [(d.name, d.text) for d in chapters] == [
        ("pydoc_data/topics/a.txt", "One 'quoted'\n"),
        ("pydoc_data/topics/b.txt", "Two\n"),
    ]


def test_a_library_without_source_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match=r"No Python source in .*python311\.zip"):
        read_corpus(tmp_path / "python311.zip")
    with pytest.raises(InvalidInput, match="zipped, stripped or installed elsewhere"):
        stdlib_files(tmp_path)


def test_too_little_source_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="1 documents to train on and 0 held out"):
        read_corpus(write(tmp_path, ["kept.py"]))


@pytest.mark.parametrize("damage", [b"\xff\xfe", b"# coding: nonsense\n"])
def test_a_damaged_file_is_refused_by_name(tmp_path, damage: bytes):
    write(tmp_path, MODULES)
    (tmp_path / "m7.py").write_bytes(damage)
    with pytest.raises(InvalidInput, match=r"m7\.py can't be read"):
        read_corpus(tmp_path)


# The tokenizer of the bundled models.

TEXTS = ["def f(x):\n    return x\n", "class C:\n\n    def f(self):\n        return 12\n"] * 3
TOKENIZER = train_bpe(TEXTS, vocab_size=300)


def test_bpe_does_not_depend_on_order_or_run():
    assert train_bpe(TEXTS, vocab_size=300).to_str() == TOKENIZER.to_str()
    assert train_bpe(reversed(TEXTS), vocab_size=300).to_str() == TOKENIZER.to_str()


def test_special_tokens_come_first():
    tokenizer = train_bpe(TEXTS, vocab_size=280, special=[BOS, "<|eos|>"])
    assert [tokenizer.token_to_id(token) for token in (BOS, "<|eos|>")] == [0, 1]
    assert tokenizer.get_vocab_size() == 280


def test_words_are_one_token_wherever_they_stand():
    """Indentation goes to the line break, not to the first word."""
    tokens = [TOKENIZER.decode([id_]) for id_ in TOKENIZER.encode("\n    return 12\n").ids]
    assert tokens == ["\n    ", "return", " 1", "2", "\n"]


def test_a_vocabulary_without_room_for_bytes_is_refused():
    train_bpe(TEXTS, vocab_size=257)
    with pytest.raises(InvalidInput, match="must be at least 257"):
        train_bpe(TEXTS, vocab_size=256)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=4))
def test_every_document_begins_with_bos_and_nothing_is_lost(texts: list[str]):
    ids = encode_corpus(TOKENIZER, texts)
    assert ids.dtype == torch.int32
    assert int((ids == 0).sum()) == len(texts)
    whole = TOKENIZER.decode(ids.tolist(), skip_special_tokens=False)
    assert whole == "".join(BOS + text for text in texts)


def test_a_text_that_spells_out_bos_is_refused():
    with pytest.raises(InvalidTokens, match="may only begin a document"):
        encode_corpus(TOKENIZER, ["a", f"b {BOS} c"])
    with pytest.raises(InvalidTokens, match=r"no token '<\|start\|>'"):
        encode_corpus(TOKENIZER, ["a"], bos="<|start|>")
