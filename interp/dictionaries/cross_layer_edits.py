"""Edits of the features of a cross-layer transcoder, as edits of what MLPs write.

    y_m ← y_m + (f′_l − f_l) W_dec,l→m       for every layer m ≥ l that the feature writes
    y_m ← ŷ_m + factor · ε_m                  what the transcoder explains, with its error scaled

f_l is computed from what layer l reads in the same forward. So later layers' features see the
change through the stream, and what the transcoder leaves out stays: an edit of a feature that
changes nothing adds 0.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from torch import Tensor

from interp.dictionaries.cross_layer import CrossLayerTranscoder
from interp.edits import Edit, EditSite, zero
from interp.errors import InvalidInput, shorten
from interp.integers import whole_number
from interp.io import TensorData
from interp.model import Network
from interp.points import Place


@dataclass(frozen=True)
class _OfTranscoder(Edit):
    """An edit of what the MLP of one layer writes.

    Attributes:
        transcoder: the transcoder.
        target: the layer.
        reads: the places that it reads, once it is resolved for a model.
    """

    transcoder: CrossLayerTranscoder | None = None
    target: int = 0
    reads: tuple[Place, ...] = ()

    @property
    def sources(self) -> range:
        """The layers whose features it computes."""
        raise NotImplementedError

    @property
    def of(self) -> CrossLayerTranscoder:
        """The transcoder.

        Raises:
            InvalidInput: there is none.
        """
        if self.transcoder is None:
            raise InvalidInput(f"{self.kind} needs a cross-layer transcoder.")
        return self.transcoder

    def resolved(self, model: Network, edited: Collection[Place]) -> tuple[Place, Edit]:  # noqa: ARG002
        """The place of the layer's output, and the edit with the places that it reads.

        Raises:
            InvalidInput: the transcoder is of another model.
            UnknownPlace: the model has no such place.
        """
        pairs = self.of.places(model)
        reads = tuple(pairs[layer][0] for layer in self.sources)
        transcoder = self.of.to(model.device, model.dtype)
        return pairs[self.target][1], replace(self, transcoder=transcoder, reads=reads)

    @property
    def earlier(self) -> tuple[Place, ...]:
        """What the transcoder's features read."""
        return self.reads

    def to_dict(
        self, of_tensor: Callable[[TensorData], object] = TensorData.to_json
    ) -> dict[str, Any]:
        """Plain data that identifies the edit; the transcoder is given by its hash."""
        plain = replace(self, transcoder=None, reads=())
        return Edit.to_dict(plain, of_tensor) | {"transcoder": self.of.digest, "reads": []}


@dataclass(frozen=True)
class ScaledFeature(_OfTranscoder):
    """What one feature writes to one layer changes with its activation.

    Attributes:
        layer: the layer of the feature.
        feature: its index.
        factor: what its activation is multiplied by.
        value: what its activation is set to, if it is not multiplied.
    """

    kind = "cross_layer_feature"
    layer: int = 0
    feature: int = 0
    factor: float = 0.0
    value: float | None = None

    @property
    def sources(self) -> range:
        """The layer of the feature."""
        return range(self.layer, self.layer + 1)

    def replacement(self, old: Tensor, whole: Tensor, index: Any, site: EditSite) -> Tensor:  # noqa: ANN401, ARG002
        """``old + (f′ − f) W_dec``; ``old`` where only shapes are checked, without data."""
        if old.is_meta:
            return old
        f = self.of.encode_one(self.layer, self.feature, site.earlier[self.reads[0]][index])
        change = f * (self.factor - 1.0) if self.value is None else self.value - f
        which = self.of.b_enc.new_tensor([self.feature]).long()
        return old + change @ self.of.writers(self.layer, which, self.target)


@dataclass(frozen=True)
class Reconstruction(_OfTranscoder):
    """ŷ of one layer in place of its output, with its error scaled.

    Attributes:
        factor: what the error is multiplied by.
    """

    kind = "cross_layer_reconstruction"
    factor: float = 0.0

    @property
    def sources(self) -> range:
        """All layers up to this one."""
        return range(self.target + 1)

    def replacement(self, old: Tensor, whole: Tensor, index: Any, site: EditSite) -> Tensor:  # noqa: ANN401, ARG002
        """``ŷ + factor ε``; ``old`` where only shapes are checked, without data."""
        if old.is_meta:
            return old
        x = [site.earlier[place][index] for place in self.reads]
        features = [self.of.encode_at(layer, part) for layer, part in enumerate(x)]
        explained = self.of.output_at(self.target, features, x[-1]).to(old.dtype)
        return explained + self.factor * (old - explained) if self.factor else explained


def feature_edits(
    transcoder: CrossLayerTranscoder,
    layer: int,
    feature: int,
    *,
    factor: float = 0.0,
    value: float | None = None,
    pos: int | Sequence[int] | None = None,
) -> list[Edit]:
    """Edits that scale or set a feature of a cross-layer transcoder in every layer that it writes.

    The model computes what MLPs write as before: only the change of the feature is added, so the
    error of every layer stays. Pass the list, with those of other features if several are edited,
    as one case: ``interp.run(model, tokens, edits=[*edits])``.

    Args:
        transcoder: the transcoder.
        layer: the layer of the feature.
        feature: its index.
        factor: what its activation is multiplied by; 0 switches it off.
        value: what its activation is set to instead.
        pos: one or several positions; ``None`` for all.

    Raises:
        InvalidInput: there is no such feature, or a number is not finite.

    Examples:
        >>> parts = [interp.dictionaries.load(f"python-4l/mlp-{layer}") for layer in range(4)]
        >>> transcoder = interp.dictionaries.CrossLayerTranscoder.of(parts)
        >>> edits = interp.dictionaries.feature_edits(transcoder, 2, 17)
        >>> [edit.where for edit in edits]
        [('blocks.2.hook_mlp_out',), ('blocks.3.hook_mlp_out',)]
    """
    layer = _index(layer, transcoder.n_layers, "layer")
    feature = _index(feature, transcoder.n_features, "feature")
    factor = _finite(factor, "factor")
    value = None if value is None else _finite(value, "value")
    select = zero("resid_pre", pos=pos).select
    return [
        ScaledFeature(
            (transcoder.writes[target],),
            select,
            transcoder=transcoder,
            target=target,
            layer=layer,
            feature=feature,
            factor=factor,
            value=value,
        )
        for target in range(layer, transcoder.n_layers)
    ]


def reconstruction_edits(
    transcoder: CrossLayerTranscoder,
    layers: Sequence[int] | None = None,
    *,
    factor: float = 0.0,
    pos: int | Sequence[int] | None = None,
) -> list[Edit]:
    """Edits that put ŷ in place of what MLPs write, or scale what it leaves out.

    Args:
        transcoder: the transcoder.
        layers: the layers whose output is replaced; ``None`` for all.
        factor: what the error of each layer is multiplied by; 0 leaves it out.
        pos: one or several positions; ``None`` for all.

    Raises:
        InvalidInput: there is no such layer, or the factor is not finite.

    Examples:
        >>> parts = [interp.dictionaries.load(f"python-4l/mlp-{layer}") for layer in range(4)]
        >>> transcoder = interp.dictionaries.CrossLayerTranscoder.of(parts)
        >>> spliced = interp.dictionaries.reconstruction_edits(transcoder)
        >>> interp.run(interp.load("python-4l"), "def f(x):", edits=spliced).logits.shape
        torch.Size([1, 6, 1024])
    """
    n = transcoder.n_layers
    targets = range(n) if layers is None else [_index(layer, n, "layer") for layer in layers]
    factor, select = _finite(factor, "factor"), zero("resid_pre", pos=pos).select
    return [
        Reconstruction(
            (transcoder.writes[target],),
            select,
            transcoder=transcoder,
            target=target,
            factor=factor,
        )
        for target in targets
    ]


def _finite(number: object, name: str) -> float:
    """A checked number.

    Raises:
        InvalidInput: it is none, or not finite.
    """
    if isinstance(number, bool) or not isinstance(number, int | float) or not isfinite(number):
        raise InvalidInput(f"{name}={shorten(number)} should be a finite number.")
    return float(number)


def _index(value: object, n: int, name: str) -> int:
    """A checked index.

    Raises:
        InvalidInput: it is outside.
    """
    try:
        index = whole_number(value)
    except TypeError:
        index = -1
    if not 0 <= index < n:
        raise InvalidInput(f"{name}={shorten(value)} should be a whole number from 0 to {n - 1}.")
    return index
