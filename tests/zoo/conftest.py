"""What several tests of the bundled models read: the corpus, once."""

import pytest

from interp.zoo.python_text import PythonText, read_python


@pytest.fixture(scope="session")
def text_512() -> PythonText:
    return read_python(512)


@pytest.fixture(scope="session")
def text_1024() -> PythonText:
    return read_python(1024)
