"""What several tests of the bundled models read: the corpus, as each model reads it, once."""

import pytest

import interp
from interp.zoo.corpus import Corpus, read_corpus
from interp.zoo.python_text import PythonText


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    return read_corpus()


def as_read_by(name: str, corpus: Corpus) -> PythonText:
    """In the shipped model's own tokens, whatever library this Python has."""
    tokenizer = interp.load(name).tokenizer
    assert tokenizer is not None
    return PythonText.of(corpus, tokenizer._backend)


@pytest.fixture(scope="session")
def text_2l(corpus) -> PythonText:
    return as_read_by("python-2l", corpus)


@pytest.fixture(scope="session")
def text_4l(corpus) -> PythonText:
    return as_read_by("python-4l", corpus)


@pytest.fixture(scope="session")
def text_mlm(corpus) -> PythonText:
    return as_read_by("python-mlm", corpus)
