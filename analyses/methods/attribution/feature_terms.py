"""The terms of features: what a dictionary makes of an output, or of the stream.

    y·D = Σ_f a_f (W_dec,f·D) + ε·D + b_dec·D  (+ x W_skip·D)

y is what an MLP or an attention writes, before or after the norm of its output, or the z of all
heads of a layer, whose direction D is W_O·D; or the stream itself, at which a walk ends. These
terms replace those of y, and sum to them exactly. Features of a cross-layer transcoder write to
several outputs, and have one term for all of these.
"""

from collections.abc import Iterable
from functools import partial

from einops import einsum, rearrange

from analyses.methods.attribution.feature_outputs import (
    ActiveFeatures,
    Outputs,
    WrittenFeatures,
    places_of_output,
)
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
)
from interp.cache import Cache
from interp.metrics import at_least_float32
from interp.model import Attention, Stack
from interp.points import Place


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
    in_order = {
        part: sorted(some, key=lambda each: (each.layer or 0, each.unit or 0))
        for part, some in groups.items()
    }
    return tuple(each for part, features in in_order.items() for each in (*features, part))


class FeatureWalk(StreamWalk):
    """A walk back through a stack, some of whose outputs are sums of features.

    Args:
        outputs: the dictionaries. A walk ends at the first one of the stream that it meets.
        stack, cache, rows, columns: see :class:`StreamWalk`.
    """

    def __init__(
        self, outputs: Outputs, stack: Stack, cache: Cache, rows: Columns, columns: Columns
    ) -> None:
        super().__init__(stack, cache, rows, columns)
        self._outputs = outputs
        self._end: Place | None = None
        self._active: dict[Place, ActiveFeatures] = {}

    def terms(self, split: Split | None = None) -> ReadTerms:
        """The terms; those of features are before those of what their dictionary leaves out."""
        beside, active = self.terms_beside_features(split)
        terms: ReadTerms = {}
        for part, term in beside.items():
            for features in active:
                terms |= features.terms() if features.before == part else {}
            terms[part] = term
        return terms

    def terms_beside_features(
        self, split: Split | None = None
    ) -> tuple[ReadTerms, list[ActiveFeatures]]:
        """The terms of all other parts; and the features, of which many are zero.

        A dictionary of what a norm writes also has the bias of this norm.
        """
        self._active.clear()
        terms = super().terms(split)
        for written in self.written:
            step, norm = written.step, written.step.norms.output
            if norm is not None and self.place(step.points.writes, written.layer) in self._outputs:
                name = f"{self.prefix}L{written.layer}.{norm.name}.bias"
                terms.pop(Part(name, "bias", written.layer), None)
        return terms, [*self._active.values()]

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
        """The terms of the skip, of the bias and the error; features are kept for all outputs."""
        cells = self.rows, self.columns
        skip, bias = output.part(" skip", "mlp"), output.part(".b_dec", "bias")
        before = bias if output.w_skip is None else skip
        b_dec = output.b_dec.to(W.dtype)
        error, after = self.at(output.writes).flatten(1) - b_dec, ReadTerms()
        for source, number in output.sources:
            at = source.names.place
            if at not in self._active:
                x = self.cache[source.reads][cells].flatten(1)
                self._active[at] = source.active(x, before)
            error = error - self._active[at].written(number)
            self._active[at] = self._active[at].read_of(number, W, factor)
        if output.w_skip is not None:
            x = self.cache[output.reads][cells].flatten(1)
            skipped = at_least_float32(x @ output.w_skip)
            error = error - skipped
            after[skip] = self.read(skipped, W, factor)
        after[bias] = self.read(b_dec.expand(len(self.rows), -1), W, factor)
        after[output.error] = self.read(error, W, factor)
        return after
