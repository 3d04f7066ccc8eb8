"""What is done to the weights of a copy, in place: each step leaves the function as it was."""

from collections.abc import Iterator

from torch import Tensor

from interp.model.attention.attention import Attention
from interp.model.block import Block
from interp.model.embeddings import LearnedPositions, Patches, ProjectedTokens, TokenTypes
from interp.model.experts import Experts
from interp.model.mlp import MLP, GatedMLP
from interp.model.network import Network
from interp.model.norm import Norm, OffsetRMSNorm, ScaledNorm
from interp.model.stack import Stack
from interp.model.unembedding import MaskedHead, ProjectedUnembedding, Unembedding

Reading = tuple[Tensor, Tensor | None]
"""A matrix [… out in] (a view of a parameter) and the bias beside it."""


def fold_norms(model: Network) -> None:
    """Gains and biases into the matrices that read them."""
    for stack in model.stacks:
        for block in _blocks(stack):
            by_norm: dict[Norm, list[Reading]] = {}
            for part, norm in _readers(block):
                by_norm.setdefault(norm, []).extend(part)
            for norm, readings in by_norm.items():
                _fold(norm, readings)
    for stack in model.stacks[:-1]:
        attentions = [block.cross_attn for block in _blocks(model.stacks[-1])]
        _fold(stack.final_norm, [one for own in attentions for one in _projections(own)[1:]])
    last = model.stacks[-1].final_norm
    if isinstance(model.unembed, Unembedding):
        _fold_last(last.norm if isinstance(last, MaskedHead) else last, model.unembed)


def _readers(block: Block) -> Iterator[tuple[list[Reading], Norm]]:
    """What reads each norm of a block."""
    placed = [("attn", "ln1"), ("cross_attn", "ln2"), ("mlp", "ln3")]
    present = [part for part, _ in placed if hasattr(block, part)]
    for part, (_, name) in zip(present, placed, strict=False):
        sublayer, norm = getattr(block, part), getattr(block, name)
        if part == "cross_attn":
            yield _projections(sublayer)[:1], norm
        elif part == "attn":
            yield _projections(sublayer), norm
        else:
            yield _entrances(sublayer), norm


def _projections(attention: Attention) -> list[Reading]:
    """Queries; keys; values."""
    n_query, n_key = (attention.d_head * heads for heads in (attention.n_heads, attention.kv_heads))
    rows = attention.weight_qkv.split([n_query, n_key, n_key])
    return list(zip(rows, (attention.b_q, attention.b_k, attention.b_v), strict=True))


def _entrances(mlp: MLP | Experts) -> list[Reading]:
    """What an MLP reads with."""
    if isinstance(mlp, Experts):
        weights = (mlp.weight_router, mlp.weight_in, mlp.weight_gate)
        return [(weight, None) for weight in weights]
    gate = [(mlp.weight_gate, mlp.b_gate)] if isinstance(mlp, GatedMLP) else []
    return [(mlp.weight_in, mlp.b_in), *gate]


def _fold(norm: Norm, readings: list[Reading]) -> None:
    """W·(gain·x + bias) + b = (W·gain)·x + (b + W·bias)."""
    if not isinstance(norm, ScaledNorm):
        return
    for weight, bias in readings:
        if norm.bias is not None and bias is not None:
            bias.add_(weight @ norm.bias)
        if norm.multiplier is not None:
            weight.mul_(norm.multiplier)
    _reset(norm)


def _fold_last(norm: Norm, unembed: Unembedding) -> None:
    """The same where a scale or a projection may stand between the norm and W_U."""
    if not isinstance(norm, ScaledNorm):
        return
    if norm.bias is not None and unembed.b_U is not None:
        unembed.b_U.add_(unembed.weight @ unembed.read(norm.bias[None, None])[0, 0])
    if norm.multiplier is not None:
        first = unembed.project if isinstance(unembed, ProjectedUnembedding) else unembed
        first.weight.mul_(norm.multiplier)
    _reset(norm)


def _reset(norm: ScaledNorm) -> None:
    if norm.gain is not None:
        norm.gain.fill_(0.0 if isinstance(norm, OffsetRMSNorm) else 1.0)
    if norm.bias is not None:
        norm.bias.zero_()


def center_writing(model: Network) -> None:
    """Means that each LayerNorm would take away."""
    for stack in model.stacks:
        for vectors in _entering(stack):
            center(vectors)
        for block in _blocks(stack):
            for part in block.children():
                if isinstance(part, Attention):
                    center(part.weight_o, axis=0)
                    center(part.b_O)
                elif isinstance(part, MLP | Experts):
                    center(part.weight_out, axis=-2)
                    center(part.b_out if isinstance(part, MLP) else None)


def _entering(stack: Stack) -> Iterator[Tensor | None]:
    """All that enters the stream of a stack, each with d_model last."""
    tokens = stack.tokens
    if isinstance(tokens, Patches):
        yield from (tokens.weight.mT, tokens.bias, tokens.special)
    else:
        projected = isinstance(tokens, ProjectedTokens)
        yield tokens.project.weight.mT if projected else stack.weight_e
    yield stack.entry.W_pos if isinstance(stack.entry, LearnedPositions) else None
    yield stack.types.W_type if isinstance(stack.types, TokenTypes) else None


def fold_value_biases(attention: Attention) -> None:
    """Σ_keys A = 1, so b_V arrives whole: b_V·W_O is written whatever is attended to."""
    if attention.b_v is not None and attention.b_O is not None:
        attention.b_O.copy_(attention.constant_output)
        attention.b_v.zero_()


def center(x: Tensor | None, axis: int = -1) -> None:
    """Mean zero along an axis."""
    if x is not None:
        x -= x.mean(axis, keepdim=True)


def _blocks(stack: Stack) -> list[Block]:
    return [stack.block(layer) for layer in range(len(stack.blocks))]
