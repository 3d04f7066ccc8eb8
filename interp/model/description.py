"""A summary of a model, shown as its repr: architecture and sizes."""

from torch import nn

from interp.config import (
    AttentionConfig,
    Config,
    MLPConfig,
    NormConfig,
    PositionsConfig,
    StackConfig,
)
from interp.io import Table


def describe(model: nn.Module, config: Config) -> Table:
    """A table of stacks, sizes and weights, one per line."""
    weights = list(model.parameters())
    dtype = str(weights[0].dtype).removeprefix("torch.")
    count = sum(weight.numel() for weight in weights)
    sizes = [f"d_model {config.d_model}", f"n_ctx {config.n_ctx}", *_logits(config)]
    rows = [(name, describe_stack(stack)) for name, stack in config.stacks.items()]
    rows += [
        ("sizes", ", ".join(sizes)),
        ("weights", f"{count:,} parameters, {dtype} on {weights[0].device}"),
    ]
    return Table(f"{type(model).__name__} {config.name or '(unnamed)'}", (), rows)


def describe_stack(stack: StackConfig) -> str:
    """``2 layers: attention (8 heads of 16), MLP (512, gelu); layernorm (pre); learned positions``.

    The first layer is described; ``some layers differ`` is added if it does not stand for all.
    """
    first = stack.of_layer(0)
    others = any(stack.of_layer(layer) != first for layer in range(1, stack.n_layers))
    parts = [_attention(first.attention), *([] if first.mlp is None else [_mlp(first.mlp)])]
    layers = f"{stack.n_layers} layer{'s' * (stack.n_layers > 1)}"
    described = [f"{layers}: {', '.join(parts)}", _norm(stack.norm), _positions(first.positions)]
    return "; ".join([*described, *(["some layers differ"] if others else [])])


def _attention(attention: AttentionConfig) -> str:
    kind = "bidirectional attention" if attention.bidirectional else "attention"
    described = [f"{attention.n_heads} heads of {attention.d_head}"]
    if attention.kv_heads != attention.n_heads:
        described.append(f"{attention.kv_heads} key/value heads")
    described += ["sinks"] if attention.sinks else []
    return f"{kind} ({', '.join(described)})"


def _mlp(mlp: MLPConfig) -> str:
    gated = "gated " if mlp.gated else ""
    experts = f"{mlp.experts.n_experts} experts, " if mlp.experts else ""
    shared = mlp.experts.d_shared if mlp.experts else None
    experts += f"a shared one of {shared}, " if shared else ""
    return f"{gated}MLP ({experts}{mlp.d_mlp}, {mlp.activation})"


def _norm(norm: NormConfig) -> str:
    return "no norms" if norm.kind == "none" else f"{norm.kind} ({norm.placement})"


def _positions(positions: PositionsConfig) -> str:
    kind = "no" if positions.kind == "none" else positions.kind
    return f"{'learned and ' if positions.learned else ''}{kind} positions"


def _logits(config: Config) -> list[str]:
    """Size of the vocabulary, and whether there are other logits or none."""
    images = any(stack.embedding.patches for stack in config.stacks.values())
    vocabulary = [] if images else [f"d_vocab {config.d_vocab}"]
    if not config.unembeds:
        return [*vocabulary, "no logits"]
    return vocabulary if config.n_classes is None else [*vocabulary, f"{config.n_classes} classes"]
