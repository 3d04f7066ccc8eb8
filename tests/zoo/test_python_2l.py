"""``python-2l`` holds an induction circuit, and its history records how it formed."""

import pytest
import torch

import interp
from interp.loading import MODEL_FOLDER
from interp.loading.folder import steps_of
from interp.zoo.history import read_history
from training.evaluations.induction import (
    induction_scores,
    previous_token_scores,
    repeated_losses,
    repeated_tokens,
)
from training.evaluations.tables import bigram_loss, held_out_loss
from training.recipes import python_2l
from training.recipes.python_2l import figures_in_training


@pytest.fixture(scope="module")
def trained():
    return interp.load("python-2l")


@pytest.fixture(scope="module")
def repeated(text_2l):
    return repeated_tokens(text_2l.frequent(), rows=32, half=60, seed=9, bos=0)


@pytest.mark.slow
def test_it_beats_a_bigram_table_on_files_it_has_not_seen(trained, text_2l):
    held_out = text_2l.held_out[:20_000]
    table = bigram_loss(text_2l.train, held_out, text_2l.d_vocab)
    assert held_out_loss(trained, held_out) < table - 0.5


@pytest.mark.slow
def test_it_holds_an_induction_circuit(trained, repeated):
    first, second = repeated_losses(trained, repeated)
    assert first - second >= 3
    assert previous_token_scores(trained, repeated)[0].max() >= 0.5
    assert induction_scores(trained, repeated)[1].max() >= 0.5


@pytest.mark.slow
def test_shuffling_the_second_copy_takes_the_gain_away(trained, repeated):
    shuffled = repeated.clone()
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    shuffled[:, 61:] = shuffled[:, 61:][:, order]
    first, second = repeated_losses(trained, shuffled)
    assert first - second < 3


@pytest.fixture(scope="module")
def history():
    return read_history(MODEL_FOLDER / "python-2l")


class TestHistory:
    """The circuit forms abruptly, between steps whose weights are saved."""

    def test_every_step_has_its_loss(self, history):
        assert len(history.losses) == python_2l.SCHEDULE.steps
        assert history.losses[-1] < history.losses[0] - 2

    def test_every_saved_step_is_there(self, history):
        assert history.checkpoints == list(python_2l.SAVED_STEPS)
        assert steps_of(MODEL_FOLDER / "python-2l") == history.checkpoints
        assert len(history.checkpoints) >= 12

    def test_induction_forms_abruptly(self, history):
        """Most of the rise of the score happens in a fifth of the training."""
        steps, scores = history.curve("best induction score")
        at = dict(zip(steps, scores, strict=True))
        span = python_2l.SCHEDULE.steps // 5
        rise = max(at[step + span] - at[step] for step in steps if step + span in at)
        assert rise > 0.6 * (scores[-1] - scores[0]) > 0.3

    @pytest.mark.slow
    @pytest.mark.parametrize("step", [python_2l.SAVED_STEPS[0], python_2l.SAVED_STEPS[-1]])
    def test_the_weights_of_a_step_are_those_that_were_measured(self, step, text_2l, history):
        saved = interp.load(f"python-2l@{step}")
        recorded = history.measured[step]
        for name, value in figures_in_training(saved, text_2l.repeated_sample()).items():
            assert value == pytest.approx(recorded[name], abs=0.01), name
