"""Folds and centres the weights of a copy in place; each step preserves the model's function."""

from collections.abc import Iterator

from torch import Tensor

from interp.model import (
    MLP,
    Attention,
    Block,
    Experts,
    GatedMLP,
    LearnedPositions,
    MaskedHead,
    MeanPooledNorm,
    Network,
    Norm,
    OffsetRMSNorm,
    Patches,
    ProjectedTokens,
    ProjectedUnembedding,
    ScaledNorm,
    SharedExperts,
    Stack,
    TokenTypes,
    Unembedding,
)

Projection = tuple[Tensor, Tensor | None]
"""A matrix ``[… out in]`` (a view of a parameter) and its bias."""


def fold_norms(model: Network) -> None:
    """Fold the gain and bias of every norm into the matrices that read it."""
    for stack in model.stacks:
        for block in _blocks(stack):
            by_norm: dict[Norm, list[Projection]] = {}
            for projections, norm in _readers(block):
                by_norm.setdefault(norm, []).extend(projections)
            for norm, projections in by_norm.items():
                _fold(norm, projections)
    for stack in model.stacks[:-1]:
        attentions = [block.cross_attn for block in _blocks(model.stacks[-1])]
        keys_and_values = [part for attention in attentions for part in _qkv(attention)[1:]]
        _fold(stack.final_norm, keys_and_values)
    last = model.stacks[-1].final_norm
    if isinstance(model.unembed, Unembedding):
        inside = isinstance(last, MaskedHead | MeanPooledNorm)
        _fold_last(last.norm if inside else last, model.unembed)
    if isinstance(last, MaskedHead):
        _fold(last.norm_before, [(last.weight, last.bias)])


def _readers(block: Block) -> Iterator[tuple[list[Projection], Norm]]:
    """The projections of each sub-layer of a block, and the norm that they read."""
    names = [name for name in ("attn", "cross_attn", "mlp") if hasattr(block, name)]
    for part, name in zip(names, ("ln1", "ln2", "ln3"), strict=False):
        sublayer, norm = getattr(block, part), getattr(block, name)
        if part == "cross_attn":
            yield _qkv(sublayer)[:1], norm
        elif part == "attn":
            yield _qkv(sublayer), norm
        else:
            yield _mlp_inputs(sublayer), norm


def _qkv(attention: Attention) -> list[Projection]:
    """The projections of queries, keys and values."""
    n_query, n_key = (attention.d_head * heads for heads in (attention.n_heads, attention.kv_heads))
    rows = attention.weight_qkv.split([n_query, n_key, n_key])
    return list(zip(rows, (attention.b_q, attention.b_k, attention.b_v), strict=True))


def _mlp_inputs(mlp: MLP | Experts) -> list[Projection]:
    """The projections that an MLP, or a mixture of experts, applies to its input."""
    if isinstance(mlp, Experts):
        weights = [mlp.weight_router, mlp.weight_in, mlp.weight_gate]
        shared = _mlp_inputs(mlp.shared) if isinstance(mlp, SharedExperts) else []
        weights += [mlp.weight_shared] if isinstance(mlp, SharedExperts) else []
        return [*((weight, None) for weight in weights), *shared]
    gate = [(mlp.weight_gate, mlp.b_gate)] if isinstance(mlp, GatedMLP) else []
    return [(mlp.weight_in, mlp.b_in), *gate]


def _fold(norm: Norm, projections: list[Projection]) -> None:
    """W·(gain·x + bias) + b = (W·gain)·x + (b + W·bias)."""
    if not isinstance(norm, ScaledNorm):
        return
    for weight, bias in projections:
        if norm.bias is not None and bias is not None:
            bias.add_(weight @ norm.bias)
        if norm.multiplier is not None:
            weight.mul_(norm.multiplier)
    _reset(norm)


def _fold_last(norm: Norm, unembed: Unembedding) -> None:
    """:func:`_fold` for W_U, where a scale or a projection may be between the norm and W_U."""
    if not isinstance(norm, ScaledNorm):
        return
    if norm.bias is not None and unembed.b_U is not None:
        unembed.b_U.add_(unembed.weight @ unembed.read(norm.bias[None, None])[0, 0])
    if norm.multiplier is not None:
        first = unembed.project if isinstance(unembed, ProjectedUnembedding) else unembed
        first.weight.mul_(norm.multiplier)
    _reset(norm)


def _reset(norm: ScaledNorm) -> None:
    """Set the gain to 1 and the bias to 0."""
    if norm.gain is not None:
        norm.gain.fill_(0.0 if isinstance(norm, OffsetRMSNorm) else 1.0)
    if norm.bias is not None:
        norm.bias.zero_()


def center_writing(model: Network) -> None:
    """Subtract the mean over d_model from every output to the stream, as each LayerNorm does."""
    for stack in model.stacks:
        for vectors in _stream_inputs(stack):
            center(vectors)
        for block in _blocks(stack):
            for part in block.children():
                if isinstance(part, Attention):
                    center(part.weight_o, axis=0)
                    center(part.b_O)
                elif isinstance(part, MLP | Experts):
                    center(part.weight_out, axis=-2)
                    center(part.b_out)
                    shared = part.shared if isinstance(part, SharedExperts) else None
                    center(None if shared is None else shared.weight_out, axis=-2)


def _stream_inputs(stack: Stack) -> Iterator[Tensor | None]:
    """Weights of the embeddings whose sum is the first stream; d_model is their last axis."""
    tokens = stack.tokens
    if isinstance(tokens, Patches):
        yield from (tokens.weight.mT, tokens.bias, tokens.special)
    else:
        projected = isinstance(tokens, ProjectedTokens)
        yield tokens.project.weight.mT if projected else stack.weight_e
    yield stack.entry.W_pos if isinstance(stack.entry, LearnedPositions) else None
    yield stack.types.W_type if isinstance(stack.types, TokenTypes) else None


def fold_value_biases(attention: Attention) -> None:
    """Add b_V·W_O to b_O and set b_V to 0; Σ_keys A = 1, so every query gets all of b_V·W_O."""
    if attention.b_v is not None and attention.b_O is not None:
        attention.b_O.copy_(attention.constant_output)
        attention.b_v.zero_()


def center(x: Tensor | None, axis: int = -1) -> None:
    """Subtract the mean along an axis."""
    if x is not None:
        x -= x.mean(axis, keepdim=True)


def _blocks(stack: Stack) -> list[Block]:
    return [stack.block(layer) for layer in range(len(stack.blocks))]
