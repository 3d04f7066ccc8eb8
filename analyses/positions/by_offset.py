"""The effect of positions on attention scores, by offset: query position − key position."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import InvalidInput
from interp.model import Attention, Context, Rotary


def rotary_kernel(
    scheme: Rotary, d_head: int, n: int
) -> tuple[Float[Tensor, " pair"], Float[Tensor, "pair offset"], Float[Tensor, " offset"]]:
    """q·k of a query and an equal key, each of unit norm, at offsets 0 … n − 1.

    Args:
        scheme: the rotary positions. Frequencies that depend on the length of the text are those of
            a text no longer than in training.
        d_head: number of dimensions of a head.
        n: number of offsets.

    Returns:
        The frequency of each pair of dimensions, in radians per position; q·k where q and k lie in
        that pair; and q·k where all entries of q and k are equal.
    """
    d = scheme.d or d_head
    rates = scheme.frequencies.rates(d, None).cpu()
    kernel = scheme.frequencies.amplitude**2 * (rates[:, None] * torch.arange(n)).cos()
    return rates, kernel, (2 * kernel.sum(0) + (d_head - d)) / d_head


def bias_by_offset(
    attn: Attention, n: int
) -> tuple[Int[Tensor, " offset"], Float[Tensor, "head offset"]]:
    """The bias of the scores at offsets 0 … n − 1, or 1 − n … n − 1 where queries see later keys.

    Returns:
        The position of the key minus that of the query, descending; and the bias, in float64.

    Raises:
        InvalidInput: the attention adds no bias.
    """
    device = attn.weight_qkv.device
    ends = [Context(torch.tensor([[n - 1]], device=device), offset=n - 1)]
    if attn.masking.mask.is_bidirectional:  # also from the first position to all others
        ends.insert(0, Context(torch.tensor([[0]], device=device), n_later=n - 1))
    distances, biases = [], []
    for context in ends:
        if (bias := attn.positions.bias(context)) is None:
            raise InvalidInput("This attention adds no bias to its scores.")
        biases.append(bias[0, :, 0].flip(-1).double())
        distances.append(context.key_less_query[0, 0].flip(-1))
    # Offset 0 is in both.
    distinct = torch.arange(sum(map(len, distances))) != (n - 1 if len(ends) > 1 else -1)
    return torch.cat(distances).cpu()[distinct], torch.cat(biases, -1).cpu()[:, distinct]
