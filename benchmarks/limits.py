"""How far is it from what the machine can do? Multiply-adds over the rate of the products alone.

The rate is measured, not looked up: the four products of every block, with the model's weights and
by the kernel that its forward uses, on as many rows as the work at hand has; nothing else is done.
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
    """How many multiply-adds ``work`` does in matrix products and fused attention.

    Attention counts whole squares, also where a kernel skips what is masked. torch does not count
    its fused attention on CPU, so that one is added here.
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
    out_shape: object = None,  # noqa: ARG001 - how torch calls it
    **__: object,
) -> int:
    """Of q·kᵀ and of A·v: ``[batch head query d]`` by ``[batch head key d]``."""
    batch, heads, queries, d_query = query
    keys, d_value = key[2], value[3]
    return FLOPS_OF_ONE * batch * heads * queries * keys * (d_query + d_value)


CPU_ATTENTION: dict[object, Callable[..., int]] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention_flops
}


class Products:
    """The products of every block of a model, and nothing else."""

    def __init__(self, model: interp.Transformer, rows: int) -> None:
        """Of ``model``, on ``rows`` rows of activations."""
        generator = torch.Generator().manual_seed(0)

        def activations(width: int) -> Tensor:
            return torch.randn(rows, width, generator=generator).to(model.device, model.dtype)

        self._parts = [(block.attn, block.mlp) for block in model.blocks]
        attn, mlp = self._parts[0]
        self._stream = activations(model.config.d_model)
        self._z = activations(attn.weight_o.shape[1])
        self._neurons = activations(mlp.weight_out.shape[1])

    def __call__(self) -> None:
        """Each product once."""
        for attn, mlp in self._parts:
            attn.linear(self._stream, attn.weight_qkv, None)
            attn.linear(self._z, attn.weight_o, None)
            mlp.linear(self._stream, mlp.weight_in, None)
            mlp.linear(self._neurons, mlp.weight_out, None)

    @staticmethod
    def count(model: interp.Transformer, rows: int) -> int:
        """How many multiply-adds that is."""
        attn, mlp = model.blocks[0].attn, model.blocks[0].mlp
        weights = (attn.weight_qkv, attn.weight_o, mlp.weight_in, mlp.weight_out)
        return rows * len(model.blocks) * sum(weight.numel() for weight in weights)
