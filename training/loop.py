"""The training loop: AdamW, linear warm-up, cosine decay, clipped gradients.

The batch of a step depends only on the seed and the step's index. An interrupted run therefore
resumes bit-identically from its checkpoint, on the same processor with the same number of threads.

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
from interp.zoo import History

Report = Callable[[int, int, float], None]
"""Called after each step with (done, total, loss in nats)."""

StepLoss = Callable[[Transformer, int], Float[Tensor, ""]]
"""The loss in nats on the batch of a step, counted from 0."""

Observe = Callable[[Transformer, int], dict[str, float]]
"""Called with the model and the number of steps done; returns figures by name, possibly empty."""


@dataclass(frozen=True)
class Schedule:
    """The hyperparameters of a training run.

    Attributes:
        steps: number of updates.
        rows: sequences per update.
        width: tokens per sequence.
        lr: peak learning rate, reached after ``warm_up`` steps, then lowered along a cosine.
        floor: final learning rate, as a fraction of ``lr``.
        warm_up: number of steps of linear increase.
        weight_decay: weight decay of AdamW, on matrices only.
        clip: maximum norm of the gradient.
        seed: seed of the initial weights and of the batches.
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
        """The learning rate of ``step``."""
        if step < self.warm_up:
            return self.lr * (step + 1) / self.warm_up
        done = (step - self.warm_up) / max(1, self.steps - self.warm_up)
        return self.lr * (self.floor + (1 - self.floor) * 0.5 * (1 + cos(pi * done)))

    def generator(self, step: int) -> torch.Generator:
        """The random generator of a step's batch; it depends on ``seed`` and ``step`` only."""
        return torch.Generator().manual_seed((self.seed * 1_000_003 + step) % 2**32)

    def __str__(self) -> str:
        return (
            f"{self.steps} steps of {self.rows} × {self.width} tokens, AdamW, learning rate "
            f"{self.lr} after {self.warm_up} warm-up steps, then cosine decay to "
            f"{self.floor:.0%} of it, weight decay {self.weight_decay}, gradient norm clipped at "
            f"{self.clip}, seed {self.seed}"
        )


@runtime_checkable
class Checkpointer(Protocol):
    """Saves the state of a training run and restores it."""

    def resume(self, model: Transformer, optimizer: torch.optim.Optimizer) -> History:
        """Restore the saved state, if there is one, and return the history up to it."""
        ...

    def save(self, model: Transformer, optimizer: torch.optim.Optimizer, history: History) -> None:
        """Save the state, if a checkpoint is due."""
        ...


def report_nothing(step: int, of: int, loss: float) -> None:
    """A :data:`Report` that does nothing."""


def measure_nothing(model: Transformer, step: int) -> dict[str, float]:  # noqa: ARG001
    """An :data:`Observe` that returns no figures."""
    return {}


def train(
    model: Transformer,
    loss: StepLoss,
    schedule: Schedule,
    *,
    report: Report,
    checkpointer: Checkpointer,
    observe: Observe = measure_nothing,
) -> History:
    """Train ``model`` in place; it is in evaluation mode afterwards.

    Args:
        model: any Transformer.
        loss: draws the batch of a step and returns the model's loss on it.
        schedule: hyperparameters.
        report: called after each step.
        checkpointer: restores the state at the start and saves it after each step that is due.
        observe: called before the first step (with 0) and after each step.

    Returns:
        The loss of each step, and the figures observed.

    Raises:
        InvalidInput: the loss is not finite.
    """
    optimizer = adamw(model, schedule)
    history = checkpointer.resume(model, optimizer)
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
                f"The loss of step {step + 1} is {history.losses[-1]}: the training diverged. "
                f"Its recipe's schedule may need a lower lr than {schedule.lr}, or a longer "
                f"warm_up than {schedule.warm_up}."
            )
        history.add(step + 1, observe(model, step + 1))
        history.seconds = monotonic() - begun
        checkpointer.save(model, optimizer, history)
        report(step + 1, schedule.steps, history.losses[-1])
    model.eval()
    return history


def adamw(model: Transformer, schedule: Schedule) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices and none on vectors."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": schedule.weight_decay}, {"params": vectors}],
        lr=schedule.lr,
        betas=(0.9, 0.98),
        weight_decay=0.0,
        fused=True,
    )
