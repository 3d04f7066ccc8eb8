"""The terms of features: what a dictionary makes of an output that was written into the stream.

    y·D = Σ_f a_f (W_dec,f·D) + ε·D + b_dec·D  (+ x W_skip·D)

y is what an MLP or an attention writes, before or after the norm of its output, or the z of all
heads of a layer, whose direction D is W_O·D. These terms replace those of the output, and sum to
them exactly.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from einops import einsum, rearrange

from analyses.methods.attribution import (
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
from interp.model import Attention, Network, Stack, Step
from interp.points import Place, Point


@dataclass(frozen=True, eq=False)
class WrittenFeatures:
    """The features of a dictionary of an output.

    Attributes:
        names: their place and names.
        dictionary: the dictionary.
        reads: what it reads.
    """

    names: FeatureNames
    dictionary: Dictionary
    reads: Place

    @property
    def error(self) -> Place:
        """The place of the error."""
        return replace(self.names.place, point=Point.FEATURES_ERROR)


Outputs = Mapping[Place, WrittenFeatures]
"""Dictionaries by the place that they write."""


def outputs_of(model: Network) -> Outputs:
    """The dictionaries of what sub-layers of the last stack write.

    Raises:
        InvalidInput: the model has no dictionary; one is of another tensor; or two are of one
            sub-layer.
    """
    if not isinstance(model, DictionaryTransformer):
        raise InvalidInput(
            'by="feature" takes a model with dictionaries: interp.with_dictionaries(model, '
            "dictionaries)."
        )
    names = {features.place: features for features in components_of(model).dictionaries}
    outputs: dict[Place, WrittenFeatures] = {}
    for place, dictionary in model.dictionaries().items():
        reads, writes = dictionary.places(model)
        outputs[writes] = WrittenFeatures(names[place], dictionary, reads)
    stack, used = model.stacks[-1], set[Place]()
    for layer, step in stack.branches():
        of_step = [place for place in {*places_of_output(stack, layer, step)} if place in outputs]
        if len(of_step) > 1:
            raise InvalidInput(
                f"Two dictionaries are of what one sub-layer writes, {of_step[0]} and "
                f"{of_step[1]}. Attach them to two views."
            )
        used |= {*of_step}
    others = [place for place in outputs if place not in used]
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
    places = [place for each in outputs.values() for place in (each.names.place, each.error)]
    return places + [
        each.reads for each in outputs.values() if isinstance(each.dictionary, SkipDictionary)
    ]


def feature_walk(outputs: Outputs) -> Walk:
    """A walk whose terms are those of features where there are dictionaries."""
    return partial(_FeatureWalk, outputs)


class _FeatureWalk(StreamWalk):
    """A walk back through a stack, some of whose outputs are sums of features.

    Args:
        outputs: the dictionaries.
        stack, cache, rows, columns: see :class:`StreamWalk`.
    """

    def __init__(
        self, outputs: Outputs, stack: Stack, cache: Cache, rows: Columns, columns: Columns
    ) -> None:
        super().__init__(stack, cache, rows, columns)
        self._outputs = outputs

    def terms(self, split: Split | None = None) -> ReadTerms:
        """The terms; a dictionary of what a norm writes also has the bias of this norm."""
        terms = super().terms(split)
        for written in self.written:
            step, norm = written.step, written.step.norms.output
            if norm is not None and self.place(step.points.writes, written.layer) in self._outputs:
                name = f"{self.prefix}L{written.layer}.{norm.name}.bias"
                terms.pop(Part(name, "bias", written.layer), None)
        return terms

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
        """The terms of active features in their order, of the error, of the bias and the skip."""
        names, dictionary = output.names, output.dictionary
        features, layer = self.at(names.place), names.place.layer
        active = (features != 0).any(0).nonzero()[:, 0]
        read = einsum(dictionary.w_dec[active].to(W.dtype), W, "f m, cell r m -> f cell r")
        values = features[:, active].mT[..., None] * read * factor[:, None]
        terms = {
            Part(names.feature(unit).name, "feature", layer, unit=unit): value
            for unit, value in zip(active.tolist(), values, strict=True)
        }
        name, ending = names.layer_name, names.ending
        if isinstance(dictionary, SkipDictionary):
            skipped = self.at(output.reads) @ dictionary.w_skip.to(W.dtype)
            terms[Part(f"{name} skip{ending}", "mlp", layer)] = self._read(skipped, W, factor)
        b_dec = dictionary.b_dec.to(W.dtype).expand(len(self.rows), -1)
        terms[Part(f"{name}.b_dec{ending}", "bias", layer)] = self._read(b_dec, W, factor)
        error = self.at(output.error)
        return terms | {Part(f"{name} error{ending}", "error", layer): self._read(error, W, factor)}
