"""What is attached at one layer of a model: a dictionary, and what it adds to what it writes.

    y ← y + (f′ − f) W_dec + (ε′ − ε)        f, ε: features and error; f′, ε′: after their edits

Its tensors are buffers of the block, which are moved with the model.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from interp.dictionaries.activations import Features
from interp.dictionaries.dictionary import Dictionary
from interp.model import Context, Recipe, Tap
from interp.points import Place, Point

DICTIONARIES = "dictionaries"
"""Name of the part of a block that has its dictionaries."""
OF_FEATURES = (Point.FEATURES, Point.FEATURES_ERROR)
Flat = Float[Tensor, "batch pos written"]
Inputs = Mapping[str, Tensor]
"""What the dictionaries of a block have read so far, by their names."""


class Attached(nn.Module):
    """What is attached at one layer of a model.

    Attributes:
        name: the point that it writes, which its places carry.
        reads: the place that it reads, within its block.
        writes: the place that it writes, within its block.
    """

    def __init__(self, reads: Place, writes: Place) -> None:
        super().__init__()
        self.name = writes.norm or writes.point.label
        self.reads, self.writes = reads, writes

    @property
    def path(self) -> str:
        """Its path below the block."""
        return f"{DICTIONARIES}.{self.name}"

    def is_used(self, tap: Tap) -> bool:
        """Whether a forward of its block forms its features or its error."""
        return tap.scoped(norm=self.name).must_form(*OF_FEATURES)

    def changed(self, y: Tensor, inputs: Inputs, tap: Tap, context: Context) -> Tensor:
        """The tensor that it writes, with the changes of its features.

        Args:
            y: the tensor.
            inputs: what each dictionary of the block has read so far, by its name.
            tap: the tap of the block.
            context: the context of the forward.
        """
        raise NotImplementedError

    def layout(self) -> dict[Place, Recipe]:
        """Its places within the block."""
        raise NotImplementedError

    def recipe_of_output(self, recipe: Recipe) -> Recipe:
        """The recipe of the place that it writes, given that of the block."""
        return recipe


class AttachedDictionary(Attached):
    """A dictionary at one layer of a model."""

    def __init__(self, dictionary: Dictionary, reads: Place, writes: Place) -> None:
        super().__init__(reads, writes)
        for name, tensor in dictionary.tensors().items():
            self.register_buffer(name.replace(".", "_"), tensor, persistent=False)
        # Without data, which is in the buffers.
        shapes = {name: tensor.to("meta") for name, tensor in dictionary.tensors().items()}
        self._without_data = dictionary.with_tensors(shapes)

    @property
    def dictionary(self) -> Dictionary:
        """The dictionary."""
        names = self._without_data.tensors()
        return self._without_data.with_tensors(
            {name: self.get_buffer(name.replace(".", "_")) for name in names}
        )

    def changed(self, y: Tensor, inputs: Inputs, tap: Tap, context: Context) -> Tensor:  # noqa: ARG002
        """y + (f′ − f) W_dec + (ε′ − ε)."""
        if not self.is_used(tap):
            return y
        tap = tap.scoped(norm=self.name)
        dictionary, flat = self.dictionary, flattened(y, self.writes)
        x = flattened(inputs[self.name], self.reads)
        features = dictionary.encode(x)
        edited, changed = tap(Point.FEATURES, features), flat
        if edited is not features:
            changed = changed + (edited - features) @ dictionary.w_dec
        if tap.must_form(Point.FEATURES_ERROR):
            error = flat - dictionary.output(features, x)
            edited_error = tap(Point.FEATURES_ERROR, error)
            if edited_error is not error:
                changed = changed + (edited_error - error)
        return y if changed is flat else changed.view_as(y)

    def layout(self) -> dict[Place, Recipe]:
        """The places of its features and of its error, both functions of what it reads."""
        x, y = self.reads, self.writes

        def features(part: AttachedDictionary, of: Any) -> Features:  # noqa: ANN401 - a Reader
            return part.dictionary.encode(flattened(of(x.point, x.norm), x))

        def error(part: AttachedDictionary, of: Any) -> Flat:  # noqa: ANN401 - a Reader
            read, written = flattened(of(x.point, x.norm), x), flattened(of(y.point, y.norm), y)
            return part.dictionary.error(read, written)

        dictionary = self._without_data
        sizes = {"feature": dictionary.n_features, "written": len(dictionary.b_dec)}
        recipe = Recipe(
            absent_when_fused=True,
            before_edits=True,
            part=self.path,
            sizes=tuple(sizes.items()),
        )
        return {
            Place(Point.FEATURES, norm=self.name): replace(recipe, compute=features, needs=(x,)),
            Place(Point.FEATURES_ERROR, norm=self.name): replace(
                recipe, compute=error, needs=(x, y)
            ),
        }


def flattened(x: Tensor, place: Place) -> Tensor:
    """A tensor with one axis of numbers for each token: heads are one after another."""
    return x.flatten(2) if len(place.point.axes) > len(("batch", "pos", "d_model")) else x
