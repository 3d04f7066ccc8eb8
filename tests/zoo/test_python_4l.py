"""``python-4l`` predicts better than ``python-2l`` and copies arguments."""

import pytest

import interp
from interp.loading import MODEL_FOLDER
from interp.prompts.prompts import read_prompts
from interp.zoo.card import read_card
from training.evaluations.completion import accuracy, preference
from training.evaluations.induction import repeated_losses
from training.evaluations.tables import bits_per_byte
from training.recipes.python_4l import PROMPTS


@pytest.fixture(scope="module")
def trained():
    return interp.load("python-4l")


@pytest.mark.slow
def test_it_predicts_clearly_better_than_python_2l(trained, text_2l, text_4l):
    """In bits a byte, since their tokens differ; on the same held-out files."""
    two = bits_per_byte(interp.load("python-2l"), first_files(text_2l.held_out))
    four = bits_per_byte(trained, first_files(text_4l.held_out))
    assert four < two - 0.1


def first_files(tokens, n=8):
    starts = (tokens == 0).nonzero()[:, 0]
    return tokens[: starts[n]]


def test_it_completes_what_init_assigns(trained):
    """``self.name =`` after ``def __init__(self, name…)``."""
    assert accuracy(trained, read_prompts("python-arguments")) >= 0.7


@pytest.mark.parametrize("name", PROMPTS)
def test_it_completes_prompts_as_in_its_card(trained, name):
    figures, prompts = read_card(MODEL_FOLDER / "python-4l").figures, read_prompts(name)
    assert accuracy(trained, prompts) == pytest.approx(figures[f"{name}: target likeliest"])
    assert preference(trained, prompts) == pytest.approx(
        figures[f"{name}: target likelier than distractor"]
    )


@pytest.mark.slow
def test_it_copies_random_tokens(trained, text_4l):
    first, second = repeated_losses(trained, text_4l.repeated_sample())
    assert first - second >= 3
