"""What is a recipe given, and what does it make? A workshop, and a model with all that is told."""

import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import torch

from interp.errors import OutOfResources
from interp.loading.folder import save_folder, save_step
from interp.transformer import Transformer
from interp.zoo.card import Card
from interp.zoo.history import History
from interp.zoo.training.checkpoint import FILE, TIMES, Unfinished, Unkept
from interp.zoo.training.loop import Keep, LossOf, Observe, Report, Schedule, measure_nothing, train

CPU = torch.device("cpu")
MODEL = "model"
"""Where a model grows, inside of what is unfinished."""


@dataclass(frozen=True)
class Workshop:
    """Where a model is made.

    Attributes:
        report: told of each step.
        steps: how many to train; ``None`` means as many as the bundled model had.
        device: where to train.
        folder: where what is unfinished is kept, and the model grows in ``model``; ``None``
            keeps nothing.
    """

    report: Report
    steps: int | None = None
    device: torch.device = CPU
    folder: Path | None = None

    def schedule(self, of_the_bundled: Schedule) -> Schedule:
        """The schedule, with as many steps as were asked for."""
        return of_the_bundled if self.steps is None else replace(of_the_bundled, steps=self.steps)

    def train(
        self,
        model: Transformer,
        loss: LossOf,
        schedule: Schedule,
        data: str,
        observe: Observe = measure_nothing,
    ) -> History:
        """Train a model here; see :func:`interp.zoo.training.loop.train`.

        Args:
            model: trained in place, on this workshop's device.
            loss: of the model on the batch of a step.
            schedule: how long and how fast.
            data: tells the data apart from any other, as the card does: what is in them, how they
                are drawn, their hash.
            observe: measures the model on the way.
        """
        what = {
            "model": f"{model.config.name} {sha256(model.config.to_json().encode()).hexdigest()}",
            "data": data,
            "schedule": str(schedule),
        }
        return train(
            model.to(self.device),
            loss,
            schedule,
            report=self.report,
            keep=self._keep(what, max(1, schedule.steps // TIMES)),
            observe=observe,
        )

    def checkpoint(self, model: Transformer, step: int) -> None:
        """Write the weights of this step where the model's own will be."""
        if self.folder is not None:
            save_step(model, self.folder / MODEL, step, torch.float16)

    def _hardware(self) -> str:
        if self.device.type == "cuda":
            return torch.cuda.get_device_name(self.device)
        threads = torch.get_num_threads()
        return f"{threads} thread{'s' * (threads > 1)} of {_processor()}"

    def _keep(self, what: Mapping[str, str], every: int) -> Keep:
        if self.folder is None:
            return Unkept(self._hardware())
        return Unfinished(self.folder / FILE, what, every, self._hardware())


@dataclass(frozen=True, eq=False)
class Made:
    """A model, and what is told of it.

    Attributes:
        model: as it is stored.
        card: the facts.
        history: of its training, if it had one.
        dtype: what its weights are stored as; ``None`` as they are.
    """

    model: Transformer
    card: Card
    history: History | None = None
    dtype: torch.dtype | None = None

    def write(self, folder: Path) -> None:
        """Write the model's folder: weights, configuration, tokenizer, card, history.

        Raises:
            OutOfResources: the folder can't be written.
        """
        save_folder(self.model, folder, self.dtype)
        try:
            self.card.write(folder)
            if self.history is not None:
                self.history.write(folder)
        except OSError as error:
            raise OutOfResources(f"{folder} can't be written: {error}.") from error


def told_recipe(name: str, bundled: Schedule, history: History) -> str:
    """What a card tells of how a model was made, by the recipe's schedule or a part of it."""
    schedule = replace(bundled, steps=len(history.losses))
    return f"`interp train {name}`: {schedule}; trained on {' and '.join(history.hardware)}."


def claimed(circuit: str, bundled: Schedule, history: History) -> str:
    """What a card claims, if the model was trained to the end."""
    done = len(history.losses)
    if done >= bundled.steps:
        return circuit
    return f"None is claimed: {done} steps were trained, of {bundled.steps} of the bundled model."


def sha256_of(lines: Iterable[str]) -> str:
    """A hash that tells data apart, as hexadecimal digits."""
    return sha256("\n".join(lines).encode()).hexdigest()


def as_stored(model: Transformer, dtype: torch.dtype = torch.float16) -> Transformer:
    """The same model on the CPU, in float32, with weights rounded as they will be stored."""
    return model.to("cpu").to(dtype).to(torch.float32).eval()


def _processor() -> str:
    """What the machine calls its processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()
