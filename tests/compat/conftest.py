"""What the tests of several modules of ``interp.compat`` use."""

from itertools import count

import pytest


@pytest.fixture
def datasets(monkeypatch):
    """The library ``datasets``.

    It would pickle each function, with all that checks annotations in tests, for a fingerprint: a
    minute each. Here every step has a number.
    """
    library = pytest.importorskip("datasets")
    numbers = count()
    monkeypatch.setattr(
        library.arrow_dataset, "update_fingerprint", lambda *arguments: str(next(numbers))
    )
    return library
