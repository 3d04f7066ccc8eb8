"""Random initial weights by ``cfg.init_mode``, drawn as in TransformerLens.

Every parameter with ``W_`` in its name is drawn, in the order of ``named_parameters``; biases stay
0 and gains 1. (Glorot and Bengio 2010; He et al. 2015; for ``muP`` Yang et al. 2022.) Weights are
``[d_in d_out]`` and ``[head d_model d_head]``, whereas PyTorch's own schemes take ``[d_out d_in]``.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from interp.compat.config import HookedTransformerConfig
from interp.compat.errors import InvalidInput


def _fans(weight: Tensor) -> tuple[int, int]:
    """Fan-in and fan-out of a bias ``[d_out]``, a weight, or the weights of heads."""
    match tuple(weight.shape):
        case (n_out,):
            return 1, n_out
        case (n_in, n_out):
            return n_in, n_out
        case (n_heads, n_in, n_out):
            return n_in, n_heads * n_out
        case shape:
            raise InvalidInput(f"Fan-in and fan-out need one to three axes; got shape {shape}.")


def _xavier(weight: Tensor) -> float:
    return math.sqrt(2 / sum(_fans(weight)))


def _kaiming(weight: Tensor) -> float:
    """For a ReLU before the weight."""
    return math.sqrt(2 / _fans(weight)[0])


def _uniform(weight: Tensor, std: float) -> Tensor:
    return weight.uniform_(-math.sqrt(3) * std, math.sqrt(3) * std)


def _normal(weight: Tensor, std: float) -> Tensor:
    return weight.normal_(std=std)


Draw = Callable[[str, Tensor], Tensor]
"""Fills the weight of a given name, in place."""
SCALED: dict[str, tuple[Callable[[Tensor, float], Tensor], Callable[[Tensor], float]]] = {
    "xavier_uniform": (_uniform, _xavier),
    "xavier_normal": (_normal, _xavier),
    "kaiming_uniform": (_uniform, _kaiming),
    "kaiming_normal": (_normal, _kaiming),
}
"""Distribution and standard deviation of schemes in which ``cfg.initializer_range`` is the gain."""


def draw_weights(model: nn.Module, cfg: HookedTransformerConfig) -> None:
    """Draw the weights of a model, with ``cfg.seed`` if there is one.

    Raises:
        InvalidInput: ``cfg.init_mode`` is unknown.
    """
    draw = _scheme(cfg)
    if cfg.seed is not None:
        torch.manual_seed(cfg.seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "W_" in name:
                # Drawn into a new tensor, because the draws must be in contiguous order.
                parameter.copy_(draw(name, torch.empty(parameter.shape, dtype=parameter.dtype)))


def _scheme(cfg: HookedTransformerConfig) -> Draw:
    if cfg.init_mode == "gpt2":
        return lambda _, weight: weight.normal_(std=cfg.initializer_range)
    if cfg.init_mode == "muP":
        return _mu_parametrized
    if cfg.init_mode not in SCALED:
        raise InvalidInput(
            f"init_mode={cfg.init_mode!r} must be one of gpt2, {', '.join(SCALED)}, muP."
        )
    draw, std = SCALED[cfg.init_mode]
    return lambda _, weight: draw(weight, cfg.initializer_range * std(weight))


def _mu_parametrized(name: str, weight: Tensor) -> Tensor:
    """Standard deviation 1 for embeddings and W_U, as in TransformerLens; else 1 / √fan_in."""
    fan_in, _ = _fans(weight)
    return weight.normal_(std=1.0 if "embed" in name else 1 / math.sqrt(fan_in))
