"""Wrong input raises an error of this package with a short message that shows what was given."""

from pathlib import Path

import numpy as np
import pytest
import torch
from architectures import build
from without_annotation_checks import printed_by

from interp import InterpError
from interp.errors import MAX_SHOWN, shorten

GPT2 = build("gpt2")


def test_every_public_function_refuses_what_it_can_not_use():
    """And integers of any type are accepted. In a separate process: see ``wrong_inputs.py``."""
    assert printed_by(Path(__file__).with_name("wrong_inputs.py")) == ""


@pytest.mark.parametrize(
    ("value", "short"),
    [
        (3, "3"),
        ("text", "'text'"),
        ([1, [2]], "[1, [2]]"),
        (torch.zeros(2, 3), "a Tensor of shape (2, 3) and torch.float32"),
        (np.zeros(4), "a ndarray of shape (4,) and float64"),
        (10**5000, "a int"),
        ("a\nb", r"'a\nb'"),
    ],
    ids=["int", "text", "list", "tensor", "array", "many-digits", "lines"],
)
def test_what_came_is_shortened_for_a_message(value, short):
    assert shorten(value) == short


@pytest.mark.parametrize("value", ["x" * 10**6, ["x" * 200] * 50, {1: "y" * 10**5}, b"z" * 10**5])
def test_what_came_is_never_long(value):
    assert len(shorten(value)) <= MAX_SHOWN


def test_a_message_holds_at_most_a_little_of_it():
    for wrong in ("x" * 10**6, ["x" * 10**6], tuple("x" * 1000)):
        with pytest.raises(InterpError) as caught:
            GPT2(wrong)
        assert len(str(caught.value)) < 500
