"""What the nodes of a graph are besides embeddings and logits: which units each sub-layer has.

MLPs are neurons, features or one unit each; attentions are heads, or carry edges. Of heads alone,
MLPs carry edges too, with their ratios post / pre fixed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from analyses.attribution_graph.cross_layer import cross_layer_units
from analyses.attribution_graph.rows import Readers, Rows
from analyses.attribution_graph.units import Units, features_of, layers_of_features, neurons_of
from analyses.attribution_graph.vector_units import Heads, WholeMLP
from analyses.methods.frozen import FrozenModel, places_of_run
from interp import DictionaryTransformer, Transformer
from interp.dictionaries import CrossLayerTranscoder
from interp.errors import InvalidInput, shorten
from interp.model import Attention
from interp.points import Place

Named = Literal["neurons", "features", "heads", "mlps"]
OfUnits = Named | CrossLayerTranscoder | Sequence[Named | CrossLayerTranscoder]
"""What users choose."""


@dataclass(frozen=True, eq=False)
class Kinds:
    """What the units of a graph are.

    Attributes:
        heads: whether heads are units.
        of_mlps: what the units of MLPs are; ``None`` where MLPs carry edges.
    """

    heads: bool
    of_mlps: Literal["neurons", "features", "mlps"] | CrossLayerTranscoder | None

    @classmethod
    def of(cls, model: Transformer, units: object) -> "Kinds":
        """The kinds of units; features of a view of a cross-layer transcoder are those of it.

        Raises:
            InvalidInput: they are no kinds of units, or such as exclude one another.
        """
        listed = [*units] if isinstance(units, list | tuple) else [units]
        others = [kind for kind in listed if not isinstance(kind, str) or kind != "heads"]
        of_mlps = others[0] if others else None
        is_named = isinstance(of_mlps, str) and of_mlps in get_args(Named)
        is_transcoder = isinstance(of_mlps, CrossLayerTranscoder)
        if (
            not listed
            or len(others) > 1
            or len(listed) - len(others) > 1
            or (others and not is_named and not is_transcoder)
        ):
            raise InvalidInput(
                f'units={shorten(units)} should be "neurons", "features", "mlps" or a cross-layer '
                'transcoder; "heads"; or heads with one of the others: ("heads", "neurons").'
            )
        if of_mlps == "features" and isinstance(model, DictionaryTransformer):
            of_mlps = model.transcoder() or "features"
        return cls(len(listed) > len(others), of_mlps)  # pyright: ignore[reportArgumentType] - checked

    @property
    def have_vectors(self) -> bool:
        """Whether some units write vectors, which are read along the direction of the answer."""
        return self.heads or self.of_mlps == "mlps"

    def places(self, model: Transformer) -> list[Place]:
        """The places that are recorded."""
        if isinstance(self.of_mlps, CrossLayerTranscoder):
            pairs = self.of_mlps.places(model)
            without_neurons = {read.layer for read, _ in pairs if read.layer is not None}
            places = places_of_run(model, without_neurons=without_neurons, streams=False)
            return [*dict.fromkeys([*places, *(place for pair in pairs for place in pair)])]
        layers = layers_of_features(model) if self.of_mlps == "features" else set[int]()
        return places_of_run(model, without_neurons=layers, streams=False)

    def rows(self, model: Transformer, frozen: FrozenModel, answer: Readers) -> Rows:
        """The rows of a run whose units are of these kinds; ``answer`` reads Σ p·logit."""
        if isinstance(self.of_mlps, CrossLayerTranscoder):
            scalar = cross_layer_units(model, frozen, self.of_mlps)
        else:
            scalar = (
                features_of(model, frozen) if self.of_mlps == "features" else neurons_of(frozen)
            )
        rows = Rows(frozen, scalar)
        if not self.have_vectors:
            return rows
        vectors: dict[int, type[Heads | WholeMLP]] = {}
        if self.heads:
            attentions = [
                n for n, x in enumerate(frozen.branches) if isinstance(x.step.f, Attention)
            ]
            vectors |= dict.fromkeys(attentions, Heads)
        if self.of_mlps == "mlps":
            vectors |= dict.fromkeys(scalar, WholeMLP)
        along = rows.directions(answer, vectors)
        units: dict[int, Units] = {} if self.of_mlps in (None, "mlps") else {**scalar}
        for number, kind in vectors.items():
            units[number] = kind(frozen, number, along.pop(number))
        in_order = {number: units[number] for number in sorted(units)}
        return Rows(frozen, in_order, scalar if self.of_mlps is None else None)
