"""What several tests of the bundled models read: the corpus, as each model reads it, once."""

import pytest

import interp
from training.corpus import Corpus, read_corpus
from training.python_text import PythonText


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    return read_corpus()


def skip_on_another_corpus(name: str, corpus: Corpus) -> None:
    """Leave a test of a model out where the text that it was trained on is not."""
    data = interp.card(name).data
    if "SHA-256 of the corpus" in data and corpus.sha256 not in data:
        pytest.skip(f"the library of Python {corpus.python} is not what {name} was trained on")


@pytest.fixture(scope="session")
def trained_here(corpus):
    """Skips where the corpus is another than the named model's."""
    return lambda name: skip_on_another_corpus(name, corpus)


def as_read_by(name: str, corpus: Corpus) -> PythonText:
    """In the shipped model's own tokens.

    Another Python has other files, and what is held out here may have been trained on there.
    """
    skip_on_another_corpus(name, corpus)
    return PythonText.for_model(interp.load(name))


@pytest.fixture(scope="session")
def text_2l(corpus) -> PythonText:
    return as_read_by("python-2l", corpus)


@pytest.fixture(scope="session")
def text_4l(corpus) -> PythonText:
    return as_read_by("python-4l", corpus)


@pytest.fixture(scope="session")
def text_mlm(corpus) -> PythonText:
    return as_read_by("python-mlm", corpus)
