"""Every figure and every sentence of a card is what the shipped weights give, measured again."""

from dataclasses import replace

import pytest
from architectures import covering

import interp
from interp.zoo.card import Card
from interp.zoo.training.build import retold
from interp.zoo.training.recipes import CARDS


@pytest.fixture(
    scope="module",
    params=covering(interp.bundled(), ["induction-by-hand", "rasp-duplicates", "addition-mod-113"]),
)
def both(request, trained_here) -> tuple[Card, Card]:
    """What is told, and what is found."""
    trained_here(request.param)
    return interp.card(request.param), retold(request.param)


def differing(told: Card, found: Card) -> list[str]:
    """The figures that are not the same, but for what another processor rounds otherwise."""
    return [
        name
        for name in {**told.figures, **found.figures}
        if not alike(told.figures.get(name), found.figures.get(name))
    ]


def alike(one, other) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == pytest.approx(other, rel=2e-3)
    return one == other


def test_a_card_tells_what_is_measured(both):
    told, found = both
    assert differing(told, found) == []
    assert replace(found, figures=told.figures) == told


def test_every_model_that_was_trained_is_measured_on_its_weights():
    trained = [name for name in interp.bundled() if interp.card(name).truth is None]
    assert sorted(CARDS) == sorted(trained)


@pytest.mark.slow
def test_other_weights_would_be_noticed(monkeypatch):
    """Those of an early step, under the whole model's name."""
    monkeypatch.setattr("interp.zoo.training.build.load", lambda name: interp.load(f"{name}@400"))
    told, found = interp.card("python-2l"), retold("python-2l")
    assert "held-out loss (nats a token)" in differing(told, found)
    assert "its induction score" in differing(told, found)
