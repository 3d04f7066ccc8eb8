"""Messages have a bounded length, and keep their end, the advice."""

import pickle

import pytest

from interp import errors
from interp.errors import MAX_MESSAGE, InterpError

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type)]
KINDS = [kind for kind in KINDS if issubclass(kind, InterpError)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_of_any_length_is_shown_in_part(kind):
    error = kind(f"begin {'x' * 10**6} end")
    assert len(str(error)) <= MAX_MESSAGE
    assert str(error).startswith("begin x")
    assert str(error).endswith("x end")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_of_usual_length_is_shown_whole(kind):
    assert str(kind("x" * MAX_MESSAGE)) == "x" * MAX_MESSAGE
