"""Initialisation of weights ``[d_in d_out]`` and ``[head d_model d_head]``.

(Glorot and Bengio 2010; He et al. 2015.) PyTorch's own functions take weights ``[d_out d_in]``.
"""

import math
from typing import Literal

from torch import Tensor, nn

from interp.errors import InvalidInput

NonlinearityType = Literal[
    "linear",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "sigmoid",
    "tanh",
    "relu",
    "leaky_relu",
    "selu",
]


def calc_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """Fan-in and fan-out of a bias ``[d_out]``, a weight, or the weights of heads.

    Raises:
        InvalidInput: the tensor has no axis, or more than three.
    """
    match tuple(tensor.shape):
        case (n_out,):
            return 1, n_out
        case (n_in, n_out):
            return n_in, n_out
        case (n_heads, n_in, n_out):
            return n_in, n_heads * n_out
        case shape:
            raise InvalidInput(f"Fan-in and fan-out need one to three axes; got shape {shape}.")


def init_xavier_uniform_(param: Tensor, gain: int | float = 1.0) -> Tensor:
    """Uniform on ± gain·√(6 / (fan_in + fan_out)), in place."""
    bound = gain * math.sqrt(6.0 / sum(calc_fan_in_and_fan_out(param)))
    return nn.init.uniform_(param, -bound, bound)


def init_xavier_normal_(param: Tensor, gain: int | float = 1.0) -> Tensor:
    """Normal with standard deviation gain·√(2 / (fan_in + fan_out)), in place."""
    return nn.init.normal_(param, std=gain * math.sqrt(2.0 / sum(calc_fan_in_and_fan_out(param))))


def init_kaiming_uniform_(
    param: Tensor,
    a: int | float = 0,
    nonlinearity: NonlinearityType = "relu",
    gain: int | float = 1.0,
    mode: str = "fan_in",
) -> Tensor:
    """Uniform on ± gain·g·√(3 / fan), in place; g is the gain of the nonlinearity.

    Args:
        param: the weight.
        a: the negative slope of ``leaky_relu``.
        nonlinearity: the nonlinearity before the weight.
        gain: a further factor.
        mode: ``fan_in`` or ``fan_out``.
    """
    bound = math.sqrt(3.0) * _kaiming_std(param, a, nonlinearity, gain, mode)
    return nn.init.uniform_(param, -bound, bound)


def init_kaiming_normal_(
    param: Tensor,
    a: int | float = 0,
    nonlinearity: NonlinearityType = "relu",
    gain: int | float = 1.0,
    mode: str = "fan_in",
) -> Tensor:
    """Normal with standard deviation gain·g / √fan, in place; see :func:`init_kaiming_uniform_`."""
    return nn.init.normal_(param, std=_kaiming_std(param, a, nonlinearity, gain, mode))


def _kaiming_std(
    param: Tensor, a: int | float, nonlinearity: NonlinearityType, gain: int | float, mode: str
) -> float:
    fan_in, fan_out = calc_fan_in_and_fan_out(param)
    fan = fan_in if mode == "fan_in" else fan_out
    return gain * nn.init.calculate_gain(nonlinearity, a) / math.sqrt(fan)
