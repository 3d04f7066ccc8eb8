"""Reordering heads, neurons and token ids: the weights that must be permuted together, in place.

``order[new] = old`` throughout. A model whose weights are permuted consistently computes the same
function.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Int
from torch import Tensor

from analyses.methods.symmetries import other_order
from interp.errors import InvalidInput
from interp.model import MLP, Attention, Experts, Network

Heads = Int[Tensor, " head"]
KVHeads = Int[Tensor, " kv_head"]


def head_orders(attn: Attention, generator: torch.Generator) -> tuple[Heads, KVHeads]:
    """Random orders of heads and of key/value heads; the heads of a group stay together."""
    size = attn.n_heads // attn.kv_heads
    groups = other_order(attn.kv_heads, generator)
    heads = [group * size + other_order(size, generator) for group in groups]
    return torch.cat(heads), groups


def reorder_heads(attn: Attention, heads: Heads, kv_heads: KVHeads, *, output: bool = True) -> None:
    """Reorder the heads of an attention.

    Args:
        attn: the attention, which is modified.
        heads: order of the heads; the heads of a group stay together.
        kv_heads: order of the key/value heads.
        output: whether W_O is reordered too; if not, each head has the W_O of another.

    Raises:
        InvalidInput: the attention has position biases, which belong to heads by their index.
    """
    if attn.positions.has_bias:
        raise InvalidInput(
            "The position biases of this attention belong to heads by their index, so its heads "
            "can't be reordered; see model.without(positions=True)."
        )
    reorder(heads, attn.W_Q, *([attn.W_O] if output else []), *attn.softmax.parameters())
    reorder(kv_heads, attn.W_K, attn.W_V)
    for order, bias in ((heads, attn.b_q), (kv_heads, attn.b_k), (kv_heads, attn.b_v)):
        reorder(order, None if bias is None else bias.view(len(order), -1))
    for order, norm in ((heads, attn.q_norm), (kv_heads, attn.k_norm)):
        # Weights of all heads together.
        weights = (weight for weight in norm.parameters() if weight.ndim > 1)
        reorder(order, *weights)


def n_neurons(mlp: MLP | Experts) -> int:
    """Number of neurons of an MLP, or of each expert."""
    return mlp.W_out.shape[-2]


def reorder_neurons(
    mlp: MLP | Experts, order: Int[Tensor, " neuron"], *, output: bool = True
) -> None:
    """Reorder the neurons of an MLP, or of every expert.

    Args:
        mlp: the MLP, which is modified.
        order: order of the neurons.
        output: whether W_out is reordered too; if not, each neuron has the output weights of
            another.
    """
    if isinstance(mlp, Experts):
        weights = [mlp.weight_in.mT, mlp.weight_gate.mT, *([mlp.weight_out] if output else [])]
        weights += [bias for bias in (mlp.b_in, mlp.b_gate) if bias is not None]
        reorder(order, *(weight.movedim(-1, 0) for weight in weights))
        return
    rows = ("weight_in", "weight_gate", "b_in", "b_gate", *(["W_out"] if output else []))
    reorder(order, *(getattr(mlp, name, None) for name in rows))


def reorder_vocabulary(model: Network, orders: Mapping[str, Tensor]) -> None:
    """Reorder token ids: the rows of the embeddings, and those of the unembedding.

    Args:
        model: the model, which is modified.
        orders: the order of each stack's vocabulary, by the name of the stack; the same for stacks
            that share an embedding.
    """
    tables: dict[int, tuple[Tensor, Tensor]] = {}
    for stack in model.stacks:
        if stack.weight_e is not None:
            tables[id(stack.weight_e)] = stack.weight_e, orders[stack.name]
    if model.config.unembeds and model.config.n_classes is None:
        last = orders[model.stacks[-1].name]
        for weight in (model.unembed.weight, model.unembed.b_U):
            if isinstance(weight, Tensor):
                tables[id(weight)] = weight, last
    for table, order in tables.values():
        reorder(order, table)


@torch.no_grad()
def reorder(order: Int[Tensor, " n"], *weights: Tensor | None) -> None:
    """Reorder the first axis of each weight, in place."""
    for weight in weights:
        if weight is not None:
            weight.copy_(weight[order.to(weight.device)])
