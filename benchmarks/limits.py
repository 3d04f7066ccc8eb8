"""The limit of a work: the time of its multiply-adds at the rate of matrix products alone.

The rate is measured on the four products of every block, with the model's weights and the kernel of
its forward, on as many rows as the work has.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import interp
from benchmarks.timing import Work

FLOPS_OF_ONE = 2
"""A multiply-add is a multiplication and an addition."""


def multiply_adds(work: Work) -> float:
    """Multiply-adds of ``work`` in matrix products and fused attention.

    Attention counts as query × key, even if a kernel skips masked keys. torch does not count its
    fused attention on CPU, so this module adds it.
    """
    counter = FlopCounterMode(display=False, custom_mapping=CPU_ATTENTION)
    with torch.no_grad(), counter:
        work()
    return counter.get_total_flops() / FLOPS_OF_ONE


def _attention_flops(
    query: tuple[int, ...],
    key: tuple[int, ...],
    value: tuple[int, ...],
    *_: object,
    out_shape: object = None,  # noqa: ARG001 - passed by torch
    **__: object,
) -> int:
    """FLOPs of q·kᵀ and A·v, with shapes ``[batch head query d]`` and ``[batch head key d]``."""
    batch, heads, queries, d_query = query
    keys, d_value = key[2], value[3]
    return FLOPS_OF_ONE * batch * heads * queries * keys * (d_query + d_value)


CPU_ATTENTION: dict[object, Callable[..., int]] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention_flops
}


class Products:
    """The four matrix products of every block of a model, without the operations between them."""

    def __init__(self, model: interp.Transformer, rows: int) -> None:
        """Draw ``rows`` rows of random activations for the products of ``model``."""
        generator = torch.Generator().manual_seed(0)

        def activations(width: int) -> Tensor:
            return torch.randn(rows, width, generator=generator).to(model.device, model.dtype)

        self._parts = [(block.attn, block.mlp) for block in model.blocks]
        attn, mlp = self._parts[0]
        self._stream = activations(model.config.d_model)
        self._z = activations(attn.weight_o.shape[1])
        self._neurons = activations(mlp.weight_out.shape[1])

    def __call__(self) -> None:
        """Compute each product once."""
        for attn, mlp in self._parts:
            attn.linear(self._stream, attn.weight_qkv, None)
            attn.linear(self._z, attn.weight_o, None)
            mlp.linear(self._stream, mlp.weight_in, None)
            mlp.linear(self._neurons, mlp.weight_out, None)

    @staticmethod
    def count(model: interp.Transformer, rows: int) -> int:
        """Multiply-adds of one call."""
        attn, mlp = model.blocks[0].attn, model.blocks[0].mlp
        weights = (attn.weight_qkv, attn.weight_o, mlp.weight_in, mlp.weight_out)
        return rows * len(model.blocks) * sum(weight.numel() for weight in weights)
