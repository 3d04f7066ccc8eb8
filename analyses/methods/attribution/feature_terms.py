"""The terms of features: what a dictionary makes of an output, or of the stream.

    y·D = Σ_f a_f (W_dec,f·D) + ε·D + b_dec·D  (+ x W_skip·D)

y is what an MLP or an attention writes, before or after the norm of its output, or the z of all
heads of a layer, whose direction D is W_O·D; or the stream itself, at which a walk ends. These
terms replace those of y, and sum to them exactly.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor

from analyses.methods.attribution.stream_terms import (
    Columns,
    Directions,
    Factor,
    Part,
    ReadTerms,
    Split,
    StepDirections,
    StreamWalk,
    Walk,
    written_points,
)
from analyses.methods.components import FeatureNames, components_of
from interp import DictionaryTransformer
from interp.cache import Cache
from interp.dictionaries import Dictionary, SkipDictionary
from interp.errors import InvalidInput
from interp.metrics import at_least_float32
from interp.model import Attention, Network, Stack, Step
from interp.points import Place

Written = Float[Tensor, "cell d_out"]


@dataclass(frozen=True, eq=False)
class WrittenFeatures:
    """The features of a dictionary of an output, or of the stream.

    Attributes:
        names: their place and names.
        dictionary: the dictionary.
        reads: what it reads.
        writes: what it reconstructs.
    """

    names: FeatureNames
    dictionary: Dictionary
    reads: Place
    writes: Place

    def at(
        self, cache: Cache, rows: Columns, columns: Columns
    ) -> tuple[Float[Tensor, "cell feature"], Written, Written]:
        """The features at some cells, the error, and what a skip writes (zeros without one).

        They are computed at these cells alone, which takes less than those of the whole cache.
        """
        x, y = (cache[place][rows, columns].flatten(1) for place in (self.reads, self.writes))
        features, dictionary = self.dictionary.encode(x), self.dictionary
        error = at_least_float32(y) - at_least_float32(dictionary.output(features, x))
        skipped = x @ dictionary.w_skip if isinstance(dictionary, SkipDictionary) else 0 * error
        return at_least_float32(features), error, at_least_float32(skipped)


Outputs = Mapping[Place, WrittenFeatures]
"""Dictionaries by the place that they write."""


FeaturesRead = Float[Tensor, "feature #cell r"]


@dataclass(frozen=True, eq=False)
class ActiveFeatures:
    """The features of a dictionary that are active at some cell.

    Attributes:
        parts: the features, in their order.
        values: their activations.
        read: what is read of the direction that each writes, without the divisors of norms.
        factor: 1 / the product of the divisors on the way.
        before: the part that follows them in the order of the forward.
    """

    parts: tuple[Part, ...]
    values: Float[Tensor, "cell feature"]
    read: FeaturesRead
    factor: Factor
    before: Part

    def terms(self) -> ReadTerms:
        """The term of each feature."""
        values = self.values.mT[..., None] * self.read * self.factor[:, None]
        return dict(zip(self.parts, values, strict=True))


def written_features(model: Network) -> Outputs:
    """All dictionaries of a model.

    Raises:
        InvalidInput: it has none, or two are of one sub-layer.
    """
    if not isinstance(model, DictionaryTransformer):
        raise InvalidInput(
            'by="feature" takes a model with dictionaries: interp.with_dictionaries(model, '
            "dictionaries), or --dictionary on the command line."
        )
    if model.has_transcoder:
        raise InvalidInput(
            'by="feature" takes dictionaries that write one layer; features of a cross-layer '
            "transcoder are terms of several. analyses.attribution_graph sums over these."
        )
    names = {features.place: features for features in components_of(model).dictionaries}
    outputs: dict[Place, WrittenFeatures] = {}
    for place, dictionary in model.dictionaries().items():
        reads, writes = dictionary.places(model)
        outputs[writes] = WrittenFeatures(names[place], dictionary, reads, writes)
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


def outputs_of(model: Network) -> Outputs:
    """The dictionaries of what sub-layers of the last stack write.

    Raises:
        InvalidInput: the model has no dictionary; one is of another tensor; or two are of one
            sub-layer.
    """
    outputs, stack = written_features(model), model.stacks[-1]
    written = {
        place for layer, step in stack.branches() for place in places_of_output(stack, layer, step)
    }
    others = [place for place in outputs if place not in written]
    if others:
        raise InvalidInput(
            f'by="feature" takes dictionaries of what an MLP or an attention of the last stack '
            f"writes; one is of {others[0]}, which is no term of the stream."
        )
    return outputs


def places_of_output(stack: Stack, layer: int, step: Step) -> list[Place]:
    """What a sub-layer writes, what is added to the stream, and the z of an attention."""
    z = [step.f.points.z] if isinstance(step.f, Attention) else []
    return [Place(at, layer, stack=stack.name_in_places) for at in (*written_points(step), *z)]


def places_of_features(outputs: Outputs) -> list[Place]:
    """The places that a run must record for :func:`feature_walk`."""
    places = (place for each in outputs.values() for place in (each.reads, each.writes))
    return list(dict.fromkeys(places))


def feature_walk(outputs: Outputs) -> Walk:
    """A walk whose terms are those of features where there are dictionaries."""
    return partial(FeatureWalk, outputs)


def parts_in_order(several: Iterable[Iterable[Part]]) -> tuple[Part, ...]:
    """The parts of several runs in the order of the forward; their active features differ."""
    groups: dict[Part, set[Part]] = {}
    for parts in several:
        features = set[Part]()
        for part in parts:
            if part.kind == "feature":
                features.add(part)
            else:
                groups[part] = groups.get(part, set()) | features
                features = set[Part]()
    by_unit = {part: sorted(some, key=lambda each: each.unit or 0) for part, some in groups.items()}
    return tuple(each for part, features in by_unit.items() for each in (*features, part))


class FeatureWalk(StreamWalk):
    """A walk back through a stack, some of whose outputs are sums of features.

    Args:
        outputs: the dictionaries. A walk ends at the first one of the stream that it meets.
        stack, cache, rows, columns: see :class:`StreamWalk`.

    Attributes:
        active: the features of each dictionary on the way, if terms are taken by
            :meth:`terms_beside_features`.
    """

    def __init__(
        self, outputs: Outputs, stack: Stack, cache: Cache, rows: Columns, columns: Columns
    ) -> None:
        super().__init__(stack, cache, rows, columns)
        self._outputs = outputs
        self._end: Place | None = None
        self._collects = False
        self.active: list[ActiveFeatures] = []

    def terms(self, split: Split | None = None) -> ReadTerms:
        """The terms; a dictionary of what a norm writes also has the bias of this norm."""
        terms = super().terms(split)
        for written in self.written:
            step, norm = written.step, written.step.norms.output
            if norm is not None and self.place(step.points.writes, written.layer) in self._outputs:
                name = f"{self.prefix}L{written.layer}.{norm.name}.bias"
                terms.pop(Part(name, "bias", written.layer), None)
        return terms

    def terms_beside_features(self) -> ReadTerms:
        """The terms of all other parts; :attr:`active` has the features, of which many are zero."""
        self._collects = True
        return self.terms()

    def ends_at(self, place: Place) -> bool:
        """Whether a dictionary is of the stream at this place."""
        if place in self._outputs:
            self._end = place
        return place in self._outputs

    def first_terms(self, W: Directions, factor: Factor) -> ReadTerms:
        """The terms of the features of the stream where the walk ends, or of the embeddings."""
        if self._end is None:
            return super().first_terms(W, factor)
        return self._of_features(self._outputs[self._end], W, factor)

    def terms_of(self, written: StepDirections, split: Split) -> ReadTerms:
        """The terms of features, or those of heads or neurons without a dictionary."""
        layer, step, f = written.layer, written.step, written.step.f
        output, added, *z = places_of_output(self.stack, layer, step)
        if output in self._outputs:
            return self._of_features(self._outputs[output], written.W, written.factor)
        if added in self._outputs:
            return self._of_features(self._outputs[added], *written.after_norm)
        if isinstance(f, Attention) and z[0] in self._outputs:
            W_O = f.W_O.to(written.W.dtype)
            by_head = einsum(W_O, written.W, "head d m, cell r m -> cell r head d")
            W = rearrange(by_head, "cell r head d -> cell r (head d)")
            name = f"{self.name(layer, f)}.b_O"
            terms = self._of_features(self._outputs[z[0]], W, written.factor)
            return terms | self._of_bias(name, layer, f.b_O, written)
        return super().terms_of(written, split)

    def _of_features(self, output: WrittenFeatures, W: Directions, factor: Factor) -> ReadTerms:
        """The terms of active features in their order, of the skip, of the bias and the error."""
        names, dictionary = output.names, output.dictionary
        layer, name, ending = names.place.layer, names.layer_name, names.ending
        features, error, skipped = output.at(self.cache, self.rows, self.columns)
        after: ReadTerms = {}
        if isinstance(dictionary, SkipDictionary):
            after[Part(f"{name} skip{ending}", "mlp", layer)] = self.read(skipped, W, factor)
        b_dec = dictionary.b_dec.to(W.dtype).expand(len(self.rows), -1)
        after[Part(f"{name}.b_dec{ending}", "bias", layer)] = self.read(b_dec, W, factor)
        after[Part(f"{name} error{ending}", "error", layer)] = self.read(error, W, factor)
        active = (features != 0).any(0).nonzero()[:, 0]
        units: Sequence[int] = active.tolist()
        features_read = ActiveFeatures(
            tuple(Part(names.feature(unit).name, "feature", layer, unit=unit) for unit in units),
            features[:, active],
            einsum(dictionary.w_dec[active].to(W.dtype), W, "f m, cell r m -> f cell r"),
            factor,
            before=next(iter(after)),
        )
        if self._collects:
            self.active.append(features_read)
            return after
        return features_read.terms() | after
