"""The argument of a recipe (``TrainingRun``) and its result (``BuiltModel``)."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import torch

from interp.errors import OutOfResources
from interp.kernels import processor
from interp.saved import save_step, write_files
from interp.transformer import Transformer
from interp.zoo import Card, History
from training.checkpoint import FILE, PER_RUN, FileCheckpointer, NoCheckpointer
from training.loop import (
    Checkpointer,
    Observe,
    Report,
    Schedule,
    StepLoss,
    measure_nothing,
    train,
)

CPU = torch.device("cpu")
STORED_AS = torch.float16
"""The dtype in which the weights of trained models are stored."""


@dataclass(frozen=True)
class TrainingRun:
    """The settings under which a recipe runs: progress report, length, device, folder.

    Attributes:
        report: called after each step with (done, total, loss in nats).
        steps: number of steps; ``None`` for as many as the bundled model had.
        device: where to train.
        folder: folder of the checkpoint and of weights saved during training; ``None`` to save
            nothing.
    """

    report: Report
    steps: int | None = None
    device: torch.device = CPU
    folder: Path | None = None

    def schedule(self, bundled: Schedule) -> Schedule:
        """The schedule of the bundled model, with the number of steps of this run."""
        return bundled if self.steps is None else replace(bundled, steps=self.steps)

    def train(
        self,
        model: Transformer,
        loss: StepLoss,
        schedule: Schedule,
        data: str,
        observe: Observe = measure_nothing,
    ) -> History:
        """Train a model on this run's device; see :func:`training.loop.train`.

        Args:
            model: the model, which is trained in place.
            loss: the loss of a step.
            schedule: hyperparameters.
            data: identifies the data as in the card: their source, sampling and hash. Resuming from
                a checkpoint with other data raises an error.
            observe: measures the model during training.
        """
        config_hash = sha256(model.config.to_json().encode()).hexdigest()
        settings = {
            "model": f"{model.config.name} {config_hash}",
            "data": data,
            "schedule": str(schedule),
        }
        return train(
            model.to(self.device),
            loss,
            schedule,
            report=self.report,
            checkpointer=self._checkpointer(settings, max(1, schedule.steps // PER_RUN)),
            observe=observe,
        )

    def save_step(self, model: Transformer, step: int) -> None:
        """Write the weights after ``step`` steps into the run's folder, if there is one."""
        if self.folder is not None:
            save_step(model, self.folder, step, STORED_AS)

    def _hardware(self) -> str:
        if self.device.type == "cuda":
            return torch.cuda.get_device_name(self.device)
        threads = torch.get_num_threads()
        return f"{threads} thread{'s' * (threads > 1)} of {processor()}"

    def _checkpointer(self, settings: Mapping[str, str], every: int) -> Checkpointer:
        if self.folder is None:
            return NoCheckpointer(self._hardware())
        return FileCheckpointer(self.folder / FILE, settings, every, self._hardware())


@dataclass(frozen=True, eq=False)
class BuiltModel:
    """A model with its card and, if it was trained, its history.

    Attributes:
        model: the model, with the weights that are stored.
        card: its card.
        history: the history of its training; ``None`` if the weights were set.
        dtype: the dtype in which the weights are stored; ``None`` for that of the model.
    """

    model: Transformer
    card: Card
    history: History | None = None
    dtype: torch.dtype | None = None

    @classmethod
    def trained(
        cls, model: Transformer, history: History, card: Callable[[Transformer, History], Card]
    ) -> "BuiltModel":
        """A trained model: its weights are rounded to the stored dtype, and then measured."""
        stored = model.to("cpu").to(STORED_AS).to(torch.float32).eval()
        return cls(stored, card(stored, history), history, STORED_AS)

    def write(self, folder: Path) -> None:
        """Write a model's files: weights, configuration, tokenizer, card, history.

        Raises:
            OutOfResources: the folder can't be written.
        """
        write_files(self.model, folder, self.dtype)
        try:
            self.card.write(folder)
            if self.history is not None:
                self.history.write(folder)
        except OSError as error:
            raise OutOfResources(f"{folder} can't be written: {error}.") from error


def recipe_of(name: str, bundled: Schedule, history: History) -> str:
    """The ``recipe`` of a card: the command, the schedule with the steps done, and the hardware."""
    schedule = replace(bundled, steps=len(history.losses))
    return f"`python -m training {name}`: {schedule}; trained on {' and '.join(history.hardware)}."


def mechanism_if_complete(mechanism: str, bundled: Schedule, history: History) -> str:
    """The ``mechanism`` of a card: none is claimed for a run with fewer steps than ``bundled``."""
    done = len(history.losses)
    if done >= bundled.steps:
        return mechanism
    return f"None is claimed: {done} steps were trained, of {bundled.steps} of the bundled model."


def figures_of(
    model: Transformer, measured: Mapping[str, float | int | str], history: History
) -> dict[str, float | int | str]:
    """The ``figures`` of a card: the parameter count, measured figures, and the training time."""
    return {
        "parameters": parameter_count(model),
        **measured,
        "training time (s)": round(history.seconds),
    }


def parameter_count(model: Transformer) -> int:
    """The number of parameters; tied weights count once."""
    return sum(p.numel() for p in model.parameters())


def sha256_of(lines: Iterable[str]) -> str:
    """The SHA-256 of lines joined by newlines, in hexadecimal."""
    return sha256("\n".join(lines).encode()).hexdigest()
