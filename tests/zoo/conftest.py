"""What several tests of the bundled models read: the corpus, as each model reads it, once."""

import pytest

import interp
from interp.zoo.corpus import Corpus, read_corpus
from interp.zoo.python_text import PythonText


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    return read_corpus()


def as_read_by(name: str, corpus: Corpus) -> PythonText:
    """In the shipped model's own tokens.

    Another Python has other files, and what is held out here may have been trained on there.
    """
    if corpus.sha256 not in interp.card(name).data:
        pytest.skip(f"the library of Python {corpus.python} is not what {name} was trained on")
    return PythonText.as_read_by(interp.load(name))


@pytest.fixture(scope="session")
def text_2l(corpus) -> PythonText:
    return as_read_by("python-2l", corpus)


@pytest.fixture(scope="session")
def text_4l(corpus) -> PythonText:
    return as_read_by("python-4l", corpus)


@pytest.fixture(scope="session")
def text_mlm(corpus) -> PythonText:
    return as_read_by("python-mlm", corpus)
