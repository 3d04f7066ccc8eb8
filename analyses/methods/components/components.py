"""The components of a model that can be ablated: heads, sub-layers, neurons, features.

Names are those of :mod:`interp.graph`, with one more for neurons and one for features:

    L0H1      a head; L0KV1 is a key/value head that several heads share
    L0ATTN    everything that attention adds to the stream, its output bias included
    L0MLP     everything that the MLP adds to the stream; L0N12 is one of its neurons
    L0F12     feature 12 of the dictionary of a layer; L0F12:mlp_out if the layer has several

In an encoder–decoder names begin with ``encoder.``, ``decoder.`` or, for cross-attention,
``cross.``.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from interp.errors import InvalidInput, UnknownPlace, nearest, shorten
from interp.integers import as_integer, within
from interp.model import MLP, Attention, Network
from interp.points import Place, Point

PARTS = ("z", "pattern", "v")
"""The tensors at which a head may be ablated."""
KINDS = ("heads", "layers", "mlps", "neurons", "features", "pairs")
"""Kinds of units, each of one or several components; see :meth:`Components.units`."""
NEURON = re.compile(r"(.*L\d+)N(\d+)", re.ASCII)
FEATURE = re.compile(r"(.*L\d+)F(\d+)((?::\w+)?)", re.ASCII)
Units = dict[str, tuple["Component", ...]]
"""The components of each unit, by its name."""


@dataclass(frozen=True)
class Component:
    """A component, and the part of a tensor at which it is ablated.

    Attributes:
        name: name of the component, such as ``L0H1``.
        place: the place of the tensor.
        head: index of the head (of v, of the key/value head), or ``None`` for all.
        unit: index along the last axis, or ``None`` for all.
        n_neurons: for an MLP, its number of neurons; 0 for a mixture of experts and for all other
            components.
    """

    name: str
    place: Place
    head: int | None = None
    unit: int | None = None
    n_neurons: int = 0

    def __str__(self) -> str:
        """The name."""
        return self.name

    @property
    def layer(self) -> int:
        """The layer of the component."""
        return self.place.layer or 0

    def neuron(self, unit: int) -> "Component":
        """One neuron of an MLP."""
        place = Place(Point.POST, self.layer, stack=self.place.stack)
        return Component(f"{self.name.removesuffix('MLP')}N{unit}", place, unit=unit)

    def neurons(self, chosen: Sequence[int] | None = None) -> tuple["Component", ...]:
        """All neurons of an MLP, or the chosen ones.

        Raises:
            InvalidInput: the component is a mixture of experts, or ``chosen`` is not a sequence of
                different indices of its neurons.
        """
        if not self.n_neurons:
            raise InvalidInput(
                f"{self} is a mixture of experts, each with its own neurons, which can't be "
                "ablated one by one. Ablate it as a whole."
            )
        if chosen is None:
            return tuple(self.neuron(unit) for unit in range(self.n_neurons))
        indices = list(chosen) if isinstance(chosen, Iterable) else []  # pyright: ignore[reportUnnecessaryIsInstance]
        numbers = map(as_integer, indices)
        wanted = dict.fromkeys(n for n in numbers if n is not None and 0 <= n < self.n_neurons)
        if not wanted or len(wanted) < len(indices):
            raise InvalidInput(
                f"neurons={shorten(chosen)} should be different indices in 0..{self.n_neurons - 1}."
            )
        return tuple(self.neuron(unit) for unit in wanted)


@dataclass(frozen=True)
class FeatureNames:
    """The features of a dictionary.

    Attributes:
        place: their place.
        n: number of features.
        layer_name: ``L0``, with the stack before it if there are two.
        ending: ``:mlp_out`` if the layer has several dictionaries.
    """

    place: Place
    n: int
    layer_name: str
    ending: str

    def feature(self, unit: int) -> Component:
        """One feature."""
        return Component(f"{self.layer_name}F{unit}{self.ending}", self.place, unit=unit)


@dataclass(frozen=True, eq=False)
class Components:
    """The components of a model, in the order of its forward.

    Attributes:
        heads: the heads of all layers.
        sublayers: the attention, cross-attention and MLP of each layer.
        dictionaries: the features of each dictionary.
    """

    heads: tuple[Component, ...]
    sublayers: tuple[Component, ...]
    dictionaries: tuple[FeatureNames, ...] = ()

    @property
    def mlps(self) -> tuple[Component, ...]:
        """The MLP of each layer that has one."""
        return tuple(each for each in self.sublayers if each.name.endswith("MLP"))

    def in_layers(self, layers: Sequence[int]) -> "Components":
        """The components in the given layers (of each stack).

        Raises:
            InvalidInput: ``layers`` is not a sequence, or has a layer that no stack has.
        """
        last = max((each.layer for each in self.sublayers), default=0)
        try:
            chosen = {within(0, last, layer, "layers") for layer in layers}
        except TypeError as error:
            raise InvalidInput(
                f"layers={shorten(layers)} should be several layers, such as [0, 1]."
            ) from error
        heads, sublayers = (
            tuple(each for each in group if each.layer in chosen)
            for group in (self.heads, self.sublayers)
        )
        dictionaries = (each for each in self.dictionaries if each.place.layer in chosen)
        return Components(heads, sublayers, tuple(dictionaries))

    def units(self, kind: str) -> Units:
        """All units of a kind: each head, MLP, neuron, feature or layer.

        The kind ``pairs`` has each head and each pair of heads. The result is empty for a kind that
        the model lacks, such as pairs in a model with a single head.

        Raises:
            InvalidInput: an unknown kind, or neurons of a mixture of experts.
        """
        if kind not in KINDS:
            raise InvalidInput(f"{shorten(kind)} is not one of {', '.join(KINDS)}.")
        if kind == "layers":
            return self._layers()
        if kind == "mlps":
            return {each.name: (each,) for each in self.mlps}
        if kind == "neurons":
            return {each.name: (each,) for mlp in self.mlps for each in mlp.neurons()}
        if kind == "features":
            each_feature = (d.feature(unit) for d in self.dictionaries for unit in range(d.n))
            return {each.name: (each,) for each in each_feature}
        heads: Units = {each.name: (each,) for each in self.heads}
        pairs: Units = {f"{a} + {b}": (a, b) for a, b in combinations(self.heads, 2)}
        return heads if kind == "heads" else heads | pairs if pairs else {}

    def groups(self, names: Mapping[str, str | Sequence[str]]) -> Units:
        """The components of each group.

        Raises:
            InvalidInput: a group that is not a sequence of names, or names a component twice.
            UnknownPlace: the model has no component of a given name.
        """
        units: Units = {}
        for name, unit_names in names.items():
            members: list[Any] = (
                list(unit_names) if isinstance(unit_names, list | tuple) else [unit_names]
            )
            if not all(isinstance(member, str) for member in members):
                raise InvalidInput(
                    f"units={{{shorten(name)}: {shorten(unit_names)}}}: a group should be a list "
                    "of names of components."
                )
            if len(set(members)) < len(members):
                raise InvalidInput(f"units=: the group {shorten(name)} names a component twice.")
            units[name] = tuple(self.named(member) for member in members)
        return units

    def _layers(self) -> Units:
        """The sub-layers of each layer."""
        units: Units = {}
        for each in self.sublayers:
            stack = f"{each.place.stack}." if each.place.stack else ""
            name = f"{stack}L{each.layer}"
            units[name] = (*units.get(name, ()), each)
        return units

    def named(self, name: str) -> Component:
        """The head, sub-layer, neuron or feature of this name.

        Raises:
            UnknownPlace: the model has no such component.
        """
        by_name = {each.name: each for each in (*self.heads, *self.sublayers)}
        neuron = NEURON.fullmatch(name)
        mlp = by_name.get(f"{neuron[1]}MLP") if neuron else None
        if neuron and mlp and int(neuron[2]) < mlp.n_neurons:
            return mlp.neuron(int(neuron[2]))
        feature = FEATURE.fullmatch(name)
        named = {(each.layer_name, each.ending): each for each in self.dictionaries}
        dictionary = named.get((feature[1], feature[3])) if feature else None
        if feature and dictionary and int(feature[2]) < dictionary.n:
            return dictionary.feature(int(feature[2]))
        if name not in by_name:
            raise UnknownPlace(
                f"This model has no component {shorten(name)}.{nearest(name, by_name, cutoff=0.4)}"
            )
        return by_name[name]


def components_of(model: Network, part: str = "z") -> Components:
    """The components of a model.

    Args:
        model: the model.
        part: the tensor at which heads are ablated: ``z``, ``pattern``, or ``v``. With ``v``, heads
            that share keys and values are one component.

    Raises:
        InvalidInput: an unknown part.
    """
    if part not in PARTS:
        raise InvalidInput(f"part={shorten(part)} is not known; it is one of {', '.join(PARTS)}.")
    heads: list[Component] = []
    sublayers: list[Component] = []
    steps = [(stack.name_in_places, *each) for stack in model.stacks for each in stack.branches()]
    for stack, layer, step in steps:
        out, f = Place(step.points.writes, layer, stack=stack), step.f
        if isinstance(f, Attention):
            name = f"{'cross' if f.is_cross else stack}.L{layer}" if stack else f"L{layer}"
            heads += _heads(f, name, Place(getattr(f.points, part), layer, stack=stack))
            sublayers.append(Component(f"{name}ATTN", out))
        else:
            name = f"{stack}.L{layer}MLP" if stack else f"L{layer}MLP"
            n_neurons = f.W_out.shape[0] if isinstance(f, MLP) else 0
            sublayers.append(Component(name, out, n_neurons=n_neurons))
    return Components(tuple(heads), tuple(sublayers), _features(model))


def _features(model: Network) -> tuple[FeatureNames, ...]:
    """The features of the dictionaries of a model."""
    places = [place for place in model.layout if place.point is Point.FEATURES]
    layers = [(place.stack, place.layer) for place in places]
    return tuple(
        FeatureNames(
            place,
            model.fixed_axes(place)["feature"],
            f"{place.stack}.L{place.layer}" if place.stack else f"L{place.layer}",
            f":{place.norm}" if layers.count((place.stack, place.layer)) > 1 else "",
        )
        for place in places
    )


def components_named(model: Network, names: Sequence[str]) -> tuple[Component, ...]:
    """The components of these names, which are ablated together.

    Raises:
        InvalidInput: ``names`` is not a list of names, or names a component twice.
        UnknownPlace: the model has no component of a given name.
    """
    listed: list[Any] = list(names) if isinstance(names, list | tuple) else [None]
    if not all(isinstance(name, str) for name in listed) or len(set(listed)) < len(listed):
        raise InvalidInput(
            f"ablate={shorten(names)} should be a list of different names of components, such as "
            '["L0H1", "L1H0"].'
        )
    components = components_of(model)
    try:
        return tuple(components.named(name) for name in listed)
    except UnknownPlace as error:
        raise UnknownPlace(f"ablate={shorten(names)}: {error}") from error


def mlp_of(model: Network, layer: int, stack: str | None = None) -> Component:
    """The MLP of a layer; negative layers count from the end.

    Args:
        model: the model.
        layer: the layer of the MLP.
        stack: for an encoder–decoder, the name of the stack; by default the decoder.

    Raises:
        InvalidInput: there is no such layer or stack, or the layer has no MLP.
    """
    if len(model.stacks) == 1 and stack is not None:
        raise InvalidInput("stack= is for encoder–decoders; this model has one stack.")
    named_stack = model.stack(stack)
    n = len(named_stack.blocks)
    layer = within(-n, n - 1, layer, "layer") % n
    for mlp in components_of(model).mlps:
        if (mlp.layer, mlp.place.stack) == (layer, named_stack.name_in_places):
            return mlp
    raise InvalidInput(f"Layer {layer} has no MLP, so there are no neurons to describe.")


def _heads(attn: Attention, name: str, place: Place) -> Iterator[Component]:
    shared = "kv_head" in place.point.axes and attn.kv_heads != attn.n_heads
    n, kind = (attn.kv_heads, "KV") if shared else (attn.n_heads, "H")
    for head in range(n):
        yield Component(f"{name}{kind}{head}", place, head)
