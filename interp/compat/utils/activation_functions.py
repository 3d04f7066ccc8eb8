"""Activation functions of TransformerLens that PyTorch does not have."""

import math

import torch
from torch import Tensor


def gelu_new(input: Tensor) -> Tensor:
    """The tanh approximation of GELU, as in GPT-2."""
    cubic = input + 0.044715 * input**3
    return 0.5 * input * (1 + torch.tanh(math.sqrt(2 / math.pi) * cubic))


def gelu_fast(input: Tensor) -> Tensor:
    """The tanh approximation of GELU with √(2/π) to ten digits, as in GPT-J."""
    inside = input * 0.7978845608 * (1 + 0.044715 * input * input)
    return 0.5 * input * (1 + torch.tanh(inside))


def solu(input: Tensor) -> Tensor:
    """SoLU, x·softmax(x) over the neurons (Elhage et al. 2022), without the norm after it."""
    return input * input.softmax(-1)
