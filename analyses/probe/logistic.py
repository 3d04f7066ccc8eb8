"""Multinomial logistic regression: the linear map whose softmax predicts the class.

    minimize  mean over rows of −log softmax(x W + b)[class] + penalty/2 ‖W‖²

Before the fit, x is centred and divided by one number so that its mean square is 1. The minimum is
unique up to a constant in b, and is found by L-BFGS in float64, starting from zero. Several
labellings of the same rows are fitted at once, since their losses share no variables.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from analyses.methods.ridge import LinearMap

PENALTY = 1e-2
STEPS = 300
GRADIENT = 1e-5
"""Tolerance of the gradient: W is then within GRADIENT / PENALTY of the minimum."""


def logistic(
    x: Float[Tensor, "row dim"],
    classes: Int[Tensor, "labelling row"],
    n: int,
    penalty: float = PENALTY,
) -> list[LinearMap]:
    """Fit the scores of ``n`` classes, in each labelling.

    Args:
        x: the rows.
        classes: the class of each row, from 0 to n − 1.
        n: number of classes.
        penalty: factor of ‖W‖²/2 in the loss.
    """
    rows = x.double()
    mean = rows.mean(0)
    scale = (rows - mean).square().mean().sqrt().clamp(min=1e-300)
    inputs = (rows - mean) / scale
    W = inputs.new_zeros(len(classes), x.shape[1], n, requires_grad=True)
    b = inputs.new_zeros(len(classes), 1, n, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [W, b],
        max_iter=STEPS,
        tolerance_grad=GRADIENT,
        tolerance_change=1e-9,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        scores = (inputs @ W + b).flatten(0, 1)
        fitted = cross_entropy(scores, classes.flatten(), reduction="sum") / len(rows)
        value = fitted + penalty / 2 * W.square().sum()
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(loss)
    slopes, intercepts = W.detach() / scale, b.detach()[:, 0]
    return [
        LinearMap(slope, intercept - mean @ slope)
        for slope, intercept in zip(slopes, intercepts, strict=True)
    ]
