"""Every figure and every sentence of a card is what the shipped weights give, measured again."""

from dataclasses import replace

import pytest
import torch
from architectures import covering

import interp
from interp.zoo.card import Card
from training.build import remeasure
from training.recipes import CARDS


@pytest.fixture(
    scope="module",
    params=[
        *covering(
            interp.bundled(),
            ["induction-by-hand", "rasp-duplicates", "addition-mod-113"],
            nightly=["python-2l", "python-4l", "python-mlm", "dates"],
        )
    ],
)
def both(request, trained_here) -> tuple[Card, Card]:
    """The stored card, and the card measured again."""
    trained_here(request.param)
    return interp.card(request.param), remeasure(request.param)


def differing(stored: Card, measured: Card) -> list[str]:
    """The figures that are not the same, but for what another processor rounds otherwise."""
    return [
        name
        for name in {**stored.figures, **measured.figures}
        if not alike(stored.figures.get(name), measured.figures.get(name))
    ]


def alike(first, second) -> bool:
    if isinstance(first, float) and isinstance(second, float):
        return first == pytest.approx(second, rel=2e-3)
    return first == second


@pytest.mark.slow
def test_a_card_holds_what_is_measured(both):
    stored, measured = both
    assert differing(stored, measured) == []
    assert replace(measured, figures=stored.figures) == stored


def test_every_model_that_was_trained_is_measured_on_its_weights():
    trained = [name for name in interp.bundled() if interp.card(name).circuit is None]
    assert sorted(CARDS) == sorted(trained)


def test_other_weights_would_be_noticed(monkeypatch):
    """Embeddings half as large, under the name of the whole model."""
    name = "addition-mod-113"
    model = interp.load(name)
    with torch.no_grad():
        model.decoder.weight_e.mul_(0.5)
    monkeypatch.setattr("training.build.load", lambda _: model)
    differences = differing(interp.card(name), remeasure(name))
    assert "accuracy on held-out sums" in differences
    assert "key frequencies" not in differences
