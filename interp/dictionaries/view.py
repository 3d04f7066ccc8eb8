"""A view of a model with dictionaries, whose features can be read and edited like any activation.

    f = encode(x),  ε = y − x̂(f)            x: what the dictionary reads; y: what it writes
    y ← y + (f′ − f) W_dec + (ε′ − ε)        f′, ε′: features and error after their edits

The model computes y as before: the dictionary only carries changes of its features, and what it
leaves out stays (the error term of Marks et al. 2024, arXiv:2403.19647). Features of a cross-layer
transcoder change y of their own and of later layers; see ``attached_layer.py``.
"""

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn, cast

from jaxtyping import Float
from torch import Tensor, nn

from interp.dictionaries.attached import DICTIONARIES, Attached, AttachedDictionary
from interp.dictionaries.attached_layer import AttachedLayer, changes_in, transcoder_of
from interp.dictionaries.cross_layer import CrossLayerTranscoder
from interp.dictionaries.dictionary import Dictionary
from interp.errors import InvalidInput, shorten
from interp.io import Table
from interp.model import Block, Context, Network, Recipe, RestartPoint, Stream, Tap, untouched
from interp.placement import PlacedTransformer
from interp.points import Place, Point
from interp.transformer import Transformer


@dataclass(frozen=True, eq=False)
class DictionaryTap:
    """The tap of one forward of a block with dictionaries.

    Attributes:
        tap: the tap of the run.
        attached: the dictionaries of the block.
        context: the context of the forward.
        inputs: what each one reads, by its name, filled as the forward runs.
        norm: the norm in scope.
    """

    tap: Tap
    attached: Sequence[Attached]
    context: Context
    inputs: dict[str, Tensor] = field(default_factory=dict)
    norm: str | None = None

    def __call__(self, point: Point, value: Tensor) -> Tensor:
        """The tensor, changed by what dictionaries write to it and by the edits of its place."""
        here = Place(point, norm=self.norm)
        for part in self.attached:
            if part.writes == here:
                inputs = self.inputs | ({part.name: value} if part.reads == here else {})
                value = part.changed(value, inputs, self.tap, self.context)
        value = self.tap(point, value)
        self.inputs.update({part.name: value for part in self.attached if part.reads == here})
        return value

    def must_form(self, *points: Point) -> bool:
        """Whether a point is edited, stored as formed, or read or written by a dictionary."""
        places = {Place(point, norm=self.norm) for point in points}
        used = any(
            {part.reads, part.writes} & places and part.is_used(self.tap) for part in self.attached
        )
        return used or self.tap.must_form(*points)

    def scoped(self, **scope: Any) -> "DictionaryTap":  # noqa: ANN401 - as of Tap
        """The same tap for another part of the block."""
        return replace(self, tap=self.tap.scoped(**scope), norm=scope.get("norm", self.norm))


class DictionaryBlock(Block):
    """A block with dictionaries."""

    dictionaries: nn.ModuleDict

    @property
    def attached(self) -> list[Attached]:
        """Its dictionaries."""
        return [part for part in self.dictionaries.values() if isinstance(part, Attached)]

    def forward(self, x: Stream, context: Context, tap: Tap = untouched) -> Stream:
        """Run each step in turn."""
        return super().forward(x, context, DictionaryTap(tap, self.attached, context))

    def resume(
        self,
        restart: RestartPoint,
        state: Sequence[Tensor],
        context: Context,
        tap: Tap = untouched,
    ) -> Stream:
        """The stream after this block, continued from an intermediate state."""
        return super().resume(restart, state, context, DictionaryTap(tap, self.attached, context))

    def at_columns(
        self, x: Stream, columns: slice, context: Context
    ) -> Float[Tensor, "batch column d_model"]:
        """The stream after this block at some columns; computed at all if changes were carried."""
        if changes_in(context):
            return self(x, context)[:, columns]
        return super().at_columns(x, columns, context)

    def layout(self) -> dict[Place, Recipe]:
        """The places of the block; those of a dictionary are before the place that it writes."""
        places: dict[Place, Recipe] = {}
        for place, recipe in super().layout().items():
            for part in self.attached:
                if part.writes == place:
                    places |= part.layout()
                    recipe = part.recipe_of_output(recipe)  # noqa: PLW2901
            places[place] = recipe
        return places

    def restart_points(self) -> list[RestartPoint]:
        """Those of the block; what was read before a restart, and is needed, is in its state."""
        order = {place: number for number, place in enumerate(self.layout())}
        points: list[RestartPoint] = []
        for restart in super().restart_points():
            first = order[restart.first]
            between = [p for p in self.attached if order[p.reads] < first <= order[p.writes]]
            points.append(_with_inputs(restart, between) if between else restart)
        return points


def _with_inputs(restart: RestartPoint, parts: Sequence[Attached]) -> RestartPoint:
    """A restart whose state has, at its end, what some dictionaries read."""
    state = (*restart.state, *(part.reads for part in parts))
    names = [part.name for part in parts]
    return replace(restart, state=state, resume=partial(_resumed, restart, names))


def _resumed(
    restart: RestartPoint,
    names: Sequence[str],
    state: Sequence[Tensor],
    context: Context,
    tap: Tap,
) -> Stream:
    before, inputs = state[: -len(names)], state[-len(names) :]
    cast("DictionaryTap", tap).inputs.update(zip(names, inputs, strict=True))
    return restart.resume(before, context, tap)


class DictionaryTransformer(Transformer):
    """A view of a Transformer with dictionaries; see :func:`with_dictionaries`."""

    def dictionaries(self) -> dict[Place, Dictionary]:
        """The dictionaries of one layer each, by the place of their features."""
        parts = _attached(self).items()
        return {at: p.dictionary for at, p in parts if isinstance(p, AttachedDictionary)}

    @property
    def has_transcoder(self) -> bool:
        """Whether it has a cross-layer transcoder."""
        return bool(self._layers())

    def transcoder(self) -> CrossLayerTranscoder | None:
        """The cross-layer transcoder, with copies of its encoders; ``None`` without one."""
        layers, hooks = self._layers(), self.names.hooks
        names = [
            (
                hooks[replace(part.reads, layer=part.layer)],
                hooks[replace(part.writes, layer=part.layer)],
            )
            for part in layers
        ]
        return transcoder_of(layers, names) if layers else None

    def _layers(self) -> list[AttachedLayer]:
        return [part for part in _attached(self).values() if isinstance(part, AttachedLayer)]

    def description(self) -> Table:
        """As that of any model, and a row for each dictionary."""
        table, layers = super().description(), self._layers()
        rows = [(str(place), str(part)) for place, part in self.dictionaries().items()]
        if layers:
            text = f"cross-layer transcoder of {len(layers)} layers of {layers[0].n_features}"
            rows.append(("features", text))
        return replace(table, rows=[*table.rows, *rows])

    def weight_names(self) -> list[str]:
        """Names of the weights and of the tensors of the dictionaries."""
        names = [name for name, _ in self.named_buffers() if f".{DICTIONARIES}." in name]
        return [*super().weight_names(), *names]

    def add_parts(self, other: Network) -> None:
        """Attach the same dictionaries to a model of the same configuration."""
        device = next(other.parameters()).device
        for place, part in _attached(self).items():
            _attach(other, place, _shallow(part).to(device, other.dtype))

    def require_whole(self, what: str) -> NoReturn:
        """Refuse what makes another model of the weights.

        Raises:
            InvalidInput: always.
        """
        raise InvalidInput(
            f"{what}: this is a view of a model with dictionaries. Do this with the model itself, "
            "and attach dictionaries to the result."
        )


def with_dictionaries(
    model: Transformer,
    dictionaries: object,
) -> DictionaryTransformer:
    """A view of a model in which the features of dictionaries are activations like any other.

        view = interp.with_dictionaries(model, dictionary)
        run = interp.run(view, tokens, record="features")
        run.cache["features", 3]                             # [batch pos feature]
        edits.zero("features", layer=3, unit=17)             # the error term stays
        edits.zero("features_error", layer=3)                # only what the dictionary explains

    Logits are those of the model. Features that are recorded take no memory: they are computed
    from what the dictionary reads when the cache is read (unless their block is edited). Sweeps,
    patching, probes and all other analyses take ``("features", layer)`` as a place; where a layer
    has several dictionaries, ``("features", layer, "mlp_out")`` says which.

    The features of a cross-layer transcoder write to several layers: an edit of those of one layer
    changes the outputs of the MLPs of this and of all later layers. Its errors depend on features
    of several layers, so that a forward from a later layer does not have them, and ``record="all"``
    encodes every layer and stores them.

    Args:
        model: the model, which is not changed; the view shares its weights.
        dictionaries: one or several, at most one for each place that is written, and at most one
            cross-layer transcoder. Each is converted to the device and dtype of the model.

    Raises:
        InvalidInput: a dictionary is of another model, does not say where it reads and writes, does
            so in two layers or outside blocks, or writes before it reads; two write one place; the
            model is a view or is divided among processes.
        UnknownPlace: the model has no such place.

    Examples:
        >>> model = interp.load("python-4l")
        >>> view = interp.with_dictionaries(model, interp.dictionaries.load("python-4l/mlp-1"))
        >>> interp.run(view, "def f(x):", record="features").cache["features", 1].shape
        torch.Size([1, 6, 2048])
    """
    if isinstance(model, PlacedTransformer):
        raise InvalidInput(
            "with_dictionaries takes no model with device_map=: a dictionary would have to lie on "
            "the device of its layer. Load the model on one device."
        )
    if type(model) is not Transformer:
        raise InvalidInput(
            f"with_dictionaries takes a Transformer, as interp.load returns it; got "
            f"{shorten(type(model).__name__)}."
        )
    view = _view_of(model)
    for dictionary in _checked(dictionaries):
        if isinstance(dictionary, CrossLayerTranscoder):
            parts = _layers_of(model, dictionary)
        else:
            reads, writes = _checked_places(model, dictionary)
            of_model = dictionary.to(model.device, model.dtype)
            parts = [(writes, AttachedDictionary(of_model, _inside(reads), _inside(writes)))]
        for writes, part in parts:
            _attach(view, replace(writes, point=Point.FEATURES, norm=part.name), part)
        view.widest = max(view.widest, dictionary.n_features)
    return view


def _checked(dictionaries: object) -> list[Dictionary | CrossLayerTranscoder]:
    """One dictionary or several, as a list.

    Raises:
        InvalidInput: there is none, an element is not a dictionary, or two are cross-layer ones.
    """
    several = list(dictionaries) if isinstance(dictionaries, Iterable) else [dictionaries]
    checked = [part for part in several if isinstance(part, Dictionary | CrossLayerTranscoder)]
    if not checked or len(checked) < len(several):
        raise InvalidInput(
            f"dictionaries={shorten(dictionaries)} should be one or several that "
            "interp.dictionaries.load or load_cross_layer returned."
        )
    if sum(isinstance(part, CrossLayerTranscoder) for part in checked) > 1:
        raise InvalidInput("A view has one cross-layer transcoder; attach others to other views.")
    return checked


def _layers_of(
    model: Network, transcoder: CrossLayerTranscoder
) -> list[tuple[Place, AttachedLayer]]:
    """The layers of a cross-layer transcoder, each with the place that it writes.

    Raises:
        InvalidInput: it is of another model.
    """
    pairs, of_model = transcoder.places(model), transcoder.to(model.device, model.dtype)
    first, _ = pairs[0]
    return [
        (writes, AttachedLayer(of_model, layer, _inside(reads), _inside(writes), first))
        for layer, (reads, writes) in enumerate(pairs)
    ]


def _inside(place: Place) -> Place:
    """A place within its block."""
    return replace(place, layer=None, stack=None)


def _checked_places(model: Network, dictionary: Dictionary) -> tuple[Place, Place]:
    """Where a dictionary reads and writes.

    Raises:
        InvalidInput: it can't be attached there.
    """
    reads, writes = dictionary.places(model)
    if (reads.layer, reads.stack) != (writes.layer, writes.stack) or reads.layer is None:
        raise InvalidInput(
            f"A dictionary that reads {reads} and writes {writes} can't be attached: both should "
            "be in one layer."
        )
    order = list(model.layout)
    if order.index(reads) > order.index(writes):
        raise InvalidInput(f"A dictionary can't write {writes}, which is before {reads}.")
    for place in (reads, writes):
        if place.point.axes[:2] != ("batch", "pos"):
            axes = " ".join(place.point.axes)
            raise InvalidInput(
                f"A dictionary reads and writes a vector for each token; {place} is [{axes}]."
            )
    return reads, writes


def _view_of(model: Transformer) -> DictionaryTransformer:
    """A model that shares all parts of another, except for those that contain its blocks."""
    view = _shallow(model)
    for stack in model.stacks:
        of_view = _shallow(stack)
        blocks = [_shallow(stack.block(layer)) for layer in range(len(stack.blocks))]
        of_view.blocks = nn.ModuleList(blocks).train(stack.training)
        view.add_module(stack.name, of_view)
    view.__class__ = DictionaryTransformer
    return cast("DictionaryTransformer", view)


def _shallow(part: nn.Module) -> Any:  # noqa: ANN401 - of the same class
    """A module with the same parameters, buffers and parts, to which others can be added."""
    made = copy(part)
    for name in ("_modules", "_parameters", "_buffers"):
        vars(made)[name] = dict(vars(part)[name])
    return made


def _attach(model: Network, place: Place, part: Attached) -> None:
    """Add a dictionary to the block of a layer.

    Raises:
        InvalidInput: another writes the same place.
    """
    layer = cast("int", place.layer)
    block = model.stack(place.stack).block(layer)
    if not isinstance(block, DictionaryBlock):
        block.__class__ = DictionaryBlock
        block.add_module(DICTIONARIES, nn.ModuleDict())
    dictionaries = cast("DictionaryBlock", block).dictionaries
    if part.name in dictionaries:
        raise InvalidInput(
            f"Two dictionaries write {part.name} of layer {layer}; attach them to two views."
        )
    dictionaries[part.name] = part


def _attached(model: Network) -> dict[Place, Attached]:
    """All dictionaries of a model, by the place of their features."""
    return {
        Place(Point.FEATURES, layer, part.name, stack.name_in_places): part
        for stack in model.stacks
        for layer in range(len(stack.blocks))
        for part in getattr(stack.block(layer), "attached", [])
    }
