"""What dictionaries make of outputs of sub-layers, or of the stream: sums of features.

    y = Σ_f a_f W_dec,f + b_dec (+ x W_skip) + ε
    y_m = Σ_{l ≤ m} Σ_f a_l,f W_dec,l→m,f + b_dec,m (+ x_m W_skip,m) + ε_m

The second is the output of layer m by a cross-layer transcoder, whose features write to several
outputs; the term of a feature is the sum over these.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.attribution.stream_terms import (
    Directions,
    Factor,
    Part,
    ReadTerms,
    written_points,
)
from analyses.methods.components import FeatureNames, components_of
from interp import DictionaryTransformer
from interp.dictionaries import CrossLayerTranscoder, Dictionary, SkipDictionary
from interp.errors import InvalidInput
from interp.metrics import at_least_float32
from interp.model import Attention, Network, Stack, Step
from interp.points import Place, Point

Writers = Float[Tensor, "active output d_out"]
FeaturesRead = Float[Tensor, "feature #cell r"]


@dataclass(frozen=True, eq=False)
class FeatureSource:
    """The features of one encoder.

    Attributes:
        names: their place and names.
        reads: what they read.
        encode: their activations.
        writers: the decoders of some of them, to each output that they write.
    """

    names: FeatureNames
    reads: Place
    encode: Callable[[Float[Tensor, "cell d_in"]], Float[Tensor, "cell feature"]]
    writers: Callable[[Int[Tensor, " active"]], Writers]

    def active(self, x: Float[Tensor, "cell d_in"], before: Part) -> "ActiveFeatures":
        """Those that are active at some cell, with the decoders of these alone.

        Args:
            x: what they read.
            before: the part that follows them in the order of the forward.
        """
        features = self.encode(x)
        which = (features != 0).any(0).nonzero()[:, 0]
        layer = self.names.place.layer
        parts = tuple(
            Part(self.names.feature(unit).name, "feature", layer, unit=unit)
            for unit in which.tolist()
        )
        values = at_least_float32(features[:, which])
        return ActiveFeatures(parts, values, self.writers(which).to(values.dtype), before)


@dataclass(frozen=True, eq=False)
class ActiveFeatures:
    """The features of one encoder that are active at some cell.

    Attributes:
        parts: the features, in their order.
        values: their activations.
        w_dec: their decoders to each output that they write; empty once the last has been read.
        before: the part that follows them in the order of the forward.
        reads: for each of these outputs that is on the way, what is read of the directions that
            they write, without the divisors of norms; and 1 / the product of these.
    """

    parts: tuple[Part, ...]
    values: Float[Tensor, "cell feature"]
    w_dec: Writers
    before: Part
    reads: tuple[tuple[FeaturesRead, Factor], ...] = ()

    def written(self, output: int) -> Float[Tensor, "cell d_out"]:
        """What they write to one of their outputs."""
        return self.values @ self.w_dec[:, output]

    def read_of(self, output: int, W: Directions, factor: Factor) -> "ActiveFeatures":
        """The same features, with what is read of one of their outputs."""
        read = einsum(self.w_dec[:, output].to(W.dtype), W, "f m, cell r m -> f cell r")
        is_last = output + 1 == self.w_dec.shape[1]
        w_dec = self.w_dec[:0].clone() if is_last else self.w_dec  # takes more than all terms
        return replace(self, w_dec=w_dec, reads=(*self.reads, (read, factor)))

    def terms(self) -> ReadTerms:
        """The term of each feature."""
        along = sum(read * factor[:, None] for read, factor in self.reads)
        return dict(zip(self.parts, self.values.mT[..., None] * along, strict=True))

    def terms_at(
        self, cell: Int[Tensor, " entry"], index: Int[Tensor, " entry"]
    ) -> Float[Tensor, "entry r"]:
        """The terms of some features at some cells, of directions that are those of all cells."""
        value = self.values[cell, index]
        first, *more = (read[:, 0][index] * (value * of[cell])[:, None] for read, of in self.reads)
        return sum(more, first)


@dataclass(frozen=True, eq=False)
class WrittenFeatures:
    """What features make of an output, or of the stream.

    Attributes:
        writes: the place of the output.
        names: the names of the features of its own layer.
        sources: the features that write it, and which of their outputs it is.
        b_dec: the bias.
        w_skip: the linear path from what the features of its own layer read; ``None`` without one.
    """

    writes: Place
    names: FeatureNames
    sources: tuple[tuple[FeatureSource, int], ...]
    b_dec: Float[Tensor, " d_out"]
    w_skip: Float[Tensor, "d_in d_out"] | None

    @property
    def reads(self) -> Place:
        """What the features of its own layer read."""
        return self.sources[-1][0].reads

    @property
    def error(self) -> Part:
        """What the features leave out."""
        return self.part(" error", "error")

    def part(self, name: str, kind: Literal["mlp", "bias", "error"]) -> Part:
        """A part of the output that is no feature."""
        names = self.names
        return Part(f"{names.layer_name}{name}{names.ending}", kind, names.place.layer)

    @classmethod
    def of(cls, names: FeatureNames, dictionary: Dictionary, model: Network) -> "WrittenFeatures":
        """What one dictionary reconstructs."""
        reads, writes = dictionary.places(model)
        writers = partial(_of_one_output, dictionary)
        source = FeatureSource(names, reads, dictionary.encode, writers)
        w_skip = dictionary.w_skip if isinstance(dictionary, SkipDictionary) else None
        return cls(writes, names, ((source, 0),), dictionary.b_dec, w_skip)


def _of_one_output(dictionary: Dictionary, which: Int[Tensor, " active"]) -> Writers:
    return dictionary.w_dec[which][:, None]


Outputs = Mapping[Place, WrittenFeatures]
"""Dictionaries by the place that they write."""


def written_features(model: Network) -> Outputs:
    """All dictionaries of a model.

    Raises:
        InvalidInput: it has none, or two are of one sub-layer.
    """
    outputs = {output.writes: output for output in all_outputs(model)}
    if not outputs:
        raise InvalidInput(
            'by="feature" takes a model with dictionaries: interp.with_dictionaries(model, '
            "dictionaries), or --dictionary on the command line."
        )
    for stack in model.stacks:
        for layer, step in stack.branches():
            places = dict.fromkeys(places_of_output(stack, layer, step))
            of_step = [place for place in places if place in outputs]
            if len(of_step) > 1:
                raise InvalidInput(
                    f"Two dictionaries are of what one sub-layer writes, {of_step[0]} and "
                    f"{of_step[1]}. Attach them to two views."
                )
    return outputs


def all_outputs(model: Network) -> list[WrittenFeatures]:
    """What the dictionaries of a model reconstruct; nothing of a model without any."""
    if not isinstance(model, DictionaryTransformer):
        return []
    names = {features.place: features for features in components_of(model).dictionaries}
    outputs = [
        WrittenFeatures.of(names[place], dictionary, model)
        for place, dictionary in model.dictionaries().items()
    ]
    transcoder = model.transcoder()
    return outputs if transcoder is None else outputs + _of_layers(transcoder, names, model)


def _of_layers(
    transcoder: CrossLayerTranscoder, names: Mapping[Place, FeatureNames], model: Network
) -> list[WrittenFeatures]:
    """What a cross-layer transcoder reconstructs in each layer."""
    pairs = transcoder.places(model)
    sources: list[FeatureSource] = []
    outputs: list[WrittenFeatures] = []
    for layer, (reads, writes) in enumerate(pairs):
        at = replace(writes, point=Point.FEATURES, norm=writes.norm or writes.point.label)
        encode = partial(transcoder.encode_at, layer)
        sources.append(FeatureSource(names[at], reads, encode, transcoder.w_dec[layer].__getitem__))
        w_skip = None if transcoder.w_skip is None else transcoder.w_skip[layer]
        writers = tuple((source, layer - n) for n, source in enumerate(sources))
        outputs.append(WrittenFeatures(writes, names[at], writers, transcoder.b_dec[layer], w_skip))
    return outputs


def outputs_of(model: Network) -> Outputs:
    """The dictionaries of what sub-layers of the last stack write, or of its stream.

    Raises:
        InvalidInput: the model has no dictionary; one is of another tensor; or two are of one
            sub-layer.
    """
    outputs, stack = written_features(model), model.stacks[-1]
    on_the_way = {
        place for layer, step in stack.branches() for place in places_of_output(stack, layer, step)
    }
    on_the_way |= {*places_of_sums(stack)}
    others = [place for place in outputs if place not in on_the_way]
    if others:
        raise InvalidInput(
            f'by="feature" takes dictionaries of the stream of the last stack, and of what an MLP '
            f"or an attention writes into it; one is of {others[0]}, which is neither."
        )
    return outputs


def places_of_output(stack: Stack, layer: int, step: Step) -> list[Place]:
    """What a sub-layer writes, what is added to the stream, and the z of an attention."""
    z = [step.f.points.z] if isinstance(step.f, Attention) else []
    return [Place(at, layer, stack=stack.name_in_places) for at in (*written_points(step), *z)]


def places_of_sums(stack: Stack) -> list[Place]:
    """The places of the stream itself: before each block, and after each of its steps."""
    inside = [
        (layer, place)
        for layer in range(len(stack.blocks))
        for step in stack.block(layer).steps
        for place in (Place(Point.RESID_PRE), Place(step.points.sum), step.end())
    ]
    return [replace(place, layer=layer, stack=stack.name_in_places) for layer, place in inside]


def places_of_features(outputs: Outputs) -> list[Place]:
    """The places that a run must record for the terms of features."""
    places = (
        place
        for output in outputs.values()
        for place in (*(source.reads for source, _ in output.sources), output.writes)
    )
    return list(dict.fromkeys(places))


def not_read(outputs: Outputs, parts: Iterable[Part]) -> tuple[list[str], list[str]]:
    """The dictionaries that are none of some terms, and a note on them if there are any.

    A walk ends at a dictionary of the stream; those before it are not read.
    """
    errors = {part.name for part in parts if part.kind == "error"}
    unread = [str(place) for place, output in outputs.items() if output.error.name not in errors]
    text = f"not read, as a dictionary of the stream comes after them: {', '.join(unread)}"
    return unread, [text] if unread else []
