"""The common part of the recipes ``python-*``: tokenizer, initial weights, training, saving."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from interp.config import Config
from interp.text import Tokenizer
from interp.transformer import Transformer
from interp.zoo import Card, History
from training.bpe import BOS
from training.loop import Observe, Schedule, StepLoss, measure_nothing
from training.python_text import PythonText, Rows, next_token_loss, read_python
from training.training_run import BuiltModel, TrainingRun

CardOf = Callable[[Transformer, History, PythonText], Card]
"""Measures a trained model on the text and returns its card."""


def observe_nothing(text: PythonText, schedule: Schedule) -> Observe:  # noqa: ARG001
    """An observer that returns no figures."""
    return measure_nothing


@dataclass(frozen=True, eq=False)
class PythonTask:
    """The settings in which the models of Python source differ.

    Attributes:
        config: configuration of the model; ``d_vocab`` is also the size of the tokenizer.
        schedule: schedule of the bundled model.
        data: describes the training data for the card.
        loss: the loss of a step, given the text and the schedule of the run.
        card: measures the trained model and returns its card.
        special: special tokens, with ids from 0 on; BOS is the first.
        observer: returns the function that measures the model during training, given the text and
            the schedule of the run.
        saved_steps: numbers of updates after which the weights are saved.
    """

    config: Config
    schedule: Schedule
    data: Callable[[PythonText], str]
    loss: Callable[[PythonText, Schedule], StepLoss]
    card: CardOf
    special: Sequence[str] = (BOS,)
    observer: Callable[[PythonText, Schedule], Observe] = observe_nothing
    saved_steps: Sequence[int] = ()

    def build(self, run: TrainingRun) -> BuiltModel:
        """Train the model from random weights and measure it."""
        text, schedule = read_python(self.config.d_vocab, self.special), run.schedule(self.schedule)
        torch.manual_seed(schedule.seed)
        model = Transformer(self.config, Tokenizer(text.backend, bos=self.config.tokens.bos))
        measure = self.observer(text, schedule)

        def observe(model: Transformer, step: int) -> dict[str, float]:
            if step in self.saved_steps:
                run.save_step(model, step)
            return measure(model, step)

        loss = self.loss(text, schedule)
        history = run.train(model, loss, schedule, self.data(text), observe)
        history.checkpoints = [step for step in self.saved_steps if step <= schedule.steps]
        return BuiltModel.trained(
            model, history, lambda stored, history: self.card(stored, history, text)
        )


def next_token_task(
    config: Config, schedule: Schedule, repeated: float, card: CardOf
) -> PythonTask:
    """The task of next-token prediction on rows of which a share ``repeated`` repeats a span."""

    def data(text: PythonText) -> str:
        return text.description_with_repeats(repeated)

    def loss(text: PythonText, schedule: Schedule) -> StepLoss:
        return next_token_loss(Rows(text.train, schedule, repeated))

    return PythonTask(config, schedule, data, loss, card)
