"""``addition-mod-113`` adds, by a handful of frequencies."""

import pytest
import torch

import interp
from interp.loading import MODEL_FOLDER
from interp.zoo.card import read_card
from interp.zoo.history import read_history
from training.evaluations.fourier import explained, key_frequencies
from training.recipes.addition_mod_113 import (
    EXPLAINED,
    FREQUENCIES,
    NAME,
    P,
    answers,
    every_sum,
    is_train,
    logits_of,
)


@pytest.fixture(scope="module")
def logits():
    return logits_of(interp.load(NAME), every_sum())


def test_it_adds_held_out_sums(logits):
    unseen = ~is_train(seed=0)
    right = logits.argmax(-1) == answers(every_sum())
    assert right[unseen].double().mean() >= 0.999


def test_a_handful_of_frequencies_explain_its_logits(logits):
    shares = explained(logits[:, :P].view(P, P, P))
    named = key_frequencies(shares)
    figures = read_card(MODEL_FOLDER / NAME).figures
    assert ", ".join(map(str, named)) == figures[FREQUENCIES]
    assert sum(named.values()) == pytest.approx(figures[EXPLAINED], abs=1e-3)
    assert len(named) <= 8
    assert sum(named.values()) >= 0.8


def test_it_generalised_long_after_it_memorised():
    history = read_history(MODEL_FOLDER / NAME)
    steps, seen = history.curve("accuracy, seen")
    _, unseen = history.curve("accuracy, held out")
    memorised = next(step for step, accuracy in zip(steps, seen, strict=True) if accuracy > 0.99)
    general = next(step for step, accuracy in zip(steps, unseen, strict=True) if accuracy > 0.99)
    assert general > 2 * memorised


def test_a_sum_of_cosines_is_explained_by_its_frequencies_alone():
    p = 13
    a, b, c = torch.meshgrid(*[torch.arange(p).double()] * 3, indexing="ij")
    phase = 2 * torch.pi * (a + b - c) / p
    shares = explained((3 * torch.cos(2 * phase) + torch.cos(5 * phase)).float())
    assert shares[2] == pytest.approx(0.9)
    assert shares[5] == pytest.approx(0.1)
    assert sum(shares.values()) == pytest.approx(1)


def test_noise_is_explained_by_no_frequency():
    noise = torch.randn(31, 31, 31, generator=torch.Generator().manual_seed(0))
    assert not key_frequencies(explained(noise))


def test_it_reads_text():
    model = interp.load(NAME)
    predicted = model(model.to_tokens("57 + 88 =".replace("+ ", "")))[0, -1].argmax()
    assert model.to_string(predicted[None]) == str((57 + 88) % P)
