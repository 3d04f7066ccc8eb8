"""Every place of a model in the order of the forward, with its recipe and its names."""

from collections.abc import Sequence

from interp.model.recipe import Layout, Recipe
from interp.model.stack import Stack
from interp.model.unembedding import Exit
from interp.names import Names
from interp.points import Place


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
    own = recipe.hook or place.point.value.hook
    if place.layer is None:
        return f"{place.stack}.{own}" if place.stack else own
    norm = f"{place.norm}." if place.norm else ""
    return f"{place.stack or 'blocks'}.{place.layer}.{norm}{own}"
