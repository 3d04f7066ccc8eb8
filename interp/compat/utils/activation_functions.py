"""Activation functions by TransformerLens's names."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

ActivationFunction = Callable[..., Tensor]
SOFTCAP_DISABLED = -1.0
"""The value of a soft-cap that is off."""


def gelu_new(input: Tensor) -> Tensor:
    """The tanh approximation of GELU, as in GPT-2."""
    cubic = input + 0.044715 * input**3
    return 0.5 * input * (1 + torch.tanh(math.sqrt(2 / math.pi) * cubic))


def gelu_fast(input: Tensor) -> Tensor:
    """The tanh approximation of GELU with √(2/π) to ten digits, as in GPT-J."""
    inside = input * 0.7978845608 * (1 + 0.044715 * input * input)
    return 0.5 * input * (1 + torch.tanh(inside))


def gelu_pytorch_tanh(input: Tensor) -> Tensor:
    """The tanh approximation of GELU, as in PyTorch."""
    return F.gelu(input, approximate="tanh")


def solu(input: Tensor) -> Tensor:
    """SoLU, x·softmax(x) over the neurons (Elhage et al. 2022), without the norm after it."""
    return input * input.softmax(-1)


def relu2(input: Tensor) -> Tensor:
    """ReLU squared."""
    return F.relu(input).square()


def xielu(input: Tensor) -> Tensor:
    """XIELU with α_p = α_n = 0.8 and β = 0.5 (Huang and Schlag 2024, arXiv 2411.13010)."""
    below = (torch.expm1(input.clamp(max=-1e-6)) - input) * 0.8
    return torch.where(input > 0, 0.8 * input * input, below) + 0.5 * input


def softcap_enabled(cap: float | None) -> bool:
    """Whether a soft-cap is on, that is, positive."""
    return cap is not None and cap > 0


def apply_softcap(x: Tensor, cap: float | None) -> Tensor:
    """``cap · tanh(x / cap)``; x itself without a positive cap."""
    return cap * torch.tanh(x / cap) if cap is not None and cap > 0 else x


SUPPORTED_ACTIVATIONS: dict[str, ActivationFunction] = {
    "solu": solu,
    "solu_ln": solu,
    "gelu_new": gelu_new,
    "gelu_fast": gelu_fast,
    "silu": F.silu,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_pytorch_tanh": gelu_pytorch_tanh,
    "xielu": xielu,
    "relu2": relu2,
}
"""Activation functions by their names in a configuration."""
