"""How is a bundled model trained? Plainly: AdamW, warm-up and cosine, gradients clipped.

The batch of a step depends on the seed and on the step's number alone. So a training that was
killed goes on from what it last kept, and, on the same machine with as many threads, no number
differs from one that ran through.

Reference: Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization".
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import cos, isfinite, pi
from time import monotonic
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import InvalidInput
from interp.transformer import Transformer
from interp.zoo.history import History

Report = Callable[[int, int, float], None]
"""Told, after each step, the number of steps done, of all, and the loss in nats."""

LossOf = Callable[[Transformer, int], Float[Tensor, ""]]
"""The loss of a model, in nats, on the batch of a step (counted from 0)."""

Observe = Callable[[Transformer, int], dict[str, float]]
"""What is measured of a model after so many steps, if anything, by what it is."""


@dataclass(frozen=True)
class Schedule:
    """The hyper-parameters of one training.

    Attributes:
        steps: updates.
        rows: sequences an update.
        width: tokens a sequence.
        lr: highest learning rate, reached after ``warm_up`` steps and then lowered by a cosine.
        floor: the share of ``lr`` that is left at the end.
        warm_up: steps of linear increase.
        weight_decay: of AdamW, on matrices alone.
        clip: largest norm of the gradient.
        seed: of the weights and the order of the data.
    """

    steps: int
    rows: int = 32
    width: int = 128
    lr: float = 3e-3
    floor: float = 0.05
    warm_up: int = 100
    weight_decay: float = 0.01
    clip: float = 1.0
    seed: int = 0

    def rate(self, step: int) -> float:
        """The learning rate at ``step``."""
        if step < self.warm_up:
            return self.lr * (step + 1) / self.warm_up
        done = (step - self.warm_up) / max(1, self.steps - self.warm_up)
        return self.lr * (self.floor + (1 - self.floor) * 0.5 * (1 + cos(pi * done)))

    def generator(self, step: int) -> torch.Generator:
        """Draws the batch of a step: the same for the same seed and step, whatever was before."""
        return torch.Generator().manual_seed((self.seed * 1_000_003 + step) % 2**32)

    def __str__(self) -> str:
        return (
            f"{self.steps} steps of {self.rows} × {self.width} tokens, AdamW, learning rate "
            f"{self.lr} after {self.warm_up} steps of warm-up and then by a cosine to "
            f"{self.floor:.0%} of it, weight decay {self.weight_decay}, gradients clipped at "
            f"{self.clip}, seed {self.seed}"
        )


@runtime_checkable
class Keep(Protocol):
    """Where a training is kept, so that it can go on after it was killed."""

    def resume(self, model: Transformer, optimizer: torch.optim.Optimizer) -> History:
        """Bring both to where they were kept; what happened until then."""
        ...

    def save(self, model: Transformer, optimizer: torch.optim.Optimizer, history: History) -> None:
        """Keep both, if it is time to."""
        ...


def report_nothing(step: int, of: int, loss: float) -> None:
    """Tells nobody."""


def measure_nothing(model: Transformer, step: int) -> dict[str, float]:  # noqa: ARG001
    """Observes nothing."""
    return {}


def train(
    model: Transformer,
    loss: LossOf,
    schedule: Schedule,
    *,
    report: Report,
    keep: Keep,
    observe: Observe = measure_nothing,
) -> History:
    """Train ``model`` in place.

    Args:
        model: of any kind; it ends in evaluation mode.
        loss: draws the batch of a step, runs the model on it and tells how wrong it was.
        schedule: how long and how fast.
        report: called after each step.
        keep: where the state is kept now and then, and taken up again.
        observe: called after each step, and before the first with 0.

    Returns:
        The loss of each step, and what was observed.

    Raises:
        InvalidInput: a loss that is not finite; the training has gone astray.
    """
    optimizer = adamw(model, schedule)
    history = keep.resume(model, optimizer)
    if not history.losses:
        history.add(0, observe(model, 0))
    model.train()
    begun = monotonic() - history.seconds
    for step in range(len(history.losses), schedule.steps):
        for group in optimizer.param_groups:
            group["lr"] = schedule.rate(step)
        value = loss(model, step)
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), schedule.clip)
        optimizer.step()
        history.losses.append(value.item())
        if not isfinite(history.losses[-1]):
            raise InvalidInput(
                f"The loss of step {step + 1} is {history.losses[-1]}: the training has gone "
                f"astray. Its recipe's schedule may need a lower lr than {schedule.lr}, or a "
                f"warm_up longer than {schedule.warm_up}."
            )
        history.add(step + 1, observe(model, step + 1))
        history.seconds = monotonic() - begun
        keep.save(model, optimizer, history)
        report(step + 1, schedule.steps, history.losses[-1])
    model.eval()
    return history


def adamw(model: Transformer, schedule: Schedule) -> torch.optim.AdamW:
    """The optimizer: matrices decay, vectors do not."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": schedule.weight_decay}, {"params": vectors}],
        lr=schedule.lr,
        betas=(0.9, 0.98),
        weight_decay=0.0,
        fused=True,
    )
