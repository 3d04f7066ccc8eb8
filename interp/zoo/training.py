"""How is a bundled model trained? Plainly: AdamW, warm-up and cosine, gradients clipped."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import cos, pi

import torch
from jaxtyping import Int
from torch import Tensor

from interp.metrics import next_token_losses
from interp.model.batch import Batch
from interp.transformer import Transformer

Report = Callable[[int, int, float], None]


@dataclass(frozen=True)
class Schedule:
    """The hyper-parameters of one training.

    Attributes:
        steps: updates.
        rows: sequences an update.
        width: tokens a sequence.
        lr: highest learning rate, reached after ``warm_up`` steps and then lowered by a cosine.
        warm_up: steps of linear increase.
        weight_decay: of AdamW, on matrices alone.
        clip: largest norm of the gradient.
        seed: of the weights and the order of the data.
    """

    steps: int
    rows: int = 32
    width: int = 128
    lr: float = 3e-3
    warm_up: int = 100
    weight_decay: float = 0.01
    clip: float = 1.0
    seed: int = 0

    def rate(self, step: int) -> float:
        """The learning rate at ``step``."""
        if step < self.warm_up:
            return self.lr * (step + 1) / self.warm_up
        done = (step - self.warm_up) / max(1, self.steps - self.warm_up)
        return self.lr * (0.05 + 0.95 * 0.5 * (1 + cos(pi * done)))


def train(
    model: Transformer,
    batches: Iterator[Int[Tensor, "batch pos"]],
    schedule: Schedule,
    report: Report,
) -> list[float]:
    """Train ``model`` in place.

    Args:
        model: a decoder.
        batches: endless token ids.
        schedule: how long and how fast.
        report: called after each step with the number of steps done, of all, and the loss in nats.

    Returns:
        The loss of each step.
    """
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": schedule.weight_decay}, {"params": vectors}],
        lr=schedule.lr,
        betas=(0.9, 0.98),
        weight_decay=0.0,
    )
    losses: list[float] = []
    model.train()
    for step in range(schedule.steps):
        for group in optimizer.param_groups:
            group["lr"] = schedule.rate(step)
        tokens = next(batches)
        loss = next_token_losses(model(tokens), Batch(tokens))[0].mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), schedule.clip)
        optimizer.step()
        losses.append(loss.item())
        report(step + 1, schedule.steps, losses[-1])
    model.eval()
    return losses
