"""Random initial weights by ``cfg.init_mode``, drawn as in TransformerLens.

Every parameter with ``W_`` in its name is drawn, in the order of ``named_parameters``; biases stay
0 and gains 1. (Glorot and Bengio 2010; He et al. 2015; for ``muP`` Yang et al. 2022.)
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from interp.compat.config import HookedTransformerConfig
from interp.compat.utils.initialization import (
    calc_fan_in_and_fan_out,
    init_kaiming_normal_,
    init_kaiming_uniform_,
    init_xavier_normal_,
    init_xavier_uniform_,
)
from interp.errors import InvalidInput

Draw = Callable[[str, Tensor], Tensor]
"""Fills the weight of a given name, in place."""
SCALED = {
    "xavier_uniform": init_xavier_uniform_,
    "xavier_normal": init_xavier_normal_,
    "kaiming_uniform": init_kaiming_uniform_,
    "kaiming_normal": init_kaiming_normal_,
}
"""Schemes in which ``cfg.initializer_range`` is the gain."""


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
    scaled = partial(SCALED[cfg.init_mode], gain=cfg.initializer_range)
    return lambda _, weight: scaled(weight)


def _mu_parametrized(name: str, weight: Tensor) -> Tensor:
    """Standard deviation 1 for embeddings and W_U, as in TransformerLens; else 1 / √fan_in."""
    fan_in, _ = calc_fan_in_and_fan_out(weight)
    return weight.normal_(std=1.0 if "embed" in name else 1 / math.sqrt(fan_in))
