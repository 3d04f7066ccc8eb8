"""What a model says of itself: a summary (its repr), its places, common sizes, stacked weights."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from interp.config import (
    AttentionConfig,
    Config,
    MLPConfig,
    NormConfig,
    PositionsConfig,
    StackConfig,
)
from interp.errors import NoSuchAttribute
from interp.io import Table
from interp.model.block import Block
from interp.model.recipe import Layout, Recipe
from interp.model.stack import Stack
from interp.model.unembedding import Exit
from interp.names import Names
from interp.points import Place


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


# ---- places -------------------------------------------------------------------------------------


def layout_of(stacks: Sequence[Stack], unembed: Exit) -> Layout:
    """The places of all stacks and of the exit, each with its recipe."""
    places: Layout = {}
    for stack in stacks:
        places |= {
            Place(place.point, place.layer, place.norm, stack.name_in_places): recipe
            for place, recipe in stack.layout().items()
        }
    return places | unembed.layout()


def names_of(stacks: Sequence[Stack], layout: Layout) -> Names:
    """The names of these places."""
    layers = {stack.name: len(stack.blocks) for stack in stacks}
    return Names({place: hook_name(place, recipe) for place, recipe in layout.items()}, layers)


def hook_name(place: Place, recipe: Recipe) -> str:
    """The TransformerLens name of a place; with two stacks, ``blocks`` is the stack's name."""
    name = recipe.hook or place.point.value.hook
    if place.layer is None:
        return f"{place.stack}.{name}" if place.stack else name
    norm = f"{place.norm}." if place.norm else ""
    return f"{place.stack or 'blocks'}.{place.layer}.{norm}{name}"


# ---- sizes that all stacks share ----------------------------------------------------------------


_OF_LAYER: dict[str, Callable[[Config, str, int], int]] = {
    "n_layers": lambda config, stack, _: config.stacks[stack].n_layers,
    "n_heads": lambda config, stack, _: config.stacks[stack].attention.n_heads,
    "n_kv_heads": lambda config, stack, n: config.stacks[stack].of_layer(n).attention.kv_heads,
    "d_head": lambda config, stack, _: config.stacks[stack].attention.d_head,
    "d_vocab": lambda config, stack, _: config.vocabulary_of(stack),
}
"""The function that gives each size in one layer of one stack."""


def common_size(config: Config, name: str) -> int:
    """A size that is the same in all layers of all stacks.

    Raises:
        NoSuchAttribute: stacks or layers differ; the message gives the size of each.
    """
    sizes = {
        stack: [_OF_LAYER[name](config, stack, layer) for layer in range(config_of.n_layers)]
        for stack, config_of in config.stacks.items()
    }
    distinct = {size for each_layer in sizes.values() for size in each_layer}
    if len(distinct) == 1:
        return distinct.pop()
    if all(len(set(each_layer)) == 1 for each_layer in sizes.values()):
        each = " and ".join(
            f"model.{stack} has {each_layer[0]}" for stack, each_layer in sizes.items()
        )
        raise NoSuchAttribute(f"The stacks of this model differ in {name}: {each}.")
    each = "; ".join(f"model.{stack}: {each_layer}" for stack, each_layer in sizes.items())
    raise NoSuchAttribute(f"The layers of this model differ in {name} ({each}); read one by one.")


# ---- weights of all layers ----------------------------------------------------------------------


STACKED = {
    **dict.fromkeys(("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O"), "attn"),
    **dict.fromkeys(("W_in", "W_gate", "W_out", "b_in", "b_out"), "mlp"),
}
"""Each weight that can be stacked, and the part of a block that has it."""


def stacked(blocks: Sequence[Block], name: str) -> Tensor:
    """The weight of each block, stacked (a copy).

    Raises:
        NoSuchAttribute: some block does not have it, or its shapes differ.
    """
    parts = [getattr(block, STACKED[name], None) for block in blocks]
    weights = [getattr(part, name, None) for part in parts]
    present = [weight for weight in weights if weight is not None]
    if not present:
        raise NoSuchAttribute(f"This model has no {name}.")
    if len(present) < len(weights) or len({weight.shape for weight in present}) > 1:
        raise NoSuchAttribute(f"The layers differ in {name}; read model.blocks[layer] one by one.")
    return torch.stack(present)
