"""The sizes of a model that all its stacks and layers share: heads, layers, vocabulary."""

from collections.abc import Callable

from interp.config import Config
from interp.errors import NoSuchAttribute

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
        stack: [_OF_LAYER[name](config, stack, layer) for layer in range(own.n_layers)]
        for stack, own in config.stacks.items()
    }
    distinct = {size for own in sizes.values() for size in own}
    if len(distinct) == 1:
        return distinct.pop()
    if all(len(set(own)) == 1 for own in sizes.values()):
        each = " and ".join(f"model.{stack} has {own[0]}" for stack, own in sizes.items())
        raise NoSuchAttribute(f"The stacks of this model differ in {name}: {each}.")
    each = "; ".join(f"model.{stack}: {own}" for stack, own in sizes.items())
    raise NoSuchAttribute(f"The layers of this model differ in {name} ({each}); read one by one.")
